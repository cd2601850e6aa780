"""Stale results are refused: a changed `forward`, a swapped file, a stopped server, and edited images, labels and files
are noticed, and nothing that is stored is lost."""

from __future__ import annotations

import dataclasses
import errno
import http.server
import json
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from antiadv import data
from antiadv.cli.__main__ import main
from antiadv.core.errors import BadInput, StoreMismatch, Unfinished
from antiadv.data import imported
from antiadv.evaluation import Cell, Resources, Store, evaluate, make_cell
from antiadv.evaluation.cell import Job
from antiadv.evaluation.probe import TOLERANCE, Asked, probe_images
from antiadv.evaluation.shard import run_shard
from tests.engine.probes import MODEL, RECEIPT, cell, record, resources
from tests.system.test_invariance import spy
from tests.toys import Bands

CELL = cell("pgd:steps=3", range(12))
Write = Callable[[str], None]

VERDICT = ["verdict", "--model", "mine:make", "--threat", "linf:4/255,queries=10", "--samples", "0:8"]
SQUARE = ["evaluate", "--model", "mine:make", "--attack", "square:steps=5", "--threat", "linf:4/255,queries=10"]
SQUARE += ["--samples", "0:8"]

HEAD = """
import json, urllib.request
import numpy as np, torch
from torch import nn

def bands(x):
    return x.flatten(1)[:, :3070].reshape(len(x), 10, 307).mean(2) * 10
"""
NORMALISED = """
class Net(nn.Module):
    def forward(self, x):
        return bands((x - {mean}) / 0.25)

def make():
    return Net().eval()
"""
FROM_FILE = """
class Net(nn.Module):
    def forward(self, x):
        return bands(x) @ torch.from_numpy(np.load("weights.npy"))

def make():
    return Net().eval()
"""
FROM_SERVER = """
class Net(nn.Module):
    def forward(self, x):
        said = json.dumps(bands(x).tolist()).encode()
        with urllib.request.urlopen("http://127.0.0.1:{port}", said, timeout=30) as answer:
            return torch.tensor(json.loads(answer.read()))

def make():
    return Net().eval()
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes the user's module `mine.py` into the current folder; the next run imports it again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def module(text: str) -> None:
        sys.modules.pop("mine", None)
        Path("mine.py").write_text(HEAD + text)

    yield module
    sys.modules.pop("mine", None)


def kept(root: str = "store") -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in sorted(Path(root).rglob("*")) if p.is_file()}


def refused(capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    """The one line of the refused command. It shows no number."""
    capsys.readouterr()
    assert main(words) == 2
    said = capsys.readouterr()
    assert "%" not in said.out
    assert said.err.strip().count("\n") == 0
    return said.err


# ---------------------------------------------------------------- networks of the user's own


def test_a_changed_forward_is_noticed(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write(NORMALISED.format(mean=0.5))
    assert main(VERDICT) == 0
    before = kept()
    write(NORMALISED.format(mean=0.45))
    said = refused(capsys, VERDICT)
    assert any(str(path.parent) in said for path in before), "the folder is named"
    assert "--store" in said
    assert kept() == before, "nothing is lost"
    assert main([*VERDICT, "--store", "another"]) == 0
    write(NORMALISED.format(mean=0.5))
    assert main(VERDICT) == 0, "unchanged, the network is accepted"


def test_a_swapped_file_without_a_digest_is_noticed(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("weights.npy", np.eye(10, dtype=np.float32))
    write(FROM_FILE)
    assert main(VERDICT) == 0
    before = kept()
    np.save("weights.npy", np.eye(10, dtype=np.float32)[::-1].copy())
    assert "has changed" in refused(capsys, VERDICT)
    Path("weights.npy").unlink()
    assert "FileNotFoundError" in refused(capsys, VERDICT)
    assert kept() == before


class Echo(http.server.BaseHTTPRequestHandler):
    """A model served by HTTP: returns the scores that it was sent."""

    def do_POST(self) -> None:
        said = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *args: object) -> None:
        pass


def test_a_server_that_has_stopped_shows_no_old_number(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        write(FROM_SERVER.format(port=server.server_address[1]))
        assert main(SQUARE) == 0
        assert main(SQUARE) == 0, "it answers as before"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    before = kept("results")
    assert before
    assert "does not answer" in refused(capsys, SQUARE)
    assert kept("results") == before


def test_the_bare_row_next_to_a_defended_one_is_checked_too(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write(NORMALISED.format(mean=0.5))
    assert main(SQUARE) == 0
    write(NORMALISED.format(mean=0.45))
    assert "has changed" in refused(capsys, [*SQUARE, "--defence", "anti_adversary"]), "its own cell is new"


class Shifted(Bands):
    """The exact toy with the score of the first class shifted by a share of the spread."""

    def __init__(self, share: float = 0.0) -> None:
        super().__init__()
        self.share = share
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        s = super().forward(x)
        return s + self.share * 9 * (torch.arange(10) == 0)


def here(network: nn.Module) -> Resources:
    return Resources("cpu", models={MODEL: network.eval()})


def test_the_tolerance_accepts_rounding_and_nothing_else(tmp_path: Path) -> None:
    evaluate([CELL], tmp_path, resources=here(Shifted()))
    for share in (0.0, TOLERANCE / 2, -TOLERANCE / 2):
        evaluate([CELL], tmp_path, resources=here(Shifted(share)))
    for share in (3 * TOLERANCE, -0.5, 1e6):
        with pytest.raises(StoreMismatch) as error:
            evaluate([CELL], tmp_path, resources=here(Shifted(share)))
        assert CELL.key in str(error.value)


def test_a_resume_is_refused_before_anything_is_run(tmp_path: Path) -> None:
    evaluate([CELL], tmp_path, resources=here(Shifted()))
    jobs: list[Job] = []
    more = dataclasses.replace(CELL, samples=range(30))
    with pytest.raises(StoreMismatch):
        evaluate([more], tmp_path, resources=here(Shifted(0.3)), runner=spy(jobs))
    assert not jobs
    assert len(Store(tmp_path).read(more)) == 12


def test_other_classes_are_another_network(tmp_path: Path) -> None:
    class Twice(Bands):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).repeat(1, 2)

    evaluate([CELL], tmp_path, resources=here(Shifted()))
    with pytest.raises(StoreMismatch):
        evaluate([CELL], tmp_path, resources=here(Twice()))


def test_a_cell_without_samples_accepts_any_network(tmp_path: Path) -> None:
    """A run that failed leaves a folder and no records. The corrected network starts again."""
    evaluate([CELL], tmp_path, resources=here(Shifted(0.3)), runner=lambda work, jobs: iter(()))
    assert not Store(tmp_path).done(CELL)
    evaluate([CELL], tmp_path, resources=here(Shifted()))
    evaluate([CELL], tmp_path, resources=here(Shifted()))
    with pytest.raises(StoreMismatch):
        evaluate([CELL], tmp_path, resources=here(Shifted(0.3)))


def test_a_network_in_hand_that_was_trained_on_has_another_cell() -> None:
    head = nn.Linear(3072, 10)
    net = nn.Sequential(nn.Flatten(), head).eval()
    there = Resources("cpu", models={"mine": net})
    first, second = (make_cell(model="mine", attack="pgd", threat="linf:1/255", resources=there) for _ in range(2))
    assert first.key == second.key
    with torch.no_grad():
        head.bias.add_(1)
    assert make_cell(model="mine", attack="pgd", threat="linf:1/255", resources=there).key != first.key


# ---------------------------------------------------------------- networks that cannot be compared


class Noisy(Bands):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.rand(len(x), 10)


class Coin(Bands):
    """Gives one of two answers at random."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, x: Tensor) -> Tensor:
        s = super().forward(x)
        return s if torch.rand((), generator=self.generator) < 0.5 else s.flip(1)


def test_a_random_network_is_not_compared_and_a_warning_says_so(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    evaluate([CELL], tmp_path, resources=here(Noisy()), runner=lambda work, jobs: iter(()))
    assert torch.equal(torch.get_rng_state(), before), "the state of torch's generator is restored"
    Store(tmp_path).append(CELL, [record(i) for i in CELL.samples], RECEIPT)
    with pytest.warns(UserWarning, match="cannot be checked"):
        evaluate([CELL], tmp_path, resources=here(Noisy()))


def test_one_equal_answer_of_a_random_network_is_enough(tmp_path: Path) -> None:
    """Two equal answers by chance are stored; the other answer alone would look like a change."""
    evaluate([CELL], tmp_path, resources=here(Shifted()))
    for _ in range(5):
        evaluate([CELL], tmp_path, resources=here(Coin()))


def test_a_network_that_becomes_random_has_changed(tmp_path: Path) -> None:
    evaluate([CELL], tmp_path, resources=here(Shifted()))
    with pytest.raises(StoreMismatch):
        evaluate([CELL], tmp_path, resources=here(Noisy()))


def test_nan_instead_of_stored_scores_is_refused(tmp_path: Path) -> None:
    class Lost(Bands):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * torch.nan

    evaluate([CELL], tmp_path, resources=here(Shifted()))
    with pytest.raises(BadInput, match="finite"):
        evaluate([CELL], tmp_path, resources=here(Lost()))
    with pytest.raises(Unfinished):  # where nothing is stored, the shards report it
        evaluate([CELL], tmp_path / "new", resources=here(Lost()))


def test_a_store_without_probes_is_accepted_with_a_warning_and_gets_them(tmp_path: Path) -> None:
    evaluate([CELL], tmp_path, resources=resources())
    probe = tmp_path / CELL.key / "probe.json"
    before = probe.read_bytes()
    probe.unlink()
    with pytest.warns(UserWarning, match="could not be checked") as told:
        evaluate([CELL, cell("pgd:steps=2", range(3))], tmp_path, resources=resources())
    assert len(told) == 1
    assert probe.read_bytes() == before
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate([CELL], tmp_path, resources=resources())


def test_the_librarys_own_networks_need_no_warning(tmp_path: Path) -> None:
    ours = make_cell(model="compact:trades", attack="pgd:steps=1", threat="linf:1/255", samples=range(2))
    evaluate([ours], tmp_path)
    probe = tmp_path / ours.key / "probe.json"
    probe.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate([ours], tmp_path)
    assert probe.exists()


def test_a_store_that_cannot_be_written_needs_no_probe_to_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate([CELL], tmp_path, resources=resources())
    (tmp_path / CELL.key / "probe.json").unlink()

    def full(fd: int) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(UserWarning, match="could not be checked"):
        evaluate([CELL], tmp_path, resources=resources())
    assert [p.name for p in (tmp_path / CELL.key).iterdir() if "probe" in p.name] == []


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"digest": 1}', b"[" * 100_000, b"\xff"])
def test_a_damaged_probe_is_named(tmp_path: Path, content: bytes) -> None:
    evaluate([CELL], tmp_path, resources=resources())
    probe = tmp_path / CELL.key / "probe.json"
    probe.write_bytes(content)
    with pytest.raises(StoreMismatch, match=r"probe\.json"):
        evaluate([CELL], tmp_path, resources=resources())
    assert len(Store(tmp_path).read(CELL)) == 12, "reports need no network, and no probe"


def test_an_edited_probe_is_refused(tmp_path: Path) -> None:
    evaluate([CELL], tmp_path, resources=here(Shifted()))
    probe = tmp_path / CELL.key / "probe.json"
    said = json.loads(probe.read_text())
    said["scores"] = [None] * 4
    probe.write_text(json.dumps(said))
    with pytest.raises(StoreMismatch, match=r"probe\.json"):
        evaluate([CELL], tmp_path, resources=here(Shifted(0.3)))


def test_each_network_is_asked_once_for_all_its_cells(tmp_path: Path) -> None:
    class Counted(Bands):
        seen = 0

        def forward(self, x: Tensor) -> Tensor:
            Counted.seen += len(x)
            return super().forward(x)

    cells = [cell(f"pgd:steps={k}", range(2)) for k in range(1, 5)]
    evaluate(cells, tmp_path, resources=here(Counted()))
    Counted.seen = 0
    evaluate(cells, tmp_path, resources=here(Counted()))
    assert Counted.seen == 8, "four images, sent twice"


def test_probe_images_are_bytes_of_the_datas_shape() -> None:
    images = probe_images(resources().data("cifar10:test"))
    assert images.shape == (4, 3, 32, 32)
    assert images[:2].equal(resources().data("cifar10:test").images([0, 1]))
    assert torch.equal((images * 255).round() / 255, images)
    assert (images.min().item(), images.max().item()) == (0, 1)
    assert Asked(resources(), MODEL, "cifar10:test").probe == Asked(resources(), MODEL, "cifar10:test").probe


# ---------------------------------------------------------------- data and files


def swap(path: Path, content: bytes) -> None:
    """Write other content of the same size and keep the time stamp."""
    time = path.stat().st_mtime_ns
    assert len(content) == path.stat().st_size
    with path.open("r+b") as file:  # in place, so that a memory map sees it
        file.write(content)
    os.utime(path, ns=(time, time))


def flipped(path: Path, place: int = -1) -> bytes:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    return bytes(content)


def arrays(n: int = 6) -> dict[str, Any]:
    x = data.load("cifar10:test").images(range(n)).permute(0, 2, 3, 1)
    return {"images": (255 * x).round().to(torch.uint8).numpy(), "labels": np.arange(n)}


def of(source: Path, there: Resources | None = None) -> Cell:
    words = {"attack": "pgd:steps=2", "threat": "linf:2/255", "samples": range(6)}
    return make_cell(model=MODEL, data=f"arrays:({source})", resources=there or here(Bands()), **words)  # type: ignore[arg-type]


@pytest.mark.parametrize("what", ["images", "labels"])
def test_edited_arrays_are_another_cell(tmp_path: Path, what: str) -> None:
    for name, array in arrays().items():
        np.save(tmp_path / f"{name}.npy", array)
    there = here(Bands())
    before = of(tmp_path, there)
    evaluate([before], tmp_path / "store", resources=there)
    swap(tmp_path / f"{what}.npy", flipped(tmp_path / f"{what}.npy", -8))  # the low byte of the last label
    assert of(tmp_path).key != before.key
    with pytest.raises(BadInput):
        evaluate([before], tmp_path / "store", resources=here(Bands()))
    if what == "images":  # they are read from the disk when needed
        with pytest.raises(BadInput):
            evaluate([before], tmp_path / "store", resources=there)


def test_an_edited_npz_is_another_cell(tmp_path: Path) -> None:
    source, other = tmp_path / "mine.npz", arrays()
    np.savez(source, **other)
    before = of(source)
    evaluate([before], tmp_path / "store", resources=here(Bands()))
    other["images"][5, 0, 0, 0] ^= 1
    np.savez(tmp_path / "other.npz", **other)
    swap(source, (tmp_path / "other.npz").read_bytes())
    assert of(source).key != before.key
    with pytest.raises(BadInput):
        evaluate([before], tmp_path / "store", resources=here(Bands()))


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of four pictures with a csv, imported as ImageNet."""
    from PIL import Image

    folder = tmp_path / "pictures"
    folder.mkdir()
    for i in range(4):
        Image.new("RGB", (224, 224), (50 * i, 90, 200)).save(folder / f"{i}.png")
    (folder / "list.csv").write_text("image,label\n" + "".join(f"{i}.png,{i}\n" for i in range(4)))
    monkeypatch.setattr(imported, "DIRECTORY", tmp_path / "data")
    data.import_source(folder, tmp_path / "data", "imagenet")
    return folder


class Thousand(Bands):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).repeat(1, 100) - torch.arange(1000) / 1000


def of_imagenet() -> Cell:
    words = {"attack": "pgd:steps=1", "threat": "linf:2/255", "samples": range(3)}
    return make_cell(model=MODEL, data="imagenet", resources=here(Thousand()), **words)  # type: ignore[arg-type]


def test_an_edited_picture_of_a_list_is_refused_though_all_is_stored(listed: Path, tmp_path: Path) -> None:
    asked = of_imagenet()
    evaluate([asked], tmp_path / "store", resources=here(Thousand()))
    swap(listed / "3.png", flipped(listed / "3.png"))
    evaluate([asked], tmp_path / "store", resources=here(Thousand()))  # not one of the cell's samples
    swap(listed / "2.png", flipped(listed / "2.png"))
    with pytest.raises(BadInput, match=r"2\.png has changed"):
        evaluate([asked], tmp_path / "store", resources=here(Thousand()))


@pytest.mark.parametrize("what", ["labels", "files", "sha256"])
def test_an_edited_list_is_refused(listed: Path, tmp_path: Path, what: str) -> None:
    key = of_imagenet().key
    card = tmp_path / "data" / "imagenet-test.json"
    before, said = card.read_text(), json.loads(card.read_text())
    said[what] = said[what][::-1]
    card.write_text(json.dumps(said))
    with pytest.raises(BadInput, match=r"imagenet-test\.json"):
        of_imagenet()
    card.write_text(before)
    assert of_imagenet().key == key


def test_a_changed_basis_is_another_cell(tmp_path: Path) -> None:
    path = tmp_path / "basis.safetensors"
    attack = f"qeba:basis=pca,path={path},steps=1,probes=2,max_probes=2,tries=2"
    words = {"threat": "l2:0.5,queries=20", "samples": range(2), "resources": resources(), "model": MODEL}

    def asked(text: str = attack) -> Cell:
        return make_cell(attack=text, **words)  # type: ignore[arg-type]

    save_file({"basis": torch.eye(3072)[:4].contiguous()}, path)
    first, nested = asked(), asked(f"transfer:attack=({attack})")
    assert first == asked()
    evaluate([first], tmp_path / "store", resources=resources())
    (found,) = Store(tmp_path / "store").cells()
    assert (found, found.key) == (first, first.key)
    save_file({"basis": torch.eye(3072)[4:8].contiguous()}, path)
    assert asked().key != first.key
    assert asked(f"transfer:attack=({attack})").key != nested.key
    with pytest.raises(BadInput):
        evaluate([first], tmp_path / "store", resources=resources())
    with pytest.raises(BadInput):
        run_shard(Job(first, (0,)), resources())
    path.unlink()
    with pytest.raises(BadInput):
        asked()


def test_only_a_file_that_is_named_is_in_a_key() -> None:
    assert "files" not in cell("qeba:basis=dct", threat="l2:0.5").identity
    assert cell("qeba", threat="l2:0.5").files == ""


NAMES = ["plain.npz", "a=b.npz", "a,b.npz", "x=1,y=2.npz", "(a).npz", "a (1).npz", " a b .npz", "ü ñ 猫.npz", "a+b.npz"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("near", [True, False])
def test_any_name_of_a_file_comes_back_from_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, near: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / name, **arrays())
    made = of(Path(name) if near else tmp_path / name)
    store = Store("store")
    store.append(made, [record(i) for i in made.samples], RECEIPT)
    (found,) = Store("store").cells()
    assert found.key == made.key
    assert len(store.read(found)) == 6
    assert data.canonical(data.canonical(made.data)) == data.canonical(made.data)


def test_a_path_that_no_spec_can_hold_is_stored_under_another_name(tmp_path: Path) -> None:
    folder = tmp_path / "d(x"
    folder.mkdir()
    np.savez(folder / "y).npz", **arrays())
    made = of(folder / "y).npz")
    store = Store(tmp_path / "store")
    store.append(made, [record(i) for i in made.samples], RECEIPT)
    assert [c.key for c in store.cells()] == [made.key]
