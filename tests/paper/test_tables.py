"""The paper's tables: their cells are well formed and theirs alone, the paper's numbers are the paper's, a table can be
run and shown for real, and what is missing is said."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from antiadv import attacks, data, defences, models
from antiadv import paper as experiments
from antiadv.cli.__main__ import main
from antiadv.core.ball import Linf
from antiadv.core.errors import BadInput, BadSpec
from antiadv.evaluation import Resources, Store, evaluate, make_cell
from antiadv.evaluation.cell import Cell, Record, make_threat, normal_attack
from antiadv.paper import (
    behind,
    figure_3,
    figure_4,
    figure_5,
    noise,
    rows,
    table_1,
    table_2,
    table_3,
    table_5,
    table_6,
    text,
)
from antiadv.paper.claims import ABOVE_ZERO, Bar, Check, claims
from antiadv.paper.fill import StoreIndex, compare, fill, value, words
from antiadv.paper.layout import Ask, Layout
from antiadv.paper.networks import Source, imagenet, of_method
from antiadv.paper.todo import Pace, as_stored, cost, in_order, passes, resolve
from antiadv.reporting.measures import Difference, Share, standing, standing_by, worst_case
from antiadv.reporting.render.markdown import table_as_markdown
from tests.engine.probes import RECEIPT, record
from tests.engine.probes import cell as probe
from tests.reporting.stores import document
from tools import run_paper

NAMES = list(experiments.EXPERIMENTS)
ROOT = Path(__file__).resolve().parents[2]

# the same attacks with so little to spend that a table takes seconds
SMALL = {
    "APGD": ("apgd:steps=3", rows.EPS),
    "ADLR": ("apgd:loss=dlr,targets=2,steps=2", rows.EPS),
    "FAB": ("fab:targets=2,steps=2", rows.EPS),
    "Square": ("square", f"{rows.EPS},queries=10"),
    "NES": ("nes:probes=3", f"{rows.EPS_ASKED},queries=21"),
    "Bandits": ("bandits", f"{rows.EPS_ASKED},queries=21"),
    "Bandits, wide": ("bandits:tile=50", f"{rows.EPS_ASKED},queries=21"),
    "adaptive": ("transfer:attack=(apgd:steps=3)", rows.EPS),
    "adaptive, asked": ("transfer:attack=(apgd:steps=3)", rows.EPS_ASKED),
    "BA": ("boundary", "l2:8/255,queries=30"),
    "QEBA": ("qeba", f"{rows.EPS},queries=30"),
}


@pytest.fixture(scope="module")
def resources() -> Resources:
    return Resources("cpu")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, attack in SMALL.items():
        monkeypatch.setitem(rows.ATTACKS, name, attack)


# ---------------------------------------------------------------- cells


@pytest.mark.parametrize("name", NAMES)
def test_cells_are_well_formed_and_asked_for_once(name: str, resources: Resources):
    layout = experiments.layout(name, samples=4)
    asks = layout.asks
    assert len({ask.words for ask in asks}) == len(asks)
    assert all(ask.samples == 4 for ask in asks)
    found, missing = resolve(asks, "float32", resources)
    assert len(found) + len(missing) == len(asks)
    assert len({cell.key for cell in found}) == len(found)
    assert found or name == "table-6"  # CIFAR-100 alone, whose images do not come with the package
    lost = {m.ask.words for m in missing}
    assert [words(cell) for cell in found] == [ask.words for ask in asks if ask.words not in lost]
    assert all(m.why.endswith(".") or "import" in m.why for m in missing)


@pytest.mark.parametrize("name", NAMES)
def test_every_defended_line_has_an_adaptive_column_and_a_bare_one_beside_it(name: str):
    layout = experiments.layout(name)
    bare = {line.network for line in layout.lines if line.defence == defences.BARE}
    for line in layout.lines:
        if line.defence == defences.BARE or line.label.endswith("one look"):  # the next line has the same cells
            continue
        adaptive = next(c for c in line.columns if c.heading == "adaptive")
        assert "adaptive" in dict(adaptive.attacks)
        if line.network in bare:
            gain = next(c for c in line.columns if c.heading == "adaptive gain")
            assert gain.attacks == adaptive.attacks
            assert {ask.defence for ask in line.against(gain)} == {defences.BARE}


def test_settings_are_the_papers():
    (bare, anti, *_) = experiments.layout("table-3").lines
    assert (bare.samples, anti.defence) == (1000, "anti_adversary")  # K = 2 and α = 0.15 are the defaults
    layer = defences.wrap(anti.defence, models.load("compact:trades"))
    assert (layer.steps, layer.step_size) == (2, 0.15)
    attacks = {c.heading: c.attacks for c in anti.columns}
    assert attacks["AA"] == (*attacks["APGD"], *attacks["ADLR"], *attacks["FAB"], ("square", "linf:8/255,queries=5000"))
    assert attacks["ADLR"] == (("apgd:loss=dlr,targets=9", "linf:8/255"),)
    nominal = {line.label: line for line in experiments.layout("table-1").lines[:4]}
    assert nominal["+ SND"].defence == "small_noise"
    assert nominal["+ Anti-Adv"].defence == "anti_adversary:step_size=0.01"
    assert dict(nominal[""].columns[3].attacks) == {"nes": "linf:0.031,queries=10000"}
    sizes = {name: experiments.layout(name).asks[0].samples for name in NAMES}
    asked = {"table-1": 1000, "table-3": 1000, "table-4": 100}
    assert sizes == {name: asked.get(name, 500) for name in NAMES}
    assert {a.samples for a in experiments.layout("table-1").asks if a.words[0] == "nips2017:test"} == {100}


def test_rows_are_every_method_compact_and_the_larger_networks():
    seen = list(dict.fromkeys(line.network.name for line in experiments.layout("table-3").lines))
    compact = [f"compact:{m}" for m in ("trades", "pretraining", "mart", "hydra", "awp")]
    hundred = [f"compact:{m},data=cifar100" for m in ("pretraining", "awp")]
    assert sorted(seen) == sorted([*compact, *hundred, "wrn16-4:trades", "wrn16-4:awp"])
    nominal = {line.network.name for line in experiments.layout("table-1").lines}
    assert nominal == {"compact:standard", "resnet18:standard", "resnet50:v1"}


def test_an_unknown_experiment_names_the_known_ones(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(BadSpec, match=r"no experiment 'table-7'; known are table-1, .*, text"):
        experiments.cells("table-7")
    assert main(["reproduce", "table-7"]) == 2
    assert "table-7" in capsys.readouterr().err


# ---------------------------------------------------------------- the paper's numbers


def test_table_3_is_the_papers_and_its_improvements_are_differences():
    assert table_3.PAPER["cifar10", "trades"] == (
        (84.92, 55.31, 53.12, 53.55, 53.11),
        (84.88, 77.20, 77.05, 83.38, 71.71, 18.60),
    )
    assert table_3.PAPER["cifar100", "awp"][1] == (60.38, 44.21, 40.32, 50.76, 39.57, 10.42)
    for bare, anti in table_3.PAPER.values():
        assert anti[5] == pytest.approx(anti[4] - bare[4], abs=1e-9)
    gains = {
        d: [anti[5] for (data, _), (_, anti) in table_3.PAPER.items() if data == d] for d in ("cifar10", "cifar100")
    }
    assert sum(gains["cifar10"]) / 5 == pytest.approx(19.35, abs=0.005)
    assert sum(gains["cifar100"]) / 2 == pytest.approx(11.07, abs=0.005)


def test_tables_5_and_6_have_exactly_the_two_known_slips():
    slips = {
        (method, alpha): round(anti[5] - bare[5], 2)
        for paper in (table_5.PAPER, table_6.PAPER)
        for method, (bare, *rest) in paper.items()
        for alpha, anti in zip(table_5.ALPHAS, rest, strict=True)
        if abs(anti[6] - (anti[5] - bare[5])) > 1e-6
    }
    assert slips == {("mart", "10/255"): 7.76, ("awp", "0.15"): 13.94}
    assert table_6.PAPER["pretraining"][2] == (59.24, 35.55, 31.56, 40.86, 40.76, 31.34, 2.38)


def test_tables_1_and_2_are_the_papers():
    cifar, imagenet = table_1.PAPER["cifar10"], table_1.PAPER["imagenet"]
    assert cifar["+ Anti-Adv"][1] - cifar["+ SND"][1] == pytest.approx(1.0)
    assert cifar["+ Anti-Adv"][3] - cifar["+ SND"][3] == pytest.approx(46.7)
    assert imagenet["+ Anti-Adv"][2] - imagenet["+ SND"][2] == pytest.approx(1.2)
    assert imagenet["+ Anti-Adv"][4] - imagenet["+ SND"][4] == pytest.approx(5.8)
    assert table_2.PAPER["cifar10", "hydra"] == ((90.1, 69.8, 79.2, 65.0), (90.1, 89.4, 87.7, 78.8))
    assert table_2.PAPER["cifar100", "pretraining"] == ((59.0, 40.6, 47.7, 34.6), (58.9, 58.2, 55.3, 42.4))


def test_figures_and_text_repeat_the_tables_they_come_from():
    bare, anti = table_3.PAPER["cifar10", "awp"]
    asked = table_2.PAPER["cifar10", "awp"]
    one = table_5.PAPER["awp"]
    for paper in (figure_3.PAPER, figure_5.PAPER, text.PAPER):
        assert (paper[""]["clean"], paper[""]["AA"]) == (bare[0], bare[4])
    for paper in (figure_3.PAPER["α = 0.15"], figure_5.PAPER["K = 2"], text.PAPER["+ Anti-Adv"]):
        assert paper == {"clean": anti[0], "Square": asked[1][3], "AA": anti[4], "AA gain": anti[5]}
    assert figure_4.PAPER["K = 1"][:6] == one[2][:6]
    assert figure_4.PAPER["K = 1"][6] == pytest.approx(one[2][5] - one[0][5])
    assert figure_4.PAPER["K = 2"] == (*anti[:4], asked[1][3], *anti[4:])
    assert text.PAPER["+ SND"] == {"clean": 70.03, "Square": 59.1, "AA": 27.04}
    assert text.PAPER_RSE == {"clean": 86.7, "NES": 78.8, "Bandits": 85.5}


@pytest.mark.parametrize("name", NAMES)
def test_every_paper_number_has_a_column_to_stand_in(name: str):
    for line in experiments.layout(name).lines:
        assert set(line.paper) <= {c.heading for c in line.columns}, line.network.name


# ---------------------------------------------------------------- order, cost, time


def test_the_telling_cells_come_first_each_once_with_the_most_samples():
    layouts = {name: experiments.layout(name) for name in NAMES}
    asks = in_order(layouts)
    assert len({ask.words for ask in asks}) == len(asks)
    assert {ask.words for ask in asks} == {ask.words for layout in layouts.values() for ask in layout.asks}
    first = [ask.network.name for ask in asks[:20]]
    assert set(first) == {"compact:trades", "compact:awp"}
    sizes = [ask.network.size for ask in asks]
    assert sizes == sorted(sizes)  # compact before larger
    square = next(a for a in layouts["table-2"].asks if a.attack == "square")  # also of table 3
    assert (square.samples, next(a.samples for a in asks if a.words == square.words)) == (500, 1000)


def ask(attack: str, threat: str = rows.EPS, defence: str = "none", samples: int = 2) -> Ask:
    return Ask(of_method(Source(), "cifar10", "trades")[0], defence, attack, threat, samples)


@pytest.mark.parametrize("defence", ["none", "anti_adversary", "small_noise"])
@pytest.mark.parametrize(
    ("attack", "threat"),
    [
        ("apgd:steps=4", "linf:1e-6"),
        ("apgd:loss=dlr,targets=2,steps=3", "linf:1e-6"),
        ("fab:targets=2,steps=3", "linf:1e-6"),
        ("square", "linf:1e-6,queries=9"),
        ("nes:probes=2", "linf:1e-6,queries=10"),
    ],
)
def test_the_cost_of_a_cell_is_what_it_costs_at_most(
    attack: str, threat: str, defence: str, resources: Resources, tmp_path: Path
):
    """On a ball so small that nothing falls, all is spent; the judge's own looks are few and beside it."""
    asked = ask(attack, threat, defence)
    (cell,), _ = resolve([asked], "float32", resources)
    evaluate([cell], tmp_path, resources=resources)
    (receipt,) = Store(tmp_path).receipts(cell)
    looks = 1 if defence == "none" else 10 + 1 if defence == "small_noise" else 5 + 1
    spent = receipt.forwards + receipt.backwards - asked.samples * 2 * looks
    assert 0.6 * asked.samples * passes(asked) <= spent <= asked.samples * passes(asked)


def test_cost_counts_samples_and_what_the_network_weighs():
    one, other = ask("apgd"), dataclasses.replace(ask("apgd"), samples=4)
    assert cost(other) == 2 * cost(one)
    large = dataclasses.replace(one, network=of_method(Source(), "cifar10", "trades")[1])
    assert cost(large) > 5 * cost(one)
    free = passes(ask("adaptive"))  # what an adaptive attacker does on the bare network
    one_draw, twenty = (passes(ask(f"adaptive:samples={m}", defence="small_noise")) - free for m in (1, 20))
    assert twenty == 20 * one_draw > 0
    assert passes(ask("adaptive:samples=1", defence="anti_adversary")) == passes(
        ask("adaptive", defence="anti_adversary")
    )


def test_pace_learns_from_the_likest_work():
    pace = Pace(rate=10)
    assert pace.guess(("square", "none"), 50) == 5
    pace.tell(("apgd", "none"), 10, 40)
    assert pace.guess(("square", "none"), 50) == 200  # of anything
    pace.tell(("square", "anti"), 10, 20)
    assert pace.guess(("square", "none"), 50) == 100  # of the attack
    pace.tell(("square", "none"), 10, 10)
    assert pace.guess(("square", "none"), 50) == 50  # of the very same


# ---------------------------------------------------------------- networks from elsewhere


def test_the_authors_checkpoints_are_found_by_their_names(tmp_path: Path):
    (tmp_path / "model_cifar_wrn.pt").touch()
    (tmp_path / "cifar10-mart.pth").touch()
    (tmp_path / "cifar10wrn_baseline_epoch_4.pt").touch()
    source = Source(f"official:{tmp_path}")
    (trades,), (mart,), (pre,), (awp,) = (
        of_method(source, "cifar10", m) for m in ("trades", "mart", "pretraining", "awp")
    )
    assert trades.model == f"wrn34-10:trades,path={tmp_path / 'model_cifar_wrn.pt'}"
    assert mart.model == f"wrn28-10:mart,path={tmp_path / 'cifar10-mart.pth'}"
    assert (trades.name, mart.name, trades.absent, mart.absent) == ("wrn34-10:trades", "wrn28-10:mart", "", "")
    assert rows.layer(trades) == "anti_adversary"
    assert rows.layer(pre) == "anti_adversary:step_size=0.075"  # their α is behind 2x − 1
    assert "RST-AWP" in awp.absent
    (hundred,) = of_method(source, "cifar100", "awp")
    layer = defences.wrap(rows.layer(hundred), models.load("compact:trades"))
    assert layer.step_size == pytest.approx((0.15 * 0.26733, 0.15 * 0.25644, 0.15 * 0.27615))


@pytest.mark.parametrize(
    ("said", "error"), [("mine", BadSpec), ("official:", BadSpec), ("official:/no/such", BadInput)]
)
def test_networks_are_zoo_or_official(said: str, error: type[Exception]):
    with pytest.raises(error, match="official:DIR"):
        experiments.layout("table-3", networks=said)


def test_a_data_set_that_was_not_imported_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A CIFAR-100 network at hand, and no images for it: as soon as the zoo has one."""
    network = dataclasses.replace(of_method(Source(directory=str(tmp_path)), "cifar100", "awp")[0], absent="")
    asked = dataclasses.replace(ask("apgd"), network=network)
    _, (missing,) = resolve([asked], "float32", Resources("cpu"))
    assert "CIFAR-100 test is not in" in missing.why
    assert "antiadv data import" in missing.why


# ---------------------------------------------------------------- filling a table


def put(store: Store, cell: Cell, fell: int, queries: int = 7, n: int = 40, luck: int = 0) -> None:
    """The first `fell` of so many samples were broken; the last `luck` were seen to fall, and the judge keeps them."""
    most = cell.threat.queries or queries

    def spent(i: int) -> int:
        return queries if i < fell or i >= n - luck else most

    broken = {"attacked": 5, "distance": 1e-3, "attacked_right": 0}
    facts = [record(i, queries=spent(i), **(broken if i < fell else {})) for i in range(n)]
    store.append(cell, facts, RECEIPT)


def cells_of(name: str, model: str, resources: Resources, **words: Any) -> list[Cell]:
    asks = [a for a in experiments.layout(name, samples=40).asks if a.network.name == model]
    return resolve(asks, words.get("precision", "float32"), resources)[0]


def stored(root: Path, resources: Resources) -> Store:
    """Table 3's TRADES: 20 of 40 fall bare and 10 behind the layer under each attack, 21 to the adaptive one."""
    store = Store(root)
    for cell in cells_of("table-3", "compact:trades", resources):
        put(store, cell, 21 if cell.attack == "adaptive" else 20 if cell.defence == "none" else 10)
    return store


def test_a_table_shows_what_is_stored_beside_the_paper_and_names_the_rest(tmp_path: Path, resources: Resources):
    filled = experiments.filled("table-3", stored(tmp_path, resources), samples=40)
    bare, anti = filled.numbers[:2]
    assert isinstance(bare["AA"].ours, Share)
    assert (bare["AA"].ours.value, bare["AA"].paper, bare["AA"].ours.n) == (0.5, 53.11, 40)
    assert isinstance(anti["AA gain"].ours, Difference)
    assert (anti["AA gain"].ours.value, anti["AA gain"].paper) == (0.25, 18.60)
    assert anti["adaptive"].ours is not None
    assert anti["adaptive"].ours.value == pytest.approx(19 / 40)  # the worst of all, not of the adaptive attack alone
    assert str(bare["AA"]) == "50.0 [35.2, 64.8] (53.1)"
    assert str(anti["AA gain"]).startswith("+25.0 [+")
    assert all(number.ours is None for numbers in filled.numbers[2:] for number in numbers.values())
    assert len(filled.used) == 10
    assert len(filled.missing) == len(filled.layout.asks) - 10
    said = " ".join(filled.sentences)
    assert "10 of 90 cells are stored. Searched in float32, judged in float32." in said
    assert "10 cells of compact:hydra" in said
    markdown = table_as_markdown(filled.table())
    assert "| cifar10 | TRADES, compact:trades | + Anti-Adv | 40 | 100.0 [91.2, 100.0] (84.9) |" in markdown
    assert "| cifar10 | HYDRA, compact:hydra |  | – | – (89.0) |" in markdown


def test_a_search_that_the_judge_does_not_follow_is_counted_and_not_read_at_another_radius(
    tmp_path: Path, resources: Resources
):
    store = Store(tmp_path)
    for cell in cells_of("table-4", "compact:awp", resources):
        astray = cell.attack == "boundary" and cell.defence != "none"
        facts = [record(i, **({"distance": 0.4} if astray and i < 3 else {})) for i in range(40)]
        store.append(cell, facts, RECEIPT)
    filled = experiments.filled("table-4", store, samples=40)
    bare, anti = filled.numbers[:2]
    assert bare["BA, L2 0.5"].ours is not None
    assert anti["BA, L2 0.5"].ours is None
    assert anti["BA"].ours is not None
    assert "In 1 cell 3 samples ended beyond the radius" in " ".join(filled.sentences)


def test_columns_of_fewer_samples_are_named(tmp_path: Path, resources: Resources):
    store = Store(tmp_path)
    for cell in cells_of("table-3", "compact:trades", resources):
        put(store, cell, 20, n=30 if cell.attack.startswith("fab") else 40)
    assert "n is 30 samples under FAB, AA" in " ".join(experiments.filled("table-3", store, samples=40).sentences)


def test_the_worst_case_of_the_columns_is_the_measures_own(tmp_path: Path, resources: Resources):
    store = Store(tmp_path)
    for k, cell in enumerate(cells_of("table-3", "compact:trades", resources)):
        facts = [record(i, **({"attacked": 5} if i % (k + 2) == 0 else {})) for i in range(40 - k)]
        store.append(cell, facts, RECEIPT)
    layout, shelf = experiments.layout("table-3", samples=40), StoreIndex(store)
    column = next(c for c in layout.lines[0].columns if c.heading == "AA")
    records = [store.read(cell) for cell in store_cells(shelf, layout.lines[0].asks(column))]
    assert value(shelf, layout.lines[0], column) == worst_case(records, Linf(8 / 255))


def store_cells(shelf: StoreIndex, asks: tuple[Ask, ...]) -> list[Cell]:
    found = [shelf.find(asked) for asked in asks]
    assert all(found)
    return [cell for cell in found if cell is not None]


def test_of_two_precisions_the_one_with_more_samples_counts(tmp_path: Path, resources: Resources):
    store = stored(tmp_path, resources)
    apgd = next(
        c for c in cells_of("table-3", "compact:trades", resources) if c.attack == "apgd" and c.defence == "none"
    )
    mixed = dataclasses.replace(apgd, precision="mixed")
    put(store, mixed, 30)
    layout = experiments.layout("table-3", samples=40)
    assert store_cells(StoreIndex(store), layout.asks[:1])[0].precision == "float32"  # of equals the finest
    facts = [record(i) for i in range(40, 50)]
    store.append(mixed, facts, RECEIPT)
    filled = fill(layout, StoreIndex(store))
    assert filled.numbers[0]["APGD"].ours is not None
    assert (filled.numbers[0]["APGD"].ours.n, filled.numbers[0]["APGD"].ours.value) == (50, 0.4)
    assert filled.sentences[0].endswith(" Searched in float32 (9) and mixed (1), judged in float32.")


@pytest.mark.parametrize("change", [{"weights": "sha256:other"}, {"seed": 1}, {"looks": 20}])
def test_cells_of_other_weights_another_seed_or_other_looks_do_not_count(
    tmp_path: Path, resources: Resources, change: dict[str, Any]
):
    store = Store(tmp_path)
    for cell in cells_of("table-3", "compact:trades", resources):
        put(store, dataclasses.replace(cell, **change), 20)
    assert experiments.filled("table-3", store).used == ()


@pytest.mark.parametrize("samples", [60, 600])
def test_a_table_is_of_one_set_of_images_alone(tmp_path: Path, resources: Resources, samples: int):
    """Of two that go by one name that with the most samples: the bare network's on the one are not set against the
    layer's on the other, however many there are of them."""
    store = stored(tmp_path, resources)
    apgd = next(
        c for c in cells_of("table-3", "compact:trades", resources) if c.attack == "apgd" and c.defence == "none"
    )
    put(store, dataclasses.replace(apgd, images="sha256:other"), 0, n=samples)
    filled = experiments.filled("table-3", store, samples=40)
    assert len({cell.images for cell in filled.used}) == 1
    assert len(filled.used) == (10 if samples < 10 * 40 else 1)


def test_a_store_that_is_not_there_is_all_missing(tmp_path: Path):
    filled = experiments.filled("table-4", tmp_path / "none")
    assert filled.used == ()
    assert filled.sentences[0] == f"0 of {len(filled.layout.asks)} cells are stored."
    assert "–" in table_as_markdown(filled.table())


# ---------------------------------------------------------------- budgets


@pytest.mark.parametrize("attack", ["nes:probes=3", "bandits"])
def test_a_smaller_budget_can_be_read_from_the_records_of_a_larger(attack: str, resources: Resources, tmp_path: Path):
    """What table 1 does for 5k and 10k, against runs that really had the smaller budget."""

    def run(queries: int) -> list[Record]:
        cell = make_cell(
            model="compact:standard",
            attack=attack,
            threat=f"linf:0.1,queries={queries}",
            samples=range(12),
            resources=resources,
        )
        evaluate([cell], tmp_path, resources=resources)
        return Store(tmp_path).read(cell)

    ball, long, part = Linf(0.1), run(105), run(21)
    assert sum(standing(r, ball) for r in long) < sum(standing(r, ball) for r in part)  # or this would say nothing
    assert [standing_by(r, ball, 21) for r in long] == [standing(r, ball) for r in part]


# ---------------------------------------------------------------- claims


def test_claims_follow_from_the_numbers(tmp_path: Path, resources: Resources):
    store = stored(tmp_path, resources)
    found = {claim.name: claim for claim in claims(StoreIndex(store))}
    assert len(found) == 8
    verdicts = {name: claim.verdict for name, claim in found.items()}
    assert verdicts["Clean accuracy is kept"] == "holds so far"  # of one network among nine
    assert verdicts["Gains under AutoAttack"] == "holds so far"  # +25 points
    assert verdicts["The bare network bounds it from below"] == "holds so far"  # 21 of 40 fall either way
    assert verdicts["Better than small noise (SND)"] == "not measured yet"
    assert verdicts["Gains under black-box attacks"] == "holds so far"  # Square's, of table 2 too
    for cell in cells_of("table-3", "compact:mart", resources):  # here it gains nothing under AutoAttack
        put(store, cell, 20)
    found = {claim.name: claim for claim in claims(StoreIndex(store))}
    assert found["Gains under AutoAttack"].verdict == "holds partly"
    assert [str(c) for c in found["Gains under AutoAttack"].measured if not c.passes] == [
        "compact:mart, AA +0.0 [-4.7, +4.7] (n = 40)"
    ]


def test_behind_the_gains_a_step_that_goes_too_far_is_told_from_an_image_that_does(
    tmp_path: Path, resources: Resources
):
    """Of 40 samples under AutoAttack 20 fall bare and 10 behind the layer, 4 of these with f right; one more is wrong
    from the start, where f is not. Had g f's labels, 6 would have fallen, not 11."""
    store = Store(tmp_path)
    for cell in cells_of("table-3", "compact:mart", resources):
        bare = cell.defence == "none"
        put(store, cell, 20 if bare else 10)
        if not bare:
            few = [
                dataclasses.replace(
                    r, base_attacked=r.label if r.sample < 4 else r.base_attacked, clean_confidence=0.75
                )
                for r in store.read(cell)
            ]
            few[39] = dataclasses.replace(few[39], clean=(few[39].label + 1) % 10, clean_right=0)
            shutil.rmtree(store.root / cell.key)
            store.append(cell, few, RECEIPT)
    grid, used = behind.table(StoreIndex(store))
    (line,) = grid.lines
    assert [entry.text for entry in line[:3]] == ["cifar10", "MART, compact:mart", "K = 2, α = 0.15"]
    assert line[3].text.endswith(" → 0.75")
    assert {name: entry.value for name, entry in zip(grid.head[5:], line[5:], strict=True)} == {
        "labels differ": 2.5,
        "f right": 12.5,
        "AA gain": 22.5,
        "AA gain, f's": 35.0,
        "adaptive gain": 22.5,
    }
    assert len(used) == 10
    said = experiments.page(store)
    assert grid.title in said
    assert "| cifar10 | MART, compact:mart | K = 2, α = 0.15 |" in said
    assert behind.table(StoreIndex(Store(tmp_path / "none")))[0].lines == ()
    shown = document(store).tables[-1]
    assert shown.table.title == grid.title
    assert set(shown.sources) == {cell.key for cell in used}


def test_beside_small_noise_luck_and_steps_that_go_too_far_are_told_apart(tmp_path: Path, resources: Resources):
    """Of 40 samples 10 fall behind the layer, 4 of these with f right; behind noise 16, 12 of them by luck."""
    store = Store(tmp_path)
    for cell in cells_of("table-1", "compact:standard", resources):
        if cell.attack not in ("nes", "bandits") or cell.defence == "none":
            continue
        if cell.defence == "small_noise":
            put(store, cell, 4, luck=12)
            continue
        put(store, cell, 10)
        some = [dataclasses.replace(r, base_attacked=r.label) if r.sample < 4 else r for r in store.read(cell)]
        shutil.rmtree(store.root / cell.key)
        store.append(cell, some, RECEIPT)
    grid, used = noise.table(StoreIndex(store))
    assert [[entry.text for entry in line[:3]] for line in grid.lines] == [
        ["cifar10", "nominal, compact:standard", f"{attack} {k}k"] for attack in ("Bandits", "NES") for k in (5, 10)
    ]
    for line in grid.lines:
        assert {name: entry.value for name, entry in zip(grid.head[4:], line[4:], strict=True)} == {
            "layer": 75.0,
            "f right": 10.0,
            "layer, f's": 85.0,
            "SND, one look": 60.0,
            "lucky": 30.0,
        }
    assert len(used) == 4
    assert table_as_markdown(grid) in experiments.page(store)
    assert noise.table(StoreIndex(Store(tmp_path / "none")))[0].lines == ()


def test_behind_the_gains_all_is_of_the_samples_that_met_every_attack(tmp_path: Path, resources: Resources):
    """Behind the layer APGD has met 60 samples and the others 40, of which 10 fell; the rest are wrong in every way."""
    store = Store(tmp_path)
    for cell in cells_of("table-3", "compact:mart", resources):
        long = cell.defence != "none" and cell.attack == "apgd"
        put(store, cell, 20 if cell.defence == "none" else 10, n=40 if cell.defence != "none" else 60)
        if long:
            wrong = {"attacked": 5, "distance": 1e-3, "attacked_right": 0, "base_attacked": 3, "base_clean": 4}
            store.append(cell, [record(i, clean_confidence=0.0, **wrong) for i in range(40, 60)], RECEIPT)
    grid, _ = behind.table(StoreIndex(store))
    (line,) = grid.lines
    assert (line[3].text, line[4].text) == ("0.50 → 0.50", "40")
    assert {name: entry.value for name, entry in zip(grid.head[5:], line[5:], strict=True)} == {
        "labels differ": 0.0,
        "f right": 0.0,
        "AA gain": 25.0,
        "AA gain, f's": 25.0,
        "adaptive gain": 25.0,
    }


def test_a_claim_that_fails_says_why(tmp_path: Path, resources: Resources):
    store = Store(tmp_path)
    for cell in cells_of("table-3", "compact:mart", resources):
        put(store, cell, 20)
    assert "- Why: Steps that go too far" in experiments.page(store)
    (said,) = [c.why for c in document(store).claims if c.name == "Gains under AutoAttack"]
    assert said.startswith("Steps that go too far")
    assert all(not c.why for c in document(store).claims if not c.failed)


@pytest.mark.parametrize(
    ("bar", "ends", "passes", "settled"),
    [
        (Bar(0.15), (0.18, 0.16, 0.20), True, True),
        (Bar(0.15), (0.18, 0.12, 0.24), True, False),
        (Bar(0.15), (0.14, 0.12, 0.16), False, False),
        (Bar(0.15), (0.08, 0.05, 0.11), False, True),
        (Bar(-0.01, 0.01), (0.0, -0.004, 0.004), True, True),
        (Bar(-0.01, 0.01), (-0.006, -0.016, 0.004), True, False),
        (Bar(-0.01, 0.01), (0.02, -0.03, 0.07), False, False),  # both ends fail, and what lies between would pass
        (Bar(-0.01, 0.01), (-0.034, -0.052, -0.018), False, True),
        (ABOVE_ZERO, (0.018, 0.005, 0.032), True, True),
        (ABOVE_ZERO, (0.010, -0.002, 0.022), False, False),
        (ABOVE_ZERO, (-0.113, -0.134, -0.093), False, True),
    ],
)
def test_a_check_is_settled_where_its_whole_interval_says_the_same(
    bar: Bar, ends: tuple[float, float, float], passes: bool, settled: bool
):
    check = Check("a line", Difference(*ends, gained=9, lost=4, p=0.5, n=500), bar, 500)
    assert (check.passes, check.settled) == (passes, settled)
    nothing = Check("a line", None, bar, 500)
    assert (nothing.passes, nothing.settled) == (False, False)


def test_a_claim_holds_when_all_of_it_is_measured(tmp_path: Path, resources: Resources):
    """Figure 3, half there: one α, then all but one on a few samples, then all on as many as are asked for."""
    store, claim = Store(tmp_path), "A gain for every α"

    def look() -> tuple[str, list[str], int]:
        found = next(c for c in claims(StoreIndex(store)) if c.name == claim)
        return found.verdict, [str(check) for check in found.measured], len(found.checks)

    cells = cells_of("figure-3", "compact:awp", resources)
    settings = list(dict.fromkeys(cell.defence for cell in cells if cell.defence != "none"))
    assert len(settings) == 7
    for cell in (c for c in cells if c.defence == "none"):
        put(store, cell, 30, n=500)
    assert look() == ("not measured yet", [], 7)
    half = next(c for c in cells if c.defence == settings[0])
    put(store, half, 5, n=500)
    assert look()[:2] == ("not measured yet", []), "one attack of AutoAttack's four is not AutoAttack"
    for cell in cells:
        if cell.defence in settings[:-1] and cell != half:
            put(store, cell, 5)
    verdict, said, _ = look()
    assert verdict == "holds so far"
    assert len(said) == 6
    assert all(check.endswith("] (n = 40)") for check in said)
    for cell in cells:
        if cell.defence == settings[-1]:
            put(store, cell, 5)
    assert look()[0] == "holds"


def test_what_failed_so_far_may_yet_pass(tmp_path: Path, resources: Resources):
    for cell in cells_of("table-3", "compact:mart", resources):
        put(Store(tmp_path), cell, 20)
    found = {claim.name: claim.verdict for claim in claims(StoreIndex(Store(tmp_path)))}
    assert found["Gains under AutoAttack"] == "does not hold so far"


def test_a_layer_that_costs_clean_accuracy_or_falls_below_the_bare_network_is_told(
    tmp_path: Path, resources: Resources
):
    store = Store(tmp_path)
    for cell in cells_of("table-3", "compact:trades", resources):
        wrong = 4 if cell.defence != "none" else 0
        facts = [record(i, **({"clean": 5, "attacked": 5} if i < wrong else {})) for i in range(40)]
        store.append(cell, facts, RECEIPT)
    found = {claim.name: claim.verdict for claim in claims(StoreIndex(store))}
    assert found["Clean accuracy is kept"] == "does not hold so far"
    assert found["The bare network bounds it from below"] == "does not hold so far"
    assert found["Gains under AutoAttack"] == "does not hold so far"


def test_more_steps_are_compared_one_by_one(tmp_path: Path, resources: Resources):
    store = Store(tmp_path)
    fall = {"steps=1": 30, "anti_adversary": 20, "steps=3": 10, "steps=4": 10, "steps=5": 0}
    for name in ("figure-4", "figure-5"):
        for cell in cells_of(name, "compact:awp", resources):
            setting = cell.defence.partition(":")[2] or cell.defence
            put(store, cell, fall.get(setting, 35))
    claim = next(c for c in claims(StoreIndex(store)) if c.name == "Larger K, larger gain")
    assert [(c.line, c.passes) for c in claim.checks] == [
        ("compact:awp, K = 1 to K = 2", True),
        ("compact:awp, K = 2 to K = 3", True),
        ("compact:awp, K = 3 to K = 4", False),
        ("compact:awp, K = 4 to K = 5", True),
    ]
    assert claim.verdict == "holds partly"


def test_the_layer_is_compared_with_noise_on_the_same_samples(tmp_path: Path, resources: Resources):
    store = Store(tmp_path)
    fall = {"none": 40, "small_noise": 25, "anti_adversary:step_size=0.01": 15}
    for cell in cells_of("table-1", "compact:standard", resources):
        put(store, cell, fall[cell.defence], queries=6000, luck=5 if cell.defence == "small_noise" else 0)
    claim = next(c for c in claims(StoreIndex(store)) if c.name == "Better than small noise (SND)")
    seen = {c.line.partition(", ")[2]: c for c in claim.measured}
    for counted, gain in (("majority", 10 / 40), ("one look", 15 / 40)):  # five that noise let stand were seen to fall
        check = seen[f"NES 10k, {counted}"]
        assert check.passes
        assert check.found is not None
        assert check.found.value == pytest.approx(gain)
        assert not seen[f"NES 5k, {counted}"].passes  # all fell after their 5,000th query: at 5k both stand
    assert claim.verdict == "holds partly"


def test_the_page_says_what_is_there_and_what_is_not(tmp_path: Path, resources: Resources):
    empty = experiments.page(tmp_path / "none")
    assert empty.count("**not measured yet**") == 8
    assert experiments.headline(tmp_path / "none").startswith(
        "No network's cells of table 3 are all stored yet (0 of 90 "
    )
    store = stored(tmp_path, resources)
    page = experiments.page(store)
    assert "| Gains under AutoAttack | **holds so far** | 1 of 1 | 0 of 1 | 1 of 9 |" in page  # +25, from +11.7 on
    assert "| Gains under black-box attacks | **holds so far** | 1 of 1 | 1 of 1 | 1 of 39 |" in page
    assert "- Passed: compact:trades, AA +25.0 [" in page
    assert "cifar10, in the mean: +25.0 points of 1 line here, +18.6 of 1 in the paper." in page
    assert all(module.TITLE in page for module in experiments.EXPERIMENTS.values())
    *table, blank, note = experiments.headline(store).splitlines()
    assert len(table) == 3
    assert table[2].startswith("| `compact:trades` | 40 | 100.0 → 100.0 | 50.0 → 75.0 | +25.0 [")
    assert all(line.count("|") == 8 for line in table)
    assert (blank, "1 of 9 networks so far: 10 of 90 cells are stored." in note) == ("", True)


def test_the_headline_fills_itself(tmp_path: Path, resources: Resources):
    store = stored(tmp_path, resources)
    awp = cells_of("table-3", "compact:awp", resources)
    for cell in awp:
        if cell.attack != "square" or cell.defence == "none":
            put(store, dataclasses.replace(cell, precision="mixed"), 20)
    *few, note = experiments.headline(store).splitlines()
    assert len(few) == 4, "a network without all of AutoAttack has no line"
    assert "Searched in float32, judged in float32. 1 of 9 networks so far: 19 of 90 cells are stored." in note
    put(store, next(c for c in awp if c.attack == "square" and c.defence != "none"), 12)
    *_, last, _, note = experiments.headline(store).splitlines()
    assert last.startswith("| `compact:awp` | 40 | 100.0 → 100.0 | 50.0 → 50.0 | +0.0 [")
    assert "Searched in float32 (11) and mixed (9), judged in float32. 2 of 9 networks so far" in note
    for asked in experiments.layout("table-3").asks:
        put(store, like(awp[0], asked), 20)
    assert "so far" not in experiments.headline(store)
    assert len(experiments.headline(store).splitlines()) == 2 + 9 + 2


def like(cell: Cell, asked: Ask) -> Cell:
    """The cell that is asked for, of data sets and networks that may not be at hand here."""
    weights = {models.canonical(card.spec): card.weights for card in models.cards()}
    images, model, *_ = asked.words
    attack = attacks.parse(asked.attack)
    return dataclasses.replace(
        cell,
        data=images,
        model=model,
        weights=weights.get(model, cell.weights),
        defence=asked.defence,
        attack=normal_attack(attack),
        threat=make_threat(asked.threat, attack),
        precision="mixed",
    )


def test_the_page_tells_when_ours_moves_the_other_way(tmp_path: Path, resources: Resources):
    store = Store(tmp_path)
    for cell in cells_of("table-3", "compact:trades", resources):
        put(store, cell, 10 if cell.defence == "none" else 20)
    page = experiments.page(store)
    assert "ours moves the same way in 0 of 4 numbers; not for APGD of compact:trades + Anti-Adv" in page


def test_which_way_a_number_moves_is_told_by_the_samples_that_both_lines_have(tmp_path: Path, resources: Resources):
    """Bare, 20 of the first 40 fall and none of the 40 after them; behind the layer, run on the first 40, 15 fall."""
    store = Store(tmp_path)
    for cell in cells_of("table-3", "compact:trades", resources):
        bare = cell.defence == "none"
        put(store, cell, 20 if bare else 15, n=80 if bare else 40)
    filled = experiments.filled("table-3", store)
    assert [str(numbers["APGD"])[:4] for numbers in filled.numbers[:2]] == ["75.0", "62.5"]  # which looks like a loss
    page = experiments.page(store)
    assert "ours moves the same way in 4 of 4 numbers." in page
    assert any(said.startswith("Lines that differ in n are of different images") for said in filled.sentences)
    even = experiments.filled("table-3", stored(tmp_path / "even", resources))
    assert not any(said.startswith("Lines that differ in n") for said in even.sentences)


def test_a_line_of_the_paper_counts_once_in_its_mean(tmp_path: Path, resources: Resources):
    """Two of ours stand beside TRADES (+18.60), one beside MART (+20.01)."""
    store, (cell, *_) = Store(tmp_path), cells_of("table-3", "compact:trades", resources)
    for ask in experiments.layout("table-3").asks:
        if ask.network.name in ("compact:trades", "wrn16-4:trades", "compact:mart"):
            put(store, like(cell, ask), 20 if ask.defence == "none" else 10)
    assert "in the mean: +25.0 points of 3 lines here, +19.3 of 2 in the paper." in experiments.page(store)


# ---------------------------------------------------------------- for real


@pytest.mark.usefixtures("small")
def test_a_table_is_run_resumed_shown_and_listed(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    args = ["table-4", "--samples", "3", "--store", str(tmp_path), "--device", "cpu"]
    assert main(["reproduce", *args, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    store = Store(tmp_path)
    at_hand = {models.canonical(card.spec) for card in models.cards()} & {"compact:awp", "wrn16-4:awp"}
    assert len(store.cells()) == 6 * len(at_hand)
    files = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.xz")}
    assert len(files) == 6 * len(at_hand)

    shown = said["experiments"]["table-4"]["lines"][0]["numbers"]
    bare = [c for c in store.cells() if c.model == "compact:awp" and c.defence == "none"]
    cell = next(c for c in bare if c.attack == "qeba")
    records = store.read(cell)
    assert shown["QEBA"]["ours"]["value"] == sum(standing(r, cell.threat.ball) for r in records) / 3
    assert shown["QEBA"]["paper"] == 85.0
    assert shown["clean"]["ours"]["value"] == sum(r.clean == r.label for r in records) / 3
    assert len(said["missing"]) == 6 * (2 - len(at_hand))
    assert all("not in the zoo yet" in m["why"] for m in said["missing"])

    assert main(["reproduce", *args]) == 0  # resumes: nothing is left to do
    out = capsys.readouterr().out
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.xz")} == files
    for part in ("Table 4: AWP under decision-based attacks", "AWP, compact:awp", "(86.0)", "BA, L2 0.5"):
        assert part in out

    assert main(["report", "table-4", "--store", str(tmp_path), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)["experiments"]["table-4"]["lines"]
    assert again == said["experiments"]["table-4"]["lines"]
    gone = next(c for c in store.cells() if c.attack == "qeba" and c.defence != "none" and c.model == "compact:awp")
    (tmp_path / gone.key).rename(tmp_path.parent / "gone")
    assert main(["report", "table-4", "--store", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "not stored: qeba (linf:8/255,queries=30) on compact:awp behind anti_adversary\n" in out
    assert out.count("not stored: ") == 1 + 6 * (2 - len(at_hand))
    assert "fewer samples than asked for: boundary" in out  # three, of a hundred
    (tmp_path.parent / "gone").rename(tmp_path / gone.key)

    assert main(["reproduce", *args[:2], "5", *args[3:], "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["cells"]
    assert {(c["stored"], c["samples"]) for c in listed} == {(3, 5)}
    assert all(c["command"].startswith("antiadv evaluate --data cifar10:test --model compact:awp") for c in listed[:6])


@pytest.mark.usefixtures("small")
def test_what_is_whole_in_another_precision_is_not_run_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, resources: Resources
):
    """As the stored results are: made on a GPU, and shown anywhere."""
    store = Store(tmp_path)
    cells = experiments.cells("table-4", samples=2, resources=resources)
    for i, cell in enumerate(cells):
        put(store, dataclasses.replace(cell, precision="half" if i % 2 else "tf32"), 1, n=2)
    files = sorted(tmp_path.rglob("*.xz"))
    words = ["reproduce", "table-4", "--store", str(tmp_path), "--device", "cpu", "--json"]
    assert main([*words, "--samples", "2"]) == 0
    assert sorted(tmp_path.rglob("*.xz")) == files
    (line, *_) = json.loads(capsys.readouterr().out)["experiments"]["table-4"]["lines"]
    assert line["numbers"]["QEBA"]["ours"]["value"] == 0.5
    assert main([*words, "--samples", "2", "--list"]) == 0
    assert {c["stored"] for c in json.loads(capsys.readouterr().out)["cells"]} == {2}
    assert main([*words, "--samples", "3", "--precision", "half"]) == 2, "what is not whole is, and here it cannot be"
    assert capsys.readouterr().err.startswith("antiadv: precision half needs a CUDA device; found cpu.")


@pytest.mark.usefixtures("small")
def test_the_script_runs_what_fits_and_goes_on_later(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    args = ["run_paper.py", "--experiments", "table-3", "--only", "compact:mart", "--samples", "3", "--shard", "2"]
    args += ["--store", str(tmp_path), "--device", "cpu"]

    def run(*more: str) -> str:
        monkeypatch.setattr(sys, "argv", [*args, *more])
        assert run_paper.main() == 0
        return capsys.readouterr().out

    assert "0 of 10 cells are complete, 0 failed" in run("--minutes", "0")
    assert Store(tmp_path).cells() == []
    out = run("--minutes", "60", "--processes", "2")
    assert "10 of 10 cells are complete, 0 failed" in out
    cells = Store(tmp_path).cells()
    assert {len(Store(tmp_path).read(c)) for c in cells} == {3}
    assert len(list(tmp_path.rglob("*.xz"))) == 20  # shard by shard
    assert "3/3" in run("--list")
    assert out.count("samples, clean") == 10
    filled = experiments.filled("table-3", tmp_path, samples=3)
    shown = zip(filled.layout.lines, filled.numbers, strict=True)
    assert {line.network.name for line, numbers in shown if numbers["AA"].ours is not None} == {"compact:mart"}


@pytest.mark.usefixtures("small")
def test_the_authors_checkpoints_are_run_and_shown_beside_no_others(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """A ResNet-18 with the name of one in the zoo and weights of its own, which says the same to everything."""
    folder, store = tmp_path / "theirs", tmp_path / "store"
    folder.mkdir()
    net = models.build("resnet18")
    with torch.no_grad():
        net.get_parameter("fc.bias")[data.load("cifar10").labels([0])] = 100
    torch.save({"net": net.state_dict()}, folder / "resnet18.pt")
    words = ["table-1", "--networks", f"official:{folder}", "--store", str(store)]
    assert main(["reproduce", *words, "--samples", "1", "--device", "cpu", "--runner", "processes:2", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    lines = said["experiments"]["table-1"]["lines"]
    assert [line["network"] for line in lines[:4]] == ["nominal, resnet18:standard"] * 4
    assert [line["numbers"]["clean"]["ours"]["n"] for line in lines[:4] if "clean" in line["numbers"]] == [1, 1, 1]
    assert all(number["ours"] is not None for number in lines[3]["numbers"].values())
    assert {m["why"].partition(" in ")[0] for m in said["missing"]} == {"there is no ResNet-50"}

    assert main(["report", *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["experiments"]["table-1"]["lines"] == lines
    assert main(["report", "table-1", "--store", str(store), "--json"]) == 0
    zoo = json.loads(capsys.readouterr().out)["experiments"]["table-1"]["lines"]
    assert all(number["ours"] is None for line in zoo for number in line["numbers"].values())


@pytest.mark.usefixtures("small")
def test_two_processes_never_work_on_one_cell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    """One cell is held by another process: it is passed over, the rest is done; when that process dies it is free."""
    words = [
        "--experiments",
        "table-3",
        "--only",
        "compact:mart",
        "--only",
        "apgd",
        "--samples",
        "1",
        "--device",
        "cpu",
    ]
    monkeypatch.setattr(sys, "argv", ["run_paper.py", *words, "--store", str(tmp_path), "--minutes", "60"])
    assert run_paper.main() == 0
    assert "6 of 6 cells are complete" in capsys.readouterr().out
    store = Store(tmp_path)
    held, *_ = store.cells()
    shutil.rmtree(tmp_path / held.key)
    code = (
        "import dataclasses, pathlib, sys, types\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from tools import run_paper\n"
        f"store = types.SimpleNamespace(root=pathlib.Path({str(tmp_path)!r}))\n"
        f"with run_paper.alone(types.SimpleNamespace(key={held.key!r}), store) as mine:\n"
        "    print(mine, flush=True)\n"
        "    input()\n"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "True\n"
    assert run_paper.main() == 0
    assert "5 of 6 cells are complete, 0 failed" in capsys.readouterr().out
    other.kill()
    other.communicate()
    assert run_paper.main() == 0
    assert "6 of 6 cells are complete, 0 failed" in capsys.readouterr().out


def test_the_script_needs_none_of_the_command_lines_packages():
    code = (
        "import sys\n"
        "for name in ('typer', 'rich', 'matplotlib', 'jinja2', 'ray'): sys.modules[name] = None\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "sys.argv = ['run_paper.py', '--experiments', 'table-4', '--samples', '2', '--list', '--device', 'cpu']\n"
        "from tools import run_paper\n"
        "sys.exit(run_paper.main())\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "qeba (linf:8/255,queries=10000) on compact:awp behind anti_adversary" in done.stdout


def test_comparing_needs_common_samples(tmp_path: Path, resources: Resources):
    store = Store(tmp_path)
    layout: Layout = experiments.layout("table-3", samples=40)
    bare, anti = layout.lines[:2]
    column = next(c for c in anti.columns if c.heading == "APGD")
    first, second = resolve([*bare.asks(column), *anti.asks(column)], "float32", resources)[0]
    put(store, first, 5)
    store.append(second, [record(i) for i in range(40, 50)], RECEIPT)
    assert compare(StoreIndex(store), bare.asks(column), anti.asks(column), column) is None
    store.append(second, [record(i) for i in range(40)], RECEIPT)
    found = compare(StoreIndex(store), bare.asks(column), anti.asks(column), column)
    assert found is not None
    assert (found.n, found.gained, found.lost) == (40, 5, 0)


def test_resnet_50_is_looked_for_beside_the_data_sets(tmp_path: Path):
    assert "there is no ResNet-50 in a data directory" in imagenet(Source()).absent
    assert f"there is no ResNet-50 in {tmp_path}" in imagenet(Source(directory=str(tmp_path))).absent
    (tmp_path / "resnet50.pt").touch()
    assert imagenet(Source(directory=str(tmp_path))).name == "resnet50:v1.5"
    (tmp_path / "resnet50-v1.pt").touch()
    network = imagenet(Source(directory=str(tmp_path)))
    assert (network.absent, network.model) == ("", f"resnet50:v1,path={tmp_path / 'resnet50-v1.pt'}")
    assert network.data == f"nips2017:dir={tmp_path}"


def test_a_store_does_not_say_where_the_files_lay(tmp_path: Path, resources: Resources):
    """Results are passed on; a folder of data sets is nobody else's business."""
    (tmp_path / "sets").mkdir()
    network = dataclasses.replace(ask("apgd").network, data=Source(directory=str(tmp_path / "sets")).data("cifar10"))
    (cell,), _ = resolve([dataclasses.replace(ask("apgd"), network=network)], "float32", resources)
    put(Store(tmp_path), cell, 2)
    (path,) = tmp_path.glob("*/cell.json")
    assert str(tmp_path) not in path.read_text()
    (again,) = Store(tmp_path).cells()
    assert (again.key, again.data, len(Store(tmp_path).read(again))) == (cell.key, "cifar10:test", 40)


def test_a_column_of_another_radius_is_read_by_that_radius(tmp_path: Path, resources: Resources):
    """Ten of 40 fell between the two radii; three on which search and judge part lie beyond both, and hide nothing."""
    store = Store(tmp_path)
    for cell in cells_of("table-4", "compact:awp", resources):
        fell = [record(i, attacked=5, distance=0.3) for i in range(10)]
        parted = [record(i, distance=0.7) for i in range(10, 13)]
        store.append(cell, [*fell, *parted, *(record(i) for i in range(13, 40))], RECEIPT)
    for numbers in experiments.filled("table-4", store, samples=40).numbers[:2]:
        near, far = numbers["BA"].ours, numbers["BA, L2 0.5"].ours
        assert near is not None
        assert far is not None
        assert (near.value, far.value) == (1.0, 0.75)


def test_the_bars_are_those_that_the_rules_tell(tmp_path: Path):
    """Nothing needs to be stored for that."""
    found = {(c.name, "cifar100" in k.line): k.bar for c in claims(StoreIndex(Store(tmp_path))) for k in c.checks}
    kept, gains, bound = "Clean accuracy is kept", "Gains under AutoAttack", "The bare network bounds it from below"
    assert (found[kept, False], found[kept, True]) == (Bar(-0.002, 0.002), Bar(-0.01, 0.01))
    assert (found[gains, False], found[gains, True]) == (Bar(0.15), Bar(0.08))
    assert found["Ten points for every α", False] == Bar(0.10)
    assert found[bound, False] == found[bound, True] == Bar(-0.01, 0.01)


def test_what_another_precision_has_in_part_is_run_as_it_was_asked(tmp_path: Path):
    store = Store(tmp_path)
    asked, mixed = (probe("square", range(40), precision=p) for p in ("float32", "mixed"))
    store.append(mixed, [record(i) for i in range(39)], RECEIPT)
    assert as_stored(asked, store) == asked
    store.append(mixed, [record(39)], RECEIPT)
    assert as_stored(asked, store) == mixed


def test_pace_follows_the_last_pieces():
    pace = Pace(rate=1)
    for seconds in (90, 90, 90, 1, 2, 3):
        pace.tell(("square",), 10, seconds)
    assert pace.guess(("square",), 10) == 2
