"""Figure 5 (appendix): AWP on CIFAR-10 with the layer, α = 0.15 and K = 2, 3, 4, 5, under AutoAttack.

The paper has its bars in an image only. K = 2 is in tables 2 and 3.
"""

from __future__ import annotations

from antiadv.paper.networks import Source, compact
from antiadv.paper.settings import layer, white_box, with_and_without
from antiadv.paper.table_layout import Layout

TITLE = "Figure 5: more steps (AWP, α = 0.15)"
SAMPLES = 500
STEPS = (2, 3, 4, 5)

PAPER = {
    "": {"clean": 88.25, "Square": 66.18, "AA": 60.53},
    "K = 2": {"clean": 88.25, "Square": 80.7, "AA": 79.21, "AA gain": 18.68},
}
NOTES = ("The paper says that the gain grows with K.",)


def layout(source: Source, samples: int | None = None) -> Layout:
    network = compact(source, "cifar10", "awp")
    labels = {f"K = {k}": layer(network, k) for k in STEPS}
    return Layout(
        TITLE, tuple(with_and_without(network, white_box("Square"), labels, samples or SAMPLES, PAPER)), NOTES
    )
