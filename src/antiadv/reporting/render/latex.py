"""A table as a LaTeX `tabular` for booktabs."""

from __future__ import annotations

from antiadv.core.printable import printable
from antiadv.reporting.table import Entry, Table

_ESCAPES = {c: "\\" + c for c in "&%$#_{}"} | {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "×": "$\\times$",
    "−": "$-$",
    "–": "--",
    "…": "\\ldots{}",
    "α": "$\\alpha$",
    "ε": "$\\varepsilon$",
    "σ": "$\\sigma$",
    "→": "$\\to$",
}


def table_as_latex(table: Table) -> str:
    """The interval is in small print, and the published number in brackets."""
    columns = "".join("r" if table.kind(i) == "number" else "l" for i in range(len(table.head)))
    head = " & ".join(f"\\textbf{{{escaped(name)}}}" for name in table.head)
    body = "".join(" & ".join(map(_typeset, line)) + " \\\\\n" for line in table.lines)
    rules = f"\\toprule\n{head} \\\\\n\\midrule\n{body}\\bottomrule\n"
    return (
        f"% {table.title}; needs \\usepackage{{booktabs}}\n\\begin{{tabular}}{{{columns}}}\n{rules}\\end{{tabular}}\n"
    )


def escaped(text: str) -> str:
    r"""
    >>> escaped("α = 10/255, 50 %_{x}")
    '$\\alpha$ = 10/255, 50 \\%\\_\\{x\\}'
    """
    return "".join(_ESCAPES.get(c, c) for c in printable(text))


def _typeset(entry: Entry) -> str:
    text = escaped(entry.text)
    text = f"\\texttt{{{text}}}" if entry.code and text else text
    small = f"{{\\scriptsize {escaped(entry.small)}}}" if entry.small else ""
    return " ".join(part for part in (text, small, escaped(entry.paper_text)) if part)
