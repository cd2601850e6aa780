"""Table 3: robust networks without and with the layer (K = 2, α = 0.15), under AutoAttack, attack by attack."""

from __future__ import annotations

from antiadv.paper.networks import Source
from antiadv.paper.settings import lines_of_methods, white_box
from antiadv.paper.table_layout import Layout

TITLE = "Table 3: robust networks under AutoAttack"
SAMPLES = 1000

HEADINGS = ("clean", "APGD", "ADLR", "FAB", "AA", "AA gain")
PAPER = {
    ("cifar10", "trades"): ((84.92, 55.31, 53.12, 53.55, 53.11), (84.88, 77.20, 77.05, 83.38, 71.71, 18.60)),
    ("cifar10", "pretraining"): ((87.11, 57.65, 55.32, 55.69, 55.31), (87.11, 78.76, 79.02, 85.07, 76.01, 20.70)),
    ("cifar10", "mart"): ((87.50, 62.18, 56.80, 57.34, 56.75), (87.50, 81.07, 80.54, 86.52, 76.76, 20.01)),
    ("cifar10", "hydra"): ((88.98, 60.13, 57.66, 58.42, 57.64), (88.95, 80.37, 81.42, 87.92, 76.39, 18.75)),
    ("cifar10", "awp"): ((88.25, 63.81, 60.53, 60.98, 60.53), (88.25, 80.65, 81.47, 87.06, 79.21, 18.68)),
    ("cifar100", "pretraining"): ((59.37, 33.45, 29.03, 29.34, 28.96), (58.42, 47.63, 45.29, 53.57, 40.68, 11.72)),
    ("cifar100", "awp"): ((60.38, 33.56, 29.16, 29.48, 29.15), (60.38, 44.21, 40.32, 50.76, 39.57, 10.42)),
}
NOTES = (
    "ε is 8/255, as in the paper's text. The authors' scripts use 0.031. Public numbers of the same checkpoints "
    "suggest that the paper's numbers do too.",
    "AA is the worst case of APGD, ADLR (targeted DLR), FAB (targeted) and Square, each run on every sample.",
    "Adaptive: the worst case of these and of the attack that knows the defence. The paper has no such column.",
)


def layout(source: Source, samples: int | None = None) -> Layout:
    columns = white_box("APGD", "ADLR", "FAB")
    return Layout(TITLE, lines_of_methods(source, HEADINGS, PAPER, columns, samples or SAMPLES), NOTES)
