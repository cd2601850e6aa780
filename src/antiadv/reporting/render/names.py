"""Texts and file names that the Markdown page and the HTML page share."""

from __future__ import annotations

from antiadv.reporting.document import Claimed, Exhibit


def checks(claim: Claimed) -> str:
    """`7 of 9 pass (8 settled by their intervals), 2 not measured yet`"""
    done = len(claim.passed) + len(claim.failed)
    passed = [f"{len(claim.passed)} of {done} pass ({claim.settled} settled by their intervals)"] * bool(done)
    return ", ".join(passed + [f"{len(claim.missing)} not measured yet"] * bool(claim.missing))


def pictures(exhibit: Exhibit, place: int) -> dict[str, bytes]:
    """The names and contents of an exhibit's image files."""
    return {f"{place:02d}-{part}.png": getattr(exhibit, part) for part in ("before", "change", "after")}
