"""A bundle: a folder with an exported model and the card that describes it. Opening one runs nothing that it brings.

    bundle = open_bundle("folder")
    bundle.card, bundle.class_names, bundle.shape, bundle.classes
    bundle.backend(threads=2).run(images)  →  Answer

    bundle.json      the card: texts of model and defence, input, classes, digests, versions, the check of the export
    model.onnx       or model.pt2, model.aoti.pt2

The card is read with a limit on its size, and every entry is checked. The model file must be a plain file in the folder
with the size and digest of the card. An ONNX file is checked as bytes and loaded from the same bytes. The two PyTorch
formats can run code, so they are opened only with `trust=True`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # values of a JSON file

from antiadv.core.bounds import read_json
from antiadv.core.errors import BadInput, reason
from antiadv.core.files import write_entries
from antiadv.core.validation import is_count
from antiadv.serving.backend import Backend, Checked

FORMAT = 1
CARD = "bundle.json"
FILES = {"onnx": "model.onnx", "pt2": "model.pt2", "aoti": "model.aoti.pt2"}

LARGEST_CARD = 2**20  # bytes
LARGEST_MODEL = 2**31 - 1  # bytes: protobuf ends there
MOST_CLASSES = 2**20
MOST_PIXELS = 2**28  # of one image

Card = Mapping[str, Any]


@dataclass(frozen=True)
class Bundle:
    """A card that was checked, and where it lies."""

    path: Path
    card: Card
    trust: bool = False

    @property
    def kind(self) -> str:
        return str(self.card["kind"])

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.card["input"]["shape"])

    @property
    def classes(self) -> int:
        return int(self.card["classes"])

    @property
    def class_names(self) -> tuple[str, ...]:
        """Empty if the data set does not name its classes."""
        return tuple(self.card["class_names"])

    def backend(self, threads: int | None = None, provider: str = "cpu") -> Backend:
        """What answers: ONNX Runtime with this number of threads, or PyTorch. It checks its images."""
        return Checked(self.unchecked(threads, provider))

    def unchecked(self, threads: int | None = None, provider: str = "cpu") -> Backend:
        """The same for a server, which checks its requests itself."""
        if self.kind == "onnx":
            from antiadv.serving.onnx_backend import OnnxBackend

            return OnnxBackend(self._content(), self.shape, self.classes, threads, provider)
        if not self.trust:
            raise BadInput(
                f"{self.path} holds a {self.kind} file, which can run code of its maker. "
                "Say that you trust it (trust=True, --trust), or export it again as onnx."
            )
        from antiadv.serving.pt2_backend import AotiBackend, Pt2Backend

        self._content()  # compares size and digest
        chosen = AotiBackend if self.kind == "aoti" else Pt2Backend
        return chosen(self.path / FILES[self.kind], self.shape, self.classes, threads)

    def _content(self) -> bytes:
        """The bytes of the model file. They are read once, so what is loaded is what was compared."""
        name = FILES[self.kind]
        path, said = self.path / name, self.card["files"][name]
        try:
            if path.is_symlink() or not path.is_file():
                raise BadInput(f"{path} must be a plain file of the bundle; found none. Get the bundle again.")
            with path.open("rb") as file:
                content = file.read(said["bytes"] + 1)
        except OSError as error:
            raise BadInput(f"{path} cannot be read: {reason(error)}. Get the bundle again.") from error
        if len(content) != said["bytes"] or _digest(content) != said["digest"]:
            raise BadInput(f"{path} is not the file that {CARD} describes: it was cut or edited. Get the bundle again.")
        return content


def open_bundle(path: str | Path, *, trust: bool = False) -> Bundle:
    """Read and check the card of a bundle. With `trust`, formats that can run code are opened too.

    >>> import antiadv, tempfile, torch
    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3)).eval()
    >>> images = torch.linspace(0, 1, 48).view(4, 3, 2, 2)
    >>> made = antiadv.export(net, images, Path(tempfile.mkdtemp()) / "bundle", "pt2")
    >>> antiadv.open_bundle(made.path, trust=True).backend().run(images.numpy()).scores.shape
    (4, 3)
    """
    folder = Path(path).expanduser()
    card = folder / CARD
    if not card.is_file():
        raise BadInput(f"{folder} is no bundle: it has no file {CARD}. Make one with antiadv export.")
    try:
        found = read_json(card, LARGEST_CARD)
        _check_card(found)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadInput(f"{card} is not the card of a bundle: {_why(error)}. Get the bundle again.") from error
    return Bundle(folder, found, trust)


def write_card(folder: Path, entries: Card) -> None:
    """Add size and digest of the model file, and write the card."""
    name = FILES[entries["kind"]]
    content = (folder / name).read_bytes()
    whole = {"format": FORMAT, **entries, "files": {name: {"bytes": len(content), "digest": _digest(content)}}}
    _check_card(whole)
    write_entries(folder / CARD, whole)


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _why(error: BaseException) -> str:
    return f"it has no entry {error}" if isinstance(error, KeyError) else reason(error)


def _check_card(card: Any) -> None:
    """Every entry that the library reads has the right type and a possible value. Raises ValueError or KeyError."""
    _must(isinstance(card, dict), "it is not an object")
    _must(card["format"] == FORMAT, f"format is {FORMAT} in this version; found {card['format']!r:.40}")
    kind = card["kind"]
    _must(isinstance(kind, str) and kind in FILES, f"kind is one of {', '.join(FILES)}; found {kind!r:.40}")
    for name in ("model", "defence", "weights"):
        _must(isinstance(card[name], str), f"{name} is not a text")
    for name in ("input", "files", "versions", "check"):
        _must(isinstance(card[name], dict), f"{name} is not an object")
    shape = card["input"]["shape"]
    sizes = isinstance(shape, list) and 0 < len(shape) <= 4 and all(is_count(size, 1) for size in shape)
    _must(sizes, "shape is not a list of sizes")
    _must(math.prod(shape) <= MOST_PIXELS, f"an image has at most {MOST_PIXELS:,} values")
    classes, names = card["classes"], card["class_names"]
    _must(is_count(classes, 2, MOST_CLASSES), "classes is not a number of classes")
    _must(
        isinstance(names, list) and all(isinstance(name, str) for name in names), "class_names is not a list of texts"
    )
    _must(len(names) in (0, classes), f"there are {classes} classes and {len(names)} class_names")
    said = card["files"][FILES[kind]]
    _must(isinstance(said, dict) and is_count(said["bytes"], 1), "the size of the model file is not a number")
    _must(said["bytes"] <= LARGEST_MODEL, f"a model file has at most {LARGEST_MODEL:,} bytes")
    _must(isinstance(said["digest"], str), "the digest of the model file is not a text")


def _must(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
