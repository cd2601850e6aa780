"""The verdict: what a defence gains against attackers who ask, and what is left against one who has it.

    verdict(rows)  →  one plain sentence per model and defence, the adaptive attack's word last

Gains are in points of robust accuracy against the bare classifier, on the same samples.
"""

from __future__ import annotations

from collections.abc import Sequence

from antiadv.core.threat import Access
from antiadv.report.measures import Difference
from antiadv.report.table import Row


def verdict(rows: Sequence[Row]) -> list[str]:
    """A sentence for each data set, model and defence among the rows that stand beside their bare classifier."""
    groups: dict[tuple[str, str, str], list[tuple[Row, Difference]]] = {}
    for r in rows:
        if r.gain is not None:
            groups.setdefault((r.cell.data, r.cell.model, r.cell.defence), []).append((r, r.gain))
    several = len({data for data, _, _ in groups}) > 1
    return [_sentence(f"{m} ({x})" if several else m, d, gains) for (x, m, d), gains in groups.items()]


def _sentence(model: str, defence: str, gains: Sequence[tuple[Row, Difference]]) -> str:
    names = [r.cell.attack for r, _ in gains]

    def name(r: Row) -> str:
        """The attack, and where it came under several threats, the threat too."""
        return r.cell.attack if names.count(r.cell.attack) == 1 else f"{r.cell.attack} ({r.cell.threat})"

    asking = [f"{_points(g)} against {name(r)}" for r, g in gains if r.cell.threat.access < Access.INTERNALS]
    adaptive = [(r, g) for r, g in gains if r.cell.threat.access == Access.INTERNALS]
    said = f"gains {_listed(asking)}" if asking else "was attacked by nobody who merely asks"
    first = f"On {model}, {defence} {said}"
    if not adaptive:
        return f"{first}; no adaptive attack was run, so this says nothing of an attacker who knows the defence."
    r, g = min(adaptive, key=lambda pair: pair[1].value)
    return f"{first}; against an attacker who knows the defence ({name(r)}) it gains {_points(g)}{_comment(g)}."


def _points(g: Difference) -> str:
    return f"{100 * g.value:+.1f} points (p {_p(g.p)})"


def _p(p: float) -> str:
    return f"{p:.2f}" if p >= 0.01 else f"{p:.0e}"


def _comment(g: Difference) -> str:
    return ": it is no answer to an adaptive attacker" if g.p > 0.05 or g.value <= 0 else ""


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
