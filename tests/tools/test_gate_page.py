"""docs/gate.md and the script behind it: what is run, what is measured, and what the page says about it."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from antiadv import defences
from antiadv.attacks.adaptive.adaptive import Adaptive
from antiadv.evaluation import Resources, Store
from antiadv.evaluation.cell import Cell
from antiadv.paper.missing_cells import resolve
from tests.engine.probes import RECEIPT, record
from tests.said import in_order
from tests.toys import small_net
from tools import run_gate
from tools.docs import gate

ROOT = Path(__file__).resolve().parents[2]
N = 40


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    """The cells of the compact network."""
    asks = run_gate.requests(run_gate.plans()[:1], samples=N)
    found, missing = resolve(asks, resources=Resources("cpu"))
    assert not missing
    return found


def written(root: Path, cells: list[Cell], fell: Callable[[Cell], int], above: int = 10) -> None:
    """The first `fell(cell)` samples of a cell fell. `above` of the clean images lie above each gate."""
    folder = root / "results" / "gate"
    for cell in cells:
        far = 0.5 * cell.threat.ball.eps
        facts = [record(i, attacked=5, distance=far) if i < fell(cell) else record(i) for i in range(N)]
        Store(folder).append(cell, facts, RECEIPT)
    seen = {"layer": {"n": N, "above": 0, "alone": 5.0, "mixed": 5.0, "changed": 1}}
    for g in run_gate.GATES:
        alone, mixed = 1 + 4 * (N - above) / N, 1 + 5 * (N - above) / N
        seen[f"gate {g:g}"] = {"n": N, "above": above, "alone": alone, "mixed": mixed, "changed": 0}
    told = {"compact:trades": {"weights": cells[0].weights, "found": seen}}
    (folder / run_gate.TRAFFIC).write_text(json.dumps(told))


def test_every_cell_is_asked_for_once_and_the_exact_searches_stay_exact() -> None:
    asks = run_gate.requests(run_gate.plans())
    assert len({ask.names for ask in asks}) == len(asks) == 3 * (7 * 3 + 2)
    assert {ask.samples for ask in asks} == {500}
    cuda = torch.device("cuda")
    assert {run_gate.precision(a, cuda) for a in ("square", "nes", "adaptive")} == {"half"}
    assert run_gate.precision("bandits", cuda) == run_gate.precision("nes", torch.device("cpu")) == "float32"


def test_traffic_is_metered() -> None:
    net = small_net()
    x = torch.rand((250, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    p = net(x).softmax(1).amax(1).detach()
    middle = float(p.median()) + 1e-6
    y = net(x).argmax(1)
    seen = run_gate.traffic(net, f"anti_adversary:step_size=0.01,gate={middle}", x, y)
    assert seen["above"] == 125
    assert seen["alone"] == 1 + 4 * 0.5
    assert seen["mixed"] == 1 + 5 * 0.5
    assert seen["right_bare"] == 250
    assert seen["changed"] == 250 - seen["right"]
    plain = run_gate.traffic(net, "anti_adversary", x, y)
    assert plain["alone"] == plain["mixed"] == 5


def test_the_page_is_written_while_nothing_is_stored(tmp_path: Path) -> None:
    text = gate.page(tmp_path)
    assert "Nothing is stored yet" in text
    assert "tools.run_gate" in text


def test_the_cheapest_gate_that_keeps_the_gain_is_named(tmp_path: Path, cells: list[Cell]) -> None:
    def fell(cell: Cell) -> int:
        if cell.defence == defences.BARE or cell.attack == "adaptive":
            return 30
        return 25 if "gate=0.5" in cell.defence and cell.attack == "nes" else 10

    written(tmp_path, cells, fell)
    text = gate.page(tmp_path)
    (network,) = (n for n in gate.found(tmp_path / "results" / "gate") if n.measured)
    gain = network.gain("gate 0.9", "square")
    assert gain is not None
    assert gain.value == 0.5
    assert gate.use([network]).startswith("- On `compact:trades` use `gate=0.7`: 4.0 passes")
    network.traffic["gate 0.5"]["alone"] = 3.0
    _, cheaper = gate.use([network]).split("`gate=0.5`")
    assert in_order(" ".join(cheaper.split()), "3.0 passes", "-37.5 [", "NES"), "why the cheaper one is not advised"
    assert "about 0" in gate.adaptive([network])
    lines = {line["defence"]: line for line in gate.rows(network)}
    assert lines["gate 0.5"]["NES"].startswith("37.5, +12.5 [")
    assert lines["gate 0.5"]["above"] == "25.0 %"
    assert lines["none"]["Square"] == "25.0"
    assert all(cell.command in text for cell in cells if cell.command)


def test_what_is_missing_or_useless_is_said(tmp_path: Path, cells: list[Cell]) -> None:
    def fell(cell: Cell) -> int:
        return 10 if cell.defence == "anti_adversary" else 30 if cell.attack != "adaptive" else 0

    shown = [c for c in cells if "gate=0.99" not in c.defence]
    written(tmp_path, shown, fell, above=0)
    (network,) = (n for n in gate.found(tmp_path / "results" / "gate") if n.measured)
    assert "use none" in gate.use([network])
    lines = {line["defence"]: line for line in gate.rows(network)}
    assert lines["gate 0.999"]["NES"] == "as the layer"
    plan = network.plan
    never = run_gate.open_gates(plan, run_gate.read_traffic(tmp_path / "results" / "gate" / run_gate.TRAFFIC))
    assert never == set(plan.defences.values()) - {defences.BARE, plan.layer}


@pytest.mark.slow
def test_the_script_runs_continues_and_needs_no_packages_of_the_command_line(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('typer', 'rich', 'matplotlib', 'jinja2', 'ray'): sys.modules[name] = None\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from tools import run_gate\n"
        "sys.exit(run_gate.main())\n"
    )
    words = ["--device", "cpu", "--store", str(tmp_path), "--network", "compact", "--samples", "2", "--queries", "4"]
    words += ["--clean", "12", "--only", "square", "--only", "queries=4", "--minutes", "60"]

    def run(*more: str) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code, *words, *more], capture_output=True, text=True, cwd=ROOT
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    out = run()
    stored = Store(tmp_path).cells()
    assert f"{len(stored)} of {len(stored)} cells are complete, 0 failed" in out
    assert {c.defence for c in stored} >= {"none", "anti_adversary", "anti_adversary:gate=0.5"}
    assert "at most 0 passes are left" in run("--list")


def test_a_gain_is_between_cells_of_one_edition(tmp_path: Path, cells: list[Cell]) -> None:
    """The bare network has both editions and the gate only the first: with the second it would gain 20 of 40."""
    adaptive = [c for c in cells if c.attack.startswith("adaptive")]
    old = [dataclasses.replace(c, earlier="adaptive:steps=1000,samples=20@1") for c in adaptive]
    new = [c for c in adaptive if c.defence == defences.BARE]
    written(tmp_path, [*old, *new], lambda cell: 10 if cell.earlier else 30)
    (network,) = (n for n in gate.found(tmp_path / "results" / "gate") if n.measured)
    gain = network.gain("gate 0.5", "adaptive")
    assert gain is not None
    assert gain.value == 0
    assert "(edition 1 of the attack)" in gate.adaptive([network])
    gated = [c for c in adaptive if c.defence != defences.BARE]
    folder = tmp_path / "both"
    written(folder, [*old, *new, *gated], lambda cell: 10 if cell.earlier else 30)
    (network,) = (n for n in gate.found(folder / "results" / "gate") if n.measured)
    assert {gate.edition_of(cell)[1] for cell, _ in network.cells.values()} == {Adaptive.edition}
