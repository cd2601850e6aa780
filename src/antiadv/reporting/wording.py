"""Small pieces of sentences that reports, tables and messages share."""

from __future__ import annotations

from collections.abc import Sequence

NOTHING = "–"  # shown where there is no number


def join(parts: Sequence[str]) -> str:
    """List the parts in a sentence.

    >>> join(["a"]), join(["a", "b"]), join(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def count(n: int, thing: str) -> str:
    """Return a number with its noun.

    >>> count(1, "cell"), count(2, "cell")
    ('1 cell', '2 cells')
    """
    return f"{n} {thing}" + ("" if n == 1 else "s")
