"""The layouts of the tables: their cells are well formed, and their settings are the paper's."""

from __future__ import annotations

import pytest

from antiadv import defences, models, paper
from antiadv.cli.__main__ import main
from antiadv.core.errors import BadSpec
from antiadv.defences.anti_adversary import AntiAdversary
from antiadv.evaluation import Resources
from antiadv.paper.missing_cells import resolve
from antiadv.paper.store_index import names_of

NAMES = list(paper.EXPERIMENTS)


@pytest.mark.parametrize("name", NAMES)
def test_cells_are_well_formed_and_requested_once(name: str, resources: Resources) -> None:
    layout = paper.layout(name, samples=4)
    requests = layout.requests
    assert len({request.names for request in requests}) == len(requests)
    assert all(request.samples == 4 for request in requests)
    found, missing = resolve(requests, "float32", resources)
    assert len(found) + len(missing) == len(requests)
    assert len({cell.key for cell in found}) == len(found)
    assert found or name == "table-6"  # CIFAR-100 alone, whose images do not come with the package
    lost = {m.request.names for m in missing}
    assert [names_of(cell) for cell in found] == [request.names for request in requests if request.names not in lost]
    assert all(m.why.endswith(".") or "import" in m.why for m in missing)


@pytest.mark.parametrize("name", NAMES)
def test_every_defended_line_has_an_adaptive_column_and_a_bare_line(name: str) -> None:
    layout = paper.layout(name)
    bare = {line.network for line in layout.lines if line.defence == defences.BARE}
    for line in layout.lines:
        if line.defence == defences.BARE or line.label.endswith("first error"):  # the next line has the same cells
            continue
        adaptive = next(c for c in line.columns if c.heading == "adaptive")
        assert "adaptive" in dict(adaptive.attacks)
        if line.network in bare:
            gain = next(c for c in line.columns if c.heading == "adaptive gain")
            assert gain.attacks == adaptive.attacks
            assert {request.defence for request in line.bare_requests(gain)} == {defences.BARE}


def test_settings_are_the_papers() -> None:
    (bare, anti, *_) = paper.layout("table-3").lines
    assert (bare.samples, anti.defence) == (1000, "anti_adversary")  # K = 2 and α = 0.15 are the defaults
    layer = defences.wrap(anti.defence, models.load("compact:trades"))
    assert isinstance(layer, AntiAdversary)
    assert (layer.steps, layer.step_size) == (2, 0.15)
    attacks = {c.heading: c.attacks for c in anti.columns}
    assert attacks["AA"] == (*attacks["APGD"], *attacks["ADLR"], *attacks["FAB"], ("square", "linf:8/255,queries=5000"))
    assert attacks["ADLR"] == (("apgd:loss=dlr,targets=9", "linf:8/255"),)
    nominal = {line.label: line for line in paper.layout("table-1").lines[:4]}
    assert nominal["+ SND"].defence == "small_noise"
    assert nominal["+ Anti-Adv"].defence == "anti_adversary:step_size=0.01"
    assert dict(nominal[""].columns[3].attacks) == {"nes": "linf:0.031,queries=10000"}
    sizes = {name: paper.layout(name).requests[0].samples for name in NAMES}
    requested = {"table-1": 1000, "table-3": 1000, "table-4": 100}
    assert sizes == {name: requested.get(name, 500) for name in NAMES}
    assert {a.samples for a in paper.layout("table-1").requests if a.names[0] == "nips2017:test"} == {100}


def test_rows_are_every_method_compact_and_the_larger_networks() -> None:
    seen = list(dict.fromkeys(line.network.name for line in paper.layout("table-3").lines))
    compact = [f"compact:{m}" for m in ("trades", "pretraining", "mart", "hydra", "awp")]
    hundred = [f"compact:{m},data=cifar100" for m in ("pretraining", "awp")]
    assert sorted(seen) == sorted([*compact, *hundred, "wrn16-4:trades", "wrn16-4:awp"])
    nominal = {line.network.name for line in paper.layout("table-1").lines}
    assert nominal == {"compact:standard", "resnet18:standard", "resnet50:v1"}


def test_an_unknown_experiment_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadSpec, match=r"'table-7'.* table-1, .*, text"):
        paper.cells("table-7")
    assert main(["reproduce", "table-7"]) == 2
    assert "table-7" in capsys.readouterr().err
