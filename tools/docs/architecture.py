"""The generated part of docs/architecture.md: which package imports which, read from the source."""

from __future__ import annotations

import ast
from pathlib import Path

from tools.docs.markdown import replace_part

Graph = dict[str, set[str]]  # package → the packages that it imports


def page(root: Path) -> str:
    """Return docs/architecture.md with the drawing of the import graph made anew."""
    return replace_part(root / "docs" / "architecture.md", "imports", drawing(package_graph(root / "src" / "antiadv")))


def imported(path: Path) -> set[str]:
    """Return what a file imports of `antiadv`: `antiadv.core.ball` and `from antiadv import core` are both core."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "antiadv":
            parts = node.module.split(".")[1:]
            names |= {parts[0]} if parts else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {a.name.split(".")[1] for a in node.names if a.name.startswith("antiadv.")}
    return names


def package_graph(source: Path) -> Graph:
    """Return which package imports which. A package is a folder of `source`."""
    packages = {path.parent.name for path in source.glob("*/__init__.py")}
    return {
        package: set().union(*(imported(path) for path in (source / package).rglob("*.py"))) & packages - {package}
        for package in sorted(packages)
    }


def reach(graph: Graph, package: str) -> set[str]:
    """Return the packages that a package imports, directly or through others."""
    seen: set[str] = set()
    todo = [package]
    while todo:
        fresh = graph[todo.pop()] - seen
        seen |= fresh
        todo += fresh
    return seen


def drawing(graph: Graph) -> str:
    """Draw the graph as a table in text. The packages with the fewest imports come first, so marks lie below the
    diagonal if there is no cycle."""
    order = sorted(graph, key=lambda package: (len(reach(graph, package)), package))
    width = max(map(len, order))
    head = " " * (width + 2) + "  ".join(order)
    rows = [
        f"{row:{width}}  "
        + "  ".join(
            ("■" if column in graph[row] else "\\" if column == row else "·").center(len(column)) for column in order
        )
        for row in order
    ]
    return "\n".join(["```", *(line.rstrip() for line in [head, *rows]), "```"]) + "\n"
