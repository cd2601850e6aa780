"""Table 4 (appendix): AWP, bare and behind the layer (K = 2, α = 0.15), under attacks on labels alone.

Both attacks look for the closest fooling image, and the paper counts those within 8/255 without naming the norm. The
Boundary Attack minimises the L2 norm, so 8/255 is an L2 radius there, and the records are read at L2 0.5 too; QEBA
runs in Linf.
"""

from __future__ import annotations

from antiadv.paper.layout import Layout
from antiadv.paper.networks import Source, of_method
from antiadv.paper.rows import clean, layer, pair, under, worst

TITLE = "Table 4: AWP under decision-based attacks"
SAMPLES = 100

HEADINGS = ("clean", "BA", "QEBA")
PAPER = {"": (88.0, 86.0, 85.0), "+ Anti-Adv": (88.0, 86.0, 86.0)}
NOTES = (
    "Neither the norm nor the budget is stated in the paper: BA within L2 8/255 and, from the same records, within L2 "
    "0.5; QEBA within Linf 8/255; 10,000 queries each.",
    "Both see labels only, and where the labels of f and g agree they walk the same way: the layer cannot help there.",
)


def layout(source: Source, samples: int | None = None) -> Layout:
    far = under("BA, L2 0.5", "BA", radius=0.5)
    columns = (clean("QEBA"), under("BA"), far, under("QEBA"), *worst("adaptive", "QEBA", "adaptive"))
    said = {label: dict(zip(HEADINGS, numbers, strict=True)) for label, numbers in PAPER.items()}
    lines = [
        line
        for network in of_method(source, "cifar10", "awp")
        for line in pair(network, columns, {"+ Anti-Adv": layer(network)}, samples or SAMPLES, said)
    ]
    return Layout(TITLE, tuple(lines), NOTES)
