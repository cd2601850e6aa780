"""What the page shows of an attack. The attack's thread writes it, the server's threads read it.

Frame    one image: the picture, the perturbation magnified, the probabilities of f and g
Track    one attack on the image: its margin at every query, the last frame, how it ended
Story    the clean image and its tracks: the attack that was picked, then the adaptive attacker
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any  # what a JSON answer holds

import torch
from torch import Tensor, nn

from antiadv.data.pictures import data_uri, magnified, png

GOING = ("loading", "running", "paused")  # the states in which an attack has not ended


@dataclass(frozen=True)
class Frame:
    """The page's view of one image. `distance` is its Linf distance from the clean image, in steps of a byte."""

    image: str
    change: str
    factor: float
    distance: float
    f: tuple[float, ...]
    g: tuple[float, ...]
    queries: int = 0

    def json(self) -> dict[str, Any]:
        return vars(self)


@dataclass
class Track:
    """`asked` is the classifier that the attack asks, f or g. A point is (images sent so far, margin)."""

    attack: str
    asked: str
    points: list[tuple[int, float]] = field(default_factory=list)
    frame: Frame | None = None
    sent: int = 0
    fooled: bool | None = None  # None until the judge has decided
    sentence: str = ""

    def json(self, after: int) -> dict[str, Any]:
        frame = None if self.frame is None else self.frame.json()
        more = {"points": self.points[after:], "first": after, "frame": frame}
        return {**{k: v for k, v in vars(self).items() if k not in more}, **more}


class Story:
    """See the head of this file. `status` is idle, loading, running, paused, ended, stopped or failed."""

    def __init__(self, classes: Sequence[str] = (), title: str = "") -> None:
        self.classes, self.title = tuple(classes), title
        self.status, self.sentence = "idle", ""
        self.label: int | None = None
        self.clean: Frame | None = None
        self.tracks: list[Track] = []
        self.lock = threading.Lock()

    def called(self, label: int) -> str:
        """The name of a class, or its number if the data set does not name it."""
        return self.classes[label] if label < len(self.classes) else f"class {label}"

    def set(self, status: str, sentence: str = "") -> None:
        with self.lock:
            self.status, self.sentence = status, sentence

    def json(self, after: Sequence[int] = ()) -> dict[str, Any]:
        """For the page. `after` are the numbers of points that it has already, one for each track."""
        with self.lock:
            known = [*after, *[0] * len(self.tracks)]
            return {
                "status": self.status,
                "sentence": self.sentence,
                "title": self.title,
                "classes": self.classes,
                "label": self.label,
                "clean": None if self.clean is None else self.clean.json(),
                "tracks": [track.json(known[i]) for i, track in enumerate(self.tracks)],
            }


def make_frame(f: nn.Module, g: nn.Module, x: Tensor, z: Tensor, queries: int = 0) -> Frame:
    """Ask f and g about one image [1, C, H, W]. These passes are for the page and are not counted as queries."""
    with torch.no_grad():
        odds = [model(z).double().softmax(1)[0].tolist() for model in (f, g)]
    d = (z - x)[0]
    change, factor = magnified(d)
    distance = round(255 * float(d.abs().max()), 2)
    rounded = [tuple(round(p, 4) for p in one) for one in odds]
    return Frame(
        data_uri(png(z[0])), data_uri(png(change)), round(factor, 2), distance, rounded[0], rounded[1], queries
    )
