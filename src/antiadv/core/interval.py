"""The 95 % interval of a share: Wilson's (J. Am. Stat. Assoc. 22:209, 1927)."""

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
