"""What is published of a training: weights in float16, and a card that says what they are and how good they are.

    weights    every tensor of two or more dimensions rounded to float16; vectors (batch norm, bias) stay float32;
               large networks are packed without loss (models/packing.py)
    card       command, recipe, architecture, data and weight digests, curves, cost, and what the rounded weights score

The accuracies are those of the file: it is read back, in float32, before anything is measured.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any  # a card is what json holds

import torch
from torch import Tensor, nn

from antiadv import models
from antiadv.attacks import full_text
from antiadv.attacks.white_box.pgd import PGD
from antiadv.models import packing
from antiadv.models.card import Accuracy, Card, write_card
from antiadv.models.checkpoints import read
from antiadv.models.loaders import file_digest
from antiadv.train import checkpoint
from antiadv.train.measure import BALL, accuracy, interval, pgd_accuracy
from antiadv.train.recipe import Recipe
from antiadv.train.sets import Sets, images


def publish(
    net: nn.Module, recipe: Recipe, out: Path, sets: Sets, device: torch.device, facts: Mapping[str, Any]
) -> Card:
    """Write `out` and its card, `out` with the ending .json; returns the card."""
    said = {"architecture": facts["architecture"], "recipe": facts["recipe"]}
    checkpoint.write(out, packing.pack(rounded(net.state_dict())), said)
    net.load_state_dict(read(out))
    weights = models.digest(net)
    classifier = recipe.classifier(net.to(device)).eval()
    x, y = images(sets.test_x).to(device), sets.test_y.to(device)
    known = {"architecture", "command", "epochs", "seconds", "data"}
    card = Card(
        name=out.stem,
        **{key: facts[key] for key in known},
        hardware=hardware(device),
        file={"name": out.name, "bytes": out.stat().st_size, "digest": file_digest(out)},
        clean=_stated(accuracy(classifier, x, y), {}),
        pgd20=_stated(pgd_accuracy(classifier, x, y), {"attack": full_text(PGD()), "threat": str(BALL), "seed": 0}),
        weights=weights,
        more={
            "limits": list(recipe.limits),
            "parameters": sum(p.numel() for p in net.parameters()),
            "torch": torch.__version__,
            "python": platform.python_version(),
            **{key: value for key, value in facts.items() if key not in known},
        },
    )
    write_card(card, out.with_suffix(".json"))
    return card


def rounded(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What is written: matrices and kernels in float16, everything else as it is."""
    return {name: t.half() if t.is_floating_point() and t.dim() > 1 else t for name, t in state.items()}


def _stated(found: Accuracy, how: Mapping[str, Any]) -> Accuracy:
    """With its share and interval written out, for whoever reads the json by eye."""
    low, high = interval(found)
    return Accuracy(
        found.hits, found.total, {"share": found.share, "interval_95": [round(low, 4), round(high, 4)], **how}
    )


def hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
