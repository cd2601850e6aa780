"""The cards agree with the store, and with predictions on the images that come with the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiadv import data, models
from antiadv.core.ball import Linf
from antiadv.core.engine import Eager
from antiadv.evaluation import Store
from antiadv.models import Card
from antiadv.reporting.measures import right, standing

RESULTS = Path(__file__).resolve().parents[2] / "results"
CARDS = models.cards()
LEAST = {  # in per cent, clean and under PGD-20: what the zoo was trained for
    "compact:standard": (89, 0),
    "compact:trades": (0, 42),
    "compact:awp": (0, 42),
    "compact:mart": (0, 42),
    "resnet18:standard": (93.5, 0),
    "wrn16-4:trades": (0, 47),
    "wrn16-4:awp": (0, 47),
}


def by_spec(card: Card) -> str:
    return card.spec


def test_the_zoo_is_whole() -> None:
    compact = ["standard", "trades", "mart", "awp", "hydra", "pretraining", "self_ensemble", "gaussian"]
    wanted = {f"compact:{name}" for name in compact} | {
        "compact:awp,data=cifar100",
        "compact:pretraining,data=cifar100",
    }
    assert {card.spec for card in CARDS} == wanted | {"resnet18:standard", "wrn16-4:trades", "wrn16-4:awp"}


@pytest.mark.parametrize("card", CARDS, ids=by_spec)
def test_a_card_says_what_the_store_holds(card: Card) -> None:
    (cell,) = [c for c in Store(RESULTS).cells() if c.key == card.pgd20.more["key"]]
    records = Store(RESULTS).read(cell)
    assert len(records) == card.clean.total == card.pgd20.total == 10_000
    assert sum(map(right, records)) == card.clean.hits
    assert sum(standing(r, Linf(8 / 255)) for r in records) == card.pgd20.hits
    assert cell.weights == card.weights
    assert (cell.model, cell.attack, cell.threat.ball) == (card.spec, "pgd", Linf(8 / 255))
    assert card.pgd20.more["command"] == card.clean.more["command"] == cell.command


@pytest.mark.parametrize("card", [c for c in CARDS if c.spec in LEAST], ids=by_spec)
def test_a_network_is_as_good_as_asked(card: Card) -> None:
    clean, pgd = LEAST[card.spec]
    assert 100 * card.clean.share >= clean
    assert 100 * card.pgd20.share >= pgd


EMBEDDED = [c for c in CARDS if c.name.startswith("compact-cifar10-") and "noise" not in c.architecture]


@pytest.mark.slow
@pytest.mark.parametrize("card", EMBEDDED, ids=by_spec)
def test_the_embedded_images_are_classified_as_the_card_says(card: Card) -> None:
    """Up to two images, whose prediction may differ on other hardware."""
    said, images = card.clean.more["embedded"], data.load("cifar10:test")
    hits = Eager().scores(models.load(card.spec), images.images(range(1000))).argmax(1) == images.labels(range(1000))
    assert said["total"] == 1000
    assert abs(int(hits.sum()) - said["hits"]) <= 2
