"""Cell, Record, Receipt: one run that a table is made of, what happened to each of its samples, and what that cost.

    Cell       data, model, defence, attack, threat, seed, precision, looks     a value; its `key` names its folder
    Record     what happened to one sample                       facts, never averages; equal wherever it was made
    Receipt    what a shard cost, and where it ran               never part of a comparison

The key covers all that decides a sample's fate: the specs with their defaults filled in, the digests of weights and
images, the editions of attack and defence, the threat, the seed, the precision that searched (the judge's is always
float32), the judge's looks where they are not ten, the content of a file that the attack reads, and FORMAT. The samples
are not in it: they stand alone, so asking for ten thousand after a thousand is a resume, not a new cell.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from dataclasses import dataclass, field, fields

from antiadv import attacks, data, defences, models
from antiadv.core.attack import Attack, check_attack
from antiadv.core.errors import BadInput
from antiadv.core.spec import text
from antiadv.core.threat import Access, Threat, parse_threat
from antiadv.engine.meter import Receipt as Receipt

FORMAT = 1
LOOKS = 10  # how often the judge looks at a randomised defence, unless told otherwise

Identity = dict[str, str | int]  # all that decides a sample's fate, in words and digests


@dataclass(frozen=True)
class Cell:
    """`weights` and `images` are digests; `make_cell` finds them, and a worker checks them against what it loads.

    `looks` is how often the judge looks at a randomised defence; for any other model it is LOOKS, and means nothing.
    `files` is the digest of the files that the attack reads (QEBA's basis), empty where it reads none.
    """

    data: str
    images: str
    model: str
    weights: str
    defence: str
    attack: str
    threat: Threat
    samples: range = field(compare=False)
    seed: int = 0
    precision: str = "float32"
    looks: int = LOOKS
    files: str = ""

    @property
    def own_looks(self) -> dict[str, int]:
        """The looks, where they are not LOOKS: what was stored before they could be chosen keeps its key."""
        return {} if self.looks == LOOKS else {"looks": self.looks}

    @property
    def own_files(self) -> dict[str, str]:
        """The files, where there are any: so all other cells keep their keys."""
        return {"files": self.files} if self.files else {}

    @property
    def identity(self) -> Identity:
        return {
            "format": FORMAT,
            "data": data.canonical(self.data),
            "images": self.images,
            "model": models.canonical(self.model),
            "weights": self.weights,
            "defence": defences.full_text(self.defence),
            "attack": attacks.full_text(attacks.parse(self.attack)),
            "threat": str(self.threat),
            "seed": self.seed,
            "precision": self.precision,
            **self.own_looks,
            **self.own_files,
        }

    @property
    def key(self) -> str:
        return key_of(self.identity)

    @property
    def command(self) -> str | None:
        """The command that makes this cell's records again; there is none for a network or images in hand."""
        if not models.is_known(self.model) or self.data.partition(":")[0].strip() not in data.DATASETS:
            return None
        said = ["--data", data.canonical(self.data), "--model", models.label(self.model)]
        said += ["--defence", self.defence, "--attack", self.attack, "--threat", str(self.threat)]
        samples = self.samples if self.samples.step > 0 else self.samples[::-1]
        said += ["--samples", f"{samples.start}:{samples.stop}"]
        said += ["--seed", str(self.seed)] if self.seed else []
        said += ["--precision", self.precision] if self.precision != "float32" else []
        said += ["--looks", str(self.looks)] if self.own_looks else []
        return shlex.join(["antiadv", "evaluate", *said])


def key_of(identity: Identity) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:20]


def make_threat(threat: Threat | str, attack: Attack) -> Threat:
    """A threat, or its text with the access left out: then what the attack needs. Checked against the attack."""
    value = parse_threat(threat, attack.access) if isinstance(threat, str) else threat
    if not isinstance(value, Threat):
        raise BadInput(f"a threat is a Threat, or a text such as linf:8/255; found {value!r}. Give one of these.")
    check_attack(attack, value)
    return value


def read_threat(text: str) -> Threat:
    """The text of a stored threat, which always names its access."""
    return parse_threat(text, Access.LABELS)


def normal_attack(attack: Attack | str) -> str:
    """Its text, which reads back as the same attack: a store could not be read otherwise."""
    said = text(attacks.parse(attack) if isinstance(attack, str) else attack)
    attacks.parse(said)
    return said


def parse_samples(said: str) -> range:
    """`0:100` or `100` to the samples 0 … 99."""
    start, colon, stop = said.partition(":")
    try:
        value = range(int(start or 0), int(stop)) if colon else range(int(start))
        count = len(value)
    except (ValueError, OverflowError):
        raise BadInput(f"samples are written START:STOP, for example 0:100; found {said!r}.") from None
    if count == 0 or value.start < 0:
        raise BadInput(f"samples must name at least one, from 0 on, for example 0:100; found {said!r}.")
    return value


@dataclass(frozen=True, slots=True)
class Record:
    """One sample. `…_confidence` is the probability of the predicted class, `…_truth` that of the true class.

    `base_…` is what the bare classifier says of the same images. `draws` counts the looks the judge took (more than
    one for a randomised defence), and `…_right` in how many of them the class was the true one.
    """

    sample: int
    label: int
    clean: int
    attacked: int
    base_clean: int
    base_attacked: int
    distance: float
    queries: int
    gradients: int
    zeros: int
    clean_confidence: float
    clean_truth: float
    attacked_confidence: float
    attacked_truth: float
    draws: int
    clean_right: int
    attacked_right: int


COLUMNS = tuple(f.name for f in fields(Record))


@dataclass(frozen=True)
class Job:
    """A cell and some of its samples: small enough to send anywhere."""

    cell: Cell
    ids: tuple[int, ...]
