"""The attacks: `ATTACKS = {name: class}`. To add one, write a file in the folder of its access level and a line below.

The folders are the access levels: decision_based < score_based < white_box < adaptive. `_search/` holds what searches
share. `cascade.py` runs other attacks in order, and needs the access of its stages. `foreign/` calls other libraries'.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from antiadv.attacks.adaptive.adaptive import Adaptive
from antiadv.attacks.adaptive.bpda import BPDA
from antiadv.attacks.adaptive.eot import EOT
from antiadv.attacks.adaptive.go_on import GoOn
from antiadv.attacks.adaptive.pseudo_label import PseudoLabel
from antiadv.attacks.adaptive.smooth import Smooth
from antiadv.attacks.adaptive.straight_through import StraightThrough
from antiadv.attacks.adaptive.transfer import Transfer
from antiadv.attacks.cascade import Cascade
from antiadv.attacks.decision_based.boundary import Boundary
from antiadv.attacks.decision_based.hop_skip_jump import HopSkipJump
from antiadv.attacks.decision_based.qeba import Qeba
from antiadv.attacks.decision_based.rays import Rays
from antiadv.attacks.foreign.libraries import LIBRARIES
from antiadv.attacks.score_based.bandits import Bandits
from antiadv.attacks.score_based.nes import NES
from antiadv.attacks.score_based.simba import Simba
from antiadv.attacks.score_based.square import Square
from antiadv.attacks.white_box.apgd import APGD
from antiadv.attacks.white_box.autoattack import Autoattack
from antiadv.attacks.white_box.fab import FAB
from antiadv.attacks.white_box.fast import Fast
from antiadv.attacks.white_box.minimum_margin import MinimumMargin
from antiadv.attacks.white_box.minimum_norm import MinimumNorm
from antiadv.attacks.white_box.pgd import PGD
from antiadv.attacks.white_box.probability_margin import ProbabilityMargin
from antiadv.core import spec
from antiadv.core.attack import Attack
from antiadv.core.errors import BadInput
from antiadv.core.threat import Access

ATTACKS: dict[str, Callable[..., Attack]] = {
    "pgd": PGD,
    "apgd": APGD,
    "fab": FAB,
    "minimum_norm": MinimumNorm,
    "minimum_margin": MinimumMargin,
    "probability_margin": ProbabilityMargin,
    "cascade": Cascade,
    "autoattack": Autoattack,
    "fast": Fast,
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
    "straight_through": StraightThrough,
    "smooth": Smooth,
    "pseudo_label": PseudoLabel,
    "go_on": GoOn,
    "eot": EOT,
    "adaptive": Adaptive,
}


def parse(text: str) -> Attack:
    """The attack that a spec such as `pgd:steps=40` names."""
    attack: Attack = spec.parse(text, {**ATTACKS, **LIBRARIES}, "attack")
    return attack


def full_text(attack: Attack) -> str:
    """The spec with every default and the editions of all parts, as a cell's key holds it."""
    return f"{spec.full(attack)}@{'.'.join(str(part.edition) for part in parts(attack))}"


def files_digest(attack: Attack, more: Sequence[str] = ()) -> str:
    """sha256 over the files that the attack and its parts read, then over `more` files; empty if there are none."""
    read = [path for part in parts(attack) for path in getattr(part, "files", ())]
    contents = [_content(path) for path in (*read, *more)]
    total = hashlib.sha256(b"".join(hashlib.sha256(content).digest() for content in contents))
    return f"sha256:{total.hexdigest()}" if contents else ""


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise BadInput(
            f"path={path} must name a file that can be read; found none ({error.strerror}). Create it first."
        ) from error


def needs_gradients(attack: Attack) -> bool:
    """Whether it, or an attack that it runs, asks for gradients of a network.

    >>> [needs_gradients(parse(text)) for text in ("rays", "pgd", "transfer:attack=square", "transfer:attack=pgd")]
    [False, True, False, True]
    """
    return any(part.access >= Access.GRADIENTS for part in parts(attack) if len(parts(part)) == 1)


def parts(attack: Attack) -> list[Attack]:
    """The attack, then the attacks among its options, each followed by its own parts."""
    options = spec.spec_of(attack).options.values()
    inner = [p for value in options for p in (value if isinstance(value, tuple) else (value,)) if isinstance(p, Attack)]
    return [attack, *(p for part in inner for p in parts(part))]
