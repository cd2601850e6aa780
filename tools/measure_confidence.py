"""Measure what the layer does to the confidence of every network of the zoo, compared with temperature scaling.

    python -m tools.measure_confidence --store results/confidence.json [--samples 0:1000] [--dir DATA]

    none           f(x)                        the bare network
    temperature    f(x) / T                    T fitted on the other half of the samples, each half in turn
    the layer      g(x) = f(x + γ)             named by its spec; also on how many samples it keeps the label of f

For each it stores the calibration error (15 bins), the log-loss, the mean confidence and the accuracy on clean images,
in float32 on the CPU. A stored network is measured again only if its weights, the images, the samples or the layers
changed. A network that was trained with noise is measured without noise, as it is loaded.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any  # what a json file holds

import torch
from torch import Tensor, nn

from antiadv import defences, models
from antiadv.core.errors import AntiadvError, BadInput
from antiadv.data import Dataset
from antiadv.engine.meter import revision, versions
from antiadv.evaluation import Resources
from antiadv.evaluation.cell import parse_samples
from antiadv.models import Card
from antiadv.reporting.measures import Calibration, calibrated
from antiadv.reporting.temperature import FILE, FITTED, FORMAT, SCALED, scaled, stored
from benchmarks.files import put

LAYERS = ("anti_adversary:steps=2,step_size=0.15", "anti_adversary:steps=2,step_size=0.01")
BATCH = 100

Facts = dict[str, Any]


def identity(card: Card, images: Dataset, samples: range, resources: Resources) -> Facts:
    """Return everything that decides the numbers. If the stored facts agree with it, the network is not measured."""
    return {
        "format": FORMAT,
        "model": card.spec,
        "weights": resources.weights(card.spec),
        "data": images.name,
        "images": images.digest,
        "samples": f"{samples.start}:{samples.stop}",
        "layers": [defences.full_text(layer) for layer in LAYERS],
    }


def measure(net: nn.Module, x: Tensor, y: Tensor) -> Facts:
    """Return the calibration of f, of f with temperature scaling, and of f with each layer."""
    bare = scores(net, x)
    cheap = scaled(net, x, y, BATCH)
    if cheap is None:
        raise BadInput(f"a temperature is fitted on {FITTED} samples at least; found {len(x)}. Ask for more.")
    found = {defences.BARE: vars(calibration(bare, y)), SCALED: vars(cheap)}
    for layer in LAYERS:
        s = scores(defences.wrap(layer, net), x)
        found[layer] = {**vars(calibration(s, y)), "unchanged": int((s.argmax(1) == bare.argmax(1)).sum())}
    return found


@torch.no_grad()
def scores(model: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([model(part).double() for part in x.split(BATCH)])


def calibration(s: Tensor, y: Tensor) -> Calibration:
    p = s.softmax(1)
    truth = p.gather(1, y[:, None]).squeeze(1)
    return calibrated(list(zip(p.amax(1).tolist(), truth.tolist(), (s.argmax(1) == y).tolist(), strict=True)))


def measure_all(cards: Iterable[Card], path: Path, samples: range, directory: str | None = None) -> int:
    """Measure and store the networks that are not stored. Return how many could not be measured."""
    found, refused, resources = stored(path), 0, Resources("cpu")
    for card in cards:
        began = time.monotonic()
        try:
            images = resources.data(f"{card.data['name']}:test" + (f",dir={directory}" if directory else ""))
            asked = identity(card, images, samples, resources)
            if asked.items() <= found.get(card.spec, {}).items():
                print(f"{card.spec}: stored", flush=True)
                continue
            seen = measure(resources.model(card.spec), images.images(samples), images.labels(samples))
        except AntiadvError as error:  # the other networks do not depend on this one
            print(f"{card.spec}: {error}", flush=True)
            refused += 1
            continue
        found[card.spec] = {**asked, "found": seen, **how_made(samples, directory)}
        put(found, path)
        print(f"{card.spec}: {_short(seen)}; {time.monotonic() - began:.0f} s", flush=True)
    return refused


def how_made(samples: range, directory: str | None) -> Facts:
    """Return how it was measured. The folder of the data differs between machines, so its name is left out."""
    options = f"--samples {samples.start}:{samples.stop}" + " --dir DATA" * (directory is not None)
    return {
        "command": f"python -m tools.measure_confidence --store results/confidence.json {options}",
        "device": "cpu",
        "precision": "float32",
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "revision": revision(),
    }


def _short(seen: Mapping[str, Facts]) -> str:
    return "error " + ", ".join(f"{of['error']:.3f} ({name})" for name, of in seen.items())


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--store", type=Path, default=Path("results", FILE))
    p.add_argument("--samples", default="0:1000")
    p.add_argument("--dir", help="the folder of imported data sets")
    a = p.parse_args()
    torch.set_num_threads(1)  # fixes the order of sums
    torch.use_deterministic_algorithms(True)
    try:
        return 1 if measure_all(models.cards(), a.store, parse_samples(a.samples), a.dir) else 0
    except (AntiadvError, OSError) as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
