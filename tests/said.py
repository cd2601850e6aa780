"""What a message or a page says, without its phrases: the numbers in it, and facts in their order."""

from __future__ import annotations

import re

NUMBER = re.compile(r"(?<![\w.-])[-+−]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?")


def numbers(text: str) -> list[str]:
    """Every number of a text, as it is written.

    >>> numbers("It gains +2.5 points [-5.1, +10.4] (p 2e-06) on 1,000 samples of wrn16-4.")
    ['+2.5', '-5.1', '+10.4', '2e-06', '1,000']
    """
    return NUMBER.findall(text)


def in_order(text: str, *facts: str) -> bool:
    """Whether a text has all these facts, in this order.

    >>> in_order("cell a has 3 samples, cell b has 5", "a", "3", "b", "5")
    True
    >>> in_order("cell a has 3 samples, cell b has 5", "a", "5", "b", "3")
    False
    """
    place = 0
    for fact in facts:
        place = text.find(fact, place)
        if place < 0:
            return False
        place += len(fact)
    return True
