"""Table 2: robust networks without and with the layer (K = 2, α = 0.15), under black-box attacks."""

from __future__ import annotations

from antiadv.paper.networks import Source
from antiadv.paper.settings import clean, lines_of_methods, under, worst
from antiadv.paper.table_layout import Layout

TITLE = "Table 2: robust networks under black-box attacks"
SAMPLES = 500

HEADINGS = ("clean", "Bandits", "NES", "Square")
PAPER = {
    ("cifar10", "trades"): ((85.4, 64.7, 74.7, 53.1), (85.4, 84.6, 83.0, 71.7)),
    ("cifar10", "pretraining"): ((88.7, 68.4, 78.1, 62.4), (88.7, 88.1, 86.4, 78.5)),
    ("cifar10", "mart"): ((87.6, 72.0, 79.5, 64.9), (87.6, 86.5, 85.3, 78.0)),
    ("cifar10", "hydra"): ((90.1, 69.8, 79.2, 65.0), (90.1, 89.4, 87.7, 78.8)),
    ("cifar10", "awp"): ((88.5, 71.5, 80.1, 66.2), (88.5, 87.4, 86.9, 80.7)),
    ("cifar100", "pretraining"): ((59.0, 40.6, 47.7, 34.6), (58.9, 58.2, 55.3, 42.4)),
    ("cifar100", "awp"): ((59.4, 39.8, 47.3, 34.7), (59.4, 57.7, 53.8, 46.4)),
}
NOTES = (
    "The paper states neither ε nor the budget of NES and Bandits. Here they are 0.031 and 10,000 queries. Square has "
    "8/255 and 5,000 queries, as in AutoAttack.",
    "The paper's two Square numbers of TRADES equal its AutoAttack numbers in table 3. They were probably copied.",
    "Adaptive: the worst case of Square and of the attack that knows the defence, both at 8/255.",
)


def layout(source: Source, samples: int | None = None) -> Layout:
    single = under("Bandits"), under("NES"), under("Square")
    columns = (clean("Square"), *single, *worst("adaptive", "Square", "adaptive"))
    return Layout(TITLE, lines_of_methods(source, HEADINGS, PAPER, columns, samples or SAMPLES), NOTES)
