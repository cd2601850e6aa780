"""Evaluate the networks of the zoo, and write their accuracies into their cards.

    python -m tools.measure_zoo --store results [--dir DATA] [--samples 0:10000]    evaluate under PGD-20; resumes
    python -m tools.measure_zoo --store results --cards                             write the stored counts to the cards

So the accuracies of a card are computed from stored records, and
`antiadv evaluate --model … --attack pgd --threat linf:8/255` finds the same. A network that was trained with noise is
measured with the `self_ensemble` defence.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from pathlib import Path
from typing import Any

from antiadv import models
from antiadv.core.ball import Linf
from antiadv.evaluation import Cell, Resources, Store, evaluate, make_cell
from antiadv.models import Accuracy, Card
from antiadv.models.card import write_card
from antiadv.models.loaders import weights_folders, zoo_folder
from antiadv.reporting.measures import right, standing
from antiadv.train import interval, parse

BALL = Linf(8 / 255)
EMBEDDED = 1000  # images of CIFAR-10 that come with the package, on which a user can check a card


def cell_of(card: Card, samples: str, directory: str | None, resources: Resources) -> Cell:
    data = str(card.data["name"]) + (f":dir={directory}" if directory else "")
    defence = "self_ensemble" if "noise=" in card.architecture else "none"
    return make_cell(
        model=card.spec,
        defence=defence,
        attack="pgd",
        threat=str(BALL),
        samples=samples,
        data=data,
        resources=resources,
    )


def with_counts(card: Card, cell: Cell, store: Store) -> Card:
    """Return the card with the counts of the stored records, and the command that made them."""
    records = store.read(cell)
    how: dict[str, Any] = {"command": cell.command, "key": cell.key}
    clean, robust = sum(map(right, records)), sum(standing(r, BALL) for r in records)
    embedded = [r for r in records if r.sample < EMBEDDED and card.data["name"] == "cifar10"]
    first = {"embedded": {"hits": sum(map(right, embedded)), "total": len(embedded)}} if embedded else {}
    return dataclasses.replace(
        card,
        clean=_accuracy(clean, len(records), how | first),
        pgd20=_accuracy(robust, len(records), how),
        more={**card.more, "limits": list(parse(card.more["recipe"]).limits)},
    )


def _accuracy(hits: int, total: int, how: dict[str, Any]) -> Accuracy:
    found = Accuracy(hits, total)
    low, high = interval(found)
    return Accuracy(hits, total, {"share": found.share, "interval_95": [round(low, 4), round(high, 4)], **how})


def path_of(card: Card) -> Path:
    folders = [zoo_folder(), *weights_folders()]
    return next(f / f"{card.name}.json" for f in folders if (f / f"{card.name}.json").is_file())


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--store", default="results")
    p.add_argument("--dir", help="the folder of imported data sets")
    p.add_argument("--samples", default="0:10000")
    p.add_argument("--batch", type=int, default=1000)
    p.add_argument("--device")
    p.add_argument("--only", nargs="*", help="names of cards")
    p.add_argument("--cards", action="store_true")
    a = p.parse_args()
    store, resources = Store(a.store), Resources(a.device)
    for card in models.cards():
        if a.only and card.name not in a.only:
            continue
        cell, began = cell_of(card, a.samples, a.dir, resources), time.time()
        if a.cards:
            write_card(with_counts(card, cell, store), path_of(card))
        else:
            evaluate([cell], store, shard=1000, batch=a.batch, resources=resources)
        new = with_counts(card, cell, store)
        found = f"clean {new.clean.share:.2%}, PGD-20 {new.pgd20.share:.2%} of {new.clean.total}"
        before = f"card {card.clean.share:.2%}, {card.pgd20.share:.2%}"
        print(f"{card.name}: {found}; {before}; {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
