"""Figure 3: AWP on CIFAR-10 behind the layer with K = 2 and every α of the paper's set, under Square and AutoAttack.

The paper's curves stand in an image alone; known are the dashed lines (AWP bare) and, from tables 2 and 3, α = 0.15.
"""

from __future__ import annotations

from antiadv.paper.layout import Layout
from antiadv.paper.networks import Source, compact
from antiadv.paper.rows import ablation, layer, pair

TITLE = "Figure 3: the step size α (AWP, K = 2)"
SAMPLES = 500
ALPHAS = ("8/255", "10/255", "0.1", "0.15", "0.2", "0.25", "0.3")

PAPER = {
    "": {"clean": 88.25, "Square": 66.18, "AA": 60.53},
    "α = 0.15": {"clean": 88.25, "Square": 80.7, "AA": 79.21, "AA gain": 18.68},
}
NOTES = ("Of the other α the paper says that clean accuracy stays as it is and that the gain is at least 10 points.",)


def layout(source: Source, samples: int | None = None) -> Layout:
    network = compact(source, "cifar10", "awp")
    labels = {f"α = {alpha}": layer(network, 2, alpha) for alpha in ALPHAS}
    return Layout(TITLE, tuple(pair(network, ablation(), labels, samples or SAMPLES, PAPER)), NOTES)
