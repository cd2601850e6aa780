"""The attacks: `ATTACKS = {name: class}`. To add one, write a file in the folder of its access level and a line below.

The folders are the access levels: decision_based < score_based < white_box < adaptive.
"""

from __future__ import annotations

from collections.abc import Callable

from antiadv.attacks.adaptive.transfer import Transfer
from antiadv.attacks.score_based.square import Square
from antiadv.attacks.white_box.pgd import PGD
from antiadv.core import spec
from antiadv.core.attack import Attack

ATTACKS: dict[str, Callable[..., Attack]] = {
    "pgd": PGD,
    "square": Square,
    "transfer": Transfer,
}


def parse(text: str) -> Attack:
    """`pgd:steps=40` to the attack it names."""
    attack: Attack = spec.parse(text, ATTACKS, "attack")
    return attack


def full_text(attack: Attack) -> str:
    """The spec with every default filled in and the versions of all parts: what a cell's key holds."""
    return f"{spec.full(attack)}@{'.'.join(map(str, _versions(attack)))}"


def _versions(attack: Attack) -> list[int]:
    parts = spec.spec_of(attack).options.values()
    inner = [p for value in parts for p in (value if isinstance(value, tuple) else (value,)) if isinstance(p, Attack)]
    return [attack.version, *(v for part in inner for v in _versions(part))]
