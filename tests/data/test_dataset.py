"""Dataset: tensors for ids, in the given order; unknown ids are refused."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
import pytest
import torch

from antiadv.core.errors import BadInput
from antiadv.data.dataset import Dataset, digest

X = np.arange(4 * 2 * 5 * 3, dtype=np.uint8).reshape(4, 2, 5, 3)
Y = np.array([2, 0, 1, 2])


@pytest.fixture
def dataset() -> Dataset:
    return Dataset("toy:test", ("a", "b", "c"), digest(X, Y), X, Y, "there are only four")


def test_images_and_labels_come_in_the_order_asked(dataset: Dataset) -> None:
    for ids in ([3, 0, 3], torch.tensor([3, 0, 3]), np.array([3, 0, 3]), (3, 0, 3)):
        images = dataset.images(ids)
        assert images.shape == (3, 3, 2, 5)
        assert images.is_contiguous()
        assert images[1, 2, 1, 4] == X[0, 1, 4, 2] / np.float32(255)
        assert torch.equal(images[0], images[2])
        assert dataset.labels(ids).tolist() == [2, 2, 2]
        assert dataset.labels(ids).dtype == torch.int64


def test_classes_are_called_by_their_names_or_numbers(dataset: Dataset) -> None:
    assert [dataset.called(k) for k in range(3)] == ["a", "b", "c"]
    assert dataclasses.replace(dataset, classes=()).called(7) == "class 7"


def test_nothing_asked_is_nothing_given(dataset: Dataset) -> None:
    assert dataset.images([]).shape == (0, 3, 2, 5)
    assert dataset.labels(range(0)).shape == (0,)


def test_ids_that_are_no_whole_numbers(dataset: Dataset) -> None:
    for wrong in ([0.5], torch.tensor([True]), slice(2)):
        with pytest.raises(BadInput, match="sample ids are whole numbers; found"):
            dataset.images(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [4, -1])
def test_ids_that_are_not_there(dataset: Dataset, wrong: int) -> None:
    for read in (dataset.images, dataset.labels):
        with pytest.raises(BadInput, match=rf"^toy:test .*0 to 3\b.*{wrong}: there are only four"):
            read([0, wrong])


def test_extremes_are_exactly_zero_and_one() -> None:
    x = np.array([0, 255], np.uint8).reshape(2, 1, 1, 1)
    assert Dataset("t", ("a",), "", x, np.zeros(2, np.int64)).images([0, 1]).flatten().tolist() == [0.0, 1.0]


def test_writing_into_what_was_given_changes_nothing(dataset: Dataset) -> None:
    dataset.images([0]).zero_()
    dataset.labels([0]).zero_()
    x, y = dataset.arrays()
    x[:], y[:] = 0, 0
    assert digest(*dataset.arrays()) == dataset.digest


def test_digest_is_of_shape_pixels_and_labels() -> None:
    written = b"(4, 2, 5, 3)" + X.tobytes() + b"".join(int(y).to_bytes(8, "little") for y in Y)
    assert digest(X, Y) == "sha256:" + hashlib.sha256(written).hexdigest()
    assert digest(np.asfortranarray(X), Y) == digest(X, Y)


def test_digest_in_pieces_is_the_digest_of_the_whole() -> None:
    x, y = np.repeat(X, 600, axis=0), np.repeat(Y, 600)
    written = repr(x.shape).encode() + x.tobytes() + y.astype("<i8").tobytes()
    assert digest(x, y) == "sha256:" + hashlib.sha256(written).hexdigest()
