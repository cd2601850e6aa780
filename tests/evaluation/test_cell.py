"""A cell's key covers everything that can change a result, with defaults filled in, and nothing else. A cell's command
makes the same cell again."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import antiadv
from antiadv.attacks.white_box.pgd import PGD
from antiadv.core.draws import Draws
from antiadv.core.errors import AccessDenied, BadInput, BadSpec
from antiadv.core.threat import Access
from antiadv.data.dataset import Dataset
from antiadv.defences.anti_adversary import AntiAdversary
from antiadv.evaluation import Resources, evaluate, make_cell
from antiadv.evaluation import cell as cells
from antiadv.evaluation.cell import Job, parse_samples
from antiadv.evaluation.early import told
from antiadv.evaluation.plan import plan
from antiadv.evaluation.shard import run_shard
from antiadv.reporting import report
from antiadv.reporting.build import build_document
from tests.engine.probes import MODEL, Chessboard, bands, cell, resources
from tests.toys import small_net

SAME: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "attack, defaults written out": ({"attack": "pgd"}, {"attack": "pgd:steps=20,step_size=0.25,restarts=1"}),
    "attack, a fraction": ({"attack": "pgd:step_size=1/4"}, {"attack": "pgd"}),
    "attack, as a value": ({"attack": "pgd:steps=7"}, {"attack": PGD(steps=7)}),
    "attack, nested": ({"attack": "transfer"}, {"attack": "transfer:attack=(pgd:steps=20)"}),
    "defence": ({"defence": "anti_adversary"}, {"defence": "anti_adversary:steps=2,step_size=0.15,clip=false"}),
    "defence, its gate": ({"defence": "anti_adversary"}, {"defence": "anti_adversary:gate=1"}),
    "data": ({"data": "cifar10"}, {"data": "cifar10:test"}),
    "threat, access left out": ({"threat": "linf:2/255"}, {"threat": "linf:2/255,access=gradients"}),
    "threat, another way to write it": ({"threat": "linf:8/255"}, {"threat": "linf:0.03137254901960784"}),
    "samples": ({"samples": range(20)}, {"samples": "5:700"}),
    "looks, written out": ({"defence": "small_noise"}, {"defence": "small_noise", "looks": 10}),
    "looks, not a randomised defence": (
        {"defence": "anti_adversary"},
        {"defence": "anti_adversary", "looks": 50},
    ),
    "looks at the bare network": ({}, {"looks": 1}),
}


@pytest.mark.parametrize("what", SAME)
def test_the_same_cell_written_in_two_ways_has_one_key(what: str) -> None:
    first, second = (cell(**words) for words in SAME[what])
    assert first.key == second.key


OTHER: dict[str, dict[str, Any]] = {
    "attack": {"attack": "square"},
    "its option": {"attack": "pgd:steps=4"},
    "defence": {"defence": "anti_adversary"},
    "its option ": {"defence": "anti_adversary:steps=3"},
    "its gate": {"defence": "anti_adversary:gate=0.99"},
    "radius": {"threat": "linf:3/255"},
    "norm": {"threat": "l2:2/255"},
    "budget": {"threat": "linf:2/255,queries=10"},
    "access": {"threat": "linf:2/255,access=internals"},
    "seed": {"seed": 1},
    "randomised defence": {"defence": "small_noise"},
    "its looks": {"defence": "small_noise", "looks": 11},
    "more of them": {"defence": "small_noise", "looks": 12},
    "weights": {"resources": Resources("cpu", models={MODEL: small_net()})},
    "other weights": {"resources": Resources("cpu", models={MODEL: small_net(seed=1)})},
    "name": {"model": "toys:other", "resources": Resources("cpu", models={"toys:other": small_net()})},
}


def test_everything_that_changes_a_result_is_in_the_key() -> None:
    keys = {what: cell(**words).key for what, words in OTHER.items()} | {"plain": cell().key}
    assert len(set(keys.values())) == len(keys), keys


@pytest.mark.parametrize(
    ("owner", "name"), [(PGD, "edition"), (AntiAdversary, "edition"), (cells, "FORMAT")], ids=["attack", "defence", "F"]
)
@pytest.mark.parametrize("attack", ["pgd", "transfer"])
def test_editions_and_format_are_in_the_key(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, attack: str
) -> None:
    """Also the edition of an attack inside an attack."""
    made = cell(attack, defence="anti_adversary")
    before = made.key
    monkeypatch.setattr(owner, name, 99)
    assert made.key != before


def test_the_images_digest_is_in_the_key() -> None:
    assert dataclasses.replace(cell(), images="sha256:0").key != cell().key


def test_samples_are_no_part_of_a_cells_value() -> None:
    assert cell(samples=range(5)) == cell(samples=range(7))
    assert hash(cell(samples=range(5))) == hash(cell(samples=range(7)))


def test_keys_do_not_change_between_processes() -> None:
    assert cell().key == cell().key
    assert len(cell().key) == 20


def test_the_command_makes_the_cell_again() -> None:
    made = cell("transfer:attack=(pgd:steps=3)", range(5, 9), defence="anti_adversary:steps=1", threat="l2:0.5", seed=4)
    words = shlex.split(made.command)
    assert words[:2] == ["antiadv", "evaluate"]
    said = dict(zip(words[2::2], words[3::2], strict=True))
    options: dict[str, Any] = {k.removeprefix("--"): v for k, v in said.items() if k != "--seed"}
    again = make_cell(**options, seed=int(said["--seed"]), resources=resources())
    assert again == dataclasses.replace(made, data="cifar10:test")
    assert (again.key, again.samples) == (made.key, made.samples)


def test_no_command_makes_the_cell_of_a_network_in_hand(tmp_path: Path) -> None:
    """Such a command could not be run."""
    here = Resources("cpu", models={"mine": small_net()})
    made = make_cell(model="mine", attack="pgd:steps=1", threat="linf:4/255", samples=range(2), resources=here)
    assert made.command is None
    evaluate(made, tmp_path, resources=here)
    assert [("key" in row, "command" in row) for row in report(tmp_path).json()["rows"]] == [(True, False)]
    sources = build_document(tmp_path).sources
    (line,) = sources.lines
    assert "antiadv" not in dict(zip(sources.head, line, strict=True))["command"].text


def test_the_command_names_the_samples_from_the_first_on() -> None:
    command = cell(samples=range(6, 1, -1)).command
    assert command is not None
    assert "--samples 2:7" in command


def test_the_command_says_how_many_looks_where_they_are_not_ten() -> None:
    assert shlex.split(cell(defence="small_noise", looks=7).command)[-2:] == ["--looks", "7"]
    for command in (cell(defence="small_noise").command, cell(looks=7).command):
        assert command is not None
        assert "--looks" not in command


def test_ten_looks_are_in_no_key() -> None:
    """Cells stored before there was a choice keep their keys."""
    assert "looks" not in cell(defence="small_noise").identity
    assert cell(defence="small_noise", looks=7).identity == cell(defence="small_noise").identity | {"looks": 7}


@pytest.mark.parametrize(
    ("said", "samples"),
    [("0:100", range(100)), ("100", range(100)), (":5", range(5)), ("7:9", range(7, 9)), ("1", range(1))],
)
def test_samples_are_read(said: str, samples: range) -> None:
    assert parse_samples(said) == samples


@pytest.mark.parametrize(
    "said", ["", ":", "a", "3:x", "5:5", "3:1", "-3:2", "-1", "0", "0:1:2", "1.5", "5:", f"0:{10**30}"]
)
def test_samples_that_name_nothing_are_refused(said: str) -> None:
    with pytest.raises(BadInput, match=r"samples .*0:100") as error:
        parse_samples(said)
    assert repr(said) in str(error.value)


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        ({"attack": "pgdd"}, BadSpec, "unknown attack 'pgdd'.*pgd"),
        ({"defence": "anti_adversery"}, BadSpec, "unknown defence.*anti_adversary"),
        ({"defence": "anti_adversary:step=2"}, BadSpec, "no option 'step'.*steps"),
        ({"defence": "anti_adversary:steps=-1"}, BadInput, "steps ≥ 0.*-1"),
        ({"data": "cifar11"}, BadSpec, "unknown data set.*cifar10"),
        ({"threat": "linf"}, BadSpec, "needs eps"),
        ({"threat": "l3:1"}, BadSpec, "unknown threat 'l3'"),
        ({"threat": "linf:2/255,access=scores"}, AccessDenied, "gradients.*scores"),
        ({"attack": Chessboard(), "threat": "l2:0.5"}, BadInput, "chessboard works in linf"),
        ({"threat": "linf:2/255,targeted=true"}, BadInput, r"cannot be targeted.*antiadv\.attack"),
        ({"samples": range(0)}, BadInput, "at least one sample"),
        ({"samples": range(2000)}, BadInput, "0 to 999.*1999"),
        ({"samples": range(-5, 5)}, BadInput, "-5"),
        ({"samples": [1, 2]}, BadInput, r"range.*found \[1, 2\]"),
        ({"seed": 1.5}, BadSpec, r"seed .*found 1\.5"),
        ({"attack": PGD}, BadInput, "found <class"),
        ({"threat": antiadv.Linf(0.1)}, BadInput, r"Threat.*found Ball"),
        ({"model": small_net()}, BadInput, r"model in text.*antiadv\.Resources"),
        ({"precision": "float8"}, BadSpec, "precision 'float8'.*float32, tf32"),
        ({"looks": 0}, BadInput, "looks .*found 0"),
        ({"looks": 2.0, "defence": "small_noise"}, BadInput, "looks .*found 2.0"),
    ],
)
def test_a_cell_that_cannot_be_run_is_never_made(words: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        cell(**words)


def test_by_default_a_cell_has_the_first_thousand_samples_or_all() -> None:
    for size, samples in ((1200, range(1000)), (1000, range(1000)), (7, range(7))):
        mine = Dataset("mine", (), "sha256:0", np.zeros((size, 8, 8, 3), np.uint8), np.zeros(size, np.int64))
        here = Resources("cpu", models={MODEL: bands()}, data={"arrays:mine": mine})
        made = make_cell(model=MODEL, attack="pgd", threat="linf:2/255", data="arrays:mine", resources=here)
        assert made.samples == samples


def test_a_defence_is_stored_in_its_normal_form() -> None:
    """Otherwise a report would show one defence in two lines."""
    for said in ("anti_adversary", "anti_adversary:steps=2", "anti_adversary:clip=false,step_size=0.15"):
        assert cell(defence=said).defence == "anti_adversary"
    assert cell(defence="anti_adversary:steps=03").defence == "anti_adversary:steps=3"


def test_a_network_in_hand_is_used_by_its_name() -> None:
    made = cell(model="mine", resources=Resources("cpu", models={"mine": small_net()}))
    assert made.model == "mine"
    assert len(made.key) == 20


# ---------------------------------------------------------------- plan


def test_a_plan_is_what_is_missing_cut_into_shards() -> None:
    asked = cell(samples=range(10))
    jobs = plan([asked], lambda _: {0, 4, 5, 99}, shard=3)
    assert jobs == [Job(asked, (1, 2, 3)), Job(asked, (6, 7, 8)), Job(asked, (9,))]


def test_a_plan_of_what_is_done_is_empty() -> None:
    assert plan([cell(samples=range(4))], lambda _: set(range(10)), shard=3) == []


def test_duplicates_are_planned_once() -> None:
    first, again, more = cell(samples=range(4)), cell(samples=range(2, 6), data="cifar10"), cell("square", range(2))
    jobs = plan([first, again, more, more], lambda _: set(), shard=10)
    assert [(job.cell.attack, job.ids) for job in jobs] == [
        ("pgd:steps=3", (0, 1, 2, 3)),
        ("pgd:steps=3", (4, 5)),
        ("square", (0, 1)),
    ]


@pytest.mark.parametrize("shard", [0, -1])
def test_a_shard_holds_at_least_one(shard: int) -> None:
    with pytest.raises(BadInput, match=f"found {shard}"):
        plan([cell()], lambda _: set(), shard)


def test_a_shard_is_a_whole_number() -> None:
    with pytest.raises(BadSpec, match=r"shard .*found 2\.5"):
        plan([cell()], lambda _: set(), 2.5)  # type: ignore[arg-type]


def test_a_seed_of_numpy_is_a_seed() -> None:
    """A loop over `numpy.arange(3)` gives such seeds. They once failed in the draws and in the key."""
    assert cell(seed=np.int64(3)).key == cell(seed=3).key
    ids = torch.arange(5)
    for seed in (np.int64(3), np.int32(-1)):
        assert torch.equal(Draws.of(seed, ids).keys, Draws.of(int(seed), ids).keys)  # type: ignore[arg-type]


# ---------------------------------------------------------------- one shard


def test_a_shard_runs_on_the_weights_and_images_it_was_planned_with() -> None:
    made = cell(samples=range(3))
    assert [r.sample for r in run_shard(Job(made, (2, 0)), resources()).records] == [2, 0]
    others = (dataclasses.replace(made, weights="other"), dataclasses.replace(made, images="other"))
    for other, message in zip(others, ("weights other", "images other"), strict=True):
        with pytest.raises(BadInput, match=message):
            run_shard(Job(other, (0,)), resources())


def test_resources_keep_what_they_loaded_and_refuse_unusable_networks() -> None:
    kept = resources()
    assert kept.model(MODEL) is kept.model(MODEL)
    assert kept.data("cifar10") is kept.data("cifar10")
    training = Resources("cpu", models={"toys:raw": small_net().train()})
    with pytest.raises(BadInput, match="evaluation mode"):
        training.model("toys:raw")
    empty = Resources("cpu", models={"toys:empty": small_net().to("meta")})
    with pytest.raises(BadInput, match=r"toys:empty .*meta"):
        empty.model("toys:empty")


@pytest.mark.parametrize("name", ["resnet18", "wrn28-10:mine", "file"])
def test_a_network_in_hand_cannot_have_the_name_of_another(name: str) -> None:
    here = Resources("cpu", models={name: small_net()})
    with pytest.raises(BadInput, match=f"found '{name}'"):
        make_cell(model=name, attack="pgd", threat="linf:8/255", samples=range(2), resources=here)


@pytest.mark.parametrize("name", ["a|b", "my `net`", "<b>", "two\nlines"])
def test_a_network_in_hand_has_a_name_that_tables_can_hold(name: str) -> None:
    here = Resources("cpu", models={name: small_net()})
    with pytest.raises(BadInput, match="tables; found"):
        make_cell(model=name, attack="pgd", threat="linf:8/255", samples=range(2), resources=here)


def test_an_unknown_name_lists_the_networks_in_hand() -> None:
    with pytest.raises(BadSpec, match=r"unknown model 'mime'.*in hand.*'mine'"):
        Resources("cpu", models={"mine": small_net()}).model("mime")


@pytest.mark.parametrize("device", ["nonsense", "cuda:77"])
def test_a_device_that_is_not_there_is_named(device: str) -> None:
    with pytest.raises(BadInput, match=f"{device} .*cpu"):
        Resources(device)


def test_access_is_part_of_the_threat_of_a_cell() -> None:
    assert cell("square").threat.access == Access.SCORES
    assert cell("transfer").threat.access == Access.INTERNALS


def test_a_cell_has_the_records_of_attack_on_the_same_images() -> None:
    """The records of a cell are those of `attack` on the same images, ids and seed."""
    made, here = cell("pgd:steps=3", range(40), seed=5), resources()
    with told():  # the toy only guesses
        found = run_shard(Job(made, tuple(made.samples)), here)
    x, y = here.data("cifar10").images(range(40)), here.data("cifar10").labels(range(40))
    with told():
        again = antiadv.attack(here.model(MODEL), x, y, "pgd:steps=3", made.threat.ball, seed=5)
    assert found.records == again.records
    assert torch.equal(found.images, again.images)
