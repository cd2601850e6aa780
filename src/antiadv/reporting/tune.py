"""`tune`: choose K, α and the gate of the layer for a network, on half of the images; the other half checks the choice.

    1. For each K and gate, the largest α that keeps enough of the network's labels, by bisection on a log scale. This
       needs no attack, and α half as long is a candidate too.
    2. Candidates that are too slow, or that lose against an attacker who knows the layer, are left out.
    3. The rest are attacked through their scores, with few queries. The best few are finalists: the one with the
       largest gain, and among those within SAME of it the one with the fewest passes.
    4. The finalists are measured on the other half. The first one that keeps enough labels there, and whose gain there
       is significant, is recommended.

The numbers of the result are those of the other half; if there are no finalists, those of the first one. The attacker
who knows the layer attacks the bare network, and sends what breaks it: these images are found once, and each setting is
asked about them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn

from antiadv.core.ball import Ball, Linf
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput
from antiadv.core.notebook import bar
from antiadv.core.validation import (
    check_base,
    check_images,
    check_labels,
    check_scores,
    check_sound,
    check_whole,
    fitting,
    is_number,
    untouched,
)
from antiadv.engine.fast import Fast, engine
from antiadv.engine.meter import Meter, seconds
from antiadv.evaluation import attack
from antiadv.evaluation.cell import Record
from antiadv.evaluation.early import told, warn_early
from antiadv.reporting.measures import Difference, Share, difference, paired, share
from antiadv.reporting.tuning import BATCH, Candidate, Latency, Setting, Tried, Tuning
from antiadv.reporting.verdict import LEVEL
from antiadv.reporting.wording import count

STEPS, GATES = (1, 2), (1.0, 0.99, 0.9)
SIZES = tuple(float(f"{0.001 * 2**i:.2g}") for i in range(10))  # α from 0.001 to 0.51
SEARCH, KNOWN = "square", "apgd:steps=20"
SAME = 0.05  # gains that differ by less are taken for equal, and the cheaper setting is preferred
FINALISTS = 3
FEWEST = 16  # images
TIMED, REPEATS = 8, 2  # images that are timed one by one, and how often

Tell = Callable[[str], None]


def tune(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    keep: float = 0.995,
    latency_ms: float | None = None,
    ball: Ball | None = None,
    queries: int = 100,
    attacked: int = 64,
    steps: Sequence[int] = STEPS,
    gates: Sequence[float] = GATES,
    seed: int = 0,
    batch: int | None = None,
    tell: Tell | None = None,
) -> Tuning:
    """Choose the steps, the step size and the gate of the anti-adversary layer for this network and these images.

    `keep` is the share of the network's labels that the layer must keep, `latency_ms` the longest time for one image
    (by default any). Gains are measured in `ball` (by default Linf(8/255)) on at most `attacked` images of each half,
    by a score attack with so many `queries`. `tell` gets a line for each stage; a notebook shows it without that.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).eval()
    >>> x = torch.linspace(0, 1, 16 * 12).view(16, 3, 2, 2)
    >>> found = tune(net, x, net(x).argmax(1), queries=5, gates=[1.0], steps=[1])
    >>> found.images, found.spec is None or found.spec.startswith("anti_adversary:steps=1")
    ((8, 8), True)
    """
    _check(model, x, y, keep, latency_ms, queries, attacked, steps, gates)
    given = Linf(8 / 255) if ball is None else ball
    first, second = (
        _Half(model, x[i.to(x.device)], y[i.to(y.device)], given, queries, attacked, seed, batch)
        for i in halves(len(x), seed)
    )
    with bar() as show:
        show_line = tell or (lambda line: None if show is None else show(line, None, None))
        warn_early(first.x, first.scores.argmax(1), first.y, first.scores.shape[1])
        with told():
            return _tune(first, second, keep, latency_ms, steps, gates, show_line)


def _tune(
    first: _Half,
    second: _Half,
    keep: float,
    latency_ms: float | None,
    steps: Sequence[int],
    gates: Sequence[float],
    tell: Tell,
) -> Tuning:
    tell(f"looking for step sizes that keep {100 * keep:g} % of the labels of {len(first.x)} images")
    settings = _keeping(first, steps, gates, keep)
    kinds = {(s.steps, s.gate): s for s in settings}  # the step size does not change the time
    times = {kind: _latency(first.model, s, first.x) for kind, s in kinds.items()}
    latencies = {s: times[s.steps, s.gate] for s in settings}
    quick = [s for s in settings if latency_ms is None or latencies[s].one_ms <= latency_ms]
    tell(f"{len(settings)} settings keep them, {len(quick)} are quick enough; looking for gains")
    adaptive = {s: first.adaptive(s) for s in quick}
    gains = {s: first.gain(s) for s in quick if not _worse(adaptive[s])}
    best = _finalists(gains, latencies)
    tell(f"checking {len(best)} of them on {len(second.x)} other images")
    checked = [Candidate(s, second.kept(s), second.gain(s), second.adaptive(s), latencies[s]) for s in best]
    holding = [c for c in checked if _holds(c, keep)]
    compared = [
        Tried(s, first.kept(s), gains.get(s), adaptive.get(s), latencies.get(s))
        for s in sorted(first.asked, key=lambda s: (s.steps, -s.gate, s.step_size))
    ]
    why = _reason(settings, quick, gains, checked, keep, latency_ms) if not holding else ""
    named = f"{SEARCH} with {first.queries} queries in {first.ball}"
    curves = {k: [(a, v.value) for (k_, a), v in first.ungated.items() if k_ == k] for k in steps}
    return Tuning(
        checked, holding[0] if holding else None, why, keep, latency_ms, named, (len(first.x), len(second.x)),
        first.attacked, compared, curves,
    )  # fmt: skip


def halves(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """The places of both halves, drawn by chance: the order of images may go with their classes."""
    order = Draws.of(seed, torch.arange(n)).uniform().argsort()
    return order[: n // 2].sort().values, order[n // 2 :].sort().values


def _check(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    keep: float,
    latency_ms: float | None,
    queries: int,
    attacked: int,
    steps: Sequence[int],
    gates: Sequence[float],
) -> None:
    check_base(model)
    check_images(x)
    check_labels(y, x)
    check_whole(queries=queries, attacked=attacked)
    if len(x) < FEWEST:
        raise BadInput(f"tuning needs at least {FEWEST} images, half of them to check; found {len(x)}. Pass more.")
    if not is_number(keep, 1):
        raise BadInput(f"keep is a share of the labels, 0 … 1; found {keep!r}. Give for example 0.995.")
    if latency_ms is not None and not latency_ms > 0:
        raise BadInput(f"a latency is a time above zero, in milliseconds; found {latency_ms!r}. Give for example 20.")
    if queries < 1 or attacked < 1 or not steps or not gates:
        raise BadInput(
            "tuning needs at least one query, one attacked image, one number of steps and one gate; found "
            f"queries={queries}, attacked={attacked}, {len(steps)} steps and {len(gates)} gates. Give more."
        )


@dataclass
class _Half:
    """Half of the images, the bare network's answers to them, and what is found about settings."""

    model: nn.Module
    x: Tensor
    y: Tensor
    ball: Ball
    queries: int
    attacked: int
    seed: int
    batch: int | None
    ungated: dict[tuple[int, float], Share] = field(default_factory=dict)
    asked: set[Setting] = field(default_factory=set)
    _moved: dict[tuple[int, float], Tensor] = field(default_factory=dict)

    @cached_property
    def _engine(self) -> Fast:
        return engine(self.x.device, self.batch)

    @cached_property
    def scores(self) -> Tensor:
        with fitting(self.model, self.x), untouched(self.x):
            s = self._engine.scores(self.model, self.x)
        check_scores(s, self.x, self.y.to(s.device))
        return s

    @cached_property
    def targets(self) -> tuple[Tensor, Tensor]:
        """The images that are attacked: the first ones that the bare network classifies correctly."""
        right = (self.scores.argmax(1) == self.y.to(self.scores.device)).nonzero().squeeze(1)[: self.attacked]
        if not len(right):
            raise BadInput(
                "tuning needs images that the bare network classifies correctly; found none in one half. Check labels, "
                "range and normalisation."
            )
        return self.x[right.to(self.x.device)], self.y[right.to(self.y.device)]

    def kept(self, setting: Setting) -> Share:
        """The share of the bare network's labels that the layer keeps.

        The labels without a gate are computed once; a gate only gives samples above it their own label back.
        """
        at = setting.steps, setting.step_size
        labels = self.scores.argmax(1)
        if at not in self._moved:
            layer = Setting(*at).layer(self.model)
            self._moved[at] = self._labels(layer, self.x)
            self.ungated[at] = share(int((self._moved[at] == labels).sum()), len(labels))
        self.asked.add(setting)
        steps = self.scores.softmax(1).amax(1) <= setting.gate
        return share(int(((self._moved[at] == labels) | ~steps).sum()), len(labels))

    def gain(self, setting: Setting) -> Difference:
        """The gain under a score attack."""
        return paired(self._bare, self._attacked(setting.layer(self.model)), self.ball)

    @cached_property
    def _bare(self) -> list[Record]:
        return self._attacked(self.model)

    def _attacked(self, model: nn.Module) -> list[Record]:
        x, y = self.targets
        return attack(model, x, y, SEARCH, self.ball, queries=self.queries, seed=self.seed, batch=self.batch).records

    def adaptive(self, setting: Setting) -> Difference:
        """The gain against images that break the bare network."""
        x, y = self.targets
        layer = setting.layer(self.model)
        return difference(self._stands(self.model, x, y), self._stands(layer, x, y))

    def _stands(self, model: nn.Module, x: Tensor, y: Tensor) -> dict[int, bool]:
        """Which samples are right on the clean image and on the one that was found on the bare network."""
        clean, broken = (self._labels(model, z) == y.to(z.device) for z in (x, self._known))
        return dict(enumerate((clean & broken).tolist()))

    def _labels(self, model: nn.Module, x: Tensor) -> Tensor:
        """Labels of finite scores: argmax would take NaN for a class."""
        s = self._engine.scores(model, x)
        check_sound(~torch.isfinite(s).all(1), torch.arange(len(x)))
        return s.argmax(1)

    @cached_property
    def _known(self) -> Tensor:
        x, y = self.targets
        return attack(self.model, x, y, KNOWN, self.ball, seed=self.seed, batch=self.batch).images


def _keeping(half: _Half, steps: Sequence[int], gates: Sequence[float], keep: float) -> list[Setting]:
    """For each K and gate, the largest α that keeps enough labels, and half of it."""
    found = []
    for k in steps:
        for gate in gates:
            low, high = -1, len(SIZES)  # SIZES[low] keeps enough, SIZES[high] does not
            while high - low > 1:
                middle = (low + high) // 2
                enough = half.kept(Setting(k, SIZES[middle], gate)).value >= keep
                low, high = (middle, high) if enough else (low, middle)
            found += [Setting(k, SIZES[i], gate) for i in (low, low - 1) if i >= 0]
    return [s for s in dict.fromkeys(found) if half.kept(s).value >= keep]


def _finalists(gains: dict[Setting, Difference], latencies: dict[Setting, Latency]) -> list[Setting]:
    """The settings with a gain, best first: those nearly as good as the best are in order of their cost."""
    good = {s: g.value for s, g in gains.items() if g.value > 0}
    top = max(good.values(), default=0.0)

    def order(s: Setting) -> tuple[bool, float, float]:
        near = good[s] >= top - SAME
        return (not near, latencies[s].passes if near else -good[s], -good[s])

    return sorted(good, key=order)[:FINALISTS]


def _worse(gain: Difference) -> bool:
    """Whether the layer loses, by more than chance."""
    return gain.value < 0 and gain.p <= LEVEL


def _holds(c: Candidate, keep: float) -> bool:
    """Whether a finalist does on the check half what was asked."""
    return c.kept.value >= keep and _better(c.gain) and not _worse(c.adaptive)


def _better(gain: Difference) -> bool:
    """Whether the layer gains, by more than chance."""
    return gain.value > 0 and gain.p <= LEVEL


def _reason(
    settings: Sequence[Setting],
    quick: Sequence[Setting],
    gains: dict[Setting, Difference],
    checked: Sequence[Candidate],
    keep: float,
    latency_ms: float | None,
) -> str:
    """Why no setting is recommended: the first demand that none fulfils."""
    if not settings:
        return f"no setting keeps {100 * keep:g} % of the labels; the shortest step tried is {SIZES[0]:g}"
    if not quick:
        return f"none of {len(settings)} settings that keep the labels takes at most {latency_ms:g} ms for one image"
    if not gains:
        return f"all {len(quick)} settings lose against an attacker who knows the layer"
    if not checked:
        return f"none of {len(gains)} settings gains anything against {SEARCH}"
    failed = {
        f"fewer than {100 * keep:g} % of the labels kept": sum(c.kept.value < keep for c in checked),
        "a gain that may be chance": sum(not _better(c.gain) for c in checked),
        "a loss against an attacker who knows the layer": sum(_worse(c.adaptive) for c in checked),
    }
    why = ", ".join(f"{what} ({n})" for what, n in failed.items() if n)
    return (
        f"of {count(len(checked), 'setting')} chosen on one half, none holds on the other: {why}. "
        "More images may settle it (--samples, --attacked)"
    )


# ---------------------------------------------------------------- time


def _latency(model: nn.Module, setting: Setting, x: Tensor) -> Latency:
    """Measured times, the shortest of a few runs, for the bare network and the layer in turn; and counted passes."""
    layer = setting.layer(model)
    many = x.repeat(-(-BATCH // len(x)), *[1] * (x.ndim - 1))[:BATCH]
    with Meter(model) as meter, torch.no_grad():
        layer(many)
    ones = x[:TIMED].split(1)
    times = [[seconds(net, parts) for net in (layer, model) for parts in (ones, [many])] for _ in range(1 + REPEATS)]
    one, many_s, bare_one, bare_many = (min(column) for column in zip(*times[1:], strict=True))
    counted = meter.forwards / len(many), meter.backwards / len(many)
    per_one, per_many = 1000 / len(ones), 1000 / len(many)
    return Latency(one * per_one, bare_one * per_one, many_s * per_many, bare_many * per_many, *counted)
