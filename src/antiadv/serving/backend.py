"""What answers requests: one interface for eager PyTorch and for exported files.

    backend.run(images)   float32 images [N, C, H, W] in [0, 1]  →  Answer(scores [N, K], base_scores [N, K] or None)

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
