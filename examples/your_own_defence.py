"""Write a defence of your own, and test it against an attacker who knows it. About 5 seconds on a CPU.

A defence wraps a classifier and is a classifier again. Derive from `antiadv.Defence`, take the base network first, and
keep each option as an attribute of the same name. `docs/adding.md` says how to add it to the library.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import antiadv


class MedianFilter(antiadv.Defence):
    """Replace each pixel by the median of its neighbourhood, then classify."""

    def __init__(self, base: nn.Module, size: int = 3) -> None:
        super().__init__(base)
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        padded = F.pad(x, [self.size // 2] * 4, mode="reflect")
        windows = padded.unfold(2, self.size, 1).unfold(3, self.size, 1)
        scores: Tensor = self.base(windows.flatten(4).median(-1).values)
        return scores


model = antiadv.models.load("compact:standard")
defended = MedianFilter(model)
data = antiadv.data.load("cifar10")
x, y = data.images(range(16)), data.labels(range(16))
ball = antiadv.Linf(2 / 255)

with torch.no_grad():
    clean = (defended(x).argmax(1) == y).double().mean().item()
bare = antiadv.attack(model, x, y, "pgd:steps=10", ball)
transferred = antiadv.attack(defended, x, y, "transfer:attack=(pgd:steps=10)", ball)
direct = antiadv.attack(defended, x, y, "pgd:steps=10", ball)  # gradients go through the filter

print(f"clean accuracy with the filter: {clean:.1%}")
print(f"robust accuracy without the filter: {bare.robust_accuracy:.1%}")
print(f"robust accuracy with it, images made for the base network: {transferred.robust_accuracy:.1%}")
print(f"robust accuracy with it, images made for the filter: {direct.robust_accuracy:.1%}")
