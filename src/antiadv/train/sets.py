"""The train and test split of a data set, as tensors.

read_sets("cifar10:dir=/data")      both splits of the imported set
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from antiadv.core import spec
from antiadv.core.errors import BadInput
from antiadv.data import DATASETS, Dataset


@dataclass(frozen=True, eq=False)
class Sets:
    name: str
    classes: int
    digest: str  # of the train split
    test_digest: str
    x: Tensor  # uint8 [N, H, W, C]
    y: Tensor  # int64 [N]
    test_x: Tensor
    test_y: Tensor


def read_sets(text: str) -> Sets:
    """Read both splits of a data set. A split in the spec is ignored."""
    train, test = _split(text, "train"), _split(text, "test")
    x, y = train.arrays()
    test_x, test_y = test.arrays()
    return Sets(
        spec.read(text, DATASETS, "data set").name,
        len(train.classes),
        train.digest,
        test.digest,
        torch.from_numpy(x),
        torch.from_numpy(y),
        torch.from_numpy(test_x),
        torch.from_numpy(test_y),
    )


def renamed(text: str, name: str) -> str:
    """Replace the name in a spec: `cifar10:dir=/data`, `cifar100` → `cifar100:dir=/data`."""
    _, colon, options = text.partition(":")
    return f"{name}{colon}{options}"


def images(x: Tensor) -> Tensor:
    """Convert uint8 [N, H, W, C] to float32 [N, C, H, W] in [0, 1]."""
    return x.permute(0, 3, 1, 2).contiguous().float() / 255


def _split(text: str, split: Literal["train", "test"]) -> Dataset:
    asked = spec.read(text, DATASETS, "data set")
    if "split" not in asked.options:
        raise BadInput(f"training needs a set with a train and a test split; {text} has none. Use cifar10 or cifar100.")
    dataset: Dataset = asked.factory(**{**asked.options, "split": split})
    return dataset
