"""Table 6 (appendix): the layer with one step (K = 1) and two step sizes on CIFAR-100, under AutoAttack."""

from __future__ import annotations

from antiadv.paper import table_5
from antiadv.paper.networks import Source
from antiadv.paper.table_layout import Layout

TITLE = "Table 6: one step (K = 1) on CIFAR-100"
SAMPLES = 500

HEADINGS = table_5.HEADINGS
PAPER = {
    "pretraining": (
        (59.37, 33.45, 29.03, 29.34, 34.55, 28.96),
        (59.29, 34.91, 30.87, 39.46, 39.44, 30.61, 1.65),
        (59.24, 35.55, 31.56, 40.86, 40.76, 31.34, 2.38),
    ),
    "awp": (
        (60.38, 33.56, 29.16, 29.48, 34.66, 29.15),
        (60.38, 34.30, 30.17, 38.09, 36.88, 30.15, 1.00),
        (60.38, 39.16, 35.30, 47.18, 44.30, 34.88, 5.73),
    ),
}
NOTES = (
    "The authors' networks in this table normalise their input, and their layer steps after that. So their α of 0.15 "
    "is about 0.075 (ImageNet-Pre) and 0.04 (AWP) in pixels. On the zoo α is in pixels.",
)


def layout(source: Source, samples: int | None = None) -> Layout:
    return table_5.make(TITLE, source, "cifar100", PAPER, samples or SAMPLES, NOTES)
