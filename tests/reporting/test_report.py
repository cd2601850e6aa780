"""A report is a pure function of a store: a row per cell, each defence beside its bare classifier on the samples both
have, and one plain sentence that never claims more than was run."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

import antiadv
from antiadv.cli.__main__ import main
from antiadv.core.errors import BadInput
from antiadv.core.threat import Access
from antiadv.evaluation import Cell, Store
from antiadv.reporting.measures import Ratio
from antiadv.reporting.render.markdown import table_as_markdown
from antiadv.reporting.rows import Row, bare_cell, make_row, row_table, rows
from antiadv.reporting.select import searched, select_precision
from antiadv.reporting.summary import by_defence, headline
from antiadv.reporting.verdict import OTHERS, confidence, levels, verdict
from tests.engine.probes import MODEL, RECEIPT, cell, record
from tests.said import in_order, numbers

ANTI = "anti_adversary"
FELL: dict[str, Any] = {"attacked": 5, "distance": 1 / 255}


def put(root: Path, asked: Cell, fell: int, ids: range = range(40)) -> None:
    """The first `fell` of these samples were broken, after 7 queries each."""
    facts = [record(i, queries=7, **(FELL if n < fell else {})) for n, i in enumerate(ids)]
    Store(root).append(asked, facts, RECEIPT)


def square(defence: str = "none", **words: Any) -> Cell:
    return cell("square", defence=defence, threat="linf:2/255,queries=100", **words)


def pair(root: Path, attack: str, bare: int, defended: int, **words: Any) -> None:
    """One attack against both, with so many fallen of 40."""
    for defence, fell in (("none", bare), (ANTI, defended)):
        put(root, cell(attack, defence=defence, **words), fell)


def test_a_row_holds_the_numbers_of_its_cell(tmp_path: Path) -> None:
    put(tmp_path, square(), 30)
    put(tmp_path, square(ANTI), 10)
    bare, defended = rows(Store(tmp_path))
    assert (bare.cell.defence, defended.cell.defence) == ("none", ANTI)
    assert bare.robust is not None
    assert defended.robust is not None
    assert (bare.clean.value, bare.robust.value, bare.robust.n, bare.queries) == (1.0, 0.25, 40, 7.0)
    assert bare.gain is None
    assert defended.robust.value == 0.75
    assert defended.gain is not None
    assert (defended.gain.value, defended.gain.gained, defended.gain.lost) == (0.5, 20, 0)
    assert defended.gain.p == pytest.approx(2 / 2**20)


def test_gain_pairs_only_the_samples_both_have(tmp_path: Path) -> None:
    put(tmp_path, square(), 40)
    put(tmp_path, square(ANTI), 0, range(30, 60))
    gain = rows(Store(tmp_path))[1].gain
    assert gain is not None
    assert (gain.n, gain.gained) == (10, 10)


def test_cells_without_a_common_sample_are_rows_without_a_gain(tmp_path: Path) -> None:
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
def test_gain_is_against_the_same_attack_only(tmp_path: Path, words: dict[str, Any]) -> None:
    put(tmp_path, square(), 4)
    put(tmp_path, cell("square", defence=ANTI, **({"threat": "linf:2/255,queries=100"} | words)), 2)
    assert [r.gain for r in rows(Store(tmp_path))] == [None, None]


def test_two_texts_of_one_data_set_are_one(tmp_path: Path) -> None:
    put(tmp_path, square(data="cifar10"), 30)
    put(tmp_path, square(ANTI, data="cifar10:test"), 10)
    bare, defended = rows(Store(tmp_path))
    assert defended.gain is not None
    assert (bare.cell.data, defended.cell.data) == ("cifar10:test", "cifar10:test")
    assert [said[: len(f"On {MODEL}, ")] for said in verdict([bare, defended])] == [f"On {MODEL}, "]


def test_a_bare_classifier_searched_in_another_precision_is_compared_with(tmp_path: Path) -> None:
    put(tmp_path, square(precision="mixed"), 30)
    put(tmp_path, square(ANTI), 10)
    made = antiadv.report(tmp_path)
    bare, defended = made.rows
    assert (bare.cell.precision, defended.cell.precision) == ("mixed", "float32")
    assert defended.gain is not None
    assert (defended.gain.value, defended.gain.n) == (0.5, 40)
    assert [(part.gain.value, part.gain.n) for part in made.levels] == [(0.5, 40)]
    assert "+50.0 points" in made.verdict[0]
    assert len(made.confidence) == 1
    assert [row["precision"] for row in made.json()["rows"]] == ["mixed", "float32"]
    assert "queries=100 | mixed | 40 |" in str(made)


def test_of_several_precisions_the_one_with_the_most_samples_speaks(tmp_path: Path) -> None:
    put(tmp_path, square(), 20, range(20))  # all of them
    put(tmp_path, square(precision="mixed"), 30)
    put(tmp_path, square(ANTI), 0, range(10))
    put(tmp_path, square(ANTI, precision="mixed"), 10)
    made = antiadv.report(tmp_path)
    (part,) = made.levels
    assert (part.gain.value, part.gain.n) == (0.5, 40), "and not the ten samples that all four have"
    few = next(r for r in made.rows if r.cell.defence == ANTI and r.cell.precision == "float32")
    assert few.gain is not None
    assert (few.gain.value, few.gain.n) == (1.0, 10)
    (speaks,) = select_precision(r for r in made.rows if r.cell.defence == ANTI)
    assert (speaks.cell.precision, len(speaks.records)) == ("mixed", 40)


def test_of_equal_precisions_the_finest_speaks(tmp_path: Path) -> None:
    put(tmp_path, square(), 30)
    for precision, fell in (("mixed", 0), ("float32", 10)):
        put(tmp_path, square(ANTI, precision=precision), fell)
    made = antiadv.report(tmp_path)
    assert [part.gain.value for part in made.levels] == [0.5]
    assert in_order(searched(r.cell for r in made.rows), "float32 (2)", "mixed (1)", "float32")
    assert in_order(searched([square()]), "float32", "float32")
    assert numbers(searched([square()])) == [], "one precision is not counted"


def test_what_is_known_to_break_less_in_its_precision_is_said_below_every_table() -> None:
    pair = [cell(attack, range(9), precision="half") for attack in ("bandits", "bandits:tile=8", "square")]
    assert in_order(searched(pair), "half", "float32", "2 cells", "bandits", "half")
    assert numbers(searched(pair)) == ["2"]
    both = searched([*pair[1:], cell("qeba", range(9), precision="half")])
    assert in_order(both, "half", "float32", "1 cell", "bandits", "half", "1 cell", "qeba", "half")
    assert numbers(both) == ["1", "1"]
    assert "bandits" not in searched([cell("bandits", range(9)), cell("bandits", range(9), precision="tf32")])


def test_two_networks_of_one_name_are_told_apart_and_not_thrown_together(tmp_path: Path) -> None:
    """Files of one name in two folders, or one trained again: the attack breaks one bare, and the other behind the
    layer, so that together they would be a defence that does nothing."""
    for k, (bare, defended) in enumerate([(40, 0), (0, 40)]):
        for defence, fell in (("none", bare), (ANTI, defended)):
            asked = dataclasses.replace(
                square(defence), model=f"file:/{k}/net.safetensors", weights=f"sha256:{k}234567890"
            )
            put(tmp_path, asked, fell)
    found = rows(Store(tmp_path))
    names = ["file:net.safetensors (02345678)", "file:net.safetensors (12345678)"]
    assert [r.model for r in found] == [names[0], names[0], names[1], names[1]]
    assert [(part.model, part.gain.value) for part in levels(found)] == [(names[0], 1.0), (names[1], -1.0)]
    assert [name in said for said, name in zip(verdict(found), names, strict=True)] == [True, True]
    assert {part.model for part in confidence(found)} == {*names}
    assert all(name in table_as_markdown(row_table(found)) for name in names)
    assert {r.cell.model for r in found} == {"file:net.safetensors"}
    assert {r.json()["key"] for r in found} == {c.key for c in Store(tmp_path).cells()}


def test_two_data_sets_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for k in range(2):
        pair_of = dataclasses.replace(square(), data="arrays:mine.npz", images=f"sha256:{k}234567890")
        for asked in (pair_of, dataclasses.replace(pair_of, defence=ANTI)):
            put(tmp_path, asked, 4)
    assert {r.data for r in rows(Store(tmp_path))} == {"arrays:mine.npz (02345678)", "arrays:mine.npz (12345678)"}
    assert len(verdict(rows(Store(tmp_path)))) == 2


def test_a_network_whose_file_was_renamed_is_one(tmp_path: Path) -> None:
    """The defence was attacked after the file had another name: it stands beside the bare network all the same."""
    for name, defence, fell in (("old", "none", 40), ("new", ANTI, 0)):
        put(tmp_path, dataclasses.replace(square(defence), model=f"file:/{name}.pt", weights="sha256:same"), fell)
    found = rows(Store(tmp_path))
    assert [(r.model, r.cell.defence) for r in found] == [("file:new.pt", "none"), ("file:new.pt", ANTI)]
    assert [part.gain.value for part in levels(found)] == [1.0]


def test_one_network_on_two_data_sets_is_told_apart_wherever_it_is_named(tmp_path: Path) -> None:
    for k in range(2):
        for defence in ("none", ANTI):
            put(tmp_path, dataclasses.replace(square(defence), data=f"arrays:{k}.npz", images=f"sha256:{k}"), 4 * k + 4)
    found = rows(Store(tmp_path))
    assert len({str(part) for part in confidence(found)}) == 2
    assert all(f"{MODEL} (arrays:{k}.npz) has" in str(part) for k, part in enumerate(confidence(found)))
    assert "place" not in confidence(found)[0].json()
    assert table_as_markdown(row_table(found)).startswith("| data | model |")
    assert in_order(headline(levels(found))[0], "1 network", "2 data sets")
    assert by_defence(levels(found)).json()[0]["networks"] == 1


def test_seeds_have_a_column_and_the_verdict_says_that_it_is_of_the_worst(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each seed breaks ten others of the bare network's samples, so that their worst is no row's own number."""
    for seed in range(2):
        put(tmp_path, square(seed=seed), 10, range(40) if seed else range(39, -1, -1))
        put(tmp_path, square(ANTI, seed=seed), 0)
    found = rows(Store(tmp_path))
    assert [(r.cell.defence, r.cell.seed) for r in found] == [("none", 0), ("none", 1), (ANTI, 0), (ANTI, 1)]
    assert "| threat | seed | precision |" in table_as_markdown(row_table(found))
    assert main(["report", "--store", str(tmp_path)]) == 0
    assert re.search(r"defence +seed +clean %", capsys.readouterr().out)
    (part,) = levels(found)
    assert (part.gain.value, part.seeds, part.json()["seeds"]) == (0.5, (0, 1), [0, 1])
    assert "+50.0 points" in verdict(found)[0]
    assert re.search(r"\bworst\b.*\bseeds\b.*\b0\b.*\b1\b", verdict(found)[0])


def test_a_defence_judged_by_one_look_and_by_ten_is_two(tmp_path: Path) -> None:
    """Together they would be the worst of two judges, against a bare network that had one."""
    put(tmp_path, square(), 20)
    for looks, fell in ((1, 40), (10, 0)):
        put(tmp_path, dataclasses.replace(square("small_noise"), looks=looks), fell)
    made = antiadv.report(tmp_path)
    names = ["small_noise (1 look)", "small_noise (10 looks)"]
    assert [r.defence for r in made.rows] == ["none", *names]
    assert [(part.defence, part.gain.value) for part in made.levels] == [(names[0], -0.5), (names[1], 0.5)]
    assert [part.defence for part in made.confidence] == names
    assert all(name in table_as_markdown(row_table(made.rows)) for name in names)
    (flag,) = (flag for flag in made.flags if flag.name == "worse_than_bare")
    assert flag.sentence.startswith(f"with {names[0]} 50.0 points fewer")
    assert [said["looks"] for said in flag.json()["cells"]] == [1]
    assert [row["looks"] for row in made.json()["rows"]] == [10, 1, 10]


def test_rows_of_chosen_cells(tmp_path: Path) -> None:
    asked = square(ANTI, samples=range(20))
    put(tmp_path, square(), 30)
    put(tmp_path, square(ANTI), 10)
    put(tmp_path, square(seed=8), 10)
    found = rows(Store(tmp_path), [bare_cell(asked), asked])
    assert [(r.cell.defence, r.cell.seed) for r in found] == [("none", 0), (ANTI, 0)]
    assert [r.robust.n for r in found if r.robust] == [20, 20]


def test_bare_stands_before_defended_and_askers_before_adaptive(tmp_path: Path) -> None:
    for attack in ("transfer", "pgd", "square"):
        pair(tmp_path, attack, 20, 10)
    order = [(r.cell.attack, r.cell.defence) for r in rows(Store(tmp_path))]
    assert order == [(a, d) for a in ("square", "pgd", "transfer") for d in ("none", ANTI)]


def test_an_empty_store_has_no_report(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "missing"):
        with pytest.raises(BadInput, match="antiadv evaluate") as error:
            antiadv.report(root)
        assert str(root) in str(error.value)


# ---------------------------------------------------------------- the sentence


NONE, UNCLEAR = "does not protect", "too few"  # what is concluded of an adaptive attacker


def sentence(root: Path) -> str:
    (said,) = verdict(rows(Store(root)))
    return said


def adaptive_and_others(root: Path) -> tuple[str, str]:
    """What the verdict says of an attacker who knows the defence, and of the others."""
    first, found, rest = sentence(root).partition(OTHERS)
    assert found
    return first, rest


def test_without_an_adaptive_attack_nothing_is_said_of_one(tmp_path: Path) -> None:
    pair(tmp_path, "square", 30, 10)
    adaptive, others = adaptive_and_others(tmp_path)
    assert in_order(adaptive, MODEL, ANTI)
    assert numbers(adaptive) == []
    assert numbers(others) == ["+50.0", "+31.6", "+63.1", "2e-06"]
    assert in_order(others, "(p 2e-06)", "scores")


def test_an_adaptive_attack_on_the_defended_side_alone_is_not_passed_over(tmp_path: Path) -> None:
    pair(tmp_path, "square", 30, 10)
    put(tmp_path, cell("transfer", defence=ANTI), 20)
    put(tmp_path, cell("transfer:attack=apgd", defence=ANTI), 30)
    adaptive, _ = adaptive_and_others(tmp_path)
    assert in_order(adaptive, "25.0 %", "[14.2, 40.2]", "40 samples", "linf:2/255"), "of the stronger of the two"
    assert " points" not in adaptive
    put(tmp_path, cell("transfer"), 30)
    adaptive, _ = adaptive_and_others(tmp_path)
    assert " points" in adaptive


def test_a_defence_that_falls_to_the_adaptive_attack_is_no_answer(tmp_path: Path) -> None:
    pair(tmp_path, "square", 30, 10)
    pair(tmp_path, "pgd", 30, 29)
    pair(tmp_path, "transfer", 30, 30)
    adaptive, others = adaptive_and_others(tmp_path)
    assert NONE in adaptive
    assert numbers(adaptive) == ["+0.0", "-6.4", "+6.4", "1.00"]
    assert numbers(others) == ["+50.0", "+31.6", "+63.1", "2e-06", "+2.5", "-5.1", "+10.4", "1.00"]
    assert in_order(others, "(p 2e-06)", "scores", "+2.5", "gradients")
    (*_, last) = levels(rows(Store(tmp_path)))
    assert last.attacks == ("square", "pgd", "transfer")


@pytest.mark.parametrize(("wrong", "said"), [(5, False), (6, True), (20, True)])
def test_what_a_defence_costs_in_clean_accuracy_is_said(tmp_path: Path, wrong: int, said: bool) -> None:
    """Six samples of 40 that only the defence gets wrong are p = 0.03; five are p = 0.06."""
    put(tmp_path, cell("square"), 30)
    facts = [record(i, **({"clean": 5, "attacked": 5} if i < wrong else {})) for i in range(40)]
    Store(tmp_path).append(cell("square", defence=ANTI), facts, RECEIPT)
    found = sentence(tmp_path)
    assert ("clean accuracy" in found) == said
    if wrong == 20:
        assert in_order(found, " 50.0 points", "[32.8, 64.8]", "(p 2e-06)", "clean accuracy")


@pytest.mark.parametrize(
    ("bare", "defended", "p", "concluded"),
    [
        (30, 10, "(p 2e-06)", ""),
        (30, 24, "(p 0.03)", ""),
        (30, 25, "(p 0.06)", UNCLEAR),
        (30, 30, "(p 1.00)", NONE),
        (10, 30, "(p 2e-06)", NONE),
    ],
    ids=["clear", "p 0.03", "p 0.06", "none", "worse"],
)
def test_an_answer_must_be_significant_and_no_answer_near_certain(
    tmp_path: Path, bare: int, defended: int, p: str, concluded: str
) -> None:
    pair(tmp_path, "transfer", bare, defended)
    adaptive, others = adaptive_and_others(tmp_path)
    assert p in adaptive
    assert [words for words in (NONE, UNCLEAR) if words in adaptive] == [concluded] * bool(concluded)
    assert " points" not in others


def test_a_handful_of_samples_proves_nothing(tmp_path: Path) -> None:
    for defence in ("none", ANTI):
        put(tmp_path, cell("transfer", defence=defence), 5, range(8))
    adaptive, _ = adaptive_and_others(tmp_path)
    assert UNCLEAR in adaptive
    assert "8 samples" in adaptive


def test_the_worst_adaptive_attack_has_the_last_word(tmp_path: Path) -> None:
    pair(tmp_path, "transfer", 30, 10)
    pair(tmp_path, "transfer:attack=(pgd:steps=40)", 30, 28)
    adaptive, _ = adaptive_and_others(tmp_path)
    (knowing,) = levels(rows(Store(tmp_path)))
    assert knowing.attacks == ("transfer", "transfer:attack=(pgd:steps=40)")
    assert "+5.0 points" in adaptive


def test_whoever_knows_the_defence_may_also_ask(tmp_path: Path) -> None:
    """A weak adaptive attack must not make a defence look better than a plain one already showed."""
    pair(tmp_path, "pgd", 30, 30)
    pair(tmp_path, "transfer", 30, 10)
    adaptive, _ = adaptive_and_others(tmp_path)
    assert levels(rows(Store(tmp_path)))[-1].attacks == ("pgd", "transfer")
    assert "+0.0 points" in adaptive


def test_averaging_the_dice_out_counts_as_knowing(tmp_path: Path) -> None:
    pair(tmp_path, "eot", 30, 30)
    adaptive, _ = adaptive_and_others(tmp_path)
    assert "+0.0 points" in adaptive


def test_a_short_run_of_another_attack_does_not_decide_how_many_samples_speak(tmp_path: Path) -> None:
    pair(tmp_path, "transfer", 30, 30)
    for asked, fell in ((square(), 5), (square(ANTI), 0)):
        put(tmp_path, asked, fell, range(19))
    scores, knowing = levels(rows(Store(tmp_path)))
    assert (scores.attacks, scores.gain.n) == (("square",), 19)
    assert (knowing.attacks, knowing.gain.n, knowing.gain.value) == (("transfer",), 40, 0.0)
    for asked in (square(), square(ANTI)):
        put(tmp_path, asked, 0, range(19, 20))  # half as many are enough, and then it counts
    _, knowing = levels(rows(Store(tmp_path)))
    assert (set(knowing.attacks), knowing.gain.n) == ({"square", "transfer"}, 20)


def test_the_worst_case_is_taken_on_both_sides(tmp_path: Path) -> None:
    """Each attack breaks other samples: the bare classifier loses 20 in all, the defence 15."""
    for attack, half in (("square", range(20)), ("nes", range(20, 40))):
        for defence, fell in (("none", 10), (ANTI, 10 if attack == "square" else 5)):
            facts = [record(i, queries=7, **(FELL if i in half[:fell] else {})) for i in range(40)]
            Store(tmp_path).append(cell(attack, defence=defence), facts, RECEIPT)
    (found,) = levels(rows(Store(tmp_path)))
    assert (found.gain.value, found.gain.gained, found.gain.lost) == (0.125, 5, 0)
    assert (found.access, set(found.attacks)) == (Access.SCORES, {"nes", "square"})


def test_of_several_attacks_the_first_to_break_a_sample_tells_its_queries(tmp_path: Path) -> None:
    """Bare, one or the other needs 10 queries; behind the defence only the slower one is left, which needs 50."""
    for attack in ("square", "nes"):
        quick = range(20) if attack == "square" else range(20, 40)
        for defence in ("none", ANTI):
            spent = {i: 10 if i in quick and defence == "none" else 50 for i in range(40)}
            facts = [record(i, queries=q, **FELL) for i, q in spent.items()]
            Store(tmp_path).append(cell(attack, defence=defence), facts, RECEIPT)
    (found,) = levels(rows(Store(tmp_path)))
    assert found.ratio == Ratio(5.0)
    assert re.search(r" 5 times .*\bqueries\b", sentence(tmp_path))


def test_attacks_without_a_common_sample_leave_the_least_gain(tmp_path: Path) -> None:
    for attack, ids, fell in (("square", range(20), 2), ("nes", range(20, 40), 6)):
        put(tmp_path, cell(attack), 10, ids)
        put(tmp_path, cell(attack, defence=ANTI), fell, ids)
    (found,) = levels(rows(Store(tmp_path)))
    assert (found.attacks, found.gain.value) == (("nes",), 0.2)


def test_the_price_in_queries_is_said(tmp_path: Path) -> None:
    for defence, spent in (("none", 10), (ANTI, 35)):
        facts = [record(i, queries=spent, **FELL) for i in range(40)]
        Store(tmp_path).append(square(defence), facts, RECEIPT)
    assert in_order(sentence(tmp_path), "scores", " 3.5 times", "queries")
    for defence, fell in (("none", 40), (ANTI, 3)):
        facts = [record(i, queries=10, **FELL) if i < fell else record(i, queries=100) for i in range(40)]
        Store(tmp_path / "b").append(square(defence), facts, RECEIPT)
    assert in_order(sentence(tmp_path / "b"), "scores", "more than 10 times", "queries")
    (found,) = levels(rows(Store(tmp_path / "b")))
    assert found.ratio == Ratio(10.0, "more")


def test_a_harmful_defence_loses_points_and_gains_come_first(tmp_path: Path) -> None:
    pair(tmp_path, "rays", 10, 30)
    pair(tmp_path, "square", 10, 35)
    pair(tmp_path, "pgd", 30, 10)
    adaptive = "cascade:stages=(transfer:attack=fast)+(bpda:attack=(apgd:steps=20))"
    pair(tmp_path, adaptive, 30, 38)
    knowing, others = adaptive_and_others(tmp_path)
    assert in_order(knowing, NONE, "loses 2", " points [")
    assert re.findall(r"(?:gains|loses) \S+|if they \w+ \w+", others) == [
        "gains +50.0", "if they have gradients", "loses 50.0", "if they see labels", "if they see scores",
    ]  # fmt: skip
    assert "62.5 points [" in others
    assert not re.search(r"\s-\d", others), "a loss has no sign"
    assert "cascade" not in knowing + others
    assert sentence(tmp_path).count(". ") <= 3


def test_the_ratio_of_queries_stands_between_commas(tmp_path: Path) -> None:
    for attack in ("square", "pgd"):
        for defence, spent in (("none", 10), (ANTI, 35)):
            facts = [record(i, queries=spent, **FELL) for i in range(40)]
            Store(tmp_path).append(cell(attack, defence=defence), facts, RECEIPT)
    _, others = adaptive_and_others(tmp_path)
    assert re.search(r"scores, at 3\.5 times the queries, and .*gradients, at 3\.5 times the queries\.", others)


def test_several_threats_are_told_apart(tmp_path: Path) -> None:
    pair(tmp_path, "pgd", 30, 10, threat="linf:2/255")
    pair(tmp_path, "pgd", 30, 20, threat="linf:4/255")
    _, others = adaptive_and_others(tmp_path)
    near, far = ("+50.0", "gradients", "linf:2/255"), ("+25.0", "gradients", "linf:4/255")
    assert in_order(others, *near, *far)


def test_a_gain_in_a_ball_without_an_adaptive_attack_is_said_to_have_none(tmp_path: Path) -> None:
    pair(tmp_path, "pgd", 30, 10, threat="linf:2/255")
    pair(tmp_path, "transfer", 30, 30, threat="linf:4/255")
    assert sentence(tmp_path).endswith("was run in linf:2/255.")
    pair(tmp_path, "transfer", 30, 30, threat="linf:2/255")
    assert "was run" not in sentence(tmp_path)


def test_each_configuration_of_a_defence_has_its_own_sentence(tmp_path: Path) -> None:
    put(tmp_path, square(), 30)
    for defence in (ANTI, f"{ANTI}:steps=3"):
        put(tmp_path, square(defence), 10)
    said = verdict(rows(Store(tmp_path)))
    assert [re.findall(rf"{ANTI}[^ ,]*", text) for text in said] == [[ANTI], [f"{ANTI}:steps=3"]]


def test_bare_rows_alone_have_no_verdict(tmp_path: Path) -> None:
    put(tmp_path, square(), 30)
    assert verdict(rows(Store(tmp_path))) == []


# ---------------------------------------------------------------- text


def test_markdown_has_a_line_per_row_and_escapes_bars(tmp_path: Path) -> None:
    put(tmp_path, square(), 30)
    put(tmp_path, square(ANTI), 40)
    found = rows(Store(tmp_path))
    barred = dataclasses.replace(found[0], cell=dataclasses.replace(found[0].cell, model="a|b"))
    lines = table_as_markdown(row_table([barred, found[1]])).splitlines()
    shown = row_table([barred, found[1]]).head
    assert lines[0] == "| " + " | ".join(shown) + " |"
    assert len(lines) == 4
    assert lines[2] == (
        r"| a\|b | none | square | linf:2/255,access=scores,queries=100 | float32 | 40 | 100.0 | "
        "25.0 [14.2, 40.2] | 7 |  |  |"
    )
    assert all(line.replace(r"\|", "").count("|") == len(shown) + 1 for line in lines)
    assert lines[3].endswith("| 0.0 [0.0, 8.8] | 7 | -25.0 (p 0.002) | 1 |")


def test_nobody_fooled_has_no_median(tmp_path: Path) -> None:
    put(tmp_path, square(), 0)
    assert "| 100.0 [91.2, 100.0] | – |  |  |" in table_as_markdown(row_table(rows(Store(tmp_path))))


def test_a_report_is_text_and_json(tmp_path: Path) -> None:
    pair(tmp_path, "square", 30, 10)
    made = antiadv.report(tmp_path)
    text = str(made)
    assert text.startswith(table_as_markdown(row_table(made.rows)))
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
    assert defended["gain"]["low"] < 0.5 < defended["gain"]["high"]
    assert defended["ratio"] == {"value": 1.0, "bound": "more"}
    (level,) = said["levels"]
    assert (level["access"], level["attacks"], level["gain"]) == ("scores", ["square"], defended["gain"])
    assert said["flags"] == []
    assert [c["defence"] for c in said["confidence"]] == [ANTI]


def test_the_verdict_is_the_last_word_of_a_report(tmp_path: Path) -> None:
    pair(tmp_path, "pgd", 30, 10)
    pair(tmp_path, "transfer", 30, 30)
    made = antiadv.report(tmp_path)
    assert [flag.name for flag in made.flags] == ["adaptive_beats_white_box"]
    assert f"Flag {made.flags[0]}" in str(made)
    assert str(made).rstrip().endswith(made.verdict[0])
    html = made._repr_html_()
    assert html.count("<tr>") == 5
    assert html.endswith(f"<p>{made.verdict[0]}</p>")


def test_confidence_stands_beside_the_bare_classifiers(tmp_path: Path) -> None:
    for defence, said in (("none", 0.5), (ANTI, 0.9)):
        facts = [record(i, clean_confidence=said, clean_truth=said) for i in range(40)]
        Store(tmp_path).append(square(defence), facts, RECEIPT)
    (found,) = confidence(rows(Store(tmp_path)))
    assert (found.bare.error, found.defended.error) == pytest.approx((0.5, 0.1))
    bare, defended = str(found).split(ANTI)
    assert MODEL in bare
    assert numbers(bare) == ["0.500", "0.693", "50.0", "100.0"]
    assert numbers(defended) == ["0.100", "0.105", "90.0", "100.0"]
    assert all(in_order(side, "error", "log-loss", "confidence", "accuracy") for side in (bare, defended))


def test_reports_of_equal_stores_are_equal(tmp_path: Path) -> None:
    for name in "ab":
        pair(tmp_path / name, "square", 30, 10)
        pair(tmp_path / name, "transfer", 30, 10)
    assert str(antiadv.report(tmp_path / "a")) == str(antiadv.report(Store(tmp_path / "b")))


# ---------------------------------------------------------------- which samples and attacks a sentence is of


def beside(attack: str, bare: tuple[range, range], defended: tuple[range, range], **words: Any) -> list[Row]:
    """The rows of both sides: which samples each has, and which of them fell."""
    one, two = ([record(i, **(FELL if i in fell else {})) for i in ids] for ids, fell in (bare, defended))
    return [
        make_row(cell(attack, defence="none", **words), one, []),
        make_row(cell(attack, defence=ANTI, **words), two, one),
    ]


ALL = range(40)


def test_of_adaptive_attacks_in_two_balls_the_stronger_has_the_last_word() -> None:
    near = beside("transfer", (ALL, range(30)), (ALL, range(10)))
    far = beside("transfer", (ALL, range(35)), (ALL, range(34)), threat="linf:4/255")
    (said,) = verdict([*near, *far])
    assert "gains +2.5 points" in said.partition(OTHERS)[0]
    assert "linf:4/255" in said.partition(OTHERS)[0]


def test_confidence_is_compared_on_the_samples_that_both_have() -> None:
    (found,) = confidence(beside("pgd", (ALL, range(10)), (range(20), range(5))))
    assert (found.bare.n, found.defended.n) == (20, 20)


def test_where_an_attack_met_other_samples_the_worst_case_is_of_the_level_alone() -> None:
    others = range(40, 80)
    asked = beside("square", (others, others), (others, range(0)))
    knowing = [
        *beside("transfer", (ALL, ALL), (ALL, range(20))),
        *beside("bpda", (ALL, ALL), (ALL, range(10, 30))),
    ]
    (*_, last) = levels([*asked, *knowing])
    assert (last.gain.value, last.gain.n, last.attacks) == (0.25, 40, ("transfer", "bpda"))


@pytest.mark.parametrize(("mine", "gain"), [("mixed", 0.75), ("tf32", 0.5)])
def test_of_bare_cells_that_share_as_many_samples_its_own_precision_counts_or_the_finest(
    tmp_path: Path, mine: str, gain: float
) -> None:
    put(tmp_path, square(), 20)
    put(tmp_path, square(precision="mixed"), 30)
    put(tmp_path, square(ANTI, precision=mine), 0)
    (defended,) = [r for r in rows(Store(tmp_path)) if r.cell.defence == ANTI]
    assert defended.gain is not None
    assert defended.gain.value == gain


@pytest.mark.parametrize(("fell", "told"), [(0, False), (2, False), (3, True), (20, True)])
def test_where_the_attacks_broke_next_to_nothing_of_the_bare_network_no_defence_is_judged(
    tmp_path: Path, fell: int, told: bool
) -> None:
    for defence in ("none", ANTI):
        put(tmp_path, square(defence), fell)
    (said,) = antiadv.report(tmp_path).verdict
    assert ("cannot be judged" in said) != told
    assert [part.tells for part in levels(rows(Store(tmp_path)))] == [told]
