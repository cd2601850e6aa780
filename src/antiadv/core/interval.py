"""Shares: their 95 % interval (Wilson, J. Am. Stat. Assoc. 22:209, 1927), and how likely chance explains them."""

from __future__ import annotations

import math

Z = 1.959963984540054  # the 97.5 % point of the standard normal distribution


def wilson(count: int, n: int) -> tuple[float, float]:
    """Return the interval of count / n:  (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n),  z = 1.96.

    >>> [round(end, 3) for end in wilson(30, 40)]
    [0.598, 0.858]
    """
    p, scale = count / n, 2 * (n + Z**2)
    centre = (2 * n * p + Z**2) / scale
    half = Z / scale * math.sqrt(4 * n * p * (1 - p) + Z**2)
    return 0.0 if count == 0 else centre - half, 1.0 if count == n else centre + half


def chance(count: int, n: int, p: float) -> float:
    """The probability of `count` successes or more in n tries of probability p, in (0, 1).

    scipy.stats has it too, but importing that takes a second or two.

    >>> round(chance(8, 10, 0.5), 6), chance(0, 5, 0.1)
    (0.054688, 1.0)
    """
    if count <= 0:
        return 1.0

    def log(k: int) -> float:
        ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        return ways + k * math.log(p) + (n - k) * math.log1p(-p)

    return min(1.0, math.fsum(math.exp(log(k)) for k in range(count, n + 1)))
