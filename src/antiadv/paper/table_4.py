"""Table 4 (appendix): AWP without and with the layer (K = 2, α = 0.15), under attacks that see labels only.

Both attacks search for the closest adversarial image. The paper counts images within 8/255 and does not name the norm.
The Boundary Attack minimises the L2 norm, so 8/255 is an L2 radius here; the same records are evaluated at L2 0.5 too.
QEBA runs in Linf.
"""

from __future__ import annotations

from antiadv.paper.networks import Source
from antiadv.paper.settings import clean, lines_of_methods, under, worst
from antiadv.paper.table_layout import Layout

TITLE = "Table 4: AWP under decision-based attacks"
SAMPLES = 100

HEADINGS = ("clean", "BA", "QEBA")
PAPER = {("cifar10", "awp"): ((88.0, 86.0, 85.0), (88.0, 86.0, 86.0))}
NOTES = (
    "The paper states neither the norm nor the budget. Here BA runs within L2 8/255 and, from the same records, within "
    "L2 0.5; QEBA runs within Linf 8/255. Each has 10,000 queries.",
    "Both attacks see labels only. Where the labels of f and g agree they take the same path, so the layer cannot help "
    "there.",
)


def layout(source: Source, samples: int | None = None) -> Layout:
    far = under("BA, L2 0.5", "BA", radius=0.5)
    columns = (clean("QEBA"), under("BA"), far, under("QEBA"), *worst("adaptive", "QEBA", "adaptive"))
    return Layout(TITLE, lines_of_methods(source, HEADINGS, PAPER, columns, samples or SAMPLES), NOTES)
