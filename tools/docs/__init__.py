"""Write the pages that are generated from facts.

    python -m tools.docs            write the pages that differ
    python -m tools.docs --check    name the pages that differ, and fail if there are any

There is one module per page. Each has a function `page(root)`, which takes the root of the repository and returns the
text. The prose is in `templates/`, in Markdown files with named places such as `{table}`; the modules compute what
goes into these places.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tools.docs import (
    architecture,
    benchmarks,
    catalogue,
    confidence,
    deploy,
    fast,
    first_hour,
    flags,
    gate,
    league,
    parity,
    precision,
    readme,
    reproduction,
    theory,
    tutorials,
    zoo,
)

PAGES: dict[str, Callable[[Path], str]] = {
    "docs/zoo.md": zoo.page,
    "docs/catalogue.md": catalogue.page,
    "docs/flags.md": flags.page,
    "docs/parity.md": parity.page,
    "docs/benchmarks.md": benchmarks.page,
    "docs/precision.md": precision.page,
    "docs/confidence.md": confidence.page,
    "docs/fast.md": fast.page,
    "docs/first-hour.md": first_hour.page,
    "docs/gate.md": gate.page,
    "docs/league.md": league.page,
    "docs/export.md": deploy.export_page,
    "docs/serving.md": deploy.serving_page,
    "docs/theory.md": theory.page,
    "docs/reproduction.md": reproduction.page,
    "docs/architecture.md": architecture.page,
    "README.md": readme.page,
    **tutorials.PAGES,
}
