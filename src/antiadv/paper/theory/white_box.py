"""Experiments on Theorems 2 and 3, with quadratic losses, where every path is a power.

    Hill      L = 1, x⁰ = 1, ρ = 0.04, α = ½:  xᵏ = (1 − cα)ᵏ if γ is added to the iterate
                                               xᵏ = (1 − α(1 + α_g))ᵏ if it is not                    (1)
    Valley    L = r = 1, and within |x| ≤ 1    xᵏ = (1 + cα)ᵏ x⁰,  and  (1 + α(1 − α_g))ᵏ x⁰          (2)

So the first k with |∇L|² = L²x² < ρ is a quotient of logarithms. Each function is one experiment.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from antiadv.paper.theory import theorem_2, theorem_3
from antiadv.paper.theory.composition import first_below, proof_ascent, system_ascent, track
from antiadv.paper.theory.experiment import Experiment, Point, bounded, listed, numbered
from antiadv.paper.theory.landscapes import Hill, Landscape, Valley
from antiadv.paper.theory.theorem_2 import WhiteBox

Rule = Callable[[Landscape, Tensor, float, float], Tensor]  # (land, x, α, c) → the next x
CS = (1.0, 0.5, 0.25, 0.1)
HILL, VALLEY = Hill(), Valley()
BOX = WhiteBox(smoothness=1.0, target=0.04, share=0.5)
CASE = f"a hill from 1, ρ = {BOX.target}, α = {BOX.share}"
START = torch.ones(1, dtype=torch.float64)


def point(c: float, box: WhiteBox = BOX) -> Point:
    """Theorem 3 at c > 0 on the hill from 1: its bound, and the steps needed, in closed form."""
    enough = theorem_2.enough(HILL.gap(START), dataclasses.replace(box, share=c * box.share))
    needed = first(1 - c * box.share, box)  # (1)
    assert needed is not None  # α < 2
    return Point(c, theorem_3.factor(c, box), enough, needed, first(1 - box.share * (1 + (1 - c) * box.share), box))


def first(rate: float, box: WhiteBox) -> int | None:
    """The first k ≥ 1 with (L·rateᵏ)² < ρ < L², or None."""
    if abs(rate) >= 1:
        return None
    return max(1, math.floor(math.log(box.target / box.smoothness**2) / (2 * math.log(abs(rate)))) + 1) if rate else 1


def _walk(rule: Rule, land: Landscape, share: float, c: float, start: float, steps: int) -> Tensor:
    return track(lambda x: rule(land, x, share, c), start, steps)


@functools.cache
def points() -> tuple[Point, ...]:
    return tuple(map(point, CS))


def gradient_steps_enough() -> Experiment:
    shares = (0.1, 0.5, 1.0)
    found = [point(1.0, dataclasses.replace(BOX, share=s)) for s in shares]
    return Experiment(
        "Theorem 2",
        "If α is in (0, 1], more than K steps of gradient ascent are enough for a squared gradient below ρ.",
        f"a hill from 1, ρ = {BOX.target}, α = {listed(list(shares))}",
        f"K = {listed([p.enough for p in found])}. The gradient is below it after {listed([p.needed for p in found])} "
        "steps.",
        all(p.needed <= math.floor(p.enough) + 1 for p in found),
        numbered(**{f"enough_{s:g}": p.enough for s, p in zip(shares, found, strict=True)})
        + numbered(**{f"needed_{s:g}": p.needed for s, p in zip(shares, found, strict=True)}),
    )


def gradient_factor() -> Experiment:
    found, h = points(), 1e-5
    bare = found[0]
    curve = [theorem_3.factor(i / 1000, BOX) for i in range(1, 1001)]
    true = [(theorem_3.factor(c + h, BOX) - theorem_3.factor(c - h, BOX)) / (2 * h) for c in CS[1:]]
    agrees = all(math.isclose(theorem_3.derivative(c, BOX), t, rel_tol=1e-6) for c, t in zip(CS[1:], true, strict=True))
    return Experiment(
        "Theorem 3",
        "If γ is added to the iterate, K_g/K_f = G(c) > 1 for c in (0, 1), and G decreases in c with the printed G'.",
        f"{CASE}, c = {listed([p.c for p in found[1:]])}",
        f"G = {listed([p.factor for p in found[1:]])}. The steps needed grow from {bare.needed} to "
        f"{listed([p.needed for p in found[1:]])}. The bound K_g is {listed([p.enough for p in found[1:]])}. "
        f"G' {'agrees' if agrees else 'does not agree'} with differences of G.",
        bounded(found, bare) and all(a > b for a, b in itertools.pairwise(curve)) and min(curve[:-1]) > 1 and agrees,
        numbered(**{f"factor_{p.c:g}": p.factor for p in found})
        + numbered(**{f"enough_{p.c:g}": p.enough for p in found})
        + numbered(**{f"needed_{p.c:g}": p.needed for p in found}),
    )


def longer_gradient_steps() -> Experiment:
    box, c = dataclasses.replace(BOX, share=1.5, beyond=True), 0.5
    interval = theorem_3.below_one(box)
    low = math.inf if interval is None else interval[0]
    grid = [i / 1000 for i in range(1, 1000)]
    exact = all((theorem_3.factor(v, box) < 1) == (v > low) for v in grid)
    bare, p = point(1.0, box), point(c, box)
    return Experiment(
        "Theorem 3",
        "G > 1 for every c in (0, 1), if α ≤ 1. (Theorem 2 itself holds up to 2.)",
        f"a hill from 1, ρ = {BOX.target}, α = {box.share}, beyond the paper's range",
        f"G < 1 {'exactly' if exact else 'not only'} for c between {low:.4g} and 1; G({c}) = {p.factor:.4g}. If γ is "
        f"added to the iterate, it corrects steps that are too long: {p.needed} steps are needed instead of "
        f"{bare.needed}.",
        all(theorem_3.factor(v, box) > 1 for v in grid),
        numbered(low=low, factor=p.factor, needed_bare=bare.needed, needed=p.needed, exact=exact),
        within=not box.beyond,
    )


def c_minus_three() -> Experiment:
    share, c, start, steps = 1.0, -3.0, 0.25, 3
    path, bare = (_walk(proof_ascent, VALLEY, share, each, start, steps) for each in (c, 1.0))
    heights = VALLEY.height(path)
    ratio, growth, end = float(path[1] / path[0]), float(heights[1] / heights[0]), float(heights[-1])
    same = torch.equal(path.abs(), bare.abs())
    return Experiment(
        "Theorem 3",
        "For every c ≤ 0 the loss cannot rise, and the attacker fails: K_g = ∞.",
        f"a valley from {start}, α = {share:g}, γ added to the iterate, c = {c:g}",
        f"In the parabola a step turns x into {ratio:g}x and multiplies the loss by {growth:g}. The supremum {end:g} "
        f"is reached in {steps} steps, {'as' if same else 'not as'} without the layer. The loss cannot rise if |c|α ≤ "
        "2.",
        bool((heights.diff() <= 0).all()),
        numbered(ratio=ratio, growth=growth, end=end, top=VALLEY.top, steps=steps, same=same),
    )


def gradients_seen_in_a_valley() -> Experiment:
    share, c, start, most = 0.5, 0.0, 0.25, 100
    path = _walk(system_ascent, VALLEY, share, c, start, most)
    needed = first_below(VALLEY.slope(path).square().tolist(), BOX.target)
    ratio, end = float(path[1] / path[0]), float(VALLEY.height(path[most if needed is None else needed]))
    return Experiment(
        "Theorem 3",
        "For c = 0 the attacker fails: K_g = ∞.",
        f"a valley from {start}, α = {share}, straight-through gradients of the layer, c = {c:g}",
        f"Each step multiplies x by {ratio:g} = 1 + α(1 − α_g). After {needed} steps x has left the valley: the "
        f"squared gradient is below {BOX.target}, and the loss is {end:.4g} of {VALLEY.top:g}.",
        needed is None,
        numbered(ratio=ratio, closed_form=1 + share * (1 - (1 - c) * share), end=end) + numbered(needed=needed),
    )


def gradients_seen_on_a_hill() -> Experiment:
    share, c = BOX.share, 0.0
    path, bare = (_walk(system_ascent, HILL, share, each, 1.0, 20) for each in (c, 1.0))
    needed, before = (first_below(HILL.slope(p).square().tolist(), BOX.target) for p in (path, bare))
    ratio, own = float(path[1] / path[0]), float(bare[1] / bare[0])
    return Experiment(
        "Theorem 3",
        "For c = 0 the attacker fails: K_g = ∞.",
        f"{CASE}, straight-through gradients of the layer, c = {c:g}",
        f"Each step multiplies x by {ratio:g} = 1 − α(1 + α_g); without the layer by {own:g}. So {needed} steps are "
        f"needed instead of {before}. The gradient at x + γ is steeper than at x, which makes the attack faster.",
        needed is None,
        numbered(ratio=ratio, closed_form=1 - share * (1 + (1 - c) * share), ratio_bare=own)
        + numbered(needed=needed, needed_bare=before),
    )


EXPERIMENTS = (
    gradient_steps_enough,
    gradient_factor,
    longer_gradient_steps,
    c_minus_three,
    gradients_seen_in_a_valley,
    gradients_seen_on_a_hill,
)
