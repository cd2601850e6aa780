"""What answers requests: one interface for eager PyTorch and for exported files.

    backend.run(images)   float32 images [N, C, H, W] in [0, 1]  →  Answer(scores [N, K], base_scores [N, K] or None)

    Checked(backend)      the same for use in Python: it refuses images that the server's protocol refuses

`base_scores` are the scores of the bare network f on the same images. A defence that computes them anyway returns them
at no cost. From them a server counts changed labels and gated samples. A backend is called from one thread at a time.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import nn

from antiadv.core.defence import Defence
from antiadv.core.errors import BadInput, first_line
from antiadv.core.spec import name_of
from antiadv.core.validation import OVERSHOOT

Images = NDArray[np.float32]


@dataclass(frozen=True)
class Answer:
    """The scores of a batch, and those of the bare network if the backend has them."""

    scores: NDArray[np.float32]
    base_scores: NDArray[np.float32] | None = None


class Backend(Protocol):
    """See the head of this file. `kind` is its name in metadata and metrics: `eager`, `graph`, `onnx`."""

    @property
    def kind(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image, such as (3, 32, 32)."""

    @property
    def classes(self) -> int: ...

    def run(self, images: Images) -> Answer: ...


class Checked:
    """See the head of this file. The server checks requests itself, and asks the backend inside."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.kind, self.shape, self.classes = backend.kind, backend.shape, backend.classes

    def run(self, images: Images) -> Answer:
        found = f"{images.dtype} {images.shape}" if isinstance(images, np.ndarray) else type(images).__name__
        if not isinstance(images, np.ndarray) or images.dtype != np.float32 or images.shape[1:] != self.shape:
            wanted = str(["n", *self.shape]).replace("'", "")
            raise BadInput(f"images must be a numpy array of float32 {wanted} in [0, 1]; found {found}. Convert them.")
        if (wrong := wrong_pixels(images)) is not None:
            raise BadInput(wrong)
        return self._backend.run(images)


def wrong_pixels(images: Images) -> str | None:
    """One sentence on the first image with NaN, infinity or pixels outside [0, 1]; None if there is none."""
    least, most = -OVERSHOOT, 1 + OVERSHOOT
    if images.size == 0 or (images.min() >= least and images.max() <= most):  # false for NaN
        return None
    flat = images.reshape(len(images), -1)
    row = int((~((flat >= least) & (flat <= most)).all(1)).argmax())
    what = "pixels outside [0, 1]" if np.isfinite(flat[row]).all() else "pixels that are not finite"
    return f"row {row} has {what}; scale pixels to [0, 1] and do not normalise them."


def check_no_memory(model: nn.Module) -> None:
    """Refuse a defence that remembers queries: without its memory it is the bare network."""
    for part in model.modules():
        if isinstance(part, Defence) and part.session() is not None:
            raise BadInput(
                f"{name_of(type(part))} remembers what each client asked, but a server and an exported file do not, so "
                "the bare network would answer. Choose another defence; antiadv evaluate measures this one."
            )


def copied(model: nn.Module) -> nn.Module:
    """A copy to serve or export, so that the network itself stays as it is."""
    try:
        return copy.deepcopy(model)
    except Exception as error:  # whatever other code raises
        raise BadInput(
            f"a classifier to serve or export must be one that can be copied; copying fails ({first_line(error)}). "
            "Build it anew from its weights."
        ) from error
