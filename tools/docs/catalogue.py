"""docs/catalogue.md: every attack, defence, recipe and data set, from the registries."""

from __future__ import annotations

from pathlib import Path

from antiadv.cli.catalogue import Kind, lines
from tools.docs.markdown import render, table


def page(root: Path) -> str:
    kinds = [kind for kind in Kind if kind != Kind.models]
    return render("catalogue", **{str(kind): table(lines(kind)) for kind in kinds})
