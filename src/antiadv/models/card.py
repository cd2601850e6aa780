"""Card: what is known of a trained network, a json beside its weights, written when it is trained (train/card.py).

    NAME.safetensors     the weights, half precision as a rule
    NAME.json            how they were made, on what, and how well they do

`file["digest"]` is the sha256 of the file, `weights` that of the network once loaded (models.digest). Accuracies are
counts, so that an interval can be made of them. Whatever else a card says is kept, in `more`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any  # what a json file holds

from antiadv.core.bounds import WHOLE, read_text
from antiadv.core.errors import BadInput, reason
from antiadv.core.files import beside


@dataclass(frozen=True)
class Accuracy:
    """So many right, of so many."""

    hits: int
    total: int
    more: Mapping[str, Any] = field(default_factory=dict)  # how it was measured

    @property
    def share(self) -> float:
        return self.hits / self.total


@dataclass(frozen=True)
class Card:
    name: str  # of the file: "compact-cifar10-trades"
    architecture: str  # as said to `models.build`: "preact18:width=16"
    command: str
    epochs: int
    seconds: float
    hardware: str
    data: Mapping[str, Any]  # name, and the digests of train and test
    file: Mapping[str, Any]  # digest and bytes
    clean: Accuracy
    pgd20: Accuracy
    weights: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> str:
        """What to say to `models.load`: compact-cifar10-trades is `compact:trades`."""
        for data in ("cifar10", "cifar100"):
            model, found, variant = self.name.partition(f"-{data}-")
            if found:
                return f"{model}:{variant}" + (f",data={data}" if data != "cifar10" else "")
        return f"file:{self.name}.safetensors"


def write_card(card: Card, path: Path) -> None:
    lines = [f" {json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in _flat(card).items()]
    with beside(path) as part:
        part.write_text("{\n" + ",\n".join(lines) + "\n}\n")  # a line for each thing it says


def read_card(path: Path) -> Card:
    try:
        content = json.loads(read_text(path))
        content |= {key: Accuracy(**_folded(Accuracy, content[key])) for key in ("clean", "pgd20")}
        return _checked(Card(**_folded(Card, content)))
    except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise BadInput(
            f"{path} is not the card of a network: {reason(error)}; models/card.py says what one holds"
        ) from error


def _checked(card: Card) -> Card:
    """What others rely on: texts are texts, accuracies are counts, data and file say which they are."""
    texts = card.name, card.architecture, card.command, card.hardware, card.data["name"], card.file["digest"]
    if not all(isinstance(said, str) for said in texts) or not isinstance(card.weights, str | None):
        raise TypeError("a name, an architecture, a command or a digest is no text")
    for counted in (card.clean, card.pgd20):
        if not (type(counted.hits) is type(counted.total) is int and 0 <= counted.hits <= counted.total < WHOLE):
            raise TypeError(f"an accuracy is hits of a total; found {counted.hits!r} of {counted.total!r}"[:200])
        if counted.total == 0:
            raise TypeError("an accuracy of 0 images says nothing")
    if type(card.epochs) is not int or not isinstance(card.seconds, int | float):
        raise TypeError("its epochs or seconds are no numbers")
    return card


def _flat(value: Card | Accuracy) -> dict[str, Any]:
    """As json: what is in `more` stands beside the rest."""
    own = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.name != "more"}
    return {k: _flat(v) if isinstance(v, Accuracy) else v for k, v in own.items() if v is not None} | dict(value.more)


def _folded(kind: type[Card | Accuracy], content: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse: what the class has no field for, in `more`."""
    known = {f.name for f in dataclasses.fields(kind)} - {"more"}
    own = {key: value for key, value in content.items() if key in known}
    return own | {"more": {key: value for key, value in content.items() if key not in known}}
