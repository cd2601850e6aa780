"""docs/flags.md: every flag, from the explanations that a report shows with it."""

from __future__ import annotations

import textwrap
from pathlib import Path

from antiadv.reporting.flag_explanations import EXPLAINED, Explanation
from tools.docs.markdown import WIDTH, render


def page(root: Path) -> str:
    return render("flags", flags="\n".join(section(name, flag) for name, flag in EXPLAINED.items()))


def section(name: str, flag: Explanation) -> str:
    parts = {"Raised if": flag.raised, "What it means": flag.means, "What to do": flag.todo}
    texts = [textwrap.fill(f"**{heading}** {text}", WIDTH) for heading, text in parts.items()]
    return f"## `{name}`\n\n" + "\n\n".join(texts) + "\n"
