"""Figure 3: AWP on CIFAR-10 with the layer, K = 2 and every α of the paper's set, under Square and AutoAttack.

The paper has its curves in an image only. Known are the dashed lines (AWP bare) and α = 0.15, from tables 2 and 3.
"""

from __future__ import annotations

from antiadv.paper.networks import Source, compact
from antiadv.paper.settings import layer, white_box, with_and_without
from antiadv.paper.table_layout import Layout

TITLE = "Figure 3: the step size α (AWP, K = 2)"
SAMPLES = 500
ALPHAS = ("8/255", "10/255", "0.1", "0.15", "0.2", "0.25", "0.3")

PAPER = {
    "": {"clean": 88.25, "Square": 66.18, "AA": 60.53},
    "α = 0.15": {"clean": 88.25, "Square": 80.7, "AA": 79.21, "AA gain": 18.68},
}
NOTES = ("For the other α the paper says that clean accuracy does not change and that the gain is at least 10 points.",)


def layout(source: Source, samples: int | None = None) -> Layout:
    network = compact(source, "cifar10", "awp")
    labels = {f"α = {alpha}": layer(network, 2, alpha) for alpha in ALPHAS}
    return Layout(
        TITLE, tuple(with_and_without(network, white_box("Square"), labels, samples or SAMPLES, PAPER)), NOTES
    )
