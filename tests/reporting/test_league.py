"""The league: who takes part, what clean traffic is measured, who is dominated, and what is recommended."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv import defences
from antiadv.cli.__main__ import main
from antiadv.core.ball import L2, Linf
from antiadv.core.errors import BadInput, BadSpec
from antiadv.core.threat import Access, Threat
from antiadv.defences.stateful import Memory
from antiadv.evaluation import Resources, Store
from antiadv.evaluation.cell import Cell
from antiadv.reporting.figures import ceiling, svg
from antiadv.reporting.league import league, postponed
from antiadv.reporting.league_card import FIELDS, card, write
from antiadv.reporting.league_entrants import (
    ADAPTIVE,
    COLUMNS,
    GRADIENTS,
    KINDS,
    LABELS,
    SCORES,
    columns,
    entrants,
    kind_of,
    named,
)
from antiadv.reporting.league_figure import front
from antiadv.reporting.league_stored import TRAFFIC, certified, leagues, on_the_same_samples
from antiadv.reporting.league_table import FEW, FLAT, HIDES, KEEPS, NONE, League, Line
from antiadv.reporting.league_traffic import Traffic, measure, with_memory
from tests.engine.probes import record
from tests.toys import small_net

N = 100
BALL = Linf(8 / 255)
MODEL = "tests.toys:make_rule"
TEXTS = {"bare": "none", "layer": "anti_adversary", "cheap": "rounded_scores"}


def cell(defence: str, attack: str) -> Cell:
    return Cell("d", "", "m", "", defence, attack, Threat(BALL, Access.SCORES), range(N), 0, "float32")


def line(name: str, passes: float, fell: Mapping[str, int], **more: Any) -> Line:
    """An entrant of which the first so many samples fell in each column."""

    def read(column: str, n: int) -> Any:
        facts = [record(i, attacked=5, distance=BALL.eps / 2) if i < n else record(i) for i in range(N)]
        return cell(TEXTS[name], column), facts

    traffic = Traffic(N, 90, 0, 0.1, more.get("shift", 0.0), passes, passes)
    return Line(name, TEXTS[name], traffic, {column: read(column, n) for column, n in fell.items()})


def of(*lines: Line) -> League:
    return League("net", lines, {SCORES: "square", LABELS: "rays", ADAPTIVE: "adaptive"})


def test_one_wrong_answer_of_a_randomised_defence_counts_and_the_majority_stands_beside_it() -> None:
    """30 samples fell, at 20 the attack stopped early although the majority is right, 50 spent the budget."""
    facts: dict[str, Any] = {"draws": 10, "clean_right": 10, "attacked_right": 9}
    fell = [record(i, **facts | {"attacked_right": 1, "distance": BALL.eps / 2, "queries": 9}) for i in range(30)]
    stopped = [record(i, **facts, distance=BALL.eps / 2, queries=40) for i in range(30, 50)]
    rest = [record(i, **facts, queries=100) for i in range(50, N)]
    asked = dataclasses.replace(cell("score_noise", "square"), threat=Threat(BALL, Access.SCORES, 100))
    noisy = Line("score noise", "score_noise", None, {SCORES: (asked, [*fell, *stopped, *rest])})
    made = of(line("bare", 1, {SCORES: 90}), noisy)
    assert str(noisy.robust(SCORES)).startswith("50.0 ")
    assert str(noisy.queries()) == "40", "half of them fell within 40 queries"
    assert made.result(noisy, SCORES).startswith("50.0, +40.0 [")
    assert made.result(noisy, SCORES).endswith("] (majority 70.0)")
    assert "majority" not in made.result(made.bare, SCORES)
    free = dataclasses.replace(noisy, cells={ADAPTIVE: (cell("score_noise", "adaptive"), noisy.cells[SCORES][1])})
    assert str(free.robust(ADAPTIVE)).startswith("70.0 "), "without a budget the judge decides"


def test_what_the_adaptive_attack_has_not_met_is_deployed_only_if_there_is_no_other() -> None:
    bare, met = line("bare", 1, {SCORES: 60, ADAPTIVE: 70}), line("cheap", 1, {SCORES: 20, ADAPTIVE: 70}, shift=0.1)
    new = line("layer", 1, {SCORES: 15})
    assert of(bare, met, new).choice is met
    assert of(bare, new).choice is new


# ---------------------------------------------------------------- who takes part


def test_every_entrant_is_a_defence_of_the_catalogue_with_settings_of_its_own() -> None:
    assert entrants("standard")["layer"] == "anti_adversary:step_size=0.01"
    for kind in KINDS:
        chosen = entrants(kind)
        assert next(iter(chosen)) == "bare"
        assert len(set(map(defences.full_text, chosen.values()))) == len(chosen), "each is known and another"


def test_entrants_by_name_include_the_bare_network() -> None:
    assert list(named(["small_noise:std=0.01", "none"]).values()) == ["none", "small_noise"]
    with pytest.raises(BadSpec):
        named(["small_nose"])


def test_a_confident_network_counts_as_standard() -> None:
    class Fixed(nn.Module):
        def __init__(self, margin: float) -> None:
            super().__init__()
            self.margin = margin

        def forward(self, x: Tensor) -> Tensor:
            return torch.tensor([self.margin, 0.0]).expand(len(x), 2)

    x = torch.zeros(5, 3, 2, 2)
    assert [kind_of(Fixed(m), x) for m in (0.1, 2.0, 2.3)] == ["robust", "robust", "standard"]  # 0.88, 0.91
    with pytest.raises(BadInput):
        kind_of(Fixed(1), x[:0])


def test_columns_fit_the_ball() -> None:
    assert list(columns(BALL, 7)) == [SCORES, LABELS, GRADIENTS, ADAPTIVE]
    assert [threat.queries for _, threat in columns(BALL, 7).values()] == [7, 7, None, None]
    assert LABELS not in columns(L2(0.5))


# ---------------------------------------------------------------- clean traffic


def test_a_defence_that_remembers_is_timed_with_its_memory() -> None:
    net = small_net()
    x = torch.rand((3, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    remembering = with_memory(defences.wrap("stateful", net))
    first, again = (remembering(x) for _ in range(2))
    assert torch.equal(first, again), "each image comes from a new client"
    assert isinstance(remembering.session, Memory)
    assert len(remembering.session._seen) == 6
    assert with_memory(net) is net
    made = measure(net, defences.wrap("stateful", net), x, torch.zeros(3), range(3))
    assert (made.alone_ms or 0) > 0


def test_traffic_is_metered_alone_and_compared_with_the_bare_network() -> None:
    net = small_net()
    x = torch.rand((150, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        p = net(x).softmax(1)
    y, middle = p.argmax(1), float(p.amax(1).median()) + 1e-6
    bare = measure(net, net, x, y, range(150))
    assert (bare.right, bare.changed, bare.shift, bare.passes, bare.time) == (150, 0, 0, 1, 1)
    gated = measure(net, defences.wrap(f"anti_adversary:step_size=0.01,gate={middle}", net), x, y, range(150))
    assert gated.passes == 1 + 4 * 75 / 150
    assert gated.changed == 150 - gated.right
    noisy = defences.wrap("score_noise", net)
    first, again = (measure(net, noisy, x, y, range(150)) for _ in range(2))
    assert dataclasses.replace(first, time=0, alone_ms=0) == dataclasses.replace(again, time=0, alone_ms=0), (
        "the draws are fixed"
    )
    assert (first.alone_ms or 0) > 0
    assert 0 < (first.shift or 0) < 1
    assert first.passes == 1


# ---------------------------------------------------------------- the table


def test_the_cheaper_and_stronger_one_dominates_and_is_recommended() -> None:
    bare = line("bare", 1, {SCORES: 60, ADAPTIVE: 70})
    layer = line("layer", 5, {SCORES: 40, ADAPTIVE: 70})
    cheap = line("cheap", 1, {SCORES: 20, ADAPTIVE: 70})
    made = of(bare, layer, cheap)
    place = made.place(layer)
    assert place is not None
    assert (place.on_front, place.settled, place.rival) == (False, True, "cheap")
    assert place.difference is not None
    assert place.difference.value == pytest.approx(0.2)
    assert [entrant.name for entrant in made.front()] == ["cheap"]
    assert made.choice is cheap
    assert made.label(layer) == made.label(cheap) == HIDES
    assert "deploy `rounded_scores`" in made.sentences[0]
    assert "only hides" in made.sentences[0]
    assert made.place(layer, LABELS) is None, "it was not run"


def test_the_recommendation_has_the_time_of_an_image_that_comes_alone_if_it_is_stored() -> None:
    bare, cheap = line("bare", 1, {SCORES: 60}), line("cheap", 1, {SCORES: 20})

    def said(entrant: Line, **times: Any) -> Line:
        assert entrant.traffic is not None
        return dataclasses.replace(entrant, traffic=dataclasses.replace(entrant.traffic, **times))

    both = [of(said(bare, alone_ms=2.0), said(cheap, time=1.3, alone_ms=ms)).sentences[0] for ms in (4.8, 2.0, None)]
    assert "1 pass per clean image and 2.4 times the time for an image that comes alone (4.8 ms)." in both[0]
    assert "and no more time for an image that comes alone (2 ms)." in both[1]
    assert "and 1.3 times the time in batches." in both[2]


def test_a_dear_one_is_recommended_only_if_it_is_surely_stronger() -> None:
    bare, cheap = line("bare", 1, {SCORES: 60}), line("cheap", 1, {SCORES: 40})
    stronger, equal = line("layer", 5, {SCORES: 10}), line("layer", 5, {SCORES: 39})
    assert of(bare, stronger, cheap).choice is stronger
    assert of(bare, equal, cheap).choice is cheap
    place = of(bare, equal, cheap).place(equal)
    assert place is not None
    assert (place.on_front, place.settled, place.rival) == (True, False, "cheap")


def test_without_a_settled_gain_the_bare_network_is_recommended() -> None:
    bare, layer = line("bare", 1, {SCORES: 41, ADAPTIVE: 50}), line("layer", 5, {SCORES: 40, ADAPTIVE: 50})
    made = of(bare, layer)
    assert made.choice is bare
    assert made.label(layer) == NONE
    assert made.label(bare) == ""
    assert of(dataclasses.replace(bare, cells={})).choice is None


def test_with_few_images_nothing_is_recommended() -> None:
    def few(made: Line) -> Line:
        cells = {column: (was, facts[: FEW - 1]) for column, (was, facts) in made.cells.items()}
        return dataclasses.replace(made, cells=cells)

    bare, layer = line("bare", 1, {SCORES: 41}), line("layer", 5, {SCORES: 0})
    assert of(bare, layer).choice is layer
    made = of(few(bare), few(layer))
    assert made.choice is None
    assert f"square had {FEW - 1} images" in made.sentences[0]
    assert made.json()["deploy"] is None


def test_one_that_loses_clean_accuracy_is_not_recommended() -> None:
    bare, layer = line("bare", 1, {SCORES: 60}), line("layer", 5, {SCORES: 20})
    was, facts = layer.cells[SCORES]
    wrong = [dataclasses.replace(r, clean_right=0) if r.sample < 3 else r for r in facts]
    worse = dataclasses.replace(layer, cells={SCORES: (was, wrong)})
    assert of(bare, layer).choice is layer
    assert of(bare, worse).choice is bare


def test_a_rival_must_keep_clean_accuracy_and_be_better_than_by_chance() -> None:
    bare, layer = line("bare", 1, {SCORES: 60, GRADIENTS: 60}), line("layer", 5, {SCORES: 40, GRADIENTS: 40})
    cheap = line("cheap", 1, {SCORES: 20, GRADIENTS: 20})
    made = League("net", (bare, layer, cheap), {SCORES: "square", GRADIENTS: "apgd"})
    assert str(made.place(layer, GRADIENTS)).endswith("whose gradient is zero")
    assert "gradient" not in str(made.place(layer, SCORES))
    was, facts = cheap.cells[SCORES]
    wrong = [dataclasses.replace(r, clean_right=0) if r.sample < 2 else r for r in facts]
    loser = dataclasses.replace(cheap, cells={SCORES: (was, wrong)})
    assert made.place(cheap) is not None
    assert of(bare, layer, loser).place(loser) is None
    assert str(of(bare, layer, loser).place(layer)) == "on the front"
    close = line("cheap", 1, {SCORES: 33})  # seven samples more: p = 0.016
    copies = [dataclasses.replace(bare, name=f"copy {i}") for i in range(3)]
    places = [of(bare, layer, close, *more).place(layer) for more in ([], copies)]
    assert [place.settled for place in places if place is not None] == [True, False]


def test_those_whose_gradient_is_said_to_be_zero_have_none() -> None:
    x = torch.rand((2, 3, 16, 16), generator=torch.Generator().manual_seed(0))
    for spec in (*FLAT, "mirrored_scores"):
        asked = x.clone().requires_grad_()
        scores = defences.wrap(spec, small_net())(asked)
        (gradient,) = torch.autograd.grad(scores.square().sum() + 0 * asked.sum(), asked)
        assert gradient.any() != (spec in FLAT), spec


def test_the_samples_of_a_column_are_those_that_most_have() -> None:
    bare, layer, cheap = (line(name, 1, {SCORES: 60, ADAPTIVE: 60}) for name in TEXTS)
    was, facts = layer.cells[SCORES]
    fewer = [dataclasses.replace(each, cells={**each.cells, SCORES: (was, facts[:70])}) for each in (layer, cheap)]
    made = on_the_same_samples([bare, *fewer], [SCORES, ADAPTIVE])
    assert [len(each.cells[SCORES][1]) for each in made] == [70, 70, 70]
    assert [len(each.cells[ADAPTIVE][1]) for each in made] == [N, N, N]


def test_a_short_adaptive_attack_is_called_short() -> None:
    bare, layer = line("bare", 1, {SCORES: 60, ADAPTIVE: 70}), line("layer", 5, {SCORES: 20, ADAPTIVE: 40})
    short = League("net", (bare, layer), {SCORES: "square", ADAPTIVE: COLUMNS[ADAPTIVE]})
    assert COLUMNS[ADAPTIVE] in short.sentences[1]
    assert "short" in short.sentences[1]
    assert "short" not in of(bare, layer).sentences[1]


def test_the_figure_names_every_entrant_inside_the_axes() -> None:
    names = [f"entrant {i}" for i in range(15)]
    bare, layer = line("bare", 1, {SCORES: 40}), line("layer", 5, {SCORES: 35})
    crowd = [dataclasses.replace(line("cheap", 1, {SCORES: 34 + i % 3}), name=name) for i, name in enumerate(names)]
    low = dataclasses.replace(line("cheap", 1.2, {SCORES: 100}), name="low")
    panel = front(of(bare, layer, *crowd, low), SCORES)
    assert panel is not None
    assert {word.text for word in panel.words} == {"bare", "layer", "low", *names}
    top = ceiling(panel.series)
    assert all(0 < word.height < top for word in panel.words)
    for x in {word.beside for word in panel.words}:
        heights = sorted(word.height for word in panel.words if word.beside == x)
        assert all(b - a > 0.05 * top for a, b in pairwise(heights)), "none covers another"
    drawn = svg(panel, "league")
    assert all(f">{name}<" in drawn for name in ("bare", "layer", "low", *names))


def test_a_gain_that_stays_is_said() -> None:
    bare, layer = line("bare", 1, {SCORES: 60, ADAPTIVE: 70}), line("layer", 5, {SCORES: 20, ADAPTIVE: 40})
    made = of(bare, layer)
    assert made.label(layer) == KEEPS
    assert "`layer` +30.0 [" in made.sentences[1]
    with pytest.raises(BadInput):
        of(layer)


def test_cards_have_the_fields_of_the_board_as_texts(tmp_path: Path) -> None:
    bare, layer = line("bare", 1, {SCORES: 60, ADAPTIVE: 70}), line("layer", 5, {SCORES: 20, ADAPTIVE: 70})
    made = of(bare, layer)
    told = card(made, layer, "cifar10", "8/255")
    assert tuple(told) == FIELDS
    assert all(isinstance(value, str) for value in told.values())
    assert (told["autoattack_acc"], told["clean_acc"]) == ("30.00", "100.00")
    unknown = card(made, dataclasses.replace(layer, cells={SCORES: layer.cells[SCORES]}), "cifar10", "8/255")
    assert unknown["autoattack_acc"] == ""
    assert "autoattack_acc is empty" in unknown["footnote"]
    assert (told["unreliable"], card(made, bare, "cifar10", "8/255")["unreliable"]) == ("true", "false")
    paths = write(made, tmp_path, "cifar10", "8/255")
    assert [path.name for path in paths][:3] == ["league.json", "net-bare.json", "net-layer.json"]
    assert {path.suffix for path in paths[3:]} == {".svg"}
    assert json.loads(paths[2].read_text()) == told
    assert json.loads(paths[0].read_text())["deploy"] == "anti_adversary"


# ---------------------------------------------------------------- the run


def test_a_league_runs_continues_and_says_who_is_left_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["league", "--model", MODEL, "--threat", "linf:4/255,queries=5", "--store", str(tmp_path / "s")]
    words += ["--entrants", "rounded_scores", "--entrants", "self_ensemble", "--device", "cpu"]
    assert main([*words, "--samples", "0:4", "--out", str(tmp_path / "out"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [made["name"] for made in said["lines"]] == ["bare", "rounded_scores"]
    assert "noise layers" in said["left_out"]["self_ensemble"]
    assert {made[c]["robust"]["n"] for made in said["lines"] for c in said["columns"]} == {4}
    assert [Path(path).suffix for path in said["files"]] == [".json"] * 3 + [".svg"] * 4
    stored = {path: path.read_bytes() for path in (tmp_path / "s").rglob("*.json.xz")}
    assert main([*words, "--samples", "0:6"]) == 0
    out = capsys.readouterr().out
    assert "At most 6 samples" in out
    assert all(path.read_bytes() == content for path, content in stored.items()), "nothing is run again"


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    out, store = tmp_path / "file" / "out", tmp_path / "store"
    assert main(["league", "--model", MODEL, "--device", "cpu", "--store", str(store), "--out", str(out)]) == 2
    assert f"{out} cannot be written (" in capsys.readouterr().err
    assert not store.exists()


def test_a_report_of_the_store_shows_the_league_and_the_certified_floor(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store, same = tmp_path / "s", ["--model", MODEL, "--device", "cpu", "--samples", "0:3"]
    league(MODEL, store=store, samples="0:3", queries=5, only=["rounded_scores"], resources=Resources("cpu"))
    assert main(["certify", *same, "--std", "0.12", "--n", "50", "--n0", "5", "--store", str(store / "certify")]) == 0
    words = ["--defence", "smoothing:std=0.12,samples=2", "--attack", "apgd:steps=2", "--threat", "l2:0.05"]
    assert main(["evaluate", *same, *words, "--store", str(store)]) == 0
    (made,) = leagues(Store(store))
    assert [entrant.name for entrant in made.lines] == ["bare", "rounded_scores"]
    assert set(made.columns) == {SCORES, LABELS, GRADIENTS, ADAPTIVE}
    capsys.readouterr()
    assert main(["report", "--store", str(store), "--out", str(tmp_path / "out"), "--json"]) == 0
    said = json.loads((tmp_path / "out" / "report.json").read_text())
    figures = {figure["title"]: figure for figure in said["figures"].values()}
    assert any("Cost and robustness" in title for title in figures)
    floor, ceiling = figures["Certified floor and attacked ceiling"]["panels"][0]["series"]
    assert floor["label"] == "certified, n = 3"
    assert ceiling["x"] == [0.05]
    assert list((tmp_path / "out" / "tables").glob("league-*.csv"))
    weights = Store(store).cells()[0].weights
    proof = certified([tmp_path, store], weights, "smoothing:std=0.12")
    assert proof is not None
    assert (proof.radius, proof.share.n) == (0.12, 3)
    assert certified([store], weights, "smoothing:std=0.25") is None, "another noise"
    assert certified([store], weights, "none") is None
    assert certified([tmp_path], weights, "smoothing:std=0.12") is None, "nothing is stored"
    run = next((store / "certify").glob("*/run.json"))
    run.write_text(run.read_text().replace("0.12", "0.25"))
    assert main(["report", "--store", str(store), "--out", str(tmp_path / "again")]) != 0
    assert "describes no run" in capsys.readouterr().err


def test_clean_traffic_that_is_not_clean_traffic_is_refused(tmp_path: Path) -> None:
    for content in ("[]", "{", '{"net": {"found": {"bare": {"n": 1}}, "weights": "", "defences": {}}}'):
        (tmp_path / TRAFFIC).write_text(content)
        with pytest.raises(BadInput, match="holds no clean traffic"):
            leagues(Store(tmp_path))


def paced(monkeypatch: pytest.MonkeyPatch, seconds: Mapping[str, float]) -> None:
    """The entrants answer an image in so many seconds, as a slow machine would have it."""
    names = {"RoundedScores": "rounded_scores", "Hedge": "hedge"}
    monkeypatch.setattr("antiadv.reporting.league.pace", lambda net, x: seconds[names.get(type(net).__name__, "bare")])


def test_when_the_time_is_over_the_column_of_scores_is_there(tmp_path: Path) -> None:
    how: dict[str, Any] = {"samples": "0:3", "queries": 5, "minutes": 1e-9, "resources": Resources("cpu")}
    made = league(MODEL, store=tmp_path, only=["rounded_scores"], **how)
    assert [set(entrant.cells) for entrant in made.lines] == [{SCORES}]
    assert (set(made.postponed), made.left_out) == ({"rounded_scores"}, {})
    assert made.choice is None, "nothing was compared"
    assert len(Store(tmp_path).cells()) == 1


def test_a_dear_entrant_is_postponed_so_that_the_others_reach_a_recommendation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    how: dict[str, Any] = {"only": ["hedge:steps=1", "rounded_scores"], "samples": f"0:{FEW}", "queries": 5}
    how |= {"store": tmp_path, "resources": Resources("cpu"), "minutes": 0.5}
    needs = {"bare": 1e-4, "rounded_scores": 1e-4, "hedge": 1.0}  # seconds; hedge alone would need 20 minutes
    paced(monkeypatch, needs)
    start = time.monotonic()
    made = league(MODEL, **how)
    assert time.monotonic() - start < 60 * how["minutes"] + 15
    assert [entrant.name for entrant in made.lines] == ["bare", "rounded_scores"]
    assert all(len(entrant.cells[SCORES][1]) == FEW for entrant in made.lines)
    assert made.choice is not None
    assert "Postponed for lack of time (minutes needed): hedge:steps=1 20. Run again with --minutes 20." in made.notes
    paced(monkeypatch, {**needs, "hedge": 1e-3})
    assert [entrant.name for entrant in league(MODEL, **how).lines] == ["bare", "hedge:steps=1", "rounded_scores"]


def test_those_that_are_postponed_share_a_line_that_says_which_time_is_enough(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    how: dict[str, Any] = {"only": ["hedge:steps=1", "rounded_scores"], "samples": "0:3", "queries": 5}
    paced(monkeypatch, {"bare": 1e-4, "rounded_scores": 0.1, "hedge": 0.2})
    made = league(MODEL, store=tmp_path, resources=Resources("cpu"), minutes=0.5, **how)
    (said,) = (note for note in made.notes if "rounded_scores" in note and "hedge" in note)
    assert said.startswith("Postponed for lack of time (minutes needed): hedge:steps=1 3.4, rounded_scores 1.7. ")
    assert said.endswith("Run again with --minutes 6.")
    assert made.json()["postponed"] == made.postponed


def test_only_as_many_are_postponed_as_must_be_and_never_the_bare_network() -> None:
    needs = {"bare": 10.0, "cheap": 19.0, "layer": 60.0, "smoothing": 100.0, "hedge": 660.0}
    assert list(postponed(needs, 849)) == []
    assert list(postponed(needs, 848)) == ["hedge"]
    assert list(postponed(needs, 188)) == ["hedge", "smoothing"]
    assert list(postponed(needs, 0)) == ["hedge", "smoothing", "layer", "cheap"]


def test_a_module_is_no_text_of_a_network(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="Sequential"):
        antiadv.league(nn.Sequential(), store=tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize("how", [{"minutes": 0}, {"samples": range(0)}, {"settings": "strong"}])
def test_bad_input_is_refused(how: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        antiadv.league(MODEL, store=tmp_path, resources=Resources("cpu"), **{"samples": range(2), **how})
    assert not list(tmp_path.iterdir())
