"""The result of a training: a file of weights, and a card that describes them.

    weights    tensors of two or more dimensions rounded to float16; vectors (batch norm, bias) stay float32; large
               networks are packed without loss (models/packing.py)
    card       command, recipe, architecture, digests of data and weights, training curves, cost and accuracies

The accuracies are those of the file: it is read back before anything is measured.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any  # values of a card

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
    """Write the weights to `out` and the card next to it (.json); return the card."""
    header = {"architecture": facts["architecture"], "recipe": facts["recipe"]}
    checkpoint.write(out, packing.pack(rounded(net.state_dict())), header)
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
    """Round matrices and kernels to float16; leave other tensors unchanged."""
    return {name: t.half() if t.is_floating_point() and t.dim() > 1 else t for name, t in state.items()}


def _stated(found: Accuracy, how: Mapping[str, Any]) -> Accuracy:
    """Add the share and its interval, for readers of the JSON file."""
    low, high = interval(found)
    return Accuracy(
        found.hits, found.total, {"share": found.share, "interval_95": [round(low, 4), round(high, 4)], **how}
    )


def hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
