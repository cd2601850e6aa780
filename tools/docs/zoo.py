"""docs/zoo.md: the networks that come with the project, from the cards next to their weights."""

from __future__ import annotations

from pathlib import Path

from antiadv import models
from antiadv.models import Accuracy, Card
from antiadv.train import interval
from tools.docs.markdown import render

NOTES = {
    "compact-cifar10-gaussian": "It has half the width of the others, because it was trained on a CPU. "
    "The accuracies are of the network itself on images without noise, not of its vote ([certify.md](certify.md)).",
    "compact-cifar10-self_ensemble": "PGD is done at the first image that fools once, while the judge wants the "
    "majority of ten looks: of the samples left standing nearly all were fooled once.",
    "compact-cifar10-hydra": "90 % of the weights of every layer are zero. Its first phase, training by TRADES, "
    "was not run: it began with `compact:trades`, whose epochs and seconds are not in its own.",
}


def page(root: Path) -> str:
    cards = models.cards()
    return render("zoo", rows="\n".join(map(table_row, cards)), commands="\n".join(map(how_made, cards)))


def table_row(card: Card) -> str:
    digest = (card.weights or "").removeprefix("sha256:")[:12]
    return (
        f"| `{card.spec}` | `{card.architecture}` | `{card.more['recipe']}` | {card.epochs} | {percent(card.clean)} "
        f"| {percent(card.pgd20)} | {card.seconds:.0f} | {card.hardware} | `{digest}` |"
    )


def percent(found: Accuracy) -> str:
    low, high = interval(found)
    return f"{100 * found.share:.2f} [{100 * low:.1f}, {100 * high:.1f}]"


def how_made(card: Card) -> str:
    """Return a list item: the command that trained the network, and what limits its use."""
    return f"- `{card.spec}`: `{card.command}` " + " ".join([*card.more["limits"], NOTES.get(card.name, "")]).strip()
