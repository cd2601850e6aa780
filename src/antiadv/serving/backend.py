"""What answers requests: one interface for eager PyTorch and for exported files.

    backend.run(images)   float32 images [N, C, H, W] in [0, 1]  →  Answer(scores [N, K], base_scores [N, K] or None)

`base_scores` are the scores of the bare network f on the same images. A defence that computes them anyway returns them
at no cost. From them a server counts changed labels and gated samples. A backend is called from one thread at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

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
