"""The generated parts of README.md: the headline and the table of speeds, between marks in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any  # what a JSON file holds

from antiadv import paper
from antiadv.core.errors import BadInput
from benchmarks.speed.files import stored
from tools.docs.benchmarks import ALONE, race_rows, raced_network
from tools.docs.markdown import table

Facts = dict[str, Any]


def page(root: Path) -> str:
    """Return README.md with its generated parts made anew."""
    text = (root / "README.md").read_text()
    text = replace_part(text, "headline", paper.headline(root / "results"))
    return replace_part(text, "speed", speed_table(root / "results" / "bench"))


def replace_part(text: str, name: str, part: str) -> str:
    """Put `part` between the two marks of that name."""
    begin, end = f"<!-- {name}: made of results/ by make docs -->", f"<!-- end of {name} -->"
    if [text.count(mark) for mark in (begin, end)] != [1, 1] or text.index(begin) > text.index(end):
        raise BadInput(f"README.md must hold {begin} and below it {end}, once each; found otherwise. Put them back.")
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n{part}{end}{rest.partition(end)[2]}"


def speed_table(folder: Path) -> str:
    """Return the fastest setting of each race that asks for a speed-up, settings that are as strong as asked first."""
    best: dict[tuple[str, str], tuple[tuple[bool, float], dict[str, str]]] = {}
    for facts in stored(folder):
        if facts["kind"] in ALONE or (facts["target"] or 0) <= 1:
            continue
        for row, side in zip(race_rows(facts), facts["verdict"]["sides"].values(), strict=True):
            key, rank = (facts["job"], facts["device"]), (side["strong"], side["times_faster"]["median"])
            if rank > best.get(key, ((False, 0.0), {}))[0]:
                best[key] = rank, table_row(facts, row, side["strong"])
    return table([row for _, row in best.values()])


def table_row(facts: Facts, row: dict[str, str], strong: bool) -> dict[str, str]:
    """Shorten a row of docs/benchmarks.md."""
    layer = ", behind the layer" if facts["layer"] else ""
    unit = ("" if facts["kind"] == "distance" else " %") + ("" if strong else ", weaker than asked")
    queries = their_queries(facts)
    return {
        "ours": row["ours"],
        "theirs": facts["peer"].split()[0] + (f", {queries:,} queries" if queries else ""),
        "network": f"{raced_network(facts)}{layer}",
        "on": facts["device"] if facts["device"] != "cpu" else f"{facts['threads']} CPU threads",
        "images": row["samples"],
        "times as fast": row["times faster"],
        "reached, ours / theirs": f"{row['by ours']} / {row['by theirs']}{unit}",
    }


def their_queries(facts: Facts) -> int | None:
    """Return the queries per sample of theirs: its budget, or what it sent where sides are compared by distance."""
    if facts["kind"] == "distance":
        return round(int(facts["theirs"]["forwards"]) / sum(facts["right"]))
    budget: int | None = facts["queries"]
    return budget
