"""Card: the description of a trained network, a JSON file next to its weights. `train/card.py` writes it.

    NAME.safetensors     the weights, usually in half precision
    NAME.json            how they were made, on which data, and how well they do

`file["digest"]` is the sha256 of the file; `weights` is that of the loaded network (`models.digest`). Accuracies are
counts, so that intervals can be computed from them. Unknown entries are kept in `more`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any  # values of a JSON file

from antiadv.core.bounds import WHOLE, read_json
from antiadv.core.errors import BadInput, reason
from antiadv.core.files import write_entries


@dataclass(frozen=True)
class Accuracy:
    """The number of correct predictions, and the number of images."""

    hits: int
    total: int
    more: Mapping[str, Any] = field(default_factory=dict)  # how it was measured

    @property
    def share(self) -> float:
        return self.hits / self.total


@dataclass(frozen=True)
class Card:
    name: str  # stem of the file: "compact-cifar10-trades"
    architecture: str  # spec for `models.build`: "preact18:width=16"
    command: str
    epochs: int
    seconds: float
    hardware: str
    data: Mapping[str, Any]  # name, digests of train and test
    file: Mapping[str, Any]  # digest, bytes
    clean: Accuracy
    pgd20: Accuracy
    weights: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> str:
        """The text for `models.load`: `compact:trades` for compact-cifar10-trades."""
        for data in ("cifar10", "cifar100"):
            model, separator, variant = self.name.partition(f"-{data}-")
            if separator:
                return f"{model}:{variant}" + (f",data={data}" if data != "cifar10" else "")
        return f"file:{self.name}.safetensors"


def write_card(card: Card, path: Path) -> None:
    write_entries(path, _flat(card))


def read_card(path: Path) -> Card:
    """Read and check a card."""
    try:
        content = read_json(path)
        content |= {key: Accuracy(**_folded(Accuracy, content[key])) for key in ("clean", "pgd20")}
        return _checked(Card(**_folded(Card, content)))
    except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise BadInput(
            f"{path} is not the card of a network: {reason(error)}; see models/card.py for its entries"
        ) from error


def _checked(card: Card) -> Card:
    texts = card.name, card.architecture, card.command, card.hardware, card.data["name"], card.file["digest"]
    if not all(isinstance(text, str) for text in texts) or not isinstance(card.weights, str | None):
        raise TypeError("a name, architecture, command or digest is not a text")
    for found in (card.clean, card.pgd20):
        if not (type(found.hits) is type(found.total) is int and 0 <= found.hits <= found.total < WHOLE):
            raise TypeError(f"an accuracy is hits of a total; found {found.hits!r} of {found.total!r}"[:200])
        if found.total == 0:
            raise TypeError("an accuracy needs at least one image")
    if type(card.epochs) is not int or not isinstance(card.seconds, int | float):
        raise TypeError("epochs or seconds are not numbers")
    return card


def _flat(value: Card | Accuracy) -> dict[str, Any]:
    """As JSON: the entries of `more` next to the fields."""
    own = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.name != "more"}
    return {k: _flat(v) if isinstance(v, Accuracy) else v for k, v in own.items() if v is not None} | dict(value.more)


def _folded(kind: type[Card | Accuracy], content: Mapping[str, Any]) -> dict[str, Any]:
    """Invert `_flat`: entries without a field go to `more`."""
    known = {f.name for f in dataclasses.fields(kind)} - {"more"}
    own = {key: value for key, value in content.items() if key in known}
    return own | {"more": {key: value for key, value in content.items() if key not in known}}
