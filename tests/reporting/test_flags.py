"""Each flag fires on records that show it and keeps still on records that do not, or that chance explains."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from antiadv import models
from antiadv.attacks import ATTACKS
from antiadv.engine.precision import PRECISIONS
from antiadv.evaluation import Resources, Store, evaluate, make_cell
from antiadv.evaluation.cell import Record
from antiadv.reporting import report_of
from antiadv.reporting.flags import RULES, before, flags
from antiadv.reporting.rows import Row, make_row, row_table, rows
from antiadv.reporting.select import WEAK
from tests.engine.probes import MODEL, RECEIPT, cell, record
from tests.said import in_order

ANTI = "anti_adversary"
ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "flags.md"
FELL: dict[str, Any] = {"attacked": 5, "distance": 1 / 255}


def row(attack: str, fell: int, defence: str = ANTI, n: int = 40, **words: Any) -> Row:
    """A row in which the first `fell` of n samples were broken."""
    return of(attack, [record(i, **(FELL if i < fell else {})) for i in range(n)], defence, **words)


def of(attack: str, records: list[Record], defence: str = ANTI, **words: Any) -> Row:
    return make_row(cell(attack, defence=defence, **words), records, [])


def names(*rows: Row) -> list[str]:
    return [flag.name for flag in flags(rows)]


def test_an_honest_pair_raises_nothing() -> None:
    bare = [row("square", 10, "none"), row("pgd", 20, "none"), row("transfer", 20, "none")]
    assert names(*bare) == []
    assert names(*bare, row("square", 8), row("pgd", 18), row("transfer", 19)) == []


def test_nothing_is_no_flag() -> None:
    assert flags([]) == []


def test_judging_a_defence_never_marks_the_next_bare_one() -> None:
    bare = [row("pgd", 20, "none"), row("square", 12, "none")]
    defended = [row("pgd", 5), row("square", 30), row("transfer", 30)]
    assert names(*defended) == ["adaptive_beats_white_box", "black_box_beats_white_box"]
    assert names(*bare) == []
    assert {c.defence for flag in flags([*bare, *defended]) for c in flag.cells} == {ANTI}


@pytest.mark.parametrize("attack", ["transfer", "bpda", "eot"])
@pytest.mark.parametrize(("fell", "fires"), [(16, True), (15, False), (10, False), (4, False)])
def test_going_round_the_defence(attack: str, fell: int, fires: bool) -> None:
    """Six samples more, none less, is p = 0.03; five are p = 0.06."""
    found = flags([row("pgd", 10), row(attack, fell)])
    assert [f.name for f in found] == ["adaptive_beats_white_box"] * fires
    if fires:
        (flag,) = found
        assert dict(flag.numbers) == {"difference": -0.15, "p": pytest.approx(2 / 2**6), "n": 40}
        assert [c.attack for c in flag.cells] == [attack, "pgd"]
        assert " 15.0 points " in flag.sentence
        assert "pgd" in flag.sentence


def test_a_stronger_transfer_on_a_bare_network_is_no_sign() -> None:
    assert names(row("pgd", 10, "none"), row("transfer", 30, "none")) == []


@pytest.mark.parametrize("attack", ["square", "rays"])
@pytest.mark.parametrize("defence", ["none", ANTI])
def test_black_box_beats_white_box(attack: str, defence: str) -> None:
    assert names(row("pgd", 10, defence), row(attack, 16, defence)) == ["black_box_beats_white_box"]
    assert names(row("pgd", 10, defence), row(attack, 15, defence)) == []
    assert names(row(attack, 16, defence)) == []


def test_the_worst_of_the_white_box_attacks_is_what_must_be_beaten() -> None:
    assert names(row("pgd", 10), row("apgd", 30), row("square", 25)) == []


@pytest.mark.parametrize("words", [{"threat": "linf:4/255"}, {"data": "cifar10:train"}])
def test_only_the_same_arena_is_compared(words: dict[str, Any]) -> None:
    other = row("square", 30)
    moved = {"threat": dataclasses.replace(other.cell.threat, ball=cell(threat="linf:4/255").threat.ball)}
    change = moved if "threat" in words else words
    elsewhere = dataclasses.replace(other, cell=dataclasses.replace(other.cell, **change))
    assert names(row("pgd", 10), elsewhere) == []


def test_cells_without_a_common_sample_are_not_compared() -> None:
    far = of("square", [record(i, **FELL) for i in range(100, 140)])
    assert names(row("pgd", 10), far) == []


def test_a_white_box_row_on_other_samples_hides_nothing() -> None:
    far = of("fab", [record(i) for i in range(100, 140)])
    (flag,) = flags([row("pgd", 10), far, row("square", 16)])
    assert [c.attack for c in flag.cells] == ["square", "pgd"]


@pytest.mark.parametrize(("fell", "fires"), [(16, False), (17, True)])
def test_many_comparisons_ask_for_more(fell: int, fires: bool) -> None:
    """Six samples more are p = 0.03, which one of two comparisons shows by chance too often; seven are p = 0.016."""
    honest = [row("pgd", 17, "none"), row("square", 5, "none")]
    assert names(row("pgd", 10), row("square", fell), *honest) == ["black_box_beats_white_box"] * fires


def test_honest_networks_raise_a_flag_in_one_report_of_twenty_at_most() -> None:
    """Ten bare networks, each under two seeds of one attack, whose dice decide over 40 of 100 samples."""
    dice, raised = np.random.default_rng(0), 0
    cells = [dataclasses.replace(cell("pgd", seed=s), weights=str(net)) for net in range(10) for s in (0, 1)]
    fell, stood = [[record(i, **words) for i in range(100)] for words in (FELL, {})]
    for _ in range(100):
        luck = dice.random((len(cells), 100)) < 0.5
        found = [
            make_row(c, [fell[i] if i < 60 or lost else stood[i] for i, lost in enumerate(lot)], [])
            for c, lot in zip(cells, luck, strict=True)
        ]
        raised += bool(flags(found))
    assert raised <= 10  # p ≤ 5 % for each comparison by itself raises one in every fourth


def test_no_bare_network_of_the_stored_results_raises_a_flag_but_for_the_digits_it_was_searched_in() -> None:
    bare = [r for r in rows(Store(ROOT / "results")) if r.cell.defence == "none"]
    assert len({r.cell.model for r in bare}) > 5
    found = flags(bare)
    assert [str(flag) for flag in found if flag.name != "too_few_digits"] == []
    coarse = {(cell.attack.split(":")[0], cell.precision) for flag in found for cell in flag.cells}
    assert coarse == {("bandits", "half")}


@pytest.mark.parametrize(("zero", "fires"), [(0, False), (4, False), (6, True), (40, True)])
def test_zero_gradients(zero: int, fires: bool) -> None:
    """Wilson's lower end is 4.0 % for 4 of 40 and 7.1 % for 6."""
    records = [record(i, gradients=10, zeros=3 * (i < zero)) for i in range(40)]
    assert names(of("pgd", records, "none")) == ["zero_gradients"] * fires


def test_samples_that_were_never_asked_for_a_gradient_do_not_dilute() -> None:
    records = [record(i, gradients=5 * (i < 8), zeros=5 * (i < 8)) for i in range(400)]
    (flag,) = flags([of("pgd", records)])
    assert dict(flag.numbers)["share"] == 1.0
    assert dict(flag.numbers)["n"] == 8


def alarm(queries: list[int], defence: str, **words: Any) -> tuple[int, str]:
    made = [record(i, clean=3 if q else 5, queries=q, **words) for i, q in enumerate(queries)]
    raised = [f for f in flags([of("fast", made, defence)]) if f.name == "fast_alarm"]
    return (int(dict(raised[0].numbers)["alarmed"]), raised[0].sentence) if raised else (0, "")


def test_fast_alarm_counts_the_samples_on_which_fast_ran_autoattack() -> None:
    most = ATTACKS["fast"]().most_queries  # type: ignore[attr-defined]
    number, text = alarm([most + 1, 7000, most, 20], ANTI)
    assert number == 2
    assert "masked" in text
    assert alarm([most, 20], ANTI) == (0, "")


@pytest.mark.parametrize("draws", [1, 10])
def test_on_a_randomised_defence_no_gradient_is_called_masked(draws: int) -> None:
    number, text = alarm([400, 0, 40], "small_noise:std=0.015625", draws=draws)
    assert number == 2
    assert "masked" not in text
    assert "`rand`" in text
    assert "randomised" in text


@pytest.mark.parametrize(("small", "large"), [("linf:2/255", "linf:4/255"), ("linf:2/255,queries=9", "linf:2/255")])
def test_not_monotone(small: str, large: str) -> None:
    def both(first: int, second: int) -> list[str]:
        return names(row("square", second, threat=large), row("square", first, threat=small))

    assert both(16, 10) == ["not_monotone"]
    assert both(15, 10) == []
    assert both(10, 30) == []


def test_radii_of_different_attacks_or_seeds_are_no_curve() -> None:
    assert names(row("square", 30, threat="linf:2/255"), row("nes", 5, threat="linf:4/255")) == []
    assert names(row("square", 30, threat="linf:2/255"), row("square", 5, threat="linf:4/255", seed=1)) == []


@pytest.mark.parametrize(
    ("attack", "threat", "fell", "fires"),
    [
        ("pgd", "linf:0.5", 20, True),
        ("pgd", "linf:0.5", 40, False),
        ("pgd", "linf:0.5", 39, False),  # one of forty: less than chance could explain
        ("pgd", "linf:0.49", 20, False),
        ("boundary", "l2:inf", 20, True),
        ("pgd", "l2:3", 20, False),
        ("square", "linf:1,queries=100", 20, False),  # a budget is a reason to fail
    ],
)
def test_unbounded_attacks(attack: str, threat: str, fell: int, fires: bool) -> None:
    assert names(row(attack, fell, threat=threat)) == ["unbounded_attack_fails"] * fires


def test_changes_with_seed() -> None:
    assert names(row("pgd", 10), row("pgd", 16, seed=1)) == ["changes_with_seed"]
    assert names(row("pgd", 16), row("pgd", 10, seed=1)) == ["changes_with_seed"]
    assert names(row("pgd", 10), row("pgd", 15, seed=1)) == []


def test_changes_with_precision() -> None:
    fine = row("qeba", 16)
    (flag,) = flags([row("qeba", 10, precision="half"), fine])
    assert flag.name == "changes_with_precision"
    assert [c.precision for c in flag.cells] == ["float32", "half"], "the finer one first, however they come"
    assert in_order(flag.sentence, "half", "qeba", "linf:2/255", " 15.0 points", "float32")
    assert names(fine, row("qeba", 11, precision="half")) == [], "chance"
    assert names(row("qeba", 10), row("qeba", 16, precision="half")) == [], "who finds more, coarse as it is, is right"
    assert names(row("qeba", 16, precision="tf32"), row("qeba", 10, precision="mixed")) == ["changes_with_precision"]
    assert names(row("rays", 16, precision="mixed"), row("rays", 10, precision="half")) == []
    assert names(fine, row("rays", 10, precision="half")) == [], "another attack"


@pytest.mark.parametrize(
    ("attack", "precision", "fires"),
    [
        ("bandits", "mixed", True),
        ("bandits:tile=8", "mixed", True),
        ("simba", "mixed", True),
        ("cascade:stages=apgd+simba", "mixed", True),
        ("bandits", "half", True),
        ("bandits", "tf32", False),
        ("simba", "half", False),
        ("qeba", "half", True),
        ("bandits", "float32", False),
        ("nes", "mixed", False),
    ],
)
def test_too_few_digits(attack: str, precision: str, fires: bool) -> None:
    found = row(attack, 10, precision=precision)
    assert names(found) == ["too_few_digits"] * fires
    if fires:
        assert names(found, row(attack, 11, n=50)) == [], "the finer search stands beside it"
        assert names(found, row(attack, 10, seed=1)) == ["too_few_digits"], "of another seed it does not"


def test_every_attack_known_to_be_weak_in_fewer_digits_is_one_and_the_page_names_it() -> None:
    known = (ROOT / "docs" / "precision.md").read_text()
    for attack, precisions in WEAK.items():
        assert attack in ATTACKS
        assert set(precisions) < set(PRECISIONS)
        assert all(re.search(rf"Too weak:[^*]*`{attack}` in\s+{p}", known) for p in precisions)


@pytest.mark.parametrize(("torn", "fires"), [(0, False), (4, False), (6, True)])
@pytest.mark.parametrize("when", ["clean_right", "attacked_right"])
def test_changes_with_draw(torn: int, fires: bool, when: str) -> None:
    whole = {"draws": 10, "clean_right": 10, "attacked_right": 10}
    records = [record(i, **whole | ({when: 7} if i < torn else {})) for i in range(40)]
    assert names(of("pgd", records)) == ["changes_with_draw"] * fires


@pytest.mark.parametrize(
    ("untouched", "fires"),
    [
        ({"clean": 5, "attacked": 5}, False),
        ({"clean": 5, "attacked": 6}, True),
        ({"clean": 5, "attacked": 5, "base_clean": 5, "base_attacked": 6}, True),
        ({"clean": 5, "attacked": 6, "queries": 1}, False),  # it was asked about, and may have been moved
        ({"clean": 5, "attacked": 6, "distance": 0.01}, False),
    ],
)
def test_changes_with_look(untouched: dict[str, Any], fires: bool) -> None:
    whole: dict[str, Any] = {"queries": 0, "distance": 0.0, "base_clean": 5, "base_attacked": untouched["attacked"]}
    found = [
        flag
        for flag in flags([of("pgd", [record(0, queries=3), record(1, **whole | untouched)])])
        if "look" in flag.name
    ]
    assert len(found) == fires
    for flag in found:
        assert dict(flag.numbers) == {"turned": 1, "n": 1}
        assert flag.sentence.startswith("1 of 1 ")
        assert "sample 1" in flag.sentence


@pytest.mark.parametrize(
    ("attack", "end", "fires"),
    [
        ("pgd", {"attacked_right": 0, "distance": 0.5}, True),
        ("pgd", {"attacked_right": 1, "distance": 0.5}, False),  # it fools nobody
        ("pgd", {"attacked_right": 0, "distance": 0.001}, False),
        ("pgd", {"attacked_right": 0, "distance": 0.5, "clean_right": 0}, False),
        ("fab", {"attacked_right": 0, "distance": 0.5}, False),  # it looks for the nearest image, however far
    ],
)
def test_outside_the_ball(attack: str, end: dict[str, Any], fires: bool) -> None:
    assert ("outside_the_ball" in names(of(attack, [record(0), record(1, **end)]))) == fires


def test_a_report_compares_the_precisions_although_it_selects_one() -> None:
    coarse, fine = row("qeba", 10, precision="half"), row("qeba", 16)
    assert "changes_with_precision" in [flag.name for flag in report_of([coarse, fine]).flags]


def test_a_network_with_dice_of_its_own_is_found_out(tmp_path: Path) -> None:
    """And one without is not: of the same images, the same weights."""
    for dice in (True, False):
        resources = Resources("cpu", models={"mine": Dropping(dice)})
        asked = make_cell(
            model="mine", attack="pgd:steps=2", threat="linf:4/255", samples=range(60), resources=resources
        )
        evaluate([asked], tmp_path / str(dice), resources=resources)
        assert ("changes_with_look" in {f.name for f in flags(rows(Store(tmp_path / str(dice))))}) == dice


class Dropping(torch.nn.Module):
    """Drops half of what it sees, in training or not."""

    def __init__(self, dice: bool) -> None:
        super().__init__()
        self.net, self.dice = models.load("compact:trades"), dice
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        s: torch.Tensor = self.net(torch.nn.functional.dropout(x, 0.5) if self.dice else x)
        return s


@pytest.mark.parametrize("when", ["base_clean", "base_attacked"])
def test_labels_differ(when: str) -> None:
    def records(count: int) -> list[Record]:
        return [record(i, queries=3, **({when: 7} if i < count else {})) for i in range(200)]

    (flag,) = flags([of("pgd", records(6))])
    assert flag.name == "labels_differ"
    assert dict(flag.numbers) == {"clean": 0.0, "attacked": 0.0, "n": 200} | {when.removeprefix("base_"): 0.03}
    assert names(of("pgd", records(2))) == []


@pytest.mark.parametrize(("fell", "fires"), [(26, True), (25, False), (20, False), (4, False)])
def test_worse_than_bare(fell: int, fires: bool) -> None:
    """Six samples more, none less, is p = 0.03. Only attacks that both met are compared."""
    bare = [row("apgd", 20, "none"), row("adaptive", 15, "none")]
    found = flags([*bare, row("apgd", 4), row("adaptive", fell), row("square", 4)])
    found = [flag for flag in found if flag.name == "worse_than_bare"]
    assert len(found) == fires
    for flag in found:
        assert {(c.attack, c.defence) for c in flag.cells} == {("apgd", ANTI), ("adaptive", ANTI)}
        assert in_order(flag.sentence, "anti_adversary", " 15.0 points", "fewer", "adaptive", "apgd", "linf:2/255")
    assert "worse_than_bare" not in names(*bare, row("square", 40)), "nothing that both met"
    assert "worse_than_bare" not in names(*bare, row("apgd", 40, model="compact:trades"))


def test_a_defence_is_not_worse_for_having_met_a_longer_attack_or_more_seeds() -> None:
    short, long = ("linf:2/255,queries=9", "linf:2/255,queries=900")
    assert "worse_than_bare" not in names(row("square", 10, "none", threat=short), row("square", 20, threat=long))
    assert "worse_than_bare" in names(row("square", 10, "none", threat=long), row("square", 20, threat=long))
    assert "worse_than_bare" not in names(row("pgd", 10, "none"), row("pgd", 10), row("pgd", 20, seed=1))


def test_a_flag_is_a_value_with_a_name_and_a_sentence() -> None:
    rows = [row("pgd", 10), row("transfer", 30)]
    (flag,) = flags(rows)
    assert flags(rows) == [flag]
    assert hash(flag)
    assert str(flag).startswith("adaptive_beats_white_box: ")
    assert in_order(str(flag), "transfer", "linf:2/255", "toys:bands", "anti_adversary", "50.0 points", "pgd")
    said = json.loads(json.dumps(flag.json()))
    assert [c["attack"] for c in said["cells"]] == ["transfer", "pgd"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        flag.name = "other"  # type: ignore[misc]


def test_a_flag_says_which_network_data_seed_and_dice(tmp_path: Path) -> None:
    """Two networks of one name, one of them on two data sets, under two seeds: no two sentences are the same."""
    torn = [record(i, draws=10, clean_right=5, attacked_right=5) for i in range(40)]
    asked = [
        dataclasses.replace(cell("pgd", defence="small_noise", seed=seed), weights=f"sha256:{w}", data=d, images=d)
        for w, d in (("one", "arrays:a.npz"), ("two", "arrays:a.npz"), ("two", "arrays:b.npz"))
        for seed in (0, 1)
    ]
    for one in asked:
        Store(tmp_path).append(one, torn, RECEIPT)
    raised = [flag for flag in flags(rows(Store(tmp_path))) if flag.name == "changes_with_draw"]
    assert len({flag.sentence for flag in raised}) == len(asked)
    told = f"under pgd (linf:2/255, seed 1) on {MODEL} (two) (arrays:b.npz) with small_noise"
    assert any(flag.sentence.startswith(told) for flag in raised)
    cells = [said for flag in raised for said in flag.json()["cells"]]
    assert len({(said["weights"], said["images"], said["seed"], said["looks"]) for said in cells}) == len(asked)


def test_a_flag_says_the_budget() -> None:
    torn = [record(i, draws=10, clean_right=5, attacked_right=5) for i in range(40)]
    two = [of("square", torn, "small_noise", threat=f"linf:2/255,queries={n}") for n in (50, 5000)]
    said = [flag.sentence for flag in flags(two) if flag.name == "changes_with_draw"]
    names = [f"under square (linf:2/255, {n} queries) on {MODEL} with small_noise" for n in ("50", "5,000")]
    assert [one.startswith(name) for one, name in zip(said, names, strict=True)] == [True, True]


def test_an_attack_with_two_seeds_is_named_once() -> None:
    white = [row("pgd", 2, seed=seed) for seed in (0, 1)]
    (flag,) = (f for f in flags([*white, row("square", 20)]) if f.name == "black_box_beats_white_box")
    assert flag.sentence.count("pgd") == 1


def test_every_flag_is_in_the_page_and_the_page_names_no_other() -> None:
    assert set(re.findall(r"^## `(\w+)`$", PAGE.read_text(), re.MULTILINE)) == {*RULES, "narrow_range", "preflight"}
    for part in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        assert all(f"**{heading}**" in part for heading in ("Raised if", "What it means", "What to do")), part[:40]


def test_every_rule_says_what_it_looks_for() -> None:
    assert all(rule.__doc__ for rule in RULES.values())


# ---------------------------------------------------------------- where a rule begins, and what it compares


def test_three_labels_of_two_hundred_differ() -> None:
    facts = [record(i, queries=3, **({"base_clean": 7} if i < 3 else {})) for i in range(200)]
    assert names(of("pgd", facts)) == ["labels_differ"]


@pytest.mark.parametrize("field", ["images", "weights"])
def test_what_was_run_on_something_else_is_not_compared(field: str) -> None:
    other = row("square", 30)
    change: dict[str, Any] = {field: "sha256:other"}
    elsewhere = dataclasses.replace(other, cell=dataclasses.replace(other.cell, **change))
    assert names(row("pgd", 10), elsewhere) == []


def test_seeds_that_drift_apart_step_by_step_are_found() -> None:
    assert names(*(row("pgd", 10 + 5 * seed, seed=seed) for seed in range(3))) == ["changes_with_seed"]


def test_the_second_of_two_tests_is_held_to_less() -> None:
    """Holm's rule, with p = 1/64 and 1/32: Bonferroni's would keep silent of the second."""
    both = [row("pgd", 10), row("pgd", 17, seed=1), row("apgd", 10), row("apgd", 16, seed=1)]
    assert names(*both) == ["changes_with_seed"] * 2


# ---------------------------------------------------------------- attacks that never ran


def unrun(attack: str, threat: str, defence: str = "none") -> Row:
    """A row of samples of which nothing was asked."""
    return of(attack, [record(i, queries=0) for i in range(40)], defence, threat=threat)


def test_an_attack_that_never_ran_has_no_accuracy_and_is_named_with_what_it_needs() -> None:
    small = unrun("nes", "linf:2/255,queries=100")
    assert (small.robust, small.gain, small.queries) == (None, None, None)
    (flag,) = flags([small])
    assert flag.name == "not_attacked"
    assert dict(flag.numbers) == {"lost": 40, "n": 40, "least": 101}
    assert "101" in flag.sentence
    assert "not attacked" in map(str, row_table([small]).lines[0])
    assert small.json()["robust"] is None
    assert "101" in small.json()["not_attacked"]


def test_one_that_works_on_the_base_ran_without_a_query() -> None:
    fine = unrun("transfer", "linf:2/255")
    assert fine.robust is not None
    assert fine.robust.value == 1
    assert names(fine) == []


def test_no_gain_is_made_of_a_bare_side_that_was_not_attacked() -> None:
    threat = "linf:2/255,queries=100"
    bare, tried = [record(i, queries=0) for i in range(40)], [record(i, queries=101, distance=0.001) for i in range(40)]
    assert make_row(cell("nes", threat=threat, defence=ANTI), tried, bare).gain is None


# ---------------------------------------------------------------- clean accuracy and the range of images


@pytest.mark.parametrize(("right", "raised"), [(2, True), (7, True), (8, False), (30, False)])
def test_near_chance(right: int, raised: bool) -> None:
    """40 images of ten classes: by chance 4 are right, and 8 or more once in twenty-six."""
    facts = [record(i, label=i % 10, clean=i % 10 if i < right else (i + 1) % 10, attacked=9) for i in range(40)]
    assert ("near_chance" in names(of("square", facts, "none"))) == raised
    assert "near_chance" not in names(of("square", facts[30:], "none")), "ten records say nothing"


def test_what_is_seen_before_an_attack() -> None:
    x, y = torch.rand((40, 3, 4, 4), generator=torch.Generator().manual_seed(0)), torch.arange(40) % 10
    good, bad = torch.eye(10)[y], torch.eye(10)[(y + 1) % 10]
    assert before(x, y, good) == []
    assert [flag.name for flag in before(x / 255, y, good)] == ["narrow_range"]
    assert [flag.name for flag in before(x, y, bad)] == ["near_chance"]
    assert [flag.name for flag in before(x / 255, y, bad)] == ["narrow_range", "near_chance"]
    assert before(x[:1] * 0.05, y[:1], good[:1]) == [], "a dark image is one"
