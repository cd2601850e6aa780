"""The defence that remembers queries: what counts as repeated, what is answered, and that samples stay independent."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import antiadv
from antiadv import data
from antiadv.core.ledger import Ledger
from antiadv.core.losses import ce
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.defences import wrap
from antiadv.defences.stateful import DIGESTS_KEPT, FACTOR, MIX_1, MIX_2, Memory, Stateful, _hashed, _largest
from tests.toys import halfspace, make_rule

EPS = 8 / 255


@pytest.fixture(scope="module")
def photos() -> Tensor:
    return torch.as_tensor(data.load("cifar10").images(tuple(range(128)))).float()


def memory() -> Memory:
    return Stateful(make_rule()).session()


def repeated(first: Tensor, second: Tensor) -> float:
    """How often the second image of a client counts as a repetition of the first."""
    kept, clients = memory(), torch.arange(len(first))
    scores = torch.rand((len(first), 10), generator=torch.Generator().manual_seed(0))
    assert not kept.answer(clients, first, scores)[1].any()
    return kept.answer(clients, second, scores)[1].float().mean().item()


def noise(x: Tensor) -> Tensor:
    return torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) * 2 - 1


def patch(x: Tensor) -> Tensor:
    moved = x.clone()
    moved[:, :, 8:16, 8:16] += 2 * EPS
    return moved


def cropped(x: Tensor) -> Tensor:
    return F.interpolate(x[:, :, 1:31, 1:31], size=32, mode="bilinear", align_corners=False)


TRAFFIC: list[tuple[str, Callable[[Tensor], Tensor], float, float]] = [  # least and greatest share of repetitions
    ("the same image", lambda x: x.clone(), 1, 1),
    ("noise of 1/255", lambda x: x + noise(x) / 255, 0.99, 1),
    ("a square of 16/255", patch, 0.99, 1),
    ("noise of 8/255 in all pixels", lambda x: x + EPS * noise(x).sign(), 0, 0.01),
    ("one column further", lambda x: x.roll(1, 3), 0, 0.02),
    ("one row further", lambda x: x.roll(1, 2), 0, 0.02),
    ("a crop of 30 × 30", cropped, 0, 0.02),
    ("2/255 brighter", lambda x: x + 2 / 255, 0, 0.15),
    ("mirrored", lambda x: x.flip(3), 0, 0.01),
    ("the next photo", lambda x: x.roll(1, 0), 0, 0.01),
]


@pytest.mark.parametrize(("what", "change", "least", "most"), TRAFFIC, ids=[row[0] for row in TRAFFIC])
def test_what_counts_as_repeated(
    what: str, change: Callable[[Tensor], Tensor], least: float, most: float, photos: Tensor
) -> None:
    assert least <= repeated(photos, change(photos).clamp(0, 1)) <= most


def test_a_client_who_sends_photos_is_not_disturbed(photos: Tensor) -> None:
    one = torch.zeros(len(photos), dtype=torch.int64)
    scores = torch.arange(128.0)[:, None].expand(-1, 10)
    answers, again = memory().answer(one, photos, scores)
    assert not again.any()
    assert torch.equal(answers, scores)


def test_a_fingerprint_is_at_most_fifty_digests_and_any_shape_has_one(photos: Tensor) -> None:
    assert {len(digests) for digests in memory().fingerprints(photos)} == {DIGESTS_KEPT}
    for shape in ((2, 4), (2, 1, 5, 5), (2, 3, 4, 4)):
        first, second = memory().fingerprints(torch.rand(shape, generator=torch.Generator().manual_seed(2)))
        assert first != second
    assert memory().fingerprints(photos[:3]) == [memory().fingerprints(x[None])[0] for x in photos[:3]]


def test_a_digest_is_the_hash_of_its_window() -> None:
    """Against whole numbers of Python, whose 64 lowest bits are kept."""
    values, window, wrap = [3, 0, 5, 5, 1, 2, 0, 4], 3, 2**64

    def hashed(row: list[int]) -> int:
        total = 0
        for v in row:
            total = (total + v + 1) * FACTOR % wrap
        total = (total ^ total >> 30) * MIX_1 % wrap
        total = (total ^ total >> 27) * MIX_2 % wrap
        return total ^ total >> 31

    want = [hashed(values[i : i + window]) for i in range(len(values) - window + 1)]
    found = _hashed(torch.tensor([values]), window)[0].tolist()
    assert [word + wrap // 2 for word in found] == want
    kept, counts = _largest(torch.tensor([[4, -9, 4, 7, -9]]))
    assert kept[0, : counts[0]].tolist() == [7, 4, -9]


def test_a_repeated_query_gets_the_earliest_answer_and_no_gradient(photos: Tensor) -> None:
    f = make_rule()
    oracle = Oracle(wrap("stateful", f), Threat(antiadv.Linf(EPS), Access.INTERNALS), Ledger(2))
    x, y = photos[:2], torch.zeros(2, dtype=torch.int64)
    near = (x + 1 / 255).clamp(0, 1)
    near[0] = x[0] + noise(x)[0] / 255
    other = photos[2:4]
    first, slope = oracle.gradient(x, ce, y)
    assert torch.equal(first, f(x))
    assert slope.flatten(1).any(1).all()
    assert torch.equal(oracle.scores(other), f(other))
    again, slope = oracle.gradient(near, ce, y)
    assert torch.equal(again[0], first[0])
    assert not torch.equal(f(near)[0], first[0])
    assert not slope[0].any()
    _, pullback = oracle.scores_and_pullback(x)
    assert not pullback(torch.ones(2, 10)).any()
    assert not oracle.jacobian(x)[1].any()
    part = oracle[torch.tensor([1])]  # the same memory: sample 1 sent x[1], and not x[0]
    assert torch.equal(part.scores(x[1:2]), first[1:2])
    fresh = oracle.on_own_model(wrap("stateful", f))  # a copy of the attacker remembers nothing of this
    assert torch.equal(fresh.scores(near), f(near))


def test_several_images_in_one_request_are_several_requests(photos: Tensor) -> None:
    threat = Threat(antiadv.Linf(EPS), Access.SCORES)
    images = torch.stack([photos[:3], photos[:3] + noise(photos[:3]) / 255, photos[3:6]], 1).clamp(0, 1)
    together = Oracle(wrap("stateful", make_rule()), threat, Ledger(3)).scores(images.flatten(0, 1)).view(3, 3, 10)
    oracle = Oracle(wrap("stateful", make_rule()), threat, Ledger(3))
    assert torch.equal(together, torch.stack([oracle.scores(images[:, k]) for k in range(3)], 1))
    assert torch.equal(together[:, 1], together[:, 0])


def test_samples_are_independent_of_their_shard(photos: Tensor) -> None:
    g = wrap("stateful", make_rule())
    x, y = photos[:6], make_rule()(photos[:6]).argmax(1)

    def attacked(rows: slice) -> list[tuple[int, float]]:
        ids = torch.arange(6)[rows]
        outcome = antiadv.attack(g, x[rows], y[rows], "square:steps=40", antiadv.Linf(EPS), ids=ids)
        return [(r.queries, r.distance) for r in outcome.records]

    assert attacked(slice(0, 6)) == attacked(slice(0, 2)) + attacked(slice(2, 6))


def test_searches_stall_and_transfer_undoes_the_defence() -> None:
    toy = halfspace(math.inf, n=12, shape=(3, 8, 8))
    ball = antiadv.Linf(1.1 * toy.distance)

    def standing(defence: str, attack: str) -> float:
        return antiadv.attack(wrap(defence, toy.model), toy.x, toy.y, attack, ball, queries=300).robust_accuracy

    assert standing("none", "square") == 0
    assert standing("stateful", "square") > 0.5
    assert standing("stateful", "adaptive:steps=20") == 0


@pytest.mark.parametrize(
    ("attack", "reach", "queries"), [("square:steps=300", 1.5, 300), ("hop_skip_jump:steps=4,probes=40", 5.0, 400)]
)
def test_an_attacker_who_looks_at_refusals_gets_past_the_memory(attack: str, reach: float, queries: int) -> None:
    toy = halfspace(math.inf, n=12, shape=(3, 8, 8))
    ball, g = antiadv.Linf(reach * toy.distance), wrap("stateful", toy.model)

    def standing(text: str) -> float:
        return antiadv.attack(g, toy.x, toy.y, text, ball, queries=queries).robust_accuracy

    plain, avoiding = standing(attack), standing(f"{attack},avoid=true")
    assert plain >= 0.5
    assert avoiding <= plain - 0.25


def test_without_a_memory_nothing_is_refused() -> None:
    toy = halfspace(math.inf, n=12, shape=(3, 8, 8))
    ball = antiadv.Linf(1.5 * toy.distance)
    for attack in ("square:steps=100", "hop_skip_jump:steps=2,probes=20"):
        made = [
            antiadv.attack(toy.model, toy.x, toy.y, f"{attack},avoid={avoid}", ball, queries=150)
            for avoid in ("false", "true")
        ]
        assert made[1].robust_accuracy <= made[0].robust_accuracy + 0.2


def test_what_cannot_be_asked_for() -> None:
    for options in ({"window": 0}, {"stride": True}, {"share": 0}, {"share": 1.5}, {"window": 2.0}):
        with pytest.raises(antiadv.errors.BadInput):
            Stateful(make_rule(), **options)
