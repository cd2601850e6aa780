"""The generated parts of README.md, each between two marks: the headline table, and what the league settled."""

from __future__ import annotations

import re
from pathlib import Path

from antiadv import paper
from tools.docs import league
from tools.docs.markdown import replace_part

NETWORKS = (  # docs/reproduction.md has all networks
    "compact:trades",
    "wrn16-4:trades",
    "compact:mart",
    "compact:awp",
    "compact:awp,data=cifar100",
)
NOTE = """\
In per cent, without → with the layer (K = 2, α = 0.15), Linf 8/255, on n test images. Gains are in points, with 95 %
intervals, and with the paper's gain in round brackets. Searched in {precisions}, judged in float32.
"""


def page(root: Path) -> str:
    """Return README.md with its generated part made anew."""
    path = root / "README.md"
    text = replace_part(path, "headline", short(paper.headline(root / "results")))
    return replace_part(path, "league", league.short(root), text)


def short(headline: str) -> str:
    """Return the rows of `NETWORKS`, with a note. A headline without a table, as of an empty store, stays as it is."""
    head, *rows = [line for line in headline.splitlines() if line.startswith("|")] or [""]
    chosen = [row for row in rows if row.startswith("| ---") or row.split("`")[1] in NETWORKS]
    precisions = re.findall(r"(\w+) \(\d+\)", headline.splitlines()[-1])
    return "\n".join([head, *chosen, "", NOTE.format(precisions=" or ".join(precisions))]) if head else headline
