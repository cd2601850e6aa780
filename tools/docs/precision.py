"""docs/precision.md: what a search in fewer digits misses, from cells that are stored in several precisions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from antiadv.core.errors import BadInput
from antiadv.engine.precision import PRECISIONS
from antiadv.evaluation import Cell, Store
from antiadv.evaluation.automatic import LOSES_NOTHING, MADE_OF_OTHERS
from antiadv.evaluation.cell import Receipt
from antiadv.reporting.flags import changes_with_precision, stands
from antiadv.reporting.measures import difference
from antiadv.reporting.rows import Row, level, make_row
from antiadv.reporting.select import coarseness
from tools.docs.markdown import render, table, wrap


class Searched(NamedTuple):
    """One cell in one precision: its row of the report, and the receipts of its shards."""

    row: Row
    receipts: list[Receipt]


class Pair(NamedTuple):
    """One cell searched twice, in the finest stored precision and in a coarser one."""

    fine: Searched
    coarse: Searched

    @property
    def cells(self) -> tuple[Cell, Cell]:
        return self.fine.row.cell, self.coarse.row.cell


def page(root: Path) -> str:
    pairs = searched_twice([root / "results", root / "results" / "precision"])
    if not pairs:
        raise BadInput("docs/precision.md needs a cell that is stored in two precisions; found none. Run one first.")
    rows = {side.row.cell: side.row for pair in pairs for side in pair}
    differing = {flag.cells for flag in changes_with_precision(list(rows.values()))}
    lines = [table_row(pair, pair.cells in differing) for pair in pairs]
    commands = dict.fromkeys(f"- `{side.row.cell.command}`" for pair in pairs for side in pair)
    weak = sorted({(c.attack, coarseness(c.precision), f"`{c.attack}` in {c.precision}") for _, c in differing})
    names = ", ".join(name for *_, name in weak)
    answer = f"**Too weak: {names}.**" if weak else "**No attack is weaker than chance explains.**"
    return render(
        "precision",
        summary=wrap(
            f"{answer} {sum(pair.cells in differing for pair in pairs)} of the {len(pairs)} pairs differ by more than "
            "chance explains."
        ),
        auto="\n".join(automatic()),
        others=wrap(
            f"- {', '.join(f'`{name}`' for name in MADE_OF_OTHERS)} take the finest precision that one of their parts "
            "needs. An attack of your own, or of another library, searches in `float32`.",
            "  ",
        ),
        table=table(lines),
        commands="\n".join(commands),
    )


def automatic() -> list[str]:
    """Which attacks `auto` searches in the fast precision of a device, and which it does not."""
    told = {True: "`half` on a GPU, `mixed` on a CPU with bfloat16 arithmetic", False: "`float32` everywhere"}
    named = {free: [f"`{name}`" for name, found in LOSES_NOTHING.items() if found == free] for free in told}
    return [wrap(f"- {words}: {', '.join(named[free])}.", "  ") for free, words in told.items()]


def searched_twice(folders: Iterable[Path]) -> list[Pair]:
    """Pair the finest stored precision of each cell with every other one.

    A cell that is stored in several folders is read from the first.
    """
    found: dict[Cell, dict[str, Searched]] = {}
    for store in map(Store, folders):
        for cell in store.cells():
            searched = Searched(make_row(cell, store.read(cell), []), store.receipts(cell))
            same = found.setdefault(replace(cell, precision=PRECISIONS[0], samples=range(0)), {})
            same.setdefault(cell.precision, searched)
    several = [[some[p] for p in PRECISIONS if p in some] for some in found.values()]
    return sorted((Pair(some[0], other) for some in several for other in some[1:]), key=order)


def order(pair: Pair) -> tuple[object, ...]:
    cell = pair.coarse.row.cell
    return cell.precision, level(cell), cell.attack, cell.model, cell.defence


def table_row(pair: Pair, differs: bool) -> dict[str, str]:
    """Compare the two searches on the samples that both have. `differs` sets the difference in bold."""
    (before, _), (after, receipts) = pair
    cell, left = after.cell, [stands([row]) for row in (before, after)]
    d, both = difference(*left), left[0].keys() & left[1].keys()
    gap = f"{100 * d.value:+.1f} [{100 * d.low:+.1f}, {100 * d.high:+.1f}]"
    return {
        "network": cell.model + ("" if cell.defence == "none" else f" with `{cell.defence}`"),
        "attack": f"`{cell.attack}`",
        "threat": f"`{cell.threat}`",
        "n": str(d.n),
        "searched in": f"{before.cell.precision}, {cell.precision}",
        "left": ", ".join(f"{100 * sum(some[i] for i in both) / d.n:.1f}" for some in left),
        "more left": f"**{gap}**" if differs else gap,
        "only finer": str(d.gained),
        "only coarser": str(d.lost),
        "again": str(sum(r.again for r in receipts)),
        "revision": ", ".join(dict.fromkeys(r.revision for r in receipts)),
    }
