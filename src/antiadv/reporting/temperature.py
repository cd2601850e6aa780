"""Temperature scaling: what the bare scores are worth when divided by a temperature that was fitted on other samples.

Records hold the probabilities of two classes, and a temperature is fitted to the scores of all classes. So it is
measured once for each network and kept in a file of its own.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any  # the contents of a JSON file

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv.core.bounds import read_json
from antiadv.core.errors import BadInput
from antiadv.reporting.measures import Calibration, calibrated

FORMAT = 1
FILE = "confidence.json"
SCALED = "temperature"  # the name of the scaled scores in the file
FITTED = 20  # no temperature is fitted to fewer samples

UNREADABLE = (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError)  # any other content of a file

Digests = tuple[str, str]  # of the weights, and of the images


def scaled(model: nn.Module, x: Tensor, y: Tensor, batch: int = 256) -> Calibration | None:
    """Return the calibration of the bare scores divided by a temperature. A defence of confidence must beat this.

    The temperature for the samples at even places is fitted on those at odd places, and the other way round. None for
    fewer than 20 samples.
    """
    if len(x) < FITTED:
        return None
    with torch.no_grad():
        s = torch.cat([model(part).double() for part in x.split(batch)])
    y = y.to(s.device).long()
    answers: list[tuple[float, float, bool]] = []
    for half in (0, 1):
        mine, others = slice(half, None, 2), slice(1 - half, None, 2)
        p = (s[mine] / temperature(s[others], y[others])).softmax(1)
        truth = p.gather(1, y[mine, None]).squeeze(1)
        answers += zip(p.amax(1).tolist(), truth.tolist(), (p.argmax(1) == y[mine]).tolist(), strict=True)
    return calibrated(answers)


def temperature(s: Tensor, y: Tensor) -> float:
    """The T of least Σ −log softmax(s / T)_y + ½(log T)² (Guo et al., ICML 2017, arXiv:1706.04599, without the prior).

    A few samples may all be classified correctly, and the likelihood alone would then ask for T = 0. So log T has a
    standard normal prior; a few hundred samples outweigh it.
    """
    from scipy.optimize import minimize_scalar

    def loss(log_t: float) -> float:
        return F.cross_entropy(s / math.exp(log_t), y, reduction="sum").item() + log_t**2 / 2

    widest = math.log(100)
    return math.exp(float(minimize_scalar(loss, bounds=(-widest, widest), method="bounded").x))


def stored(path: Path) -> dict[str, dict[str, Any]]:
    """What `tools/measure_confidence.py` measured, by network. Entries of another format are left out."""
    if not path.exists():
        return {}
    try:
        return {name: facts for name, facts in read_json(path).items() if facts["format"] == FORMAT}
    except UNREADABLE as error:
        raise _broken(path, error) from error


def of_store(root: Path) -> dict[Digests, Calibration]:
    """The scaled calibration in the `confidence.json` of a store."""
    path = root / FILE
    networks = stored(path).values()
    try:
        return {(facts["weights"], facts["images"]): Calibration(**facts["found"][SCALED]) for facts in networks}
    except UNREADABLE as error:
        raise _broken(path, error) from error


def _broken(path: Path, error: Exception) -> BadInput:
    why = f"it lacks {error}" if isinstance(error, KeyError) else error
    return BadInput(f"{path} cannot be read: {why}; delete it, and measure the confidence again.")
