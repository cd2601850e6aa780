"""Cell, Record, Receipt: one run, the result of each of its samples, and its cost.

    Cell       data, model, defence, attack, threat, seed, precision, looks     a value; its `key` names its folder
    Record     the result for one sample                          the same on every machine
    Receipt    what a shard cost, and where it ran                never compared

The key covers everything that can change a result: the specs with their defaults filled in, the digests of weights and
images, the editions of attack and defence, the threat, the seed, the precision of the search, the judge's looks where
they are not ten, the content of files that the attack reads, and FORMAT. The samples are not part of it: asking for ten
thousand samples after one thousand continues the same cell.
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
LOOKS = 10  # default: how often the judge asks a randomised defence about one image

Identity = dict[str, str | int]  # everything that the key covers


@dataclass(frozen=True)
class Cell:
    """One run. `make_cell` makes cells and finds their digests; a worker checks the digests against what it loads.

    `weights` and `images` are digests. `looks` is how often the judge asks a randomised defence; for any other model it
    is LOOKS and has no effect. `files` is the digest of the files that the attack reads (QEBA's basis), or empty.
    `earlier` is the full text of the attack in an earlier edition that is still shown, and empty for the present one.
    A store sets it; such a cell can be read, but not run.
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
    earlier: str = ""

    @property
    def own_looks(self) -> dict[str, int]:
        """The looks, where they are not LOOKS: so cells stored before there was a choice keep their keys."""
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
            "attack": self.earlier or attacks.full_text(attacks.parse(self.attack)),
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
        """The command that makes this cell's records again; None for a network or images in hand."""
        if not models.is_known(self.model) or self.data.partition(":")[0].strip() not in data.DATASETS:
            return None
        words = ["--data", data.canonical(self.data), "--model", models.label(self.model)]
        words += ["--defence", self.defence, "--attack", self.attack, "--threat", str(self.threat)]
        samples = self.samples if self.samples.step > 0 else self.samples[::-1]
        words += ["--samples", f"{samples.start}:{samples.stop}"]
        words += ["--seed", str(self.seed)] if self.seed else []
        words += ["--precision", self.precision]  # the default depends on the device
        words += ["--looks", str(self.looks)] if self.own_looks else []
        words += ["--authorised"] if models.is_elsewhere(self.model) else []
        return shlex.join(["antiadv", "evaluate", *words])


def key_of(identity: Identity) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:20]


def make_threat(threat: Threat | str, attack: Attack) -> Threat:
    """The threat, checked against the attack. A text without access gets the access that the attack needs."""
    value = parse_threat(threat, attack.access) if isinstance(threat, str) else threat
    if not isinstance(value, Threat):
        raise BadInput(f"a threat is a Threat, or a text such as linf:8/255; found {value!r}. Give one of these.")
    check_attack(attack, value)
    return value


def read_threat(text: str) -> Threat:
    """The threat of a stored text, which always names its access."""
    return parse_threat(text, Access.LABELS)


def normal_attack(attack: Attack | str) -> str:
    """The spec of an attack. It is parsed once, because a store must be able to read it back."""
    normal = text(attacks.parse(attack) if isinstance(attack, str) else attack)
    attacks.parse(normal)
    return normal


def parse_samples(text: str) -> range:
    """Both `0:100` and `100` are the samples 0 … 99."""
    start, colon, stop = text.partition(":")
    try:
        value = range(int(start or 0), int(stop)) if colon else range(int(start))
        count = len(value)
    except (ValueError, OverflowError):
        raise BadInput(f"samples are written START:STOP, for example 0:100; found {text!r}.") from None
    if count == 0 or value.start < 0:
        raise BadInput(f"samples must name at least one, from 0 on, for example 0:100; found {text!r}.")
    return value


@dataclass(frozen=True, slots=True)
class Record:
    """One sample. `…_confidence` is the probability of the predicted class, `…_truth` that of the true class.

    `base_…` is the label that the base network gives to the same images. `draws` counts the looks of the judge (more
    than one for a randomised defence), and `…_right` the looks in which the true class was predicted.
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
    """A cell and some of its samples. Small, so that it can be sent to any worker."""

    cell: Cell
    ids: tuple[int, ...]
