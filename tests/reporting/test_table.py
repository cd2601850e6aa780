"""A table says the same in Markdown, CSV, LaTeX and JSON, and no name can break out of any of them."""

from __future__ import annotations

import csv
import io
import re

import pytest

from antiadv.reporting.measures import Difference, Ratio, Share
from antiadv.reporting.render.csv import table_as_csv
from antiadv.reporting.render.latex import escaped, table_as_latex
from antiadv.reporting.render.markdown import table_as_markdown
from antiadv.reporting.table import (
    Entry,
    Number,
    Table,
    code,
    counted,
    measured,
    number,
    number_table,
    ratio,
    text_table,
)

SHARE = Share(0.542, 0.511, 0.573, 1000)
GAIN = Difference(0.186, 0.159, 0.212, 200, 14, 1e-9, 1000)
TABLE = number_table(
    "table-9",
    "Table 9: α & β",
    ("data", "network", "setting"),
    ("AA", "AA gain"),
    [
        (("cifar10", "net_a", ""), {"AA": Number(SHARE, 53.1)}),
        (("cifar10", "net_a", "+ Anti-Adv"), {"AA": Number(None, 71.7), "AA gain": Number(GAIN, 18.6, True)}),
    ],
)


def test_a_table_keeps_its_numbers_intervals_and_the_papers() -> None:
    assert TABLE.head == ("data", "network", "setting", "n", "AA", "AA gain")
    bare, defended = TABLE.lines
    assert (bare[3].value, bare[4].value, bare[4].low, bare[4].high, bare[4].paper) == (1000, 54.2, 51.1, 57.3, 53.1)
    assert str(bare[4]) == "54.2 [51.1, 57.3] (53.1)" == str(Number(SHARE, 53.1))
    assert bare[5] == Entry()
    assert (str(defended[4]), defended[4].value) == ("– (71.7)", None)
    assert str(defended[5]) == "+18.6 [+15.9, +21.2] (+18.6)"
    assert TABLE.other_labels(defended) == "cifar10 · + Anti-Adv"
    assert [TABLE.kind(i) for i in range(6)] == ["label", "pin", "label", "number", "number", "number"]


def test_csv_has_a_column_for_every_part() -> None:
    lines = list(csv.DictReader(io.StringIO(table_as_csv(TABLE))))
    assert list(lines[0]) == [
        *("data", "network", "setting", "n", "AA", "AA low", "AA high", "AA paper"),
        *("AA gain", "AA gain low", "AA gain high", "AA gain paper"),
    ]
    assert (lines[0]["AA"], lines[0]["AA low"], lines[0]["AA paper"], lines[0]["AA gain"]) == (
        "54.2",
        "51.1",
        "53.1",
        "",
    )
    assert (lines[1]["AA"], lines[1]["AA paper"], lines[1]["AA gain high"]) == ("–", "71.7", "21.2")


def test_a_bound_keeps_the_end_that_is_known() -> None:
    """`> 180` is no 182: whoever reads the file must see that."""
    entries = [ratio(Ratio(182.0, "more")), ratio(Ratio(0.5, "less")), ratio(Ratio(3.0)), ratio(None)]
    table = Table("s", "S", ("× queries",), tuple((entry,) for entry in entries))
    assert table_as_csv(table).splitlines() == [
        "× queries,× queries low,× queries high",
        "182,182,",
        "0.5,,0.5",
        "3,,",
        ",,",
    ]
    assert [line["× queries"] for line in table.json()] == [
        {"value": 182.0, "low": 182.0},
        {"value": 0.5, "high": 0.5},
        3.0,
        "",
    ]


@pytest.mark.parametrize(("paper", "shown"), [(88.25, "(88.3)"), (34.55, "(34.6)"), (29.14, "(29.1)"), (0.0, "(0.0)")])
def test_published_ties_round_away_from_zero(paper: float, shown: str) -> None:
    assert Number(None, paper).published == shown
    assert Number(None, 1.65, signed=True).published == "(+1.7)"
    assert Number(None, -1.65, signed=True).published == "(-1.7)"


def test_csv_rounds_nothing_away() -> None:
    assert table_as_csv(Table("s", "S", ("passes",), ((counted(123_456_789),),))) == "passes\n123456789\n"


def test_csv_quotes_what_it_must() -> None:
    table = Table("s", "S", ("a,b", "c"), ((Entry('say "x", y'), counted(7)),))
    assert next(csv.DictReader(io.StringIO(table_as_csv(table)))) == {"a,b": 'say "x", y', "c": "7"}


def test_markdown_escapes_bars_and_sets_code() -> None:
    table = Table("s", "S", ("name",), ((code("a|b"),), (measured(SHARE),), (code(""),)))
    assert table_as_markdown(table).splitlines() == [
        "| name |",
        "| --- |",
        r"| `a\|b` |",
        "| 54.2 [51.1, 57.3] |",
        "|  |",
    ]


def test_latex_is_a_table_in_which_every_name_is_escaped() -> None:
    text = table_as_latex(TABLE)
    body = re.search(r"\\begin\{tabular\}\{(\w+)\}\n(.*)\\end\{tabular\}", text, re.DOTALL)
    assert body is not None
    assert body[1] == "lllrrr"
    rows = [line for line in body[2].splitlines() if line.endswith(r"\\")]
    assert len(rows) == 3
    assert all(len(re.findall(r"(?<!\\)&", row)) == 5 for row in rows)
    assert r"net\_a" in rows[1]
    assert r"54.2 {\scriptsize [51.1, 57.3]} (53.1)" in rows[1]


def test_no_character_of_a_name_means_anything_to_latex() -> None:
    for c in "&%$#_{}~^\\":
        assert escaped(c) not in (c, ""), c
        assert escaped(c).startswith("\\"), c
    assert escaped(r"\input{x}") == r"\textbackslash{}input\{x\}"


def test_what_sorts() -> None:
    assert [
        e.sort_key
        for e in (Entry("b"), counted(1234.5), Entry("–"), Entry(), number(Number(None, 3.0)), measured(GAIN))
    ] == [
        *("b", "1234.5", "", "", "", "18.6"),
    ]
    assert counted(12_345_678).text == "12,345,678"
    assert counted(None).text == "–"


def test_json_holds_numbers_as_numbers() -> None:
    first, second = TABLE.json()
    assert first["AA"] == {"value": 54.2, "low": 51.1, "high": 57.3, "paper": 53.1}
    assert (first["network"], first["AA gain"], second["AA"]) == ("net_a", "", {"value": None, "paper": 71.7})


def test_only_trusted_tables_keep_their_links() -> None:
    table = text_table(("page",), [("[x](y)|z",)])
    assert table_as_markdown(table, trusted=True).splitlines()[-1] == r"| [x](y)\|z |"
    assert "](" not in table_as_markdown(table)
