"""docs/tutorials/*.md: the notebooks of the same names, with what they showed when they last ran."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tools import notebooks


def _page(name: str, root: Path) -> str:
    return notebooks.page(json.loads((root / "docs" / "tutorials" / f"{name}.ipynb").read_text()), name)


PAGES: dict[str, Callable[[Path], str]] = {
    f"docs/tutorials/{name}.md": partial(_page, name) for name in notebooks.NAMES
}
