"""What one prediction with a defence costs: counted passes, and time next to that of the bare network."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from antiadv.engine.meter import Meter, seconds

TIMED = 64  # images with which the cost of an answer is measured


@dataclass(frozen=True)
class Cost:
    """The cost of one prediction: passes through the base network, and milliseconds, for each image."""

    forwards: float
    backwards: float
    bare_ms: float
    defended_ms: float

    def __str__(self) -> str:
        times = f" ({self.defended_ms / self.bare_ms:.1f} times)" if self.bare_ms > 0 else ""
        return (
            f"One prediction with the defence costs {self.forwards:g} forward and {self.backwards:g} backward passes: "
            f"{self.defended_ms:.2g} ms per image, against {self.bare_ms:.2g} ms without it{times}."
        )


def cost(model: nn.Module, defended: nn.Module, x: Tensor, repeats: int = 5) -> Cost:
    """Measure the cost of predicting x: count the passes, and take the shortest of a few runs after a warm-up."""
    with Meter(model) as meter, torch.no_grad():
        defended(x)
    times = [(seconds(model, [x]), seconds(defended, [x])) for _ in range(1 + repeats)][1:]
    bare_ms, defended_ms = (1000 * min(side) / len(x) for side in zip(*times, strict=True))
    return Cost(meter.forwards / len(x), meter.backwards / len(x), bare_ms, defended_ms)
