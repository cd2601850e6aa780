"""Experiments on Proposition 1, Corollary 1 and Theorem 1, with losses for which everything is known.

    Sigmoids   n = 4, x⁰ = 0, ρ = 0.4, ε = ½ ρ/(nL). Monotone for steps of any length, so all assumptions hold
               everywhere. After k steps x_i = cε·Bin(k, 1/n), so E|∇L|₁ = n Σ_m Bin(m; k, 1/n) ℓ'(cεm), exactly
    Valley     n = 1, L = r = 1, x⁰ = ½, ρ = ¼, ε = ⅛. All values are binary fractions, so the paths are exact
    Hill       n = 1, L = 1, ρ = ¼, ε = ⅛. Shows where local monotonicity ends

Each function is one experiment. Only `simba_is_stp` uses random numbers, for its loss and directions.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from antiadv.core.draws import Draws
from antiadv.paper.theory import corollary_1, proposition_1, theorem_1
from antiadv.paper.theory.composition import Rule, expected, first_below, proof_step, system_step, track
from antiadv.paper.theory.corollary_1 import BlackBox
from antiadv.paper.theory.experiment import Experiment, Point, bounded, listed, numbered
from antiadv.paper.theory.landscapes import Hill, Landscape, Sigmoids, Valley

CS = (1.0, 0.5, 0.25, 0.1)
SIGMOIDS, HILL, VALLEY = Sigmoids(), Hill(), Valley()
CASE = "a sum of 4 sigmoids from 0, ρ = 0.4"
PIT = BlackBox(dimension=1, smoothness=1.0, target=0.25, step=0.125)


def sigmoids(share: float = 0.5) -> BlackBox:
    """The setting of most experiments, with ε = `share` · ρ/(nL)."""
    step = share * 0.4 / (4 * SIGMOIDS.smoothness)
    return BlackBox(dimension=4, smoothness=SIGMOIDS.smoothness, target=0.4, step=step, beyond=share >= 1)


def point(c: float, box: BlackBox) -> Point:
    """Theorem 1 at c > 0 on the sigmoids: its bound, and the exact numbers of steps needed."""
    enough = corollary_1.enough(_gap(box), dataclasses.replace(box, step=c * box.step))
    far = 2 * math.floor(enough) + 2  # beyond the bound, so that a failure of the bound would show
    needed = first_below(_gradients(c, box, far), box.target)
    assert needed is not None
    path = _walk(system_step, SIGMOIDS, box, c, 0.0, math.floor(corollary_1.enough(_gap(box), box)) + 1)
    in_system = first_below(expected(SIGMOIDS.slope(path), box.dimension), box.target)
    return Point(c, theorem_1.factor(c, box), enough, needed, in_system)


def _gap(box: BlackBox) -> float:
    return SIGMOIDS.gap(torch.zeros(box.dimension, dtype=torch.float64))


def _gradients(c: float, box: BlackBox, most: int) -> Iterator[float]:
    """E|∇L(xᵏ)|₁ for k = 0 … most, if each pick of a coordinate moves it by cε."""
    moves = torch.arange(most + 1, dtype=torch.float64)
    return expected(SIGMOIDS.slope(c * box.step * moves), box.dimension)


def _walk(rule: Rule, land: Landscape, box: BlackBox, c: float, start: float, steps: int) -> Tensor:
    d = torch.tensor([box.step], dtype=torch.float64)
    return track(lambda x: rule(land.loss, x, d, c), start, steps)


@functools.cache
def points(share: float = 0.5, cs: Sequence[float] = CS) -> tuple[Point, ...]:
    return tuple(point(c, sigmoids(share)) for c in cs)


# ---------------------------------------------------------------- Proposition 1 and Corollary 1


def simba_is_stp() -> Experiment:
    n, steps, step = 12, 500, 0.05
    draws = Draws.of(0, torch.arange(40))
    a, b = draws.fold(0).normal(n).double(), draws.fold(1).normal(1).double().squeeze(1)

    def loss(x: Tensor) -> Tensor:
        return torch.sin(x @ a.T + b).sum(-1)

    q = torch.eye(n, dtype=torch.float64)[Draws.of(1, torch.arange(steps)).below(n, 1).squeeze(1)]
    start = torch.zeros(n, dtype=torch.float64)
    path, queries = proposition_1.simba(loss, start, q, step)
    same = torch.equal(path, proposition_1.stp(loss, start, q, step))
    moved = int((path.diff(dim=0) != 0).any(1).sum())
    return Experiment(
        "Proposition 1",
        "SimBA with replacement and both signs, with a budget of 2B queries, is STP with B iterations.",
        f"a sum of 40 random sines in {n} dimensions, {steps} steps; {moved} of them move",
        f"The paths are {'exactly equal' if same else 'different'}. B = {steps} steps take {queries} queries, one "
        "more than 2B, because the first query is for x⁰.",
        same,
        numbered(steps=steps, moved=moved, queries=queries),
    )


def steps_enough() -> Experiment:
    shares = (0.1, 0.5, 0.9)
    found = [points(share)[0] for share in shares]
    return Experiment(
        "Corollary 1",
        "If ε < ρ/(nL), more than K steps are enough for an expected gradient below ρ.",
        f"{CASE}, ε = {listed(list(shares))} ρ/(nL)",
        f"K = {listed([p.enough for p in found])}; the gradient is below ρ after {listed([p.needed for p in found])}.",
        all(p.needed <= math.floor(p.enough) + 1 for p in found),
        numbered(**{f"{k}_{s}": v for p, s in zip(found, shares, strict=True) for k, v in _pair(p)}),
    )


def _pair(p: Point) -> list[tuple[str, float]]:
    return [("enough", p.enough), ("needed", p.needed)]


def steps_needed() -> Experiment:
    p = points()[0]
    return Experiment(
        "after Corollary 1",
        "K is the minimum budget that SimBA requires.",
        f"{CASE}, ε = 0.5 ρ/(nL)",
        f"{p.needed} steps reach a gradient below ρ, and K = {p.enough:.4g}. K steps are enough, but not needed.",
        p.needed >= p.enough,
        numbered(enough=p.enough, needed=p.needed),
    )


# ---------------------------------------------------------------- Theorem 1, where it holds


def factor() -> Experiment:
    found, box = points(), sigmoids()
    bare = found[0]
    curve = [theorem_1.factor(i / 1000, box) for i in range(1, 1001)]
    ratios = [p.needed / bare.needed for p in found[1:]]
    return Experiment(
        "Theorem 1",
        "If γ is added to the iterate, K_g/K_f = G(c) > 1 for c in (0, 1), and G decreases in c.",
        f"{CASE}, ε = 0.5 ρ/(nL), c = {listed([p.c for p in found[1:]])}",
        f"G = {listed([p.factor for p in found[1:]])}. The steps needed grow from {bare.needed} to "
        f"{listed([p.needed for p in found[1:]])}, that is {listed(ratios)} times. The bound K_g is "
        f"{listed([p.enough for p in found[1:]])}.",
        bounded(found, bare) and all(a > b for a, b in itertools.pairwise(curve)) and min(curve[:-1]) > 1,
        numbered(**{f"{k}_{p.c:g}": v for p in found for k, v in [("factor", p.factor), *_pair(p)]}),
    )


def small_steps() -> Experiment:
    c, shares = 0.25, (0.5, 0.1, 0.02)
    pairs = [points(share, (1.0, c)) for share in shares]
    bounds, ratios = [p.factor for _, p in pairs], [p.needed / bare.needed for bare, p in pairs]
    away = [abs(v - 1 / c) for v in bounds], [abs(v - 1 / c) for v in ratios]
    return Experiment(
        "Theorem 1",
        "G tends to 1/c as ε tends to 0. (This follows from G; the paper does not state it.)",
        f"{CASE}, c = {c}, ε = {listed(list(shares))} ρ/(nL)",
        f"G = {listed(bounds)}. The steps needed grow {listed(ratios)} times. Both tend to {1 / c:g}.",
        all(d == sorted(d, reverse=True) and d[-1] < 0.02 / c for d in away),
        numbered(**{f"factor_{s}": v for s, v in zip(shares, bounds, strict=True)})
        + numbered(**{f"ratio_{s}": v for s, v in zip(shares, ratios, strict=True)}),
    )


def loss_falls() -> Experiment:
    box, cs = sigmoids(), (0.0, -0.5, -0.9)
    heights = [SIGMOIDS.height(_walk(proof_step, SIGMOIDS, box, c, 0.0, 50)) for c in cs]
    rises = max(float(h.diff().max()) for h in heights)
    return Experiment(
        "Theorem 1",
        "If γ is added to the iterate, no step raises the loss for c ≤ 0.",
        f"{CASE}, ε = 0.5 ρ/(nL), c = {listed(list(cs))}, above 1 − ρ/(nLε) = {theorem_1.lowest_c(box):g}",
        f"In 50 steps along one coordinate its sigmoid goes from {float(heights[0][0]):g} to "
        f"{listed([float(h[-1]) for h in heights])}. It {'never' if rises <= 0 else 'sometimes'} rises.",
        rises <= 0,
        numbered(
            lowest_c=theorem_1.lowest_c(box), **{f"end_{c:g}": float(h[-1]) for c, h in zip(cs, heights, strict=True)}
        ),
    )


# ---------------------------------------------------------------- Theorem 1, where the paper claims too much


def printed_derivative() -> Experiment:
    box, c, h = sigmoids(), 0.5, 1e-5
    true = (theorem_1.factor(c + h, box) - theorem_1.factor(c - h, box)) / (2 * h)
    right, printed = theorem_1.derivative(c, box), theorem_1.printed_derivative(c, box)
    return Experiment(
        "Theorem 1, proof",
        "G' has the denominator ((ρ/n − cLε/2) εc)².",
        f"{CASE}, ε = 0.5 ρ/(nL), c = {c}",
        f"Differences of G give {true:.5g}. The formula gives {printed:.5g}, {printed / true:.4g} times as much; 1/ε² "
        f"is {1 / box.step**2:.4g}. Without ε² it gives {right:.5g}. The proof needs only the sign, which is "
        f"{'right' if printed * true > 0 else 'wrong'}.",
        math.isclose(printed, true, rel_tol=1e-6),
        numbered(differences=true, corrected=right, printed=printed, excess=printed / right, step=box.step),
    )


def longer_steps() -> Experiment:
    box, c = sigmoids(1.5), 0.5
    bare, p = points(1.5, (1.0, c))
    interval = theorem_1.below_one(box)
    low = math.inf if interval is None else interval[0]
    grid = [i / 1000 for i in range(1, 1000)]
    exact = all((theorem_1.factor(v, box) < 1) == (v > low) for v in grid)
    return Experiment(
        "Theorem 1",
        "G > 1 for every c in (0, 1), if ε < ρ/(nL). (Corollary 1 itself holds up to twice that.)",
        f"{CASE}, ε = 1.5 ρ/(nL), beyond the paper's range",
        f"G < 1 {'exactly' if exact else 'not only'} for c between {low:.4g} and 1; G({c}) = {p.factor:.4g}. The bound "
        f"falls from {bare.enough:.4g} to {p.enough:.4g}, but the steps needed rise from {bare.needed} to {p.needed}. "
        "A ratio of two bounds is not a ratio of costs.",
        all(theorem_1.factor(v, box) > 1 for v in grid),
        numbered(low=low, factor=p.factor, enough_bare=bare.enough, enough=p.enough)
        + numbered(needed_bare=bare.needed, needed=p.needed, exact=exact),
        within=not box.beyond,
    )


def far_below_zero() -> Experiment:
    c = -31.0
    most = math.floor(corollary_1.enough(VALLEY.gap(torch.tensor([0.5])), PIT)) + 1
    bare, path = (_walk(proof_step, VALLEY, PIT, each, 0.5, most) for each in (1.0, c))
    needed = first_below(VALLEY.slope(path).abs().tolist(), PIT.target)
    monotone = all(theorem_1.locally_monotone(VALLEY.height, t, PIT.limit) for t in path[:needed].tolist())
    top = float(VALLEY.height(path).max())
    return Experiment(
        "Theorem 1",
        "For every c ≤ 0 SimBA fails: K_g = ∞.",
        f"a valley from ½, ρ = {PIT.target}, ε = {PIT.step}, γ added to the iterate, c = {c:g}",
        f"The layer's step of {(1 - c) * PIT.step:g} would cross the whole valley, so STP keeps γ = 0. The path is "
        f"{'that' if torch.equal(bare, path) else 'not that'} of the bare loss: it reaches the supremum {top:g}, and "
        f"the gradient is below ρ after {needed} steps. L is {'' if monotone else 'not '}locally monotone at every "
        f"point before that. The proof covers only c > {theorem_1.lowest_c(PIT):g}.",
        needed is None,
        numbered(needed=needed, top=top, lowest_c=theorem_1.lowest_c(PIT), monotone=monotone)
        + numbered(same=torch.equal(bare, path)),
    )


def stationary_anyway() -> Experiment:
    box, c = sigmoids(), -0.5
    sizes = list(_gradients(c, box, 100))
    needed, mirror = first_below(sizes, box.target), points()[1].needed
    return Experiment(
        "Theorem 1",
        "For c ≤ 0, K_g = ∞, where K counts the steps to an expected gradient below ρ.",
        f"{CASE}, ε = 0.5 ρ/(nL), γ added to the iterate, c = {c}",
        f"The loss falls to its infimum, and its gradient falls too: from {sizes[0]:g} to {sizes[-1]:.2g} in 100 "
        f"steps. It is below ρ after {needed} steps; with c = {-c} after {mirror}. So a small gradient can mean "
        "success or failure.",
        needed is None,
        numbered(needed=needed, mirror=mirror, first=sizes[0], last=sizes[-1]),
    )


def local_monotonicity() -> Experiment:
    places = [i / 64 * PIT.limit for i in range(-64, 65)]
    fails = [not theorem_1.locally_monotone(HILL.height, t, PIT.limit) for t in places]
    as_said = fails == [abs(t) < PIT.limit / 2 for t in places]
    c = 0.5
    rise = float(HILL.height(_walk(proof_step, HILL, PIT, c, PIT.step / 4, 1)).diff())
    return Experiment(
        "Theorem 1, main text",
        "For any smooth bounded loss each step on g is one STP step of cε. (The appendix adds local monotonicity.)",
        f"a hill, ρ = {PIT.target}, β = ρ/(nL) = {PIT.limit:g}",
        f"Local monotonicity fails {'exactly' if as_said else 'not only'} where |x_i| < β/2, near the stationary "
        f"points that the corollary is about. From x = ε/4 with c = {c}, the attacker stays, the layer moves, and the "
        f"loss falls by {-rise:.3g}.",
        rise >= 0,
        numbered(failing=sum(fails), places=len(places), as_said=as_said, rise=rise),
    )


def composition() -> Experiment:
    box, steps, cs = sigmoids(), 40, (1.0, 0.5, 0.0, -0.5, -3.0)
    paths, proofs = ([_walk(rule, SIGMOIDS, box, c, 0.0, steps) for c in cs] for rule in (system_step, proof_step))
    same = all(torch.equal(path, paths[0]) for path in paths)
    ends, claimed = (
        [list(expected(SIGMOIDS.height(path), box.dimension))[-1] for path in each] for each in (paths, proofs)
    )
    return Experiment(
        "Theorem 1",
        "SimBA on g moves by cε where SimBA on f moves by ε.",
        f"{CASE}, ε = 0.5 ρ/(nL), a new γ for each query as in the real layer, c = {listed(list(cs))}",
        f"{'The path is the same for every c' if same else 'The paths differ'}: after {steps} steps the expected loss "
        f"is {listed([round(v, 4) for v in ends])}. In the proof it is {listed([round(v, 4) for v in claimed])}.",
        not same,
        numbered(**{f"honest_{c:g}": v for c, v in zip(cs, ends, strict=True)})
        + numbered(**{f"proof_{c:g}": v for c, v in zip(cs, claimed, strict=True)}),
    )


EXPERIMENTS = (
    simba_is_stp,
    steps_enough,
    steps_needed,
    factor,
    small_steps,
    loss_falls,
    printed_derivative,
    longer_steps,
    far_below_zero,
    stationary_anyway,
    local_monotonicity,
    composition,
)
