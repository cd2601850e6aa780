"""A report is a pure function of a store: a row per cell, each defence beside its bare classifier on the samples both
have, and one plain sentence that never claims more than was run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import antiadv
from antiadv.core.errors import BadInput
from antiadv.evaluate import Cell, Store
from antiadv.report.render import HEADINGS, markdown
from antiadv.report.table import bare_cell, rows
from antiadv.report.verdict import verdict
from tests.evaluate.probes import MODEL, RECEIPT, cell, record

ANTI = "anti_adversary"
FELL = {"attacked": 5, "distance": 1 / 255}


def put(root: Path, asked: Cell, fell: int, ids: range = range(40)) -> None:
    """The first `fell` of these samples were broken, after 7 queries each."""
    facts = [record(i, queries=7, **(FELL if n < fell else {})) for n, i in enumerate(ids)]
    Store(root).append(asked, facts, RECEIPT)


def square(defence: str = "none", **words: object) -> Cell:
    return cell("square", defence=defence, threat="linf:2/255,queries=100", **words)


def pair(root: Path, attack: str, bare: int, defended: int, **words: object) -> None:
    """One attack against both, with so many fallen of 40."""
    for defence, fell in (("none", bare), (ANTI, defended)):
        put(root, cell(attack, defence=defence, **words), fell)


def test_a_row_holds_the_numbers_of_its_cell(tmp_path: Path):
    put(tmp_path, square(), 30)
    put(tmp_path, square(ANTI), 10)
    bare, defended = rows(Store(tmp_path))
    assert (bare.cell.defence, defended.cell.defence) == ("none", ANTI)
    assert (bare.clean.value, bare.robust.value, bare.robust.n, bare.queries) == (1.0, 0.25, 40, 7.0)
    assert bare.gain is None
    assert defended.robust.value == 0.75
    assert defended.gain is not None
    assert (defended.gain.value, defended.gain.gained, defended.gain.lost) == (0.5, 20, 0)
    assert defended.gain.p == pytest.approx(2 / 2**20)


def test_gain_pairs_only_the_samples_both_have(tmp_path: Path):
    put(tmp_path, square(), 40)
    put(tmp_path, square(ANTI), 0, range(30, 60))
    gain = rows(Store(tmp_path))[1].gain
    assert gain is not None
    assert (gain.n, gain.gained) == (10, 10)


def test_cells_without_a_common_sample_are_rows_without_a_gain(tmp_path: Path):
    put(tmp_path, square(), 4, range(10))
    put(tmp_path, square(ANTI), 2, range(10, 20))
    found = rows(Store(tmp_path))
    assert [r.gain for r in found] == [None, None]
    assert verdict(found) == []


@pytest.mark.parametrize(
    "words",
    [{"seed": 1}, {"threat": "linf:3/255,queries=100"}, {"threat": "linf:2/255,queries=101"}],
    ids=["seed", "radius", "budget"],
)
def test_gain_is_against_the_same_attack_only(tmp_path: Path, words: dict):
    put(tmp_path, square(), 4)
    put(tmp_path, cell("square", defence=ANTI, **({"threat": "linf:2/255,queries=100"} | words)), 2)
    assert [r.gain for r in rows(Store(tmp_path))] == [None, None]


def test_two_texts_of_one_data_set_are_one(tmp_path: Path):
    put(tmp_path, square(data="cifar10"), 30)
    put(tmp_path, square(ANTI, data="cifar10:test"), 10)
    bare, defended = rows(Store(tmp_path))
    assert defended.gain is not None
    assert (bare.cell.data, defended.cell.data) == ("cifar10:test", "cifar10:test")
    assert [said[: len(f"On {MODEL}, ")] for said in verdict([bare, defended])] == [f"On {MODEL}, "]


def test_rows_of_chosen_cells(tmp_path: Path):
    asked = square(ANTI, samples=range(20))
    put(tmp_path, square(), 30)
    put(tmp_path, square(ANTI), 10)
    put(tmp_path, square(seed=8), 10)
    found = rows(Store(tmp_path), [bare_cell(asked), asked])
    assert [(r.cell.defence, r.robust.n, r.cell.seed) for r in found] == [("none", 20, 0), (ANTI, 20, 0)]


def test_bare_stands_before_defended_and_askers_before_adaptive(tmp_path: Path):
    for attack in ("transfer", "pgd", "square"):
        pair(tmp_path, attack, 20, 10)
    order = [(r.cell.attack, r.cell.defence) for r in rows(Store(tmp_path))]
    assert order == [(a, d) for a in ("square", "pgd", "transfer") for d in ("none", ANTI)]


def test_an_empty_store_has_no_report(tmp_path: Path):
    for root in (tmp_path, tmp_path / "missing"):
        with pytest.raises(BadInput, match="holds no records; run antiadv evaluate") as error:
            antiadv.report(root)
        assert str(root) in str(error.value)


# ---------------------------------------------------------------- the sentence


def sentence(root: Path) -> str:
    (said,) = verdict(rows(Store(root)))
    return said


def test_without_an_adaptive_attack_nothing_is_said_of_one(tmp_path: Path):
    pair(tmp_path, "square", 30, 10)
    assert sentence(tmp_path) == (
        f"On {MODEL}, anti_adversary gains +50.0 points (p 2e-06) against square; no adaptive attack was run, "
        "so this says nothing of an attacker who knows the defence."
    )


def test_a_defence_that_falls_to_the_adaptive_attack_is_no_answer(tmp_path: Path):
    pair(tmp_path, "square", 30, 10)
    pair(tmp_path, "pgd", 30, 29)
    pair(tmp_path, "transfer", 30, 30)
    assert sentence(tmp_path) == (
        f"On {MODEL}, anti_adversary gains +50.0 points (p 2e-06) against square and +2.5 points (p 1.00) against pgd; "
        "against an attacker who knows the defence (transfer) it gains +0.0 points (p 1.00): "
        "it is no answer to an adaptive attacker."
    )


@pytest.mark.parametrize(
    ("bare", "defended", "answer"),
    [(30, 10, True), (30, 24, True), (30, 25, False), (30, 30, False), (10, 30, False)],
    ids=["clear", "p 0.03", "p 0.06", "none", "worse"],
)
def test_an_answer_must_be_a_gain_and_be_significant(tmp_path: Path, bare: int, defended: int, answer: bool):
    pair(tmp_path, "transfer", bare, defended)
    assert ("it is no answer" not in sentence(tmp_path)) is answer
    assert "was attacked by nobody who merely asks" in sentence(tmp_path)


def test_the_worst_adaptive_attack_has_the_last_word(tmp_path: Path):
    pair(tmp_path, "transfer", 30, 10)
    pair(tmp_path, "transfer:attack=(pgd:steps=40)", 30, 28)
    assert "(transfer:attack=(pgd:steps=40)) it gains +5.0 points" in sentence(tmp_path)


def test_several_threats_are_told_apart(tmp_path: Path):
    pair(tmp_path, "pgd", 30, 10, threat="linf:2/255")
    pair(tmp_path, "pgd", 30, 20, threat="linf:4/255")
    assert "against pgd (linf:2/255,access=gradients) and" in sentence(tmp_path)
    assert "against pgd (linf:4/255,access=gradients);" in sentence(tmp_path)


def test_each_configuration_of_a_defence_has_its_own_sentence(tmp_path: Path):
    put(tmp_path, square(), 30)
    for defence in (ANTI, f"{ANTI}:steps=3"):
        put(tmp_path, square(defence), 10)
    said = verdict(rows(Store(tmp_path)))
    assert [s.split(" gains")[0] for s in said] == [f"On {MODEL}, {d}" for d in (ANTI, f"{ANTI}:steps=3")]


def test_bare_rows_alone_have_no_verdict(tmp_path: Path):
    put(tmp_path, square(), 30)
    assert verdict(rows(Store(tmp_path))) == []


# ---------------------------------------------------------------- text


def test_markdown_has_a_line_per_row_and_escapes_bars(tmp_path: Path):
    put(tmp_path, square(), 30)
    put(tmp_path, square(ANTI), 40)
    found = rows(Store(tmp_path))
    barred = dataclasses.replace(found[0], cell=dataclasses.replace(found[0].cell, model="a|b"))
    lines = markdown([barred, found[1]]).splitlines()
    assert lines[0] == "| " + " | ".join(HEADINGS) + " |"
    assert len(lines) == 4
    assert lines[2] == (
        r"| a\|b | none | square | linf:2/255,access=scores,queries=100 | 40 | 100.0 | 25.0 [14.2, 40.2] | 7 |  |"
    )
    assert all(line.replace(r"\|", "").count("|") == len(HEADINGS) + 1 for line in lines)
    assert lines[3].endswith("| 0.0 [0.0, 8.8] | 7 | -25.0 (p 0.002) |")


def test_nobody_fooled_has_no_median(tmp_path: Path):
    put(tmp_path, square(), 0)
    assert "| 100.0 [91.2, 100.0] | – |  |" in markdown(rows(Store(tmp_path)))


def test_a_report_is_text_and_json(tmp_path: Path):
    pair(tmp_path, "square", 30, 10)
    made = antiadv.report(tmp_path)
    text = str(made)
    assert text.startswith(markdown(made.rows))
    assert made.verdict[0] in text
    said = json.loads(json.dumps(made.json()))
    assert said["verdict"] == made.verdict
    bare, defended = said["rows"]
    assert (bare["attack"], bare["defence"], bare["gain"]) == ("square", "none", None)
    assert defended["robust"]["value"] == 0.75
    assert defended["gain"]["gained"] == 20
    assert defended["key"] == made.rows[1].cell.key
    assert defended["command"].startswith("antiadv evaluate --data cifar10:test")
    assert defended["median_queries"] == 7


def test_reports_of_equal_stores_are_equal(tmp_path: Path):
    for name in "ab":
        pair(tmp_path / name, "square", 30, 10)
        pair(tmp_path / name, "transfer", 30, 10)
    assert str(antiadv.report(tmp_path / "a")) == str(antiadv.report(Store(tmp_path / "b")))
