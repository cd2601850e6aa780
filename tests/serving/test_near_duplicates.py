"""Queries of a search look like near duplicates, other pictures do not, and memory is bounded."""

from __future__ import annotations

import numpy as np
import pytest

from antiadv import data
from antiadv.serving.backend import Images
from antiadv.serving.near_duplicates import CLIENTS_KEPT, QUERIES_KEPT, NearDuplicates

EPS = 8 / 255


@pytest.fixture(scope="module")
def photos() -> Images:
    found: Images = data.load("cifar10").images(tuple(range(256))).numpy()
    return found


def perturbed(image: Images, queries: int) -> Images:
    """Corners of the ball of 8/255, in vertical stripes or in noise: the largest changes that an attack makes."""
    rng = np.random.default_rng(0)
    stripes = rng.choice([-EPS, EPS], (queries // 2, 3, 1, 32))
    noise = rng.choice([-EPS, EPS], (queries - queries // 2, 3, 32, 32))
    moved = [image + step for step in (*stripes, *noise)]
    clipped: Images = np.clip(np.stack(moved), 0, 1).astype(np.float32)
    return clipped


def test_queries_around_one_picture_are_near(photos: Images) -> None:
    near = NearDuplicates((3, 32, 32))
    counts = []
    for image in photos[:20]:
        near.seen("ann", image[None])
        counts.append(near.seen("ann", perturbed(image, 20)))
    assert np.mean(counts) > 0.99 * 20


def test_different_photos_are_rarely_near(photos: Images) -> None:
    assert NearDuplicates((3, 32, 32)).seen("ann", photos) < 0.02 * len(photos)


def test_clients_are_kept_apart(photos: Images) -> None:
    near = NearDuplicates((3, 32, 32))
    assert near.seen("ann", photos[:1]) == 0
    assert near.seen("bob", photos[:1]) == 0
    assert near.seen("ann", photos[:1]) == 1


def test_memory_is_bounded(photos: Images) -> None:
    near = NearDuplicates((3, 32, 32))
    for client in range(CLIENTS_KEPT + 50):
        near.seen(str(client), photos[:1])
    assert len(near._recent) == CLIENTS_KEPT
    assert near.seen("0", photos[:1]) == 0  # forgotten
    for _ in range(3):
        near.seen("last", photos)
    assert len(near._recent["last"][0]) == QUERIES_KEPT


@pytest.mark.parametrize("shape", [(4,), (1, 5, 5), (3, 33, 40)])
def test_any_shape_has_a_fingerprint(shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(0).random((3, *shape), dtype=np.float32)
    assert NearDuplicates(shape).fingerprints(images).shape == (3, 4)
