"""docs/reproduction.md: the paper's claims, tables and figures next to our numbers, from the stored results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from antiadv import paper
from antiadv.evaluation import Store
from antiadv.paper import layer_against_noise, steps_too_far
from antiadv.paper.agreement import agreement
from antiadv.paper.claims import Claim, claims
from antiadv.paper.filled_table import fill
from antiadv.paper.store_index import StoreIndex
from antiadv.reporting.render.markdown import table_as_markdown
from antiadv.reporting.table import Table
from tools.docs.markdown import render, table


def page(root: Path) -> str:
    return reproduction(root / "results")


def reproduction(store: Path) -> str:
    """Return the page for any store: the answer, a section per table, the explanations, and every check."""
    index = StoreIndex(Store(store))
    found = claims(index)
    return render(
        "reproduction",
        answer=table([answer_row(claim) for claim in found]),
        tables="\n".join(experiment_section(name, index) for name in paper.EXPERIMENTS),
        explanations="\n".join(table_section(part.table(index)[0]) for part in (steps_too_far, layer_against_noise)),
        checks=table([checks_row(claim) for claim in found]),
        claims="\n".join(map(claim_section, found)),
    )


def experiment_section(name: str, index: StoreIndex) -> str:
    filled = fill(paper.layout(name), index)
    return table_section(filled.table(name), f"`antiadv reproduce {name}`\n\n", agreement(filled))


def table_section(part: Table, before: str = "", sentences: Sequence[str] = ()) -> str:
    notes = "".join(f"- {sentence}\n" for sentence in (*sentences, *part.sentences))
    return f"## {part.title}\n\n{before}{table_as_markdown(part)}\n{notes}"


# ---------------------------------------------------------------- claims


def answer_row(claim: Claim) -> dict[str, str]:
    values = [100 * check.found.value for check in claim.measured if check.found is not None]
    ours = f"{min(values):+.1f} to {max(values):+.1f} points; {passed(claim)} checks pass" if values else "–"
    return {"claim": claim.name, "paper": claim.paper, "ours": ours, "verdict": f"**{claim.verdict}**"}


def passed(claim: Claim) -> str:
    return f"{sum(check.passes for check in claim.measured)} of {len(claim.measured)}"


def checks_row(claim: Claim) -> dict[str, str]:
    return {
        "claim": claim.name,
        "verdict": f"**{claim.verdict}**",
        "checks passed": passed(claim),
        "settled": f"{claim.settled} of {len(claim.measured)}",
        "measured of": f"{len(claim.measured)} of {len(claim.checks)}",
    }


def claim_section(claim: Claim) -> str:
    return f"### {claim.name}: {claim.verdict}\n\n" + "\n".join(claim_lines(claim)) + "\n"


def claim_lines(claim: Claim) -> Iterator[str]:
    """Yield the rule, the failed checks with the explanation, and the passed checks behind a fold."""
    failed = [str(check) for check in claim.measured if not check.passes]
    missing = [str(check) for check in claim.checks if check.found is None]
    yield f"- The rule: {claim.rule}"
    if failed:
        yield f"- Failed: {'; '.join(failed)}."
        yield from [f"- Why: {claim.why}"] if claim.why else []
    if missing:
        yield f"- Not measured yet: {'; '.join(missing)}."
    passing = [f"- {check}" for check in claim.measured if check.passes]
    if passing:
        yield "\n".join(["", f"<details><summary>Checks that pass: {len(passing)}</summary>", "", *passing])
        yield "\n</details>"
