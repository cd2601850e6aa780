"""The attack of the proofs, and the attack on the real layer. They differ in what happens to γ.

    γ(z)                the layer's step at z: down L along q by ε_g = (1 − c) ε, or by (α_g/L) ∇L, α_g = (1 − c) α
    in the proofs       xᵏ⁺¹ = xᵏ + δᵏ + γ(xᵏ)          δᵏ the attacker's step on the bare L                       (1)
    in the system       xᵏ⁺¹ = xᵏ + δᵏ                  δᵏ its step on the loss it sees, L(z + γ(z)) for a query z   (2)

In (2) γ is computed for each query and discarded. It is not part of the attacker's image. Where L is monotone along q,
the layer lowers both candidates by the same step, so their order stays: (2) is the path on the bare loss, for every c.
With gradients (2) is x + (α/L) ∇L(x + γ(x)): the straight-through gradient of the layer.

Notation:   as in `theorem_1` and `theorem_3`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from antiadv.paper.theory.landscapes import Landscape
from antiadv.paper.theory.proposition_1 import Loss, lowest

Rule = Callable[[Loss, Tensor, Tensor, float], Tensor]  # (loss, x, εq, c) → the next x


def proof_step(loss: Loss, x: Tensor, d: Tensor, c: float) -> Tensor:
    """Step (1) of SimBA, with d = εq."""
    return lowest(lambda z: -loss(z), x, d) + (lowest(loss, x, (1 - c) * d) - x)


def system_step(loss: Loss, x: Tensor, d: Tensor, c: float) -> Tensor:
    """Step (2) of SimBA, with d = εq. The layer adds its own γ to each of the three queries."""
    return lowest(lambda z: -loss(lowest(loss, z, (1 - c) * d)), x, d)


def proof_ascent(land: Landscape, x: Tensor, share: float, c: float) -> Tensor:
    """Step (1) of gradient ascent."""
    return x + c * share / land.smoothness * land.slope(x)


def system_ascent(land: Landscape, x: Tensor, share: float, c: float) -> Tensor:
    """Step (2) of gradient ascent."""
    gamma = -(1 - c) * share / land.smoothness * land.slope(x)
    return x + share / land.smoothness * land.slope(x + gamma)


def track(move: Callable[[Tensor], Tensor], start: float, steps: int) -> Tensor:
    """The values of one coordinate after 0 … `steps` moves, `[steps + 1]`. `move` maps `[1]` to `[1]`."""
    path = [torch.tensor([start], dtype=torch.float64)]
    for _ in range(steps):
        path.append(move(path[-1]))
    return torch.cat(path)


def picks(n: int, most: int) -> Iterator[Tensor]:
    """For k = 0 … most: the probability that one coordinate of n is picked m times in k draws, `[most + 1]` over m."""
    chance = torch.zeros(most + 1, dtype=torch.float64)
    chance[0] = 1
    yield chance
    for _ in range(most):
        chance = chance * (1 - 1 / n) + torch.cat([chance.new_zeros(1), chance[:-1] / n])
        yield chance


def expected(values: Tensor, n: int) -> Iterator[float]:
    """E Σ_i v(x_iᵏ) for k = 0, 1, …, exactly. All n coordinates start equal; `values[m]` is v after m moves."""
    for chance in picks(n, len(values) - 1):
        yield n * float(chance @ values)


def first_below(sizes: Iterable[float], target: float) -> int | None:
    """The first k ≥ 1 with a size below the target, or None. Reads no sizes after it."""
    return next((k for k, size in enumerate(sizes) if k and size < target), None)
