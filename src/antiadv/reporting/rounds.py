"""Take samples in rounds while there is time.

The first round always runs. It is small, unless the caller expects more to fit. Later rounds take what should fit,
judging by the rounds before. A round of fewer than eight samples is not started, unless they are the last. So a run may
end early. It ends late only if the machine slows down, or if the first round alone takes too long.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from antiadv.core.errors import BadInput

FIRST = 8  # samples of the first round
SLACK = 1.15  # a round is expected to take this much longer than the rounds before suggest


def check_minutes(minutes: float) -> None:
    if not isinstance(minutes, (int, float)):
        raise BadInput(f"a trial takes a number of minutes; found {minutes!r}. Give for example 5.")
    if not minutes > 0:
        raise BadInput(f"a trial needs some time; found {minutes:g} minutes. Give for example 5.")


def rounds(
    samples: Sequence[int],
    seconds: float,
    run: Callable[[Sequence[int]], None],
    clock: Callable[[], float] = time.monotonic,
    size: int = FIRST,
) -> int:
    """Run these samples in rounds while there is time, the first of this size. Return how many were done, in order."""
    check_minutes(seconds / 60)
    end, done = clock() + seconds, 0
    first: tuple[int, float] | None = None
    while done < len(samples):
        size = min(size, len(samples) - done)
        start = clock()
        run(samples[done : done + size])
        done += size
        last = size, clock() - start
        first = last if first is None else first
        size = min(2 * size, fits(first, last, end - clock()))
        if size < min(FIRST, len(samples) - done):
            break
    return done


def fits(first: tuple[int, float], last: tuple[int, float], seconds: float) -> int:
    """Return how many samples a round may take to end in time, given samples and seconds of the first and last round.

    A round takes T(n) = a + b·n, since small batches are slow for their size. So T(m) ≤ T(n)·m/n for m beyond the last;
    between the first and the last, T lies on the line through both; below the first, only T ≤ the first's is known.

    >>> [fits((8, 20.0), (16, 30.0), SLACK * left) for left in (90, 25, 19)]
    [48, 12, 0]
    """
    (few, short), (many, long), left = first, last, seconds / SLACK
    if left >= long:
        return int(min(many * left / max(long, 1e-9), sys.maxsize))  # the time may be infinite
    return few + int((left - short) * (many - few) / (long - short)) if left >= short else 0
