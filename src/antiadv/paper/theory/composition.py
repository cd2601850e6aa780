"""What the proofs let the attacker do, and what an attacker of the layer does. The two differ in where γ goes.

    γ(z)                the layer's step at z: down L along q by ε_g = (1 − c) ε, or by (α_g/L) ∇L, α_g = (1 − c) α
    in the proofs       xᵏ⁺¹ = xᵏ + δᵏ + γ(xᵏ)          δᵏ the attacker's step on the bare L                       (1)
    in the system       xᵏ⁺¹ = xᵏ + δᵏ                  δᵏ its step on what it sees, L(z + γ(z)) at each z asked   (2)

In (2) γ is made anew for each query and forgotten: it is no part of the image the attacker holds. Where L is monotone
along q, both candidates are lowered by the same step, their order stays, and (2) is the path on the bare loss, for
every c. With gradients (2) is x + (α/L) ∇L(x + γ(x)), which is what straight-through gradients of the layer are.

Notation:   as in `theorem_1` and `theorem_3`.
Cost:       arithmetic; nothing is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from antiadv.paper.theory.landscapes import Landscape
from antiadv.paper.theory.proposition_1 import Loss, lowest

Rule = Callable[[Loss, Tensor, Tensor, float], Tensor]  # (loss, x, εq, c) → the next x


def added(loss: Loss, x: Tensor, d: Tensor, c: float) -> Tensor:
    """(1) for SimBA: d = εq."""
    return lowest(lambda z: -loss(z), x, d) + (lowest(loss, x, (1 - c) * d) - x)


def seen(loss: Loss, x: Tensor, d: Tensor, c: float) -> Tensor:
    """(2) for SimBA: each of the three points it asks about is corrected on its own."""
    return lowest(lambda z: -loss(lowest(loss, z, (1 - c) * d)), x, d)


def ascended(land: Landscape, x: Tensor, share: float, c: float) -> Tensor:
    """(1) for gradient ascent."""
    return x + c * share / land.smoothness * land.slope(x)


def ascended_seen(land: Landscape, x: Tensor, share: float, c: float) -> Tensor:
    """(2) for gradient ascent."""
    gamma = -(1 - c) * share / land.smoothness * land.slope(x)
    return x + share / land.smoothness * land.slope(x + gamma)


def track(move: Callable[[Tensor], Tensor], start: float, steps: int) -> Tensor:
    """Where one coordinate is after each of its moves, `[steps + 1]`: `move` takes and gives `[1]`."""
    path = [torch.tensor([start], dtype=torch.float64)]
    for _ in range(steps):
        path.append(move(path[-1]))
    return torch.cat(path)


def picks(n: int, most: int) -> Iterator[Tensor]:
    """For k = 0 … most: the chances that one coordinate of n was picked m times in k draws, `[most + 1]` over m."""
    chance = torch.zeros(most + 1, dtype=torch.float64)
    chance[0] = 1
    yield chance
    for _ in range(most):
        chance = chance * (1 - 1 / n) + torch.cat([chance.new_zeros(1), chance[:-1] / n])
        yield chance


def expected(values: Tensor, n: int) -> Iterator[float]:
    """E Σ_i v(x_iᵏ) for k = 0, 1, …, where all n coordinates start alike and `values[m]` is v after m moves: exact."""
    for chance in picks(n, len(values) - 1):
        yield n * float(chance @ values)


def first_below(sizes: Iterable[float], target: float) -> int | None:
    """The first k ≥ 1 with a size below the target; None where there is none. Looks no further than it must."""
    return next((k for k, size in enumerate(sizes) if k and size < target), None)
