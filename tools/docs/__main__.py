"""The command `python -m tools.docs`: write the generated pages, or check them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import tools.docs
from antiadv.core.errors import AntiadvError
from tools.docs import league

ROOT = Path(__file__).resolve().parents[2]


def stale_pages(root: Path) -> dict[str, str]:
    """Return the new text of every page whose file is missing or differs from what the facts say."""
    texts = {name: make(root) for name, make in tools.docs.PAGES.items()} | league.files(root)
    return {
        name: text for name, text in texts.items() if not (root / name).exists() or (root / name).read_text() != text
    }


def main() -> int:
    p = argparse.ArgumentParser(description=tools.docs.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    a = p.parse_args()
    try:
        stale = stale_pages(ROOT)
    except AntiadvError as error:
        print(f"docs: {error}", file=sys.stderr)
        return 2
    if a.check:
        print("\n".join(f"{name} is out of date. Run make docs." for name in stale) or "All pages are up to date.")
        return 1 if stale else 0
    for name, text in stale.items():
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(text)
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
