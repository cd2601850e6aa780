"""What an entrant costs and changes on clean images, before any attack.

    measure(model, defended, x, y, ids)  →  Traffic: accuracy, calibration error, shift of the scores, passes, time

passes     forward and backward passes for one image, if images come one at a time. A defence with two stages is metered
           on two groups, because a batch in which all samples take the same way costs just that
time       of the defended network over that of the bare one, in batches of at most 64, both measured in the same run
alone_ms   milliseconds for one image that comes alone
           A defence that remembers queries is timed with its memory: each image is the first query of a client
shift      mean of ½ Σ_k |p_k − q_k|, the distance between the probabilities of f and of g: 0 if equal, 1 at most
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from antiadv.core.defence import Defence, Randomised, Session, base_of
from antiadv.core.draws import Draws
from antiadv.core.validation import check_sound
from antiadv.engine.meter import Meter, seconds
from antiadv.reporting.cost import TIMED, cost
from antiadv.reporting.measures import Share, calibrated, share

BATCH = 100


@dataclass(frozen=True)
class Traffic:
    """Counts and means over n clean images. A randomised defence answers each image once, with fixed draws."""

    n: int
    right: int
    changed: int  # labels that differ from f's
    error: float | None  # calibration error; None where it was not measured, as the other two
    shift: float | None
    passes: float
    time: float | None
    alone_ms: float | None = None  # not measured by older runs

    @property
    def accuracy(self) -> Share:
        return share(self.right, self.n)

    def json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@torch.no_grad()
def measure(
    model: nn.Module,
    defended: nn.Module,
    x: Tensor,
    y: Tensor,
    ids: Sequence[int],
    seed: int = 0,
    timed: bool = True,
) -> Traffic:
    """Measure one entrant on these images; `defended` wraps `model`, or is it. `timed=False` is for a busy machine."""
    y = y.to(x.device)
    draws = Draws.of(seed, torch.tensor(list(ids), device=x.device))
    before = torch.cat([model(part).float() for part in x.split(BATCH)])
    after = torch.cat([_answer(defended, x[at], draws[at]).float() for at in _slices(len(x))])
    finite = torch.isfinite(before).all(1) & torch.isfinite(after).all(1)
    check_sound(~finite, torch.tensor(list(ids)))  # argmax would take NaN for a class
    p, q = before.softmax(1), after.softmax(1)
    truth = q.gather(1, y[:, None].long()).squeeze(1)
    right = after.argmax(1) == y
    said = zip(q.amax(1).tolist(), truth.tolist(), right.tolist(), strict=True)
    bare = defended is model
    found = Traffic(
        n=len(x),
        right=int(right.sum()),
        changed=int((before.argmax(1) != after.argmax(1)).sum()),
        error=calibrated(list(said)).error,
        shift=float((p - q).abs().sum(1).mean() / 2),
        passes=1.0 if bare else _passes(defended, x),
        time=1.0 if bare else None,
    )
    return with_times(found, model, defended, x) if timed else found


def with_times(found: Traffic, model: nn.Module, defended: nn.Module, x: Tensor) -> Traffic:
    """The same with times measured now."""
    spent = None if defended is model else cost(model, with_memory(defended), x[:TIMED])
    return dataclasses.replace(
        found,
        time=1.0 if spent is None else spent.defended_ms / spent.bare_ms,
        alone_ms=cost(model, with_memory(defended), x[:1]).defended_ms,
    )


class _Remembering(nn.Module):
    """A defence that remembers queries, as its users meet it: each image comes from a new client."""

    def __init__(self, defended: nn.Module, session: Session) -> None:
        super().__init__()
        self.defended, self.session, self.clients = defended, session, 0

    def forward(self, x: Tensor) -> Tensor:
        clients = torch.arange(self.clients, self.clients + len(x))
        self.clients += len(x)
        return self.session.answer(clients, x, self.defended(x))[0]


def with_memory(defended: nn.Module) -> nn.Module:
    """The same with an empty memory, if it is a defence that remembers queries."""
    session = defended.session() if isinstance(defended, Defence) else None
    return defended if session is None else _Remembering(defended, session).eval()


def pace(defended: nn.Module, x: Tensor) -> float:
    """Seconds per image, for a first guess: the shorter of two runs after a warm-up."""
    asked = with_memory(defended)
    seconds(asked, [x[:1]])
    return min(seconds(asked, [x]) for _ in range(2)) / len(x)


def _answer(model: nn.Module, x: Tensor, draws: Draws) -> Tensor:
    s: Tensor = model(x, draws) if isinstance(model, Randomised) else model(x)
    return s


def _slices(n: int) -> list[slice]:
    return [slice(i, i + BATCH) for i in range(0, n, BATCH)]


def _passes(defended: nn.Module, x: Tensor) -> float:
    """Mean passes through the base network for one image that comes alone."""
    groups = [x]
    stages = defended.stages() if isinstance(defended, Defence) else None
    if stages is not None:
        on = torch.cat([stages.goes_on(stages.first(part)).reshape(-1) for part in x.split(BATCH)])
        groups = [x[on], x[~on]]
    with Meter(base_of(defended)) as meter:  # a copy of the network, if the defence edits it
        for group in groups:
            for part in group.split(BATCH) if len(group) else ():
                defended(part)
    return (meter.forwards + meter.backwards) / len(x)
