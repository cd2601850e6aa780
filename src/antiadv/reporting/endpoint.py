"""The verdict on an endpoint: what attackers who see scores or labels achieve, for how many queries.

There is no defence to compare with: the endpoint is judged as it answers. Gradients are not used, because an endpoint
gives none. So its verdict is an upper bound of its robustness, and says so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from antiadv import attacks
from antiadv.core.ball import Ball
from antiadv.core.threat import Access, Threat
from antiadv.models.remote import Remote
from antiadv.reporting import as_markdown, report_of
from antiadv.reporting.flags import Flag
from antiadv.reporting.measures import right, share, standing
from antiadv.reporting.rounds import check_minutes, rounds
from antiadv.reporting.rows import Row
from antiadv.reporting.verdict import WHO
from antiadv.reporting.wording import count

QUERIES = 500  # for each sample and attack, where the threat names no budget
NO_GRADIENTS = (
    "No attack with gradients was run, because an endpoint gives none. An attacker who has its network, or trains one "
    "like it, may break more."
)


def endpoint_battery(ball: Ball, grants: Access, queries: int | None = None) -> list[tuple[str, Threat]]:
    """Return the attacks on an endpoint and their threats: on labels, and on scores if it gives them.

    >>> from antiadv.core.ball import Linf
    >>> [(attack, str(threat)) for attack, threat in endpoint_battery(Linf(0.1), Access.SCORES, 50)]
    [('square', 'linf:0.1,access=scores,queries=50'), ('rays', 'linf:0.1,access=labels,queries=50')]
    """
    by_label = "rays" if ball.p == math.inf else "hop_skip_jump"
    texts = ["square"] * (grants >= Access.SCORES) + [by_label]
    return [(t, Threat(ball, attacks.parse(t).access, queries or QUERIES)) for t in texts]


@dataclass(frozen=True)
class EndpointVerdict:
    """The rows of the attacks, flags, and how many images this run sent to the endpoint."""

    rows: list[Row]
    flags: list[Flag]
    samples: int
    seconds: float
    sent: int

    @property
    def sentence(self) -> str:
        return " ".join(map(_achieved, self.rows))

    @property
    def sentences(self) -> list[str]:
        """The sentences below the table: flags, the cost, what was not tried; the verdict last."""
        cost = f"This run sent {count(self.sent, 'image')} to the endpoint, those of the judge and repeats included."
        return [*(f"Flag {flag}" for flag in self.flags), cost, NO_GRADIENTS, self.sentence]

    def __str__(self) -> str:
        return as_markdown(self.rows, self.sentences)

    def json(self) -> dict[str, Any]:
        plain = {"samples": self.samples, "seconds": round(self.seconds, 1), "sent": self.sent}
        parts = {k: [part.json() for part in getattr(self, k)] for k in ("rows", "flags")}
        return {**plain, **parts, "verdict": [self.sentence]}


def judge_endpoint(
    run: Callable[[Sequence[int]], None],
    rows: Callable[[Sequence[int]], list[Row]],
    endpoint: Remote,
    samples: Sequence[int],
    minutes: float,
    stored: int = 0,
) -> EndpointVerdict:
    """Run as many of the samples as fit into the minutes. The first `stored` ones were run before.

    `run` attacks samples and stores them, and `rows` reads them.
    """
    check_minutes(minutes)
    start = time.monotonic()
    done = stored + rounds(samples[stored:], 60 * minutes, run)
    report = report_of(rows(samples[:done]))
    return EndpointVerdict(report.rows, report.flags, done, time.monotonic() - start, endpoint.sent)


def _achieved(row: Row) -> str:
    """What one attack achieved, in a sentence."""
    threat, correct = row.cell.threat, [r for r in row.records if right(r)]
    how = f"{WHO[threat.access].capitalize()} ({row.cell.attack} in {threat.ball})"
    if row.robust is None:
        return f"{how} was not tried: the budget of {threat.queries:,} queries is too small."
    if not correct:
        return f"{how} had nothing to break: the endpoint classifies no clean image correctly."
    broken = share(sum(not standing(r, threat.ball) for r in correct), len(correct))
    cost = "" if row.queries is None else f", with a median of {row.queries:g}"
    return (
        f"{how} breaks {broken} % of the {count(len(correct), 'sample')} that the endpoint classifies correctly, with "
        f"at most {threat.queries:,} queries for each{cost}."
    )
