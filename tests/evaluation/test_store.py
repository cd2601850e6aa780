"""The store returns the records that were stored. A file that is truncated, foreign, edited, renamed or of another
format is named and refused. Temporary files of a killed writer are ignored."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from antiadv.attacks import ATTACKS
from antiadv.attacks.white_box.apgd import APGD
from antiadv.cli.__main__ import main
from antiadv.core.errors import StoreMismatch, StoreUnwritable
from antiadv.core.files import atomic_write, sweep
from antiadv.defences.anti_adversary import AntiAdversary
from antiadv.evaluation import Store, evaluate
from antiadv.evaluation.cell import FORMAT, Job, Record
from antiadv.evaluation.shard import run_shard
from tests.engine.probes import RECEIPT, cell, record, resources, same

CELL = cell()


def fill(root: Path, *shards: range) -> Store:
    store = Store(root)
    for ids in shards:
        store.append(CELL, [record(i, attacked=i % 4, queries=i) for i in ids], RECEIPT)
    return store


def shard_files(root: Path) -> list[Path]:
    return sorted(root.glob("*/*.json.xz"))


def edit(path: Path, change: Callable[[list[bytes]], None]) -> None:
    """Unpack, change the lines, pack again."""
    lines = lzma.decompress(path.read_bytes()).split(b"\n")
    change(lines)
    path.write_bytes(lzma.compress(b"\n".join(lines)))


# ---------------------------------------------------------------- what goes in comes out


def test_records_and_receipts_come_back_as_they_were(tmp_path: Path) -> None:
    store = fill(tmp_path, range(8, 12), range(4))
    assert store.read(CELL) == [record(i, attacked=i % 4, queries=i) for i in (0, 1, 2, 3, 8, 9, 10, 11)]
    assert store.receipts(CELL) == [RECEIPT, RECEIPT]
    assert store.done(CELL) == {0, 1, 2, 3, 8, 9, 10, 11}
    assert store.read(dataclasses.replace(CELL, samples=range(2, 10))) == [
        record(i, attacked=i % 4, queries=i) for i in (2, 3, 8, 9)
    ]


def test_records_of_a_real_shard_come_back_exactly(tmp_path: Path) -> None:
    found = run_shard(Job(CELL, tuple(range(20))), resources())
    store = Store(tmp_path)
    store.append(CELL, found.records, found.receipt)
    assert store.read(CELL) == found.records
    assert store.receipts(CELL) == [found.receipt]


def test_records_with_gaps_and_in_any_order_are_kept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = store.append(CELL, [record(i) for i in (7, 3, 5)], RECEIPT)
    assert path.name == "000003-000007-3.json.xz"
    assert store.done(CELL) == {3, 5, 7}
    assert [r.sample for r in store.read(CELL)] == [3, 5, 7]


def test_overlapping_files_give_each_sample_once(tmp_path: Path) -> None:
    store = fill(tmp_path, range(6))
    store.append(CELL, [record(i, queries=99) for i in range(4, 9)], RECEIPT)
    assert [r.sample for r in store.read(CELL)] == list(range(9))
    assert [r.queries for r in store.read(CELL)] == [0, 1, 2, 3, 4, 5, 99, 99, 99], "the first file by name counts"
    assert store.done(CELL) == set(range(9))


def test_opening_and_reading_write_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "results")
    assert store.done(CELL) == set()
    assert store.read(CELL) == []
    assert store.cells() == []
    assert not (tmp_path / "results").exists()


def test_equal_records_are_equal_bytes(tmp_path: Path) -> None:
    for name in "ab":
        fill(tmp_path / name, range(5))
    a, b = (shard_files(tmp_path / name)[0] for name in "ab")
    assert a.read_bytes() == b.read_bytes()
    store = Store(tmp_path / "c")
    path = store.append(CELL, store_read_back(tmp_path / "a")[::-1], dataclasses.replace(RECEIPT, seconds=99.0))
    lines = [lzma.decompress(p.read_bytes()).split(b"\n")[1] for p in (a, path)]
    assert lines[0] == lines[1], "another receipt, another order: the same second line"


def store_read_back(root: Path) -> list[Record]:
    return Store(root).read(CELL)


def test_a_thousand_records_are_small(tmp_path: Path) -> None:
    found = run_shard(Job(CELL, tuple(range(1000))), resources())
    path = Store(tmp_path).append(CELL, found.records, found.receipt)
    assert path.stat().st_size < 40_000


def test_cells_are_what_was_stored(tmp_path: Path) -> None:
    stored = [
        cell("pgd", range(3, 7)),
        cell("square", range(2), threat="linf:2/255,queries=10", seed=7),
        cell("transfer:attack=(pgd:steps=3)", range(4), defence="anti_adversary:steps=1", threat="l2:0.5"),
    ]
    store = Store(tmp_path)
    for c in stored:
        store.append(c, [record(i) for i in c.samples], RECEIPT)
    store.prepare(cell("pgd", seed=99))  # made, and nothing stored
    found = store.cells()
    assert sorted(found, key=lambda c: c.key) == sorted(stored, key=lambda c: c.key)
    assert {c.key: c.samples for c in found} == {c.key: c.samples for c in stored}


def test_the_looks_of_a_cell_come_back_and_are_said_only_where_they_are_not_ten(tmp_path: Path) -> None:
    few, ten = cell(defence="small_noise", looks=3), cell(defence="small_noise")
    store = Store(tmp_path)
    for c in (few, ten):
        store.append(c, [record(i, draws=c.looks) for i in range(2)], RECEIPT)
    assert sorted(c.looks for c in store.cells()) == [3, 10]
    assert set(store.cells()) == {few, ten}
    said = {c.looks: json.loads((tmp_path / c.key / "cell.json").read_text()) for c in (few, ten)}
    assert said[3]["cell"]["looks"] == said[3]["identity"]["looks"] == 3
    assert "looks" not in said[10]["cell"] | said[10]["identity"]


def test_a_cell_that_claims_other_looks_than_it_was_made_with_is_refused(tmp_path: Path) -> None:
    made = cell(defence="small_noise", looks=3)
    Store(tmp_path).append(made, [record(0)], RECEIPT)
    path = tmp_path / made.key / "cell.json"
    path.write_text(path.read_text().replace('"looks": 3', '"looks": 4', 1))
    with pytest.raises(StoreMismatch, match="edited or moved"):
        Store(tmp_path).cells()


def test_a_cell_describes_itself(tmp_path: Path) -> None:
    fill(tmp_path, range(2))
    said = json.loads((tmp_path / CELL.key / "cell.json").read_text())
    assert said["format"] == FORMAT
    assert said["key"] == CELL.key
    assert said["cell"]["attack"] == "pgd:steps=3"
    assert "steps=3,step_size=0.25,restarts=1,random_start=true@1" in said["identity"]["attack"]


# ---------------------------------------------------------------- what is refused


def header(change: Callable[[dict[str, Any]], None]) -> Callable[[list[bytes]], None]:
    def apply(lines: list[bytes]) -> None:
        said = json.loads(lines[0])
        change(said)
        lines[0] = json.dumps(said, separators=(",", ":")).encode()

    return apply


def flip(lines: list[bytes]) -> None:
    columns = json.loads(lines[1])
    columns["attacked"][0] ^= 1
    lines[1] = json.dumps(columns, separators=(",", ":")).encode()


EDITS = {
    "a flipped record": (flip, "edited"),
    "an edited receipt": (header(lambda h: h["receipt"].update(seconds=0.0)), "edited"),
    "a line more": (lambda lines: lines.append(b"{}"), "not a shard"),
    "a tail": (lambda lines: lines.__setitem__(2, b"x"), "edited"),
    "a line less": (lambda lines: lines.pop(1), "not a shard"),
    "a header that is a list": (lambda lines: lines.__setitem__(0, b"[1]"), "not a shard"),
    "a header without a key": (header(lambda h: h.pop("key")), "not a shard"),
    "no JSON": (lambda lines: lines.__setitem__(1, b"{"), "not a shard"),
    "another format": (header(lambda h: h.update(format=FORMAT + 1)), f"format {FORMAT + 1};.* {FORMAT}"),
    "another cell": (header(lambda h: h.update(key="0" * 20)), "belongs to another cell"),
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edited_file_is_named_and_refused(tmp_path: Path, what: str) -> None:
    store = fill(tmp_path, range(3), range(3, 6))
    change, message = EDITS[what]
    path = shard_files(tmp_path)[1]
    edit(path, change)
    with pytest.raises(StoreMismatch, match=message) as error:
        store.read(CELL)
    assert str(path) in str(error.value)
    with pytest.raises(StoreMismatch):
        store.receipts(CELL)


def test_a_receipt_of_a_later_version_is_named_and_refused(tmp_path: Path) -> None:
    """Even if its records can be read."""

    class Later:
        def json(self) -> dict[str, object]:
            return {**RECEIPT.json(), "watts": 300}

    store = Store(tmp_path)
    path = store.append(CELL, [record(0)], Later())  # type: ignore[arg-type]
    for read in (store.read, store.receipts, store.prepare):
        with pytest.raises(StoreMismatch, match=r"receipt.*watts") as e:
            read(CELL)
        assert str(path) in str(e.value)


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    store = fill(tmp_path, range(3))
    (path,) = shard_files(tmp_path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(StoreMismatch, match="truncated") as error:
            store.read(CELL)
        assert str(path) in str(error.value)
    path.write_bytes(whole)
    assert len(store.read(CELL)) == 3


def test_a_file_with_any_byte_flipped_is_refused(tmp_path: Path) -> None:
    store = fill(tmp_path, range(3))
    (path,) = shard_files(tmp_path)
    whole = path.read_bytes()
    records = store.read(CELL)
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        try:
            found = store.read(CELL)
        except StoreMismatch:
            continue
        assert found == records, f"byte {place} changed the records unnoticed"


def test_a_foreign_file_is_named_and_refused(tmp_path: Path) -> None:
    store, other = fill(tmp_path, range(3)), cell("square")
    foreign = store.append(other, [record(i) for i in range(3, 6)], RECEIPT)
    copied = shutil.copy(foreign, tmp_path / CELL.key)
    with pytest.raises(StoreMismatch, match=f"another cell.*{other.key}") as error:
        store.read(CELL)
    assert str(copied) in str(error.value)


def test_a_renamed_file_is_named_and_refused(tmp_path: Path) -> None:
    store = fill(tmp_path, range(3))
    (path,) = shard_files(tmp_path)
    renamed = path.rename(path.with_name("000003-000005-3.json.xz"))
    with pytest.raises(StoreMismatch, match=r"renamed.*000000-000002-3") as error:
        store.read(CELL)
    assert str(renamed) in str(error.value)


def test_a_file_that_cannot_be_read_is_not_called_damaged(tmp_path: Path) -> None:
    """The user might delete it, and it may be intact. A folder in its place cannot be read by root either."""
    store = fill(tmp_path, range(3))
    for path, ask in ((shard_files(tmp_path)[0], store.read), (tmp_path / CELL.key / "cell.json", store.prepare)):
        path.rename(tmp_path / "aside")
        path.mkdir()
        with pytest.raises(StoreMismatch) as error:
            ask(CELL)
        assert str(path) in str(error.value)
        assert "(Is a directory)" in str(error.value)
        assert "elete" not in str(error.value)
        path.rmdir()
        (tmp_path / "aside").rename(path)
    assert len(store.read(CELL)) == 3


@contextlib.contextmanager
def ordinary() -> Iterator[None]:
    """As an ordinary user: root gives up its rights here."""
    me = os.geteuid()
    os.seteuid(me or 65534)
    try:
        yield
    finally:
        os.seteuid(me)


def test_an_unreadable_folder_of_a_cell_is_named_and_any_other_is_skipped() -> None:
    with tempfile.TemporaryDirectory() as root:  # not below `tmp_path`, which only root can read
        store, closed, strange = fill(Path(root), range(3)), Path(root) / CELL.key, Path(root) / "lost+found"
        Path(root).chmod(0o755)
        strange.mkdir()
        strange.chmod(0)
        with ordinary():
            assert store.cells() == [CELL]
        closed.chmod(0)
        for ask in (store.cells, lambda: store.read(CELL), lambda: store.done(CELL)):
            with ordinary(), pytest.raises(StoreMismatch) as error:
                ask()
            assert str(closed) in str(error.value)
            assert "(Permission denied)" in str(error.value)
        for folder in (closed, strange):
            folder.chmod(0o755)


def test_a_store_whose_name_is_too_long_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = str(tmp_path / ("s" * 300))
    words = ["--model", "tests.toys:make_small_net", "--attack", "pgd", "--threat", "linf:8/255", "--samples", "0:2"]
    for verb in (["report"], ["evaluate", *words]):
        assert main([*verb, "--store", name]) == 2
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)
        assert "(File name too long)" in said.err


def test_a_name_the_store_does_not_give_is_refused(tmp_path: Path) -> None:
    store = fill(tmp_path, range(3))
    odd = tmp_path / CELL.key / "copy of 000000-000002-3.json.xz"
    shutil.copy(shard_files(tmp_path)[0], odd)
    for ask in (store.read, store.done, store.receipts):
        with pytest.raises(StoreMismatch, match="named") as error:
            ask(CELL)
        assert str(odd) in str(error.value)


CELL_EDITS: dict[str, tuple[Callable[[dict[str, Any]], str], str]] = {
    "no JSON": (lambda said: "{", "does not describe a cell"),
    "a list": (lambda said: "[]", "does not describe a cell"),
    "no cell": (lambda said: json.dumps({k: v for k, v in said.items() if k != "cell"}), "does not describe a cell"),
    "an old format": (lambda said: json.dumps(said | {"format": 0}), f"format 0;.* {FORMAT}"),
    "another seed": (lambda said: json.dumps(said | {"cell": said["cell"] | {"seed": 3}}), "edited or moved"),
    "another identity": (lambda said: json.dumps(said | {"identity": {}}), "edited or moved"),
    "an unknown attack": (
        lambda said: json.dumps(said | {"cell": said["cell"] | {"attack": "warp"}}),
        "unknown attack 'warp'",
    ),
    "a word too many": (lambda said: json.dumps(said | {"cell": said["cell"] | {"colour": 1}}), "unknown here"),
    "a word missing": (lambda said: json.dumps(said | {"cell": {"seed": 1}}), "unknown here"),
}


@pytest.mark.parametrize("what", CELL_EDITS)
def test_an_edited_description_is_named_and_refused(tmp_path: Path, what: str) -> None:
    store = fill(tmp_path, range(3))
    change, message = CELL_EDITS[what]
    path = tmp_path / CELL.key / "cell.json"
    path.write_text(change(json.loads(path.read_text())))
    for ask in (store.cells, lambda: store.append(CELL, [record(3)], RECEIPT)):
        with pytest.raises(StoreMismatch, match=message) as error:
            ask()
        assert str(path) in str(error.value)
    assert len(shard_files(tmp_path)) == 1, "nothing was added to the damaged folder"


def test_a_description_that_cannot_be_understood_costs_no_records(tmp_path: Path) -> None:
    """The advice of its message works."""
    store = fill(tmp_path, range(3))
    hurt = tmp_path / CELL.key / "cell.json"
    whole = hurt.read_bytes()
    hurt.write_bytes(whole[:100])
    with pytest.raises(StoreMismatch, match=r"cell\.json .*Delete it"):
        store.cells()
    hurt.unlink()
    store.prepare(CELL)  # as the next run does
    assert (store.cells(), len(store.read(CELL)), hurt.read_bytes()) == ([CELL], 3, whole)


def test_a_moved_folder_is_refused(tmp_path: Path) -> None:
    store = fill(tmp_path, range(3))
    (tmp_path / CELL.key).rename(tmp_path / "elsewhere")
    with pytest.raises(StoreMismatch, match="elsewhere"):
        store.cells()


# ---------------------------------------------------------------- other editions


def put(root: Path, attack: str) -> str:
    """A stored cell; the name of its folder."""
    asked = cell(attack, range(3), threat="linf:4/255")
    return Store(root).append(asked, [record(i) for i in range(3)], RECEIPT).parent.name


def test_a_cell_of_another_edition_is_named_and_the_others_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fill(tmp_path, range(3))
    one = put(tmp_path, "apgd:steps=3")
    two = put(tmp_path, "apgd:steps=4")
    assert len(store.cells()) == 3
    monkeypatch.setattr(APGD, "edition", APGD.edition + 1)
    with pytest.warns(UserWarning, match="another edition") as told:
        assert store.cells() == [CELL]
    (warning,) = told
    changed = f"apgd@{APGD.edition - 1}, here apgd@{APGD.edition}"
    assert str(tmp_path) in str(warning.message)
    assert all(f"{key} ({changed})" in str(warning.message) for key in (one, two))
    assert store.cells() == [CELL], "the warning is not repeated"
    assert len(Store(tmp_path).read(CELL)) == 3


def test_a_cell_of_another_edition_of_a_defence_is_left_out_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = cell("pgd:steps=3", range(2), defence="anti_adversary:steps=1")
    Store(tmp_path).append(old, [record(i) for i in range(2)], RECEIPT)
    edition = AntiAdversary.edition
    monkeypatch.setattr(AntiAdversary, "edition", edition + 1)
    with pytest.warns(UserWarning, match=rf"\(anti_adversary@{edition}, here anti_adversary@{edition + 1}\)"):
        assert Store(tmp_path).cells() == []
    Store(tmp_path).append(old, [record(i) for i in range(2)], RECEIPT)  # run again: a folder of its own
    with pytest.warns(UserWarning, match="left out"):
        assert Store(tmp_path).cells() == [old]


def test_a_cell_of_an_attack_that_is_gone_is_left_out_too(tmp_path: Path) -> None:
    store = fill(tmp_path, range(3))
    gone = cell("square", range(2), threat="linf:2/255,queries=10")
    store.append(gone, [record(i) for i in range(2)], RECEIPT)
    key = gone.key  # while it is known
    known = dict(ATTACKS)
    del ATTACKS["square"]
    try:
        with pytest.warns(UserWarning, match=rf"{key} \(unknown attack 'square'"):
            assert store.cells() == [CELL]
    finally:  # in the order they were in, which lists show
        ATTACKS.clear()
        ATTACKS.update(known)


@pytest.mark.filterwarnings("default")
def test_the_command_line_says_it_in_one_line_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path, range(3))
    put(tmp_path, "apgd:steps=3")
    monkeypatch.setattr(APGD, "edition", APGD.edition + 1)
    assert main(["report", "--store", str(tmp_path), "--json"]) == 0
    said = capsys.readouterr()
    assert [row["attack"] for row in json.loads(said.out)["rows"]] == ["pgd:steps=3"]
    assert said.err.startswith("antiadv: ")
    assert str(tmp_path) in said.err
    assert said.err.count("\n") == 1


# ---------------------------------------------------------------- a missing cell.json


def test_records_without_their_cell_are_named_and_come_back_with_it(tmp_path: Path) -> None:
    store = fill(tmp_path, range(3))
    lost = cell("apgd:steps=3", range(3), threat="linf:4/255")
    (tmp_path / put(tmp_path, "apgd:steps=3") / "cell.json").unlink()
    (tmp_path / "figures").mkdir()  # not a folder of the store
    with pytest.warns(UserWarning, match=rf"cell\.json is missing: {lost.key}\.") as told:
        assert store.cells() == [CELL]
    assert len(told) == 1
    assert store.cells() == [CELL], "the warning is not repeated"
    store.prepare(lost)  # as the next run does
    assert set(store.cells()) == {CELL, lost}
    assert len(store.read(lost)) == 3


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("how", [["--json"], [], ["table-1"], ["--out", "page"]], ids=" ".join)
def test_a_report_names_records_without_their_cell_on_stderr_and_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, how: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    fill(tmp_path / "store", range(3))
    lost = put(tmp_path / "store", "apgd:steps=3")
    (tmp_path / "store" / lost / "cell.json").unlink()
    assert main(["report", "--store", "store", *how]) == 0
    said = capsys.readouterr()
    assert said.err.count(lost) == said.err.count("\n") == 1
    assert said.err.startswith("antiadv: ")
    assert "cell.json is missing" in said.err
    assert lost not in said.out


# ---------------------------------------------------------------- leftovers, images, disks


def test_leftovers_are_ignored_and_old_ones_swept(tmp_path: Path) -> None:
    store = fill(tmp_path, range(3))
    folder = tmp_path / CELL.key
    old, new = (folder / f".000003-000005-3.json.xz.{digit * 32}.tmp" for digit in "ab")
    for path in (old, new):
        path.write_bytes(b"half a fi")
    two_hours_ago = time.time() - 7200
    os.utime(old, (two_hours_ago, two_hours_ago))
    assert store.done(CELL) == {0, 1, 2}
    assert len(store.read(CELL)) == 3
    assert len(store.cells()) == 1
    assert old.exists(), "reading removes nothing"
    store.prepare(CELL)
    assert not old.exists(), "whoever begins to write removes it"
    assert new.exists(), "somebody may be writing it"


def test_what_a_killed_process_left_is_swept_at_once_and_a_living_ones_is_not(tmp_path: Path) -> None:
    path = tmp_path / "a.json"

    def leave(pid: int) -> Path:
        """What a process of this number would leave, were it killed in the middle of writing."""
        with atomic_write(path) as part:
            left = part.with_name(part.name.replace(f"-{os.getpid()}-", f"-{pid}-"))
            left.write_bytes(b"half a fi")
            part.write_bytes(b"whole")
        return left

    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    left = leave(process.pid)
    with atomic_write(path) as part:
        part.write_bytes(b"more")
    assert left.exists(), "its process runs"
    process.communicate(b"\n")
    with atomic_write(path) as part:
        assert not left.exists()
        part.write_bytes(b"last")
    foreign = tmp_path / ".notes.tmp"
    foreign.write_bytes(b"somebody's own")
    os.utime(foreign, (0, 0))
    sweep(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".notes.tmp", "a.json"]


def test_writing_leaves_no_leftovers(tmp_path: Path) -> None:
    fill(tmp_path, range(3), range(3, 6))
    assert not list(tmp_path.rglob("*.tmp"))


def test_kept_images_match_the_records(tmp_path: Path) -> None:
    asked, here = cell("pgd:steps=3", range(60), threat="linf:8/255"), resources()
    evaluate([asked], tmp_path, shard=8, resources=here, keep_images=True)
    store = Store(tmp_path)
    files = sorted(tmp_path.glob("*/*.safetensors"))
    assert [f.stem for f in files] == [f.name.removesuffix(".json.xz") for f in shard_files(tmp_path)]
    kept = [load_file(f) for f in files]
    ids, z = torch.cat([k["samples"] for k in kept]), torch.cat([k["images"] for k in kept])
    records = store.read(asked)
    assert ids.tolist() == [r.sample for r in records]
    x = here.data("cifar10").images(ids)
    assert [r.distance for r in records] == pytest.approx(asked.threat.ball.distance(x, z).tolist(), rel=1e-8)
    with torch.no_grad():
        assert [r.attacked for r in records] == here.model(asked.model)(z).argmax(1).tolist()
    assert any(r.attacked != r.clean for r in records)


def test_images_follow_their_records_into_order(tmp_path: Path) -> None:
    records = [record(i) for i in (5, 2, 9)]
    images = torch.tensor([5.0, 2.0, 9.0]).view(3, 1, 1, 1).expand(3, 3, 2, 2)
    Store(tmp_path).append(CELL, records, RECEIPT, images)
    (path,) = tmp_path.glob("*/*.safetensors")
    kept = load_file(path)
    assert kept["samples"].tolist() == [2, 5, 9]
    assert same(kept["images"][:, 0, 0, 0], torch.tensor([2.0, 5.0, 9.0]))


def test_images_are_kept_only_on_request(tmp_path: Path) -> None:
    evaluate(cell(samples=range(4)), tmp_path, resources=resources())  # one needs no list
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_warning_says_that_stored_samples_have_no_images(tmp_path: Path) -> None:
    """`filterwarnings = error` makes sure that there is no other warning."""
    first, more = cell(samples=range(4)), cell(samples=range(2, 8))
    evaluate([first], tmp_path, resources=resources())
    with pytest.warns(UserWarning, match=r"^2 of the samples .* without images") as told:
        evaluate([more], tmp_path, resources=resources(), keep_images=True)
    assert len(told) == 1
    store = Store(tmp_path)
    assert (store.done(more), store.pictured(more)) == (set(range(8)), {4, 5, 6, 7})
    evaluate([cell(samples=range(4, 8))], tmp_path, resources=resources(), keep_images=True)
    evaluate([more], tmp_path, resources=resources())


def test_a_store_that_is_a_file_is_unwritable(tmp_path: Path) -> None:
    """What fails for root too."""
    (tmp_path / "file").write_text("here already")
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreUnwritable, match="cannot be written") as error:
            Store(root).append(CELL, [record()], RECEIPT)
        assert str(root) in str(error.value)
        assert "\n" not in str(error.value)
    assert (tmp_path / "file").read_text() == "here already"


def test_an_earlier_edition_is_read_where_the_attack_still_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from antiadv.attacks.adaptive.adaptive import Adaptive
    from antiadv.evaluation import make_cell
    from antiadv.evaluation.store.cell_file import OtherEdition, read_cell

    with monkeypatch.context() as then:
        then.setattr(Adaptive, "edition", 1)
        cell = make_cell(
            model="compact:trades", data="cifar10:test", attack="adaptive", threat="linf:8/255", samples=range(2)
        )
        folder = Store(tmp_path).folder(cell)
        Store(tmp_path).prepare(cell)
    found = read_cell(folder)
    assert (found.key, found.earlier) == (folder.name, "adaptive:steps=1000,samples=20@1")
    with pytest.raises(StoreMismatch):
        Store(tmp_path).prepare(found)
    monkeypatch.setattr(Adaptive, "still_shown", frozenset())
    with pytest.raises(OtherEdition):
        read_cell(folder)
