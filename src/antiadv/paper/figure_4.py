"""Figure 4: AWP on CIFAR-10 with the layer, α = 0.15 and K = 1, 2, 3, under AutoAttack attack by attack.

The paper has its bars in an image only. K = 1 is in table 5, K = 2 in tables 2 and 3.
"""

from __future__ import annotations

from antiadv.paper.networks import Source, compact
from antiadv.paper.settings import AUTO_ATTACK, layer, white_box, with_and_without
from antiadv.paper.table_layout import Layout

TITLE = "Figure 4: the number of steps K (AWP, α = 0.15)"
SAMPLES = 500
STEPS = (1, 2, 3)

HEADINGS = ("clean", "APGD", "ADLR", "FAB", "Square", "AA", "AA gain")
PAPER = {
    "": (88.25, 63.81, 60.53, 60.98, 66.18, 60.53),
    "K = 1": (88.10, 79.16, 78.52, 83.88, 76.00, 74.47, 13.94),
    "K = 2": (88.25, 80.65, 81.47, 87.06, 80.7, 79.21, 18.68),
}
NOTES = ("The paper says that K = 3 is the best. The gain of K = 1 is recomputed (table 5 prints 13.34).",)


def layout(source: Source, samples: int | None = None) -> Layout:
    network = compact(source, "cifar10", "awp")
    labels = {f"K = {k}": layer(network, k) for k in STEPS}
    paper = {label: dict(zip(HEADINGS, numbers, strict=False)) for label, numbers in PAPER.items()}
    return Layout(
        TITLE, tuple(with_and_without(network, white_box(*AUTO_ATTACK), labels, samples or SAMPLES, paper)), NOTES
    )
