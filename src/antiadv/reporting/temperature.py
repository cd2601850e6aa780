"""Temperature scaling beside a store: what the bare scores are worth when divided by a temperature fitted to others.

    stored(file)     what `scripts/measure_confidence.py` found, by network
    beside(root)     of that, the scaled calibration, by the digests of weights and images

Records hold the probabilities of two classes, and a temperature is fitted to the scores of all: so it is measured once
for each network, and lies in the store's folder as `confidence.json`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any  # what a json file holds

from antiadv.core.errors import BadInput
from antiadv.reporting.measures import Calibration

FORMAT = 1
FILE = "confidence.json"
SCALED = "temperature"  # its name among what was found of a network

UNREADABLE = (
    OSError,
    ValueError,
    AttributeError,
    KeyError,
    TypeError,
    RecursionError,
)  # by whatever a file may hold instead

Digests = tuple[str, str]  # of the weights, and of the images


def stored(path: Path) -> dict[str, dict[str, Any]]:
    """Nothing where there is no file; what another format says is left out."""
    if not path.exists():
        return {}
    try:
        return {name: facts for name, facts in json.loads(path.read_text()).items() if facts["format"] == FORMAT}
    except UNREADABLE as error:
        raise _broken(path, error) from error


def beside(root: Path) -> dict[Digests, Calibration]:
    path = root / FILE
    every = stored(path).values()
    try:
        return {(of["weights"], of["images"]): Calibration(**of["found"][SCALED]) for of in every}
    except UNREADABLE as error:
        raise _broken(path, error) from error


def _broken(path: Path, error: Exception) -> BadInput:
    said = f"it lacks {error}" if isinstance(error, KeyError) else error
    return BadInput(f"{path} cannot be read: {said}; delete it, and measure the confidence again.")
