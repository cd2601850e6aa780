"""The shortest way from a point of the box to a hyperplane, without leaving the box: exact, for Linf and L2.

    minimise   |d|_p   subject to   <w, d> = c,   0 ≤ t + d ≤ 1                           p = 2 or ∞

Choose signs so that c ≥ 0. Let r_i be the room of coordinate i: 1 − t_i where w_i > 0, t_i where w_i < 0. Then

    d_i = sign(w_i) · min(λ·v_i, r_i)          v_i = 1 (Linf), |w_i| (L2)                 (1)
    φ(λ) = Σ |w_i| · min(λ·v_i, r_i) = c                                                  (2)
    λ ← ( c − Σ_held |w_i|·r_i ) / Σ_free |w_i|·v_i     free: λ·v_i < r_i, else held      (3)

φ rises, is concave, and is linear between the points r_i / v_i. So Newton's method (3), started at λ = 0, never
overshoots. It is exact as soon as no further coordinate is held: after 4 or 5 rounds on images. Sorting the r_i / v_i
would cost ten times as much. If even the corner of the box does not reach c, d leads to the corner.

Cost:       no query. Two sums per row and round. On a GPU one kernel, if it can be compiled (`projections_cuda.py`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor

ROUNDS = 5  # between two checks for convergence: an extra round changes nothing, a check waits for the device


def to_plane(t: Tensor, w: Tensor, c: Tensor, p: float) -> Tensor:
    """d like t, for points t `[N, …]` in the box, normals w like t, and c `[N]`. If w = 0, then d = 0."""
    shape, t, w = t.shape, t.flatten(1), w.flatten(1)
    if t.is_cuda and t.dtype == w.dtype == torch.float32 and (way := _kernel()) is not None:
        return way(t, w, c, p).reshape(shape)
    size = w.abs().amax(1, keepdim=True).clamp_min(torch.finfo(w.dtype).tiny)
    w, c = w / size, (c[:, None] / size).to(w)  # (2) does not depend on the scale of w
    w, c = torch.where(c < 0, -w, w), c.abs()
    u = w.abs()
    counts = u > 1e-12
    u, room = u * counts, torch.where(w > 0, 1 - t, t).clamp_min(0) * counts
    v = torch.ones_like(u) if p == math.inf else u
    most, slope = u * room, u * v
    corner = most.sum(1, keepdim=True) <= c
    c = c.masked_fill(corner, 0)  # for these λ = 0 is kept
    lam = last = torch.zeros_like(c)
    while True:
        for _ in range(ROUNDS):
            free = lam * v < room
            held, rate = most.masked_fill(free, 0).sum(1, keepdim=True), (slope * free).sum(1, keepdim=True)
            last, lam = lam, torch.fmax(lam, (c - held) / rate)  # (3); NaN where nothing is free
        if not (lam > last).any():
            break
    d = torch.where(corner, room, torch.minimum(lam * v, room))  # (1)
    return (w.sign() * d).reshape(shape)


@functools.cache
def _kernel() -> Callable[[Tensor, Tensor, Tensor, float], Tensor] | None:
    """The CUDA kernel, or None if this machine cannot compile it."""
    try:
        from antiadv.attacks._search import projections_cuda  # here, because PyTorch for CPUs has no Triton

        one = torch.ones(1, 1, device="cuda")
        projections_cuda.way(one, one, one[0].double(), math.inf)
    except Exception:  # a compiler may raise anything; the code above needs none
        return None
    return projections_cuda.way
