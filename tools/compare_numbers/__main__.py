"""The command `python -m tools.compare_numbers`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import tools.compare_numbers
from antiadv.core.errors import AntiadvError, BadInput
from tools.compare_numbers.collect import collect
from tools.compare_numbers.compare import compare
from tools.compare_numbers.extract import Page, read_folder

ROOT = Path(__file__).resolve().parents[2]


def pages_of(folder: Path) -> list[Page]:
    pages = read_folder(folder) if folder.is_dir() else []
    if not pages:
        raise BadInput(f"{folder} holds no Markdown, CSV or JSON file. Write one with --collect.")
    return pages


def show(before: Path, after: Path) -> int:
    """Print every difference and a summary. Return 1 if a number changed, was removed or was added."""
    old, new = pages_of(before), pages_of(after)
    found = compare(old, new)
    for difference in found:
        print(f"{difference.kind}: {difference.where}: {difference.what}")
    counts = {kind: sum(d.kind == kind for d in found) for kind in ("changed", "removed", "added", "moved")}
    compared = sum(page.all_numbers().total() for page in old)
    print(f"{compared} numbers on {len(old)} pages; " + ", ".join(f"{n} {kind}" for kind, n in counts.items()))
    return 1 if any(n for kind, n in counts.items() if kind != "moved") else 0


def main(arguments: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(
        description=tools.compare_numbers.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("folders", nargs="*", type=Path, metavar="BEFORE AFTER", help="two folders to compare")
    p.add_argument("--collect", type=Path, metavar="OUT", help="write the pages and the report of a checkout to OUT")
    p.add_argument("--root", type=Path, default=ROOT, help="the checkout to collect from; by default this one")
    a = p.parse_args(arguments)
    if len(a.folders) != (2 if a.collect is None else 0):
        p.error("name two folders, or --collect OUT")
    try:
        if a.collect is not None:
            collect(a.root.resolve(), a.collect)
            return 0
        return show(*a.folders)
    except AntiadvError as error:
        print(f"compare_numbers: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
