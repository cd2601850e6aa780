"""A complete report: the same numbers as the tables and the store, what is missing, and files that fit together."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import os
import re
import shutil
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image

import antiadv
from antiadv import paper as experiments
from antiadv.cli.__main__ import main
from antiadv.core.ball import Linf
from antiadv.core.errors import BadInput, BadSpec
from antiadv.core.threat import Access
from antiadv.evaluation import Resources, Store
from antiadv.evaluation.cell import Cell
from antiadv.paper.sections import VERDICTS
from antiadv.reporting import folder, gallery
from antiadv.reporting.build import _flagged
from antiadv.reporting.document import Document, Gallery, raised
from antiadv.reporting.flag_explanations import EXPLAINED
from antiadv.reporting.flags import RULES
from antiadv.reporting.measures import Difference
from antiadv.reporting.render import html
from antiadv.reporting.render.markdown import table_as_markdown
from antiadv.reporting.summary import by_defence, headline
from antiadv.reporting.verdict import OTHERS, Level
from antiadv.reporting.wording import count
from tests.engine.probes import RECEIPT, record
from tests.reporting.stores import (
    FAILS_SO_FAR,
    HOLDS_SO_FAR,
    RUN,
    UNMEASURED,
    by_function,
    document,
    really_run,
    weaker,
    written,
)
from tests.said import in_order, numbers
from tools.docs.reproduction import reproduction

EXPLAINING = ("steps-too-far", "layer-against-noise")  # made of cells of the other tables
NONE, FEW = "does not protect", "too few"
ALONE = re.compile(r"\b1 network\b[^.]*\bballs\b")  # which has gains in a ball without an adaptive attack


@pytest.fixture(scope="module")
def resources() -> Resources:
    return Resources("cpu")


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory, resources: Resources) -> Path:
    """Figure 4 and what it shares with others: AWP behind K = 1, 2, 3."""
    root = tmp_path_factory.mktemp("paper")
    written(root, "figure-4", resources, weaker)
    return root


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, resources: Resources) -> Path:
    root = tmp_path_factory.mktemp("run")
    really_run(root, resources)
    return root


@pytest.fixture(scope="module")
def made(paper: Path) -> Document:
    return document(paper)


# ---------------------------------------------------------------- the paper


def test_tables_hold_the_numbers_of_the_page(made: Document, paper: Path) -> None:
    """docs/reproduction.md and the report are made of the same grids."""
    text = reproduction(paper)
    shown = {part.table.name: part for part in made.tables}
    assert {"figure-4", "figure-5", "table-3"} <= set(shown)
    for part in made.tables:
        assert table_as_markdown(part.table) in text
        assert all(sentence in text for sentence in part.table.sentences)
        made_by = "antiadv report" if part.table.name in EXPLAINING else f"antiadv reproduce {part.table.name}"
        assert part.command == made_by


def test_numbers_are_those_of_the_records(made: Document) -> None:
    (figure,) = [part for part in made.tables if part.table.name == "figure-4"]
    lines = {line[2].text: dict(zip(figure.table.head, line, strict=True)) for line in figure.table.lines}
    assert (lines[""]["AA"].value, lines["K = 2"]["AA"].value) == (50.0, 80.0)
    assert (lines["K = 2"]["AA gain"].value, lines["K = 2"]["AA gain"].paper) == (30.0, 18.68)
    assert lines["K = 2"]["adaptive gain"].value == 0.0
    assert figure.missing == ()
    assert len(figure.sources) == 4 * 5  # bare and three K, under five attacks


def test_what_is_missing_is_said(made: Document, paper: Path) -> None:
    stored = [part.table.name for part in made.tables]
    absent = [name for name in experiments.EXPERIMENTS if name not in stored]
    assert "table-1" in absent
    nothing, missing, short = made.absent
    assert re.findall(r"`([\w-]+)`", nothing) == absent
    (table,) = [part for part in made.tables if part.table.name == "table-3"]
    assert f"{len(table.missing)} of `table-3`" in missing
    assert any("wrn16-4:awp" in said for said in table.missing)
    fewer = {name: len(experiments.filled(name, Store(paper)).short) for name in stored if name not in EXPLAINING}
    assert re.findall(r"(\d+) of `([\w-]+)`", short) == [(str(n), name) for name, n in fewer.items() if n]


def test_claims_are_those_that_the_store_can_check(made: Document) -> None:
    found = by_function(made.claims)
    assert len(found) == 8
    assert found["auto_attack_gains"].verdict == HOLDS_SO_FAR
    assert found["larger_k"].verdict == FAILS_SO_FAR  # every K leaves the same
    (passed,) = found["gain_for_every_alpha"].passed
    assert passed.startswith("compact:awp, α = 0.15, AA +30.0 [")
    assert len(found["gain_for_every_alpha"].missing) == 6
    assert found["better_than_noise"].verdict == UNMEASURED
    (told,) = (sentence for sentence in made.summary if numbers(sentence) == ["8", "5", "2", "1"])
    for n, verdict in ((5, HOLDS_SO_FAR), (2, FAILS_SO_FAR), (1, UNMEASURED)):
        assert f"{n} {VERDICTS[verdict][n > 1]}" in told


def test_every_verdict_has_a_colour_and_a_mark_of_its_own() -> None:
    css = (Path(html.__file__).parent / "templates" / "report.css").read_text()
    for words in VERDICTS:
        name = words.replace(" ", "-")
        assert re.search(rf"\.{name}[ ,][^{{]*{{ color: ", css), words
        assert re.search(rf"\.{name}::before[^{{]*{{ content: ", css), words


def test_the_verdict_comes_first_and_begins_with_the_adaptive_attack(made: Document) -> None:
    first = made.summary[0]
    adaptive, _, others = first.partition(OTHERS)
    assert adaptive.startswith(f"`anti_adversary` {NONE}")
    assert in_order(adaptive, "+4.7]", "(p 1.00)", "1 network")
    assert numbers(others)[:6] == ["+0.0", "-8.4", "+8.4", "1.00", "1", "+30.0"]
    assert in_order(others, "(p 1.00)", "scores", "1 network", "+30.0")
    assert len(made.verdict) == 3


def test_ablations_are_drawn_with_the_bare_network_and_the_papers(made: Document) -> None:
    (figure,) = [f for f in made.figures if f.name == "ablations"]
    panel = next(p for p in figure.panels if p.title.startswith("Figure 4"))
    series = {s.label: s for s in panel.series}
    assert series["AA"].y == (80.0, 80.0, 80.0)
    assert series["AA, bare"].y == (50.0,)
    assert series["AA, the paper's"].y == (74.47, 79.21)
    assert series["adaptive"].y == (50.0, 50.0, 50.0)
    assert panel.ticks == ((0.0, "1"), (1.0, "2"), (2.0, "3"))


def test_whatever_precision_is_stored_is_shown_and_said(tmp_path: Path, paper: Path, made: Document) -> None:
    """The bare cells in one precision, the defended ones in another; of a third there are fewer samples."""
    store = Store(tmp_path)
    for cell in Store(paper).cells():
        found = Store(paper).read(cell)
        store.append(dataclasses.replace(cell, precision="tf32" if cell.defence == "none" else "half"), found, RECEIPT)
        store.append(dataclasses.replace(cell, precision="mixed"), [record(i) for i in range(5)], RECEIPT)
    mixed = document(store)
    assert (mixed.summary, mixed.verdict, mixed.flags) == (made.summary, made.verdict, made.flags)
    assert [(c.name, c.verdict, c.passed) for c in mixed.claims] == [(c.name, c.verdict, c.passed) for c in made.claims]
    for before, after in zip(made.tables, mixed.tables, strict=True):
        assert after.table.json() == before.table.json()
    (drawn,) = (figure for figure in mixed.figures if figure.name == "ablations")
    assert in_order(drawn.caption, "tf32 (5)", "half (15)", "float32")
    assert any(in_order(said, "tf32 (5)", "half (15)", "float32") for said in mixed.tables[-4].table.sentences)
    assert [f.panels for f in made.figures] == [f.panels for f in mixed.figures]
    assert "half, mixed, tf32" in dict(mixed.facts).values()
    assert {line["precision"] for line in mixed.cells.json()} == {"tf32", "half", "mixed"}


def test_names_choose_the_tables(paper: Path) -> None:
    assert [part.table.name for part in document(paper, ["figure-5"]).tables] == ["figure-5"]
    with pytest.raises(BadSpec, match="no experiment 'table-9'"):
        document(paper, ["table-9"])


# ---------------------------------------------------------------- any store


def test_a_store_without_the_paper_makes_a_report_without_it(run: Path) -> None:
    made = document(run)
    assert made.absent == ()
    assert made.tables == ()
    assert made.claims == ()
    assert {figure.name.split("-")[0] for figure in made.figures} - {"cost"} == {"access", "queries", "radius"}
    assert len(made.cells.lines) == len(made.sources.lines) == 2 * len(RUN)
    folder.files(made)


def test_bare_cells_alone_make_a_report(tmp_path: Path, paper: Path) -> None:
    bare = [cell for cell in Store(paper).cells() if cell.defence == "none"]
    for cell in bare:
        Store(tmp_path).append(cell, Store(paper).read(cell), RECEIPT)
    made = document(tmp_path)
    assert made.defences.lines == ()
    assert made.verdict == ()
    assert b"<h2" in folder.files(made)["report.html"]


def test_an_empty_store_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no records"):
        document(tmp_path / "nowhere")


def test_every_cell_says_how_it_was_made(run: Path) -> None:
    made = document(run)
    head = made.sources.head
    cells = {cell.key: cell for cell in Store(run).cells()}
    for line in made.sources.lines:
        said = dict(zip(head, (entry.text for entry in line), strict=True))
        cell = cells[said["cell"]]
        (receipt,) = Store(run).receipts(cell)
        assert said["command"] == cell.command
        assert cell.weights.removeprefix("sha256:").startswith(said["weights"])
        assert cell.images.removeprefix("sha256:").startswith(said["images"])
        assert (said["forward"], said["samples"]) == (f"{receipt.forwards:,}", "8")
        assert f"torch {torch.__version__}" in said["versions"]
    linked = {line[3].link for line in made.cells.lines}
    assert linked == {line[0].anchor for line in made.sources.lines}


def test_no_report_says_where_files_lay(tmp_path: Path, paper: Path) -> None:
    """A store may have been made elsewhere, with a folder in the names of its data."""
    cell = Store(paper).cells()[0]
    moved = dataclasses.replace(cell, data="cifar10:dir=/secret/place")
    Store(tmp_path).append(moved, Store(paper).read(cell), RECEIPT)
    assert not [name for name, content in folder.files(document(Store(tmp_path))).items() if b"secret" in content]


# ---------------------------------------------------------------- gains in short


def level(model: str, defence: str, access: Access, gain: float, p: float = 1e-9) -> Level:
    return Level("d", model, defence, Linf(0.1), access, ("a",), Difference(gain, gain, gain, 1, 0, p, 9), None)


def test_the_defence_before_the_most_networks_speaks() -> None:
    found = [
        level("m", "one", Access.GRADIENTS, 0.5),
        level("m", "two", Access.GRADIENTS, 0.2),
        level("n", "two", Access.GRADIENTS, 0.1),
        level("n", "two", Access.INTERNALS, 0.05),
        level("m", "two", Access.INTERNALS, 0.0, 1.0),
    ]
    (text,) = headline(found)
    adaptive, _, others = text.partition(OTHERS)
    assert in_order(adaptive, "`two`", "+0.0 to +5.0", "2 networks", "1 network")
    assert numbers(adaptive) == ["+0.0", "+5.0", "2", "1"]
    assert NONE not in adaptive
    assert in_order(others, "+10.0 to +20.0", "gradients", "2 networks")
    assert numbers(others) == ["+10.0", "+20.0", "2"]
    assert "none" not in others
    assert [[str(e) for e in line] for line in by_defence(found).lines] == [
        ["two", "2", "+10.0 to +20.0 (2 networks)", "+0.0 to +5.0 (2 networks)"],
        ["one", "1", "+50.0 (1 network)", "–"],
    ]
    adaptive, _, others = headline(found[:1])[0].partition(OTHERS)
    assert (adaptive.count("`one`"), numbers(adaptive)) == (1, [])
    assert numbers(others) == ["+50.0", "+50.0", "+50.0", "1e-09", "1"], "of one network with its interval"
    luck = [level("m", "two", Access.GRADIENTS, 0.2, 0.5), found[2]]
    assert numbers(headline(luck)[0]) == ["+10.0", "+20.0", "2", "1"]
    luck[1] = level("n", "two", Access.GRADIENTS, 0.0, 1.0)
    assert numbers(headline(luck)[0]) == ["+0.0", "+20.0", "2"]
    assert in_order(headline(luck)[0], "2 networks", "none")
    assert NONE in headline([found[-1]])[0]
    few = dataclasses.replace(found[-1], gain=Difference(0.0, -0.2, 0.2, 0, 0, 1.0, 8))
    unclear = headline([dataclasses.replace(few, model="n"), found[-1]])[0]
    assert numbers(unclear) == ["+0.0", "2", "1"]
    assert in_order(unclear, "2 networks", "1 network", FEW)
    wide = dataclasses.replace(found[1], ball=Linf(0.2))
    assert ALONE.search(headline([*found, wide])[0])
    assert not ALONE.search(text)
    assert headline([]) == []


def test_of_several_before_as_many_networks_each_speaks() -> None:
    found = [level(m, d, Access.GRADIENTS, 0.1) for m in "mn" for d in ("one", "two")]
    found.append(level("m", "three", Access.GRADIENTS, 0.9))
    assert [re.findall("`(.*?)`", text) for text in headline(found)] == [["one"], ["two"]]


def test_a_gain_that_chance_explains_is_none_of_those_that_it_does_not() -> None:
    """What is said of an adaptive attacker is of the networks that gained, however large the luck of the others."""
    sure = level("m", "one", Access.INTERNALS, 0.05)
    luck = level("n", "one", Access.INTERNALS, 0.09, 0.5)
    few = dataclasses.replace(luck, gain=Difference(0.09, -0.2, 0.3, 1, 0, 0.5, 8))
    for said in (headline([sure, luck])[0], headline([sure, few])[0]):
        adaptive = said.partition(OTHERS)[0]
        assert numbers(adaptive) == ["+5.0", "+9.0", "2", "1"]
        assert not [words for words in (NONE, FEW) if words in adaptive], "one that gained is named before the others"
    assert NONE in headline([luck])[0]


def test_a_network_in_two_balls_or_on_two_data_sets_is_one_network() -> None:
    one = level("m", "one", Access.GRADIENTS, 0.1)
    wide, luck = dataclasses.replace(one, ball=Linf(0.2)), level("n", "one", Access.GRADIENTS, 0.3, 0.5)
    assert numbers(headline([one, wide, luck])[0]) == ["+10.0", "+30.0", "2", "1"]
    assert [str(e) for e in by_defence([one, wide, luck]).lines[0]] == ["one", "2", "+10.0 to +30.0 (2 networks)"]
    knowing = level("m", "one", Access.INTERNALS, 0.0, 1.0)
    other = dataclasses.replace(one, data="e")
    assert NONE in headline([one, knowing])[0]
    assert not ALONE.search(headline([one, knowing])[0])
    assert ALONE.search(headline([one, knowing, other])[0]), "no adaptive attack on the other data set"


def test_defences_are_sorted_by_their_least_gain() -> None:
    found = [level(m, "one", Access.GRADIENTS, gain) for m, gain in (("m", 0.3), ("n", -0.1), ("o", 0.2))]
    assert [e.value for e in by_defence(found).lines[0]][-1] == -10.0


@pytest.mark.parametrize("flags", [1, 3])
def test_the_summary_says_how_many_flags_there_are(flags: int) -> None:
    (sentence,) = _flagged(flags)
    assert f"{count(flags, 'flag')} " in sentence
    assert not list(_flagged(0))


def test_the_summary_counts_every_place_where_a_flag_was_raised(made: Document, paper: Path) -> None:
    assert f"{len(antiadv.report(paper).flags)} flags" in made.summary[-1]


def test_every_rule_is_explained_and_flags_are_gathered_by_rule(made: Document, paper: Path) -> None:
    before = {"narrow_range", "preflight"}  # no record shows them
    assert [name for name in EXPLAINED if name not in before] == list(RULES)
    assert before < set(EXPLAINED)
    flags = antiadv.report(paper).flags
    assert [(part.name, list(part.sentences)) for part in made.flags] == [
        (name, [f.sentence for f in flags if f.name == name]) for name in RULES if any(f.name == name for f in flags)
    ]
    assert sum(len(part.sentences) for part in raised(flags)) == len(flags) > 0


# ---------------------------------------------------------------- the gallery


def test_a_gallery_shows_what_was_attacked(resources: Resources) -> None:
    found = gallery.made(2, resources)
    assert len(found.exhibits) == 2 * len(gallery.TRIED)
    for e in found.exhibits:
        before, change, after = (Image.open(io.BytesIO(png)) for png in (e.before, e.change, e.after))
        assert before.size == change.size == after.size == (32, 32)
        f, g = e.answers["f"], e.answers["g"]
        assert (f[0].label, f[0].right, g[0].label, g[0].right) == (e.truth, True, e.truth, True)
        x, z = (torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).int() for image in (before, after))
        assert 0 < (x - z).abs().max() <= 9  # 8/255, and half a step of rounding on either side
        assert e.factor == pytest.approx(255 / 16, rel=1e-3)
    assert [e.sample for e in found.exhibits[::2]] == [e.sample for e in found.exhibits[1::2]]
    with pytest.raises(BadInput, match=r"1 to 100\b.*\b0\b"):
        gallery.made(0, resources)


def test_kept_images_are_shown_with_what_the_records_say(run: Path, resources: Resources) -> None:
    found = gallery.kept(Store(run))
    records = {
        (cell.attack, r.sample): r
        for cell in Store(run).cells()
        if cell.defence != "none"
        for r in Store(run).read(cell)
    }
    assert {e.attack for e in found.exhibits} == {a for a, _ in RUN}
    classes = resources.data("cifar10:test").classes
    for e in found.exhibits:
        r = records[e.attack, e.sample]
        before, after = e.answers["g"]
        assert (before.label, after.label) == (classes[r.clean], classes[r.attacked])
        assert after.confidence == r.attacked_confidence
        assert (e.answers["f"][1].label, e.answers["f"][1].confidence) == (classes[r.base_attacked], None)
        assert str(e.answers["f"][1]) == classes[r.base_attacked]


def test_kept_images_are_shown_without_their_network(tmp_path: Path, run: Path) -> None:
    """The answers are stored, so the network need not be at hand, nor be one that this machine knows."""
    cell = next(c for c in Store(run).cells() if c.defence != "none")
    other = dataclasses.replace(cell, model="in hand", weights="sha256:" + "0" * 64)
    Store(tmp_path).append(other, Store(run).read(cell), RECEIPT, torch.zeros(8, 3, 32, 32))
    found = gallery.kept(Store(tmp_path))
    assert found.exhibits
    assert {e.on for e in found.exhibits} == {f"in hand with {cell.defence}, cifar10:test"}


@pytest.mark.parametrize(
    "images",
    [
        b"broken",
        safetensors.torch.save({"samples": torch.arange(8), "images": torch.zeros(8, 1, 28, 28)}),
        safetensors.torch.save({"samples": torch.arange(8), "images": torch.full((8, 3, 32, 32), math.nan)}),
        safetensors.torch.save({"samples": torch.arange(8), "images": torch.zeros(8, 3, 32, 32).byte()}),
        safetensors.torch.save({"samples": torch.arange(8) + 10**6, "images": torch.zeros(8, 3, 32, 32)}),
        safetensors.torch.save({"samples": torch.arange(8.0), "images": torch.zeros(8, 3, 32, 32)}),
        safetensors.torch.save({"samples": torch.arange(4), "images": torch.zeros(8, 3, 32, 32)}),
        safetensors.torch.save({"samples": torch.tensor(0), "images": torch.tensor(0.0)}),
        safetensors.torch.save({"images": torch.zeros(8, 3, 32, 32)}),
    ],
    ids=["broken", "shape", "nan", "bytes", "outside", "float ids", "fewer ids", "scalars", "no ids"],
)
def test_kept_images_that_are_none_are_named(images: bytes, tmp_path: Path, run: Path) -> None:
    cell = next(c for c in Store(run).cells() if c.defence != "none")
    path = Store(tmp_path).append(cell, Store(run).read(cell), RECEIPT, torch.zeros(8, 3, 32, 32))
    next(path.parent.glob("*.safetensors")).write_bytes(images)
    found = gallery.kept(Store(tmp_path))
    assert found.exhibits == ()
    assert f"Not shown, {cell.attack} on" in found.about


def test_records_with_classes_that_the_set_lacks_are_shown_by_number(tmp_path: Path, run: Path) -> None:
    cell = next(c for c in Store(run).cells() if c.defence != "none")
    records = [
        dataclasses.replace(r, label=99, clean=99, base_clean=99, attacked=77, base_attacked=2**40)
        for r in Store(run).read(cell)
    ]
    Store(tmp_path).append(cell, records, RECEIPT, torch.zeros(8, 3, 32, 32))
    shown = gallery.kept(Store(tmp_path)).exhibits[0]
    assert [answer.label for both in shown.answers.values() for answer in both] == [
        "class 99",
        f"class {2**40}",
        "class 99",
        "class 77",
    ]


def test_kept_images_of_a_set_without_names_are_shown_by_number(tmp_path: Path, resources: Resources) -> None:
    """The network may take an image for a class that no label of the set names."""
    sample = resources.data("cifar10:test")
    rows = (sample.labels(sample.ids) == 0).nonzero().flatten()[:8]  # aeroplanes only
    np.savez(tmp_path / "mine.npz", images=(sample.images(rows) * 255).byte().numpy(), labels=sample.labels(rows))
    mine = Resources("cpu", data={"arrays:mine.npz": antiadv.data.load(f"arrays:{tmp_path}/mine.npz")})
    cell = antiadv.make_cell(
        data="arrays:mine.npz",
        model="compact:trades",
        defence="anti_adversary",
        attack="transfer:attack=(pgd:steps=5)",
        threat="linf:32/255",
        samples=range(8),
        resources=mine,
    )
    antiadv.evaluate([cell], tmp_path / "store", resources=mine, keep_images=True)
    sets = [mine.data("arrays:mine.npz")]
    said = [e.answers["g"] for e in gallery.kept(Store(tmp_path / "store"), sets=sets).exhibits]
    assert {before.label for before, _ in said} == {"class 0"}
    assert not {after.label for _, after in said} <= {"class 0"}


def test_kept_images_say_what_was_attacked_and_files_are_opened_only_where_they_are_named(
    tmp_path: Path, resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sets of one name in two folders, and two seeds; no folder of the machine is in the store."""
    monkeypatch.chdir(tmp_path)
    sample = resources.data("cifar10:test")
    for start, name in ((0, "a"), (8, "b")):
        Path(name).mkdir()
        ids = range(start, start + 8)
        np.savez(f"{name}/mine.npz", images=(sample.images(ids) * 255).byte().numpy(), labels=sample.labels(ids))
    cells = [
        antiadv.make_cell(
            data=f"arrays:{place}mine.npz",
            model="compact:trades",
            defence="small_noise:std=0.1",
            attack="pgd:steps=2",
            threat="linf:8/255",
            samples=range(8),
            seed=seed,
            precision="mixed" if seed else "float32",
            looks=3,
            resources=resources,
        )
        for place, seed in (("a/", 0), ("a/", 1), (f"{tmp_path}/b/", 0))
    ]
    antiadv.evaluate(cells, "store", resources=resources, keep_images=True)
    facts = Store("store")
    assert not any(str(tmp_path) in path.read_text() for path in Path("store").rglob("cell.json"))
    rows = antiadv.report("store").rows
    assert gallery.kept(facts, rows).exhibits == ()
    found = gallery.kept(facts, rows, [resources.data("arrays:a/mine.npz")])
    first, other = (cell.images.removeprefix("sha256:")[:8] for cell in (cells[0], cells[2]))
    on = f"compact:trades with small_noise:std=0.1, arrays:mine.npz ({first})"
    other_dice = f"{on}, seed 1, searched in mixed"
    assert {e.on for e in found.exhibits} == {on, other_dice}
    assert in_order(found.about, f"arrays:mine.npz ({other})", "not opened", "--data")
    for cell, name in ((cells[0], on), (cells[1], other_dice)):
        records = {r.sample: r for r in facts.read(cell)}
        for e in (e for e in found.exhibits if e.on == name):  # the same dice, and as many looks, as the judge had
            seen, r = e.answers["g"][1], records[e.sample]
            assert (seen.label, seen.confidence) == (f"class {r.attacked}", r.attacked_confidence)


def test_no_images_no_word(paper: Path) -> None:
    assert gallery.kept(Store(paper)) == Gallery("")


# ---------------------------------------------------------------- files


def test_a_folder_holds_everything_and_every_file_is_sound(made: Document, tmp_path: Path) -> None:
    files = folder.write(made, tmp_path / "out")
    names = {str(path.relative_to(tmp_path / "out")) for path in files}
    assert files[0].name == "report.html"
    assert {"report.md", "report.json", "tables/figure-4.csv", "tables/figure-4.tex", "tables/cells.csv"} <= names
    for path in files:
        if path.suffix == ".svg":
            ET.parse(path)
    said = json.loads((tmp_path / "out" / "report.json").read_text())
    assert said["tables"]["figure-4"]["lines"][2]["AA gain"]["value"] == 30.0
    assert said["summary"] == list(made.summary)
    assert set(said["files"]) == names
    rows = list(csv.DictReader((tmp_path / "out" / "tables" / "figure-4.csv").read_text().splitlines()))
    assert rows[2]["AA gain paper"] == "18.68"
    text = (tmp_path / "out" / "report.md").read_text()
    for linked in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
        assert (tmp_path / "out" / linked).is_file()
    assert not list((tmp_path / "out").rglob("*.tmp"))


def test_what_an_earlier_report_wrote_goes_and_other_files_stay(made: Document, tmp_path: Path) -> None:
    first = folder.write(made, tmp_path)
    drawn = [path for path in first if path.suffix == ".svg"]
    mine = [tmp_path / "figures" / "mine-1.svg", tmp_path / "tables" / "mine.csv"]
    for path in mine:
        path.write_text("")
    assert drawn
    folder.write(dataclasses.replace(made, figures=()), tmp_path)
    assert not [path for path in drawn if path.exists()]
    assert all(path.exists() for path in (*mine, tmp_path / "tables" / "cells.csv"))


@pytest.mark.parametrize(
    "said", ["no json", "[]", '{"files": 3}', '{"files": ["../outside.csv", "tables/../../x.csv"]}']
)
def test_a_list_that_is_not_ours_removes_nothing(said: str, made: Document, tmp_path: Path) -> None:
    outside = tmp_path / "outside.csv"
    outside.write_text("")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.json").write_text(said)
    folder.write(dataclasses.replace(made, figures=()), tmp_path / "out")
    assert outside.exists()


def test_the_same_store_gives_the_same_bytes(made: Document, paper: Path) -> None:
    assert folder.files(made) == folder.files(document(paper))


def test_a_folder_that_cannot_be_written_is_one_sentence(made: Document, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="--out") as error:
        folder.write(made, tmp_path / "file")
    assert str(tmp_path / "file") in str(error.value)


def test_the_command(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["report", "--store", str(run), "--out", str(out), "--gallery", "1"]) == 0
    shown = capsys.readouterr().out
    assert str(out / "report.html") in shown
    assert len(list((out / "gallery").iterdir())) == 3 * len(gallery.TRIED)
    assert main(["report", "--store", str(run), "--out", str(out), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert str(out / "report.html") in said["files"]
    assert len(said["cells"]) == 2 * len(RUN)
    sentences = [sentence.replace("`", "") for sentence in said["summary"]]
    assert shown.splitlines()[: len(sentences)] == sentences != [], "the summary, first"
    assert main(["report", "--store", str(run), "--gallery", "1"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert in_order(said, "antiadv: ", "gallery", "--out")


def test_a_file_that_cannot_take_its_place_is_taken_away(made: Document, tmp_path: Path) -> None:
    (tmp_path / "report.md").mkdir()
    with pytest.raises(BadInput, match="Is a directory"):
        folder.write(dataclasses.replace(made, figures=()), tmp_path)
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems give no such name")
def test_a_store_whose_name_is_no_text_is_reported_on(run: Path, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"old-\xe9")  # as an old disk names it
    shutil.copytree(run, odd)
    assert main(["report", "--store", str(odd), "--out", str(tmp_path / "page")]) == 0
    assert "old-?" in (tmp_path / "page" / "report.md").read_text()


def test_without_jinja_one_sentence_names_the_extra(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main(["report", "--store", str(run), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "antiadv[report]" in said
    assert not (tmp_path / "out").exists()


def test_a_name_is_shown_and_never_run(tmp_path: Path, paper: Path) -> None:
    bad = "</title><script>alert(1)</script>&\"'`|$x$"
    cell = Store(paper).cells()[0]
    for defence in ("none", "anti_adversary"):
        odd = dataclasses.replace(cell, model=bad, defence=defence, attack="square", threat=_asked(cell))
        Store(tmp_path).append(odd, [record(i, queries=3) for i in range(9)], RECEIPT)
    text = folder.files(document(Store(tmp_path)))["report.html"].decode()
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert text.count("<script>") == 1


def _asked(cell: Cell) -> antiadv.Threat:
    return antiadv.Threat(cell.threat.ball, Access.SCORES, 100)
