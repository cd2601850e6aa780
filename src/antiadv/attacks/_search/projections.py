"""The shortest way from a point of the box to a hyperplane, without leaving the box: exact, for Linf and L2.

    minimise   |d|_p   subject to   <w, d> = c,   0 ≤ t + d ≤ 1                           p = 2 or ∞

Turn the signs so that c ≥ 0 and call r_i the room of coordinate i, 1 − t_i where w_i > 0 and t_i where w_i < 0. Then

    d_i = sign(w_i) · min(λ·v_i, r_i)          v_i = 1 (Linf), |w_i| (L2)                 (1)
    φ(λ) = Σ |w_i| · min(λ·v_i, r_i) = c                                                  (2)
    λ ← ( c − Σ_held |w_i|·r_i ) / Σ_free |w_i|·v_i     free: λ·v_i < r_i, else held      (3)

φ rises, is concave, and straight between the points r_i / v_i, so Newton's method (3) climbs to the solution from
λ = 0 without passing it, and is there, exactly, as soon as no further coordinate is held: after 4 or 5 rounds on
images, where sorting the r_i / v_i would cost ten times as much. Where even the corner of the box falls short of c, d
leads to the corner.

Cost:       no query; two sums per row and round, `ROUNDS` at a time until every row is there, where it stays. On a GPU
            it is one kernel, where that can be compiled (`projections_cuda.py`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor

ROUNDS = 5  # between two looks whether all are there: a round too many changes nothing, a look waits for the device


def to_plane(t: Tensor, w: Tensor, c: Tensor, p: float) -> Tensor:
    """d like t, for points t `[N, …]` in the box, normals w like t, and c `[N]`. Where w = 0, d = 0."""
    shape, t, w = t.shape, t.flatten(1), w.flatten(1)
    if t.is_cuda and t.dtype == w.dtype == torch.float32 and (way := _kernel()) is not None:
        return way(t, w, c, p).reshape(shape)
    size = w.abs().amax(1, keepdim=True).clamp_min(torch.finfo(w.dtype).tiny)
    w, c = w / size, (c[:, None] / size).to(w)  # (2) does not mind the scale of w
    w, c = torch.where(c < 0, -w, w), c.abs()
    u = w.abs()
    counts = u > 1e-12
    u, room = u * counts, torch.where(w > 0, 1 - t, t).clamp_min(0) * counts
    v = torch.ones_like(u) if p == math.inf else u
    most, slope = u * room, u * v
    corner = most.sum(1, keepdim=True) <= c
    c = c.masked_fill(corner, 0)  # their λ is there from the start
    lam = last = torch.zeros_like(c)
    while True:
        for _ in range(ROUNDS):
            free = lam * v < room
            held, rate = most.masked_fill(free, 0).sum(1, keepdim=True), (slope * free).sum(1, keepdim=True)
            last, lam = lam, torch.fmax(lam, (c - held) / rate)  # (3); no number where nothing is free
        if not (lam > last).any():
            break
    d = torch.where(corner, room, torch.minimum(lam * v, room))  # (1)
    return (w.sign() * d).reshape(shape)


@functools.cache
def _kernel() -> Callable[[Tensor, Tensor, Tensor, float], Tensor] | None:
    """The same in one kernel, where this machine can compile it."""
    try:
        from antiadv.attacks._search import projections_cuda  # here, for a CPU's PyTorch has no Triton

        one = torch.ones(1, 1, device="cuda")
        projections_cuda.way(one, one, one[0].double(), math.inf)
    except Exception:  # whatever a compiler raises: there is another way
        return None
    return projections_cuda.way
