"""The comparisons of strength: which attack of ours against which of theirs, and the rule that must hold."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from antiadv.core.ball import L2, Ball, Linf

DATA = "cifar10:test"
BATCH = 512  # images through the network at once
AFTER = (5_000, 10_000)  # queries, in the authors' counting, at which NES and Bandits are compared
LONGER = 1.05  # how much longer our median distance may be

Kind = Literal["standing", "falls", "distance", "worst"]


@dataclass(frozen=True)
class Job:
    """One comparison.

    `points` is what the rule allows, in per cent of accuracy. `equal` gives ours the budget of theirs. `parts` are the
    jobs that a worst case is made of.
    """

    name: str
    kind: Kind
    model: str
    ours: str
    peer: str
    ball: Ball
    points: float = 0.5
    equal: bool = False
    samples: int = 512
    parts: tuple[str, ...] = ()

    @property
    def rule(self) -> str:
        if self.kind == "distance":
            return f"median distance at most {LONGER:g} times theirs"
        after = " after 5,000 and 10,000 queries" * (self.kind == "falls")
        return f"accuracy{after} not higher by more than {self.points:g} points"


def autoattack_jobs(model: str) -> Iterator[Job]:
    """The four attacks of AutoAttack, and the worst case over them."""
    four = {
        "apgd-ce": "apgd:loss=ce",
        "apgd-t": "apgd:loss=dlr,targets=9",
        "fab-t": "fab:targets=9",
        "square": "square",
    }
    ball, end, parts = Linf(8 / 255), plain(model), []
    for name, text in four.items():
        parts.append(f"pyautoattack-{name}-{end}")
        yield Job(parts[-1], "standing", model, text, f"pyautoattack {name}", ball)
    name, text = f"pyautoattack-worst-{end}", "autoattack:version=standard"
    yield Job(name, "worst", model, text, "pyautoattack", ball, points=0.3, parts=tuple(parts))


def published_jobs(model: str) -> Iterator[Job]:
    """NES and Bandits; a step of 10/31 of the radius is the published 0.01."""
    for name, text in (("nes", "nes:step_size=10/31"), ("bandits", "bandits:tile=16,step_size=10/31")):
        title = f"published-{name}-{plain(model)}"
        yield Job(title, "falls", model, text, f"published {name}", Linf(0.031), points=2.0)


def package_jobs(model: str) -> Iterator[Job]:
    """Attacks of torchattacks, ART and foolbox."""
    for peer, text, ball, samples in (
        ("torchattacks apgd", "apgd:loss=ce", Linf(8 / 255), 100),
        ("torchattacks square", "square:rescale=true", Linf(8 / 255), 100),
        ("art square", "square:rescale=true", Linf(8 / 255), 100),
        ("art simba", "simba:step_size=0.05", L2(4), 32),
        ("art simba-dct", "simba:basis=dct,step_size=0.05,frequencies=8", L2(4), 32),
    ):
        name, equal = f"{peer.replace(' ', '-')}-{plain(model)}", "apgd" not in peer
        yield Job(name, "standing", model, text, peer, ball, equal=equal, samples=samples)
    for peer, text in (
        ("foolbox hop_skip_jump", "hop_skip_jump"),
        ("foolbox boundary", "boundary"),
        ("art hop_skip_jump", "hop_skip_jump"),
        ("art boundary", "boundary"),
    ):
        name = f"{peer.replace(' ', '-')}-{plain(model)}"
        yield Job(name, "distance", model, text, peer, L2(math.inf), equal=True, samples=24)


def plain(model: str) -> str:
    return model.replace(":", "-")


def every_job() -> Iterator[Job]:
    for model in ("compact:trades", "compact:standard", "wrn16-4:trades"):
        yield from autoattack_jobs(model)
    yield from published_jobs("resnet18:standard")
    for model in ("compact:trades", "compact:standard"):
        yield from package_jobs(model)


JOBS = {job.name: job for job in every_job()}
