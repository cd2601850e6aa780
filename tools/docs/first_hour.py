"""docs/first-hour.md: the commands of a first hour, and from a stored run what they printed and how long they took."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any  # what a JSON file holds

from tools.docs.markdown import render, table, wrap
from tools.run_first_hour import GATED, INSTALL, STEPS, STORED, Step

LONGEST = 40  # lines of one output that are shown
NOT_RUN = "Times and outputs are not stored yet: `python -m tools.run_first_hour --install` measures them."


def page(root: Path) -> str:
    path = root / STORED.relative_to(STORED.parents[1])
    stored = json.loads(path.read_text()) if path.exists() else {"steps": []}
    done = {step["title"]: step for step in stored["steps"]}
    parts = "\n\n".join(_part(step, done.get(step.title)) for step in (INSTALL, *STEPS))
    return render("first_hour", times=_times(stored), parts=parts)


def _times(stored: dict[str, Any]) -> str:
    if not stored["steps"]:
        return wrap(NOT_RUN)
    m, minutes = stored["machine"], sum(s["seconds"] for s in stored["steps"]) / 60
    words = (
        f"All steps together took {minutes:.0f} minutes, on {m['cores']} cores ({m['kind']}, Python {m['python']}, "
        f"torch {m['torch']}). The load of the machine was {m['load']} when they began."
    )
    rows = [{"step": s["title"], "seconds": f"{s['seconds']:.0f}"} for s in stored["steps"]]
    return f"{wrap(words)}\n\n{table(rows)}".rstrip()


def _part(step: Step, done: dict[str, Any] | None) -> str:
    name = Path(step.page).name
    command = step.command.replace("SPEC", GATED) if done is None else done["command"]
    took = "" if done is None else f" It took {done['seconds']:.0f} seconds."
    words = wrap(f"{step.words} The command is from [{name}]({name}).{took}")
    text = f"## {step.title}\n\n{words}\n\n```sh\n{command}\n```"
    lines = [] if done is None else done["printed"].splitlines()
    more = [f"… {len(lines) - LONGEST} more lines"] if len(lines) > LONGEST else []
    shown = "\n".join(line.rstrip() for line in [*lines[:LONGEST], *more])
    return f"{text}\n\n```text\n{shown}\n```" if shown else text
