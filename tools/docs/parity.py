"""docs/parity.md: whether our attacks are as strong as other people's, from `results/parity`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any  # what a JSON file holds

from tools.docs.markdown import current_command, percent_with_interval, render, table, yes_or_no

PEERS = ("pyautoattack", "published", "torchattacks", "art", "foolbox")  # each has a template `parity_PEER.md`

Facts = dict[str, Any]


def page(root: Path) -> str:
    stored = [json.loads(path.read_text()) for path in sorted((root / "results" / "parity").glob("*.json"))]
    sections = [section(peer, [facts for facts in stored if facts["peer"].split()[0] == peer]) for peer in PEERS]
    ran = [facts for facts in stored if facts["kind"] != "worst"]  # a worst case is made of other files
    commands = "\n".join(f"- `{facts['job']}`: `{current_command(facts['command'])}`" for facts in ran)
    return render("parity", summary=summary(stored), sections="\n".join(filter(None, sections)), commands=commands)


def section(peer: str, comparisons: Sequence[Facts]) -> str:
    """Return the section of one package, or nothing where no comparison with it is stored."""
    rows = [row for facts in comparisons for row in table_rows(facts)]
    devices = ", ".join(sorted({facts["device"] for facts in comparisons}))
    return render(f"parity_{peer}", devices=devices, table=table(rows)) if rows else ""


def summary(stored: Sequence[Facts]) -> str:
    """Say how many comparisons keep their rule, and name those that do not."""
    broken = [facts for facts in stored if not facts["verdict"]["holds"]]
    text = f"**{len(stored) - len(broken)} of {len(stored)} comparisons keep their rule.**"
    if not broken:
        return text + "\n"
    lines = [f"- `{facts['job']}`: {'; '.join(map(both_sides, facts['verdict']['checks']))}." for facts in broken]
    return text + " These do not:\n\n" + "\n".join(lines) + "\n"


def both_sides(check: Facts) -> str:
    if "ratio" in check:
        return f"{check['what']} {check['ours']:.3g}, theirs {check['theirs']:.3g}"
    return f"{check['what']} {100 * check['ours']['value']:.1f}, theirs {100 * check['theirs']['value']:.1f}"


def table_rows(facts: Facts) -> Iterable[dict[str, str]]:
    """Yield a row for each check that the rule of this comparison makes."""
    ours, theirs = facts["ours"], facts["theirs"]
    worst = facts["kind"] == "worst"
    for check in facts["verdict"]["checks"]:
        if "ratio" in check:
            values = [f"{check[side]:.3g}" for side in ("ours", "theirs")]
        else:
            values = [percent_with_interval(check[side]) for side in ("ours", "theirs")]
        apart, allowed = distance_and_limit(check, facts["points"])
        yield {
            "network": facts["model"],
            "ours": "worst of the four" if worst else f"`{ours['attack']}`",
            "theirs": "worst of the four" if worst else f"`{theirs['attack']}`",
            "ball": facts["threat"] + (f", {facts['budget']:,} queries" if facts["budget"] else ""),
            "samples": str(len(facts["right"])),
            "what": check["what"],
            "by ours": values[0],
            "by theirs": values[1],
            "ours to theirs": apart,
            "queries": f"{ours['forwards']:,} / {theirs['forwards']:,}",
            "backward": f"{ours['backwards']:,} / {theirs['backwards']:,}",
            "seconds": "" if facts["seconds_ratio"] is None else f"× {facts['seconds_ratio']:.2f}",
            "allowed": allowed,
            "holds": yes_or_no(check["holds"]),
        }


def distance_and_limit(check: Facts, points: float) -> tuple[str, str]:
    """Return how far apart the two sides are, with its interval, and how far apart they may be."""
    if "ratio" in check:
        r = check["ratio"]
        return f"× {r['value']:.2f} [{r['low']:.2f}, {r['high']:.2f}]", f"× {check['allowed']:g}"
    d = check["difference"]
    return f"{100 * d['value']:+.1f} [{100 * d['low']:+.1f}, {100 * d['high']:+.1f}]", f"{points:+g}"
