"""The attacks: `ATTACKS = {name: class}`. To add one, write a file in the folder of its access level and a line below.

The folders are the access levels: decision_based < score_based < white_box < adaptive.
"""

from __future__ import annotations

from collections.abc import Callable

from antiadv.attacks.adaptive.adaptive import Adaptive
from antiadv.attacks.adaptive.bpda import BPDA
from antiadv.attacks.adaptive.eot import EOT
from antiadv.attacks.adaptive.pseudo_label import PseudoLabel
from antiadv.attacks.adaptive.smooth import Smooth
from antiadv.attacks.adaptive.transfer import Transfer
from antiadv.attacks.autoattack import Autoattack
from antiadv.attacks.cascade import Cascade
from antiadv.attacks.decision_based.boundary import Boundary
from antiadv.attacks.decision_based.hop_skip_jump import HopSkipJump
from antiadv.attacks.decision_based.qeba import Qeba
from antiadv.attacks.decision_based.rays import Rays
from antiadv.attacks.score_based.bandits import Bandits
from antiadv.attacks.score_based.nes import NES
from antiadv.attacks.score_based.simba import Simba
from antiadv.attacks.score_based.square import Square
from antiadv.attacks.white_box.apgd import APGD
from antiadv.attacks.white_box.fab import FAB
from antiadv.attacks.white_box.pgd import PGD
from antiadv.core import spec
from antiadv.core.attack import Attack

ATTACKS: dict[str, Callable[..., Attack]] = {
    "pgd": PGD,
    "apgd": APGD,
    "fab": FAB,
    "cascade": Cascade,
    "autoattack": Autoattack,
    "nes": NES,
    "bandits": Bandits,
    "simba": Simba,
    "square": Square,
    "boundary": Boundary,
    "hop_skip_jump": HopSkipJump,
    "qeba": Qeba,
    "rays": Rays,
    "transfer": Transfer,
    "bpda": BPDA,
    "smooth": Smooth,
    "pseudo_label": PseudoLabel,
    "eot": EOT,
    "adaptive": Adaptive,
}


def parse(text: str) -> Attack:
    """`pgd:steps=40` to the attack it names."""
    attack: Attack = spec.parse(text, ATTACKS, "attack")
    return attack


def full_text(attack: Attack) -> str:
    """The spec with every default filled in and the editions of all parts: what a cell's key holds."""
    return f"{spec.full(attack)}@{'.'.join(map(str, _editions(attack)))}"


def _editions(attack: Attack) -> list[int]:
    parts = spec.spec_of(attack).options.values()
    inner = [p for value in parts for p in (value if isinstance(value, tuple) else (value,)) if isinstance(p, Attack)]
    return [attack.edition, *(e for part in inner for e in _editions(part))]
