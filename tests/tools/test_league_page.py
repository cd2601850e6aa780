"""docs/league.md and the script behind it: what is run, in which order, and what the page says about it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from antiadv import defences
from antiadv.attacks.adaptive.adaptive import Adaptive
from antiadv.evaluation import Resources, Store
from antiadv.evaluation.cell import Cell
from antiadv.paper.missing_cells import resolve
from antiadv.reporting.league_entrants import ADAPTIVE, GRADIENTS, LABELS, SCORES
from antiadv.reporting.league_section import league_section
from antiadv.reporting.league_stored import ATTACKS, TRAFFIC
from antiadv.reporting.league_table import HIDES, KEEPS
from tests.engine.probes import RECEIPT, record
from tools import run_league
from tools.docs import league

ROOT = Path(__file__).resolve().parents[2]
N = 60


def written(root: Path, fell: Callable[[Cell], int]) -> None:
    """The first `fell(cell)` samples of each cell of the compact network's first entrants fell."""
    (plan, *_) = run_league.plans()
    asks = [
        ask
        for ask in run_league.requests([plan], samples=N)
        if ask.attack in ("square", "adaptive:steps=100,samples=5")
    ]
    cells, missing = resolve(asks, resources=Resources("cpu"))
    assert not missing
    folder = root / "results" / "league"
    for cell in cells:
        far = 0.5 * cell.threat.ball.eps
        facts = [record(i, attacked=5, distance=far) if i < fell(cell) else record(i) for i in range(N)]
        Store(folder).append(cell, facts, RECEIPT)
    put_clean(root, plan, cells[0])


def put_clean(root: Path, plan: run_league.Plan, cell: Cell) -> None:
    """Clean traffic of all entrants of this network."""
    seen = {
        name: {"n": N, "right": N, "changed": 0, "error": 0.1, "shift": 0.0, "passes": passes, "time": passes}
        for name in plan.entrants
        for passes in [5.0 if "layer" in name else 1.0]
    }
    known = {name: defences.full_text(text) for name, text in plan.entrants.items()}
    told = {"compact:trades": {"weights": cell.weights, "images": cell.images, "found": seen, "defences": known}}
    path = root / "results" / "league" / TRAFFIC
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(told))


def test_every_cell_is_asked_for_once_and_the_most_important_come_first() -> None:
    some = run_league.plans()
    asks = run_league.requests(some)
    assert len({ask.names for ask in asks}) == len(asks) == len(ATTACKS) * sum(len(p.entrants) for p in some)
    assert [ask.attack.partition(":")[0] for ask in asks[:4]] == ["square", "adaptive"] * 2
    assert [ask.defence for ask in asks[:4:2]] == [defences.BARE, "anti_adversary"]
    assert {ask.threat for ask in asks if ask.attack == "square"} == {
        "linf:8/255,queries=2000",
        "linf:0.031,queries=2000",
    }


def test_the_slowest_entrant_comes_last_and_gains_that_are_not_undone_before_gradients() -> None:
    some = run_league.plans()
    asks = run_league.requests(some, again={("compact:trades", "jpeg")})
    assert sorted(map(str, asks)) == sorted(map(str, run_league.requests(some)))
    place = {(ask.network.name, ask.defence, ask.attack): i for i, ask in enumerate(asks)}

    def at(column: str, defence: str, network: str = "compact:trades") -> int:
        return place[network, defence, ATTACKS[column]]

    assert at(ADAPTIVE, "bit_depth") < at(LABELS, "stateful", "wrn16-4:trades") < at(ADAPTIVE, "jpeg")
    assert at(ADAPTIVE, "jpeg") < at(GRADIENTS, defences.BARE)
    assert at(GRADIENTS, "stateful", "wrn16-4:trades") < at(LABELS, "hedge") < at(SCORES, "hedge", "wrn16-4:trades")


def test_a_cell_of_an_earlier_edition_is_run_again_where_its_gain_is_not_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page shows the latest edition that is as complete as any, and names the entrants with an earlier one."""
    undone, kept = "mirrored_scores:tau=1", "small_noise"
    with monkeypatch.context() as before:
        before.setattr(Adaptive, "edition", 2)
        written(tmp_path, lambda cell: 10 if cell.defence == kept and cell.attack != "square" else 50)
    store = Store(folder := tmp_path / "results" / "league")
    assert all(cell.earlier for cell in store.cells() if cell.attack != "square")
    (made,) = league.found(tmp_path)
    assert {line.spec for line in made.lines if made.label(line) == KEEPS} == {kept}
    assert "small noise" in made.earlier
    assert "bare" not in made.earlier
    assert " ".join(made.earlier.split()) in " ".join(league.page(tmp_path).split())
    again = run_league.not_undone(store)
    assert again == {("compact:trades", kept)}
    plan = run_league.plans()[0]
    asks = [
        ask for ask in run_league.requests([plan], N, wanted=[ADAPTIVE], again=again) if ask.defence in (undone, kept)
    ]
    options = argparse.Namespace(precision="float32", beside=str(tmp_path / "none"))
    todo = run_league.cells_of(asks, again, store, Resources("cpu"), options)
    ((ask, cell),) = todo
    assert ask.defence == kept
    assert not cell.earlier
    fell = [record(i, attacked=5, distance=0.01) for i in range(N)]
    store.append(cell, fell[: N // 2], RECEIPT)
    assert run_league.not_undone(Store(folder)) == again, "half of the samples are no reason to forget the others"
    store.append(cell, fell[N // 2 :], RECEIPT)
    (made,) = league.found(tmp_path)
    assert "small noise" not in made.earlier
    assert run_league.not_undone(Store(folder)) == set()


def test_the_page_is_written_while_nothing_is_stored(tmp_path: Path) -> None:
    text = league.page(tmp_path)
    assert "Nothing is stored yet" in text
    assert "tools.run_league" in text


def test_the_page_recommends_and_says_where_the_layer_is_dominated(tmp_path: Path) -> None:
    def fell(cell: Cell) -> int:
        if cell.attack != "square":
            return 50
        return {defences.BARE: 45, "mirrored_scores:tau=1": 5}.get(cell.defence, 30)

    written(tmp_path, fell)
    text = league.page(tmp_path)
    (made,) = league.found(tmp_path)
    assert made.choice is not None
    assert made.choice.spec == "mirrored_scores:tau=1"
    assert list(made.columns) == [SCORES, ADAPTIVE]
    layer = next(line for line in made.lines if line.name == "layer")
    place = made.place(layer)
    assert place is not None
    assert place.rival == "mirrored scores"
    assert place.settled
    assert f"| {place} |" in text
    assert "**The layer.** It is surely dominated on `compact:trades` against scores." in " ".join(text.split())
    assert "hides only" in text
    assert "square with 2000 queries" in text
    files = league.files(tmp_path)
    cards = {name: json.loads(content) for name, content in files.items() if name.endswith(".json")}
    assert len(cards) == len(made.lines)
    assert cards["docs/league/compact-trades-layer.json"]["unreliable"] == "true"
    drawn = [content for name, content in files.items() if name.endswith(".svg")]
    assert len(drawn) == 1
    assert all("mirrored scores" in content for content in drawn)
    assert f"On `compact:trades` the attacks had {N} images." in " ".join(text.split()), "fewer than planned"


def test_cells_of_the_gate_are_shown_and_not_run_again(tmp_path: Path) -> None:
    (plan, *_) = run_league.plans()
    asks = [ask for ask in run_league.requests([plan], N) if ask.attack == "square"][:3]
    cells, _ = resolve(asks, resources=Resources("cpu"))
    for cell in cells:
        Store(tmp_path / "results" / "gate").append(cell, [record(i) for i in range(N)], RECEIPT)
    put_clean(tmp_path, plan, cells[0])
    (made,) = league.found(tmp_path)
    assert [line.name for line in made.lines] == ["bare", "layer", "gated layer"]
    assert [line.passes for line in made.lines] == [1, 5, 5]
    text = " ".join(league.page(tmp_path).split())
    assert "these attacks are missing: scores for mirrored scores, small noise" in text
    assert all(run_league.complete(cell, Store(tmp_path / "results" / "gate")) for cell in cells)
    assert not run_league.complete(cells[0], Store(tmp_path / "results" / "league"))


def test_page_and_report_show_the_same_league(tmp_path: Path) -> None:
    written(tmp_path, lambda cell: {defences.BARE: 45}.get(cell.defence, 20) if cell.attack == "square" else 50)
    folder = tmp_path / "results" / "league"
    square = {cell.defence: cell for cell in Store(folder).cells() if cell.attack == "square"}
    (tmp_path / "results" / "gate").mkdir()
    shutil.move(folder / square[defences.BARE].key, tmp_path / "results" / "gate")
    shutil.move(folder / square["anti_adversary"].key, tmp_path / "results")
    page = " ".join(league.page(tmp_path).split())
    (made,) = league.found(tmp_path)
    assert made.choice is not None
    assert made.choice.spec != defences.BARE
    assert {made.label(line) for line in made.lines[1:]} == {HIDES}
    for store in (tmp_path / "results", folder):
        shown = league_section(Store(store))
        assert all(sentence in page for sentence in shown.sentences)
        assert shown.sentences == tuple(made.sentences)
        (table,) = (each.table for each in shown.tables)
        assert table.lines == made.table.lines
    foreign = dataclasses.replace(square["anti_adversary"], images="sha256:other")
    Store(tmp_path / "results").append(foreign, [record(i) for i in range(N + 9)], RECEIPT)
    assert league.found(tmp_path)[0].table == made.table, "other images take no part"


def test_the_readme_says_what_the_layer_gains_against_each_attacker_and_who_is_better(tmp_path: Path) -> None:
    def fell(cell: Cell) -> int:
        if cell.attack != "square":
            return 50
        return {defences.BARE: 45, "anti_adversary": 30, "mirrored_scores:tau=1": 5}.get(cell.defence, 40)

    written(tmp_path, fell)
    lines = league.short(tmp_path).splitlines()
    (scores,) = (line for line in lines if "(Square)" in line)
    (adaptive,) = (line for line in lines if "(adaptive)" in line)
    assert "+25.0" in scores
    assert "1 of 1" in scores
    assert "`mirrored scores`" in scores
    assert "+0.0" in adaptive
    assert "0 of 1" in adaptive
    assert len(lines) <= 11


@pytest.mark.slow
def test_the_script_runs_continues_and_needs_no_packages_of_the_command_line(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('typer', 'rich'))); "
        "from tools.run_league import main; sys.exit(main())"
    )
    words = ["--device", "cpu", "--network", "compact", "--store", str(tmp_path), "--samples", "2", "--queries", "5"]
    words += ["--clean", "20", "--minutes", "5", "--only", "square", "--only", "scores"]
    command = [sys.executable, "-c", code, *words]
    first, again = (subprocess.run(command, cwd=ROOT, capture_output=True, text=True) for _ in range(2))
    assert (first.returncode, again.returncode) == (0, 0), first.stderr
    assert "clean traffic of compact:trades" in first.stdout
    assert "clean traffic" not in again.stdout
    cells = Store(tmp_path).cells()
    assert {cell.attack for cell in cells} == {"square"}
    assert all(len(Store(tmp_path).done(cell)) == 2 for cell in cells)
