"""What can be picked in the playground, and the check of what a page sent.

choices.json()          for the page: the networks, the attacks, the numbers with their bounds
choices.read(body)      the JSON of a page  →  Asked; anything else is refused with one sentence
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any  # what a JSON text holds

from antiadv import data, models
from antiadv.core.ball import Ball, Linf
from antiadv.core.errors import BadInput
from antiadv.data.dataset import Dataset
from antiadv.defences import BARE, DEFENCES

DATA = "cifar10:test"
LAYER = "anti_adversary"
NEED_MORE = ("self_ensemble", "robust_features")  # a network of their own, or a file
PLAIN = tuple(name for name in DEFENCES if name not in (LAYER, *NEED_MORE))  # with the settings of the catalogue
ATTACKS = {  # and what the attacker sees
    "square": "sees scores",
    "rays": "sees labels only",
    "pgd": "sees gradients of g",
    "apgd": "sees gradients of g",
    "fast": "sees gradients of g, and checks them",
    "transfer": "has f, and never asks g",
}


@dataclass(frozen=True)
class Number:
    """A slider: its bounds, its step and its first value."""

    least: float
    most: float
    step: float
    first: float
    whole: bool = False


NUMBERS = {
    "alpha": Number(0, 0.3, 0.005, 0.15),
    "steps": Number(0, 8, 1, 2, whole=True),
    "gate": Number(0.5, 1, 0.01, 1),
    "radius": Number(0.5, 32, 0.5, 8),  # in steps of a byte
    "queries": Number(10, 5000, 10, 500, whole=True),
}


@dataclass(frozen=True)
class Asked:
    """One attack, as a page asked for it. `sample` is None for the uploaded image."""

    network: str
    defence: str
    attack: str
    sample: int | None
    alpha: float
    steps: int
    gate: float
    radius: float
    queries: int
    paused: bool = False

    @property
    def defence_text(self) -> str:
        if self.defence != LAYER:
            return self.defence
        return f"{LAYER}:steps={self.steps},step_size={self.alpha!r},gate={self.gate!r}"

    @property
    def ball(self) -> Ball:
        return Linf(self.radius / 255)


def _networks() -> tuple[str, ...]:
    return tuple(card.spec for card in models.cards() if card.data.get("name") == "cifar10")


@dataclass(frozen=True)
class Choices:
    """See the head of this file."""

    networks: tuple[str, ...] = field(default_factory=_networks)
    images: Dataset = field(default_factory=lambda: data.load(DATA))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the images."""
        channels, height, width = self.images.images([0]).shape[1:]
        return channels, height, width

    def json(self) -> dict[str, Any]:
        return {
            "networks": self.networks,
            "data": self.images.name,
            "defences": [BARE, LAYER, *PLAIN],
            "attacks": ATTACKS,
            "numbers": {name: vars(number) for name, number in NUMBERS.items()},
            "samples": len(self.images),
            "classes": self.images.classes,
        }

    def read(self, body: bytes) -> Asked:
        try:
            sent = json.loads(body)
        except (ValueError, RecursionError):
            sent = None
        if not isinstance(sent, dict):
            raise BadInput("an attack is asked for with a JSON object; reload the page.")
        numbers = {name: _number(sent, name, number) for name, number in NUMBERS.items()}
        sample = sent.get("sample")
        if sample is not None and (type(sample) is not int or not 0 <= sample < len(self.images)):
            raise BadInput(f"a sample is a number from 0 to {len(self.images) - 1}; pick one of these.")
        return Asked(
            network=_one(sent, "network", self.networks),
            defence=_one(sent, "defence", (BARE, LAYER, *PLAIN)),
            attack=_one(sent, "attack", tuple(ATTACKS)),
            sample=sample,
            alpha=numbers["alpha"],
            steps=int(numbers["steps"]),
            gate=numbers["gate"],
            radius=numbers["radius"],
            queries=int(numbers["queries"]),
            paused=sent.get("paused") is True,
        )


def _one(sent: dict[str, Any], name: str, known: tuple[str, ...]) -> str:
    found = sent.get(name)
    if not isinstance(found, str) or found not in known:
        raise BadInput(f"{name} must be one of {', '.join(known)}; pick one of these.")
    return found


def _number(sent: dict[str, Any], name: str, number: Number) -> float:
    found = sent.get(name, number.first)
    sound = type(found) in (int, float) and number.least <= found <= number.most  # not math.isfinite: 10^400 is an int
    if not sound or (number.whole and found != int(found)):
        kind = "a whole number" if number.whole else "a number"
        raise BadInput(f"{name} must be {kind} from {number.least:g} to {number.most:g}; choose another value.")
    return float(found)
