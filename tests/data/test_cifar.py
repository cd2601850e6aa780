"""CIFAR: every published form gives the same checked images; other files give one clear error."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from antiadv import data
from antiadv.core.errors import BadInput, BadSpec
from antiadv.data import cifar, imported, unpickling
from antiadv.data.dataset import Mapped, digest
from tests.data import made
from tests.data.made import Splits


@pytest.fixture(params=["cifar10", "cifar100"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def splits(name: str, monkeypatch: pytest.MonkeyPatch) -> Splits:
    splits = made.make(name)
    made.pretend(name, splits, monkeypatch)
    return splits


@pytest.fixture
def ten(monkeypatch: pytest.MonkeyPatch) -> Splits:
    splits = made.make("cifar10")
    made.pretend("cifar10", splits, monkeypatch)
    return splits


def assert_same(directory: Path, name: str, splits: Splits) -> None:
    for split, (x, y) in splits.items():
        dataset = data.load(f"{name}:{split},dir={directory}")
        found_x, found_y = dataset.arrays()
        assert np.array_equal(found_x, x)
        assert np.array_equal(found_y, y)
        assert found_y.dtype == np.int64
        assert dataset.digest == digest(x, y)
        assert dataset.name == f"{name}:{split}"
        assert len(dataset.classes) == y.max() + 1


# ---------------------------------------------------------------- published forms


@pytest.mark.parametrize("form", ["archive", "folder", "folder above"])
@pytest.mark.parametrize("files", [made.python_files, made.binary_files])
def test_python_and_binary_distributions(
    files: Callable[[str, Splits], dict[str, bytes]], form: str, name: str, splits: Splits, tmp_path: Path
) -> None:
    content = files(name, splits) | {"readme.html": b"<html>", "batches.meta": b"not read"}
    if form == "archive":
        source = made.write_archive(content, tmp_path / "some.tar.gz", "inside")
    else:
        source = made.write_folder(content, tmp_path / "source" / "inside")
        source = source.parent if form == "folder above" else source
    written = data.import_source(source, tmp_path / "data")
    assert [path.name for path in written] == [f"{name}-train.json", f"{name}-test.json"]
    assert_same(tmp_path / "data", name, splits)


def test_npm_sheets(ten: Splits, tmp_path: Path) -> None:
    data.import_source(made.write_archive(made.npm_files(ten), tmp_path / "tfjs.tgz", "package"), tmp_path / "data")
    assert_same(tmp_path / "data", "cifar10", ten)


@pytest.mark.parametrize("form", ["pairs", "one of a pair", "npz", "npz without words", "planes", "channels first"])
def test_arrays(form: str, name: str, splits: Splits, tmp_path: Path) -> None:
    sources = [tmp_path / "arrays.npz"]
    if form == "npz":
        (train_x, train_y), (test_x, test_y) = splits["train"], splits["test"]
        np.savez(sources[0], x_train=train_x, y_train=train_y, x_test=test_x, y_test=test_y)
    elif form in ("pairs", "one of a pair"):
        for split, (x, y) in splits.items():
            np.save(tmp_path / f"some_{split}_x.npy", x)
            np.save(tmp_path / f"some_{split}_y.npy", y.astype(np.uint8))
        sources = [tmp_path] if form == "pairs" else [tmp_path / f"some_{split}_x.npy" for split in splits]
    else:
        sources = [tmp_path / f"{split}.npz" for split in splits]
        for source, (x, y) in zip(sources, splits.values(), strict=True):
            pixels = {"planes": made.planes(x), "channels first": x.transpose(0, 3, 1, 2)}.get(form, x)
            np.savez_compressed(source, images=pixels, labels=y[:, None])
    written = [path.name for source in sources for path in data.import_source(source, tmp_path / "data")]
    assert sorted(written) == [f"{name}-test.json", f"{name}-train.json"]
    assert_same(tmp_path / "data", name, splits)


def test_a_single_split_is_enough(ten: Splits, tmp_path: Path) -> None:
    files = {"test_batch.bin": made.binary_files("cifar10", ten)["test_batch.bin"]}
    assert len(data.import_source(made.write_folder(files, tmp_path / "source"), tmp_path / "data")) == 1
    assert_same(tmp_path / "data", "cifar10", {"test": ten["test"]})


def test_batches_pickled_by_python_3_load(ten: Splits, tmp_path: Path) -> None:
    files = {
        part: pickle.dumps({b"data": made.planes(x), b"labels": y.tolist()}, protocol=2)
        for part, (x, y) in made.batches(ten).items()
    }
    data.import_source(made.write_folder(files, tmp_path / "source"), tmp_path / "data")
    assert_same(tmp_path / "data", "cifar10", ten)


def test_importing_again_replaces_and_leaves_nothing_behind(ten: Splits, tmp_path: Path) -> None:
    source = made.write_folder(made.binary_files("cifar10", ten), tmp_path / "source")
    for _ in range(2):
        data.import_source(source, tmp_path / "data")
    kinds = {path.name.partition(".")[2] for path in (tmp_path / "data").iterdir()}
    assert kinds == {"json", "images.npy", "labels.npy"}
    assert len(list((tmp_path / "data").iterdir())) == 6


def test_arrays_are_memory_mapped_and_not_shared(ten: Splits, tmp_path: Path) -> None:
    data.import_source(made.write_folder(made.binary_files("cifar10", ten), tmp_path / "source"), tmp_path / "data")
    dataset = data.load(f"cifar10:dir={tmp_path / 'data'}")
    assert isinstance(dataset.pixels, Mapped)
    assert isinstance(dataset.pixels.x, np.memmap)
    x, y = dataset.arrays()
    x[:], y[:] = 0, 0  # training may do as it likes with its copy
    assert_same(tmp_path / "data", "cifar10", {"test": ten["test"]})


# ---------------------------------------------------------------- malicious pickles


class Bomb:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.trace}",)


def test_a_malicious_pickle_is_refused_and_does_not_run(ten: Splits, tmp_path: Path) -> None:
    files = {"test_batch": pickle.dumps({b"data": Bomb(tmp_path / "trace"), b"labels": []}, protocol=2)}
    with pytest.raises(BadInput, match=r"^test_batch .*(posix|nt)\.system"):
        data.import_source(made.write_folder(files, tmp_path / "source"), tmp_path / "data")
    assert not (tmp_path / "trace").exists()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("module", ["builtins\neval", "numpy\nload", "numpy.core.multiarray\nfromfile", "os\nsystem"])
def test_no_other_name_can_be_called(module: str) -> None:
    with pytest.raises(BadInput, match="not allowed"):
        unpickling.unpickle("test_batch", b"\x80\x02c" + module.encode() + b"\n(U\x011tR.")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x80\x02}", "is refused"),  # cut off
        (b"", "is refused"),
        (b"\x80\x02K\x01.", "not a CIFAR batch"),
        (pickle.dumps({b"data": b"1234", b"labels": [1]}, protocol=2), "is no array"),
        (pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, "a"]}, protocol=2), "no list of numbers"),
        (pickle.dumps({b"data": np.zeros((2, 3072), np.int16), b"labels": [1, 1]}, protocol=2), "N rows of 3072 bytes"),
        (pickle.dumps({b"data": np.zeros((2, 100), np.uint8), b"labels": [1, 1]}, protocol=2), "N rows of 3072 bytes"),
        (pickle.dumps({b"data": np.zeros(2, object), b"labels": [1, 1]}, protocol=2), "N rows of 3072 bytes"),
    ],
)
def test_other_pickles_are_one_sentence(content: bytes, reason: str, ten: Splits, tmp_path: Path) -> None:
    source = made.write_folder({"test_batch": content}, tmp_path / "source")
    with pytest.raises(BadInput, match=reason):
        data.import_source(source, tmp_path / "data")


# ---------------------------------------------------------------- errors


def test_a_truncated_archive(ten: Splits, tmp_path: Path) -> None:
    path = made.write_archive(made.binary_files("cifar10", ten), tmp_path / "cifar-10-binary.tar.gz", "inside")
    whole = path.read_bytes()
    for share in (0.01, 0.5, 0.99):
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(BadInput, match=r"damaged.*md5.*c32a1d4ab5d03f1284b67883e8d87530"):
            data.import_source(path, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_truncated_binary_file(ten: Splits, tmp_path: Path) -> None:
    files = made.binary_files("cifar10", ten)
    files["data_batch_3.bin"] = files["data_batch_3.bin"][:-1]
    with pytest.raises(BadInput, match=r"data_batch_3\.bin is truncated"):
        data.import_source(made.write_folder(files, tmp_path / "source"), tmp_path / "data")


def test_a_missing_file(ten: Splits, tmp_path: Path) -> None:
    files = made.python_files("cifar10", ten)
    del files["data_batch_4"]
    with pytest.raises(BadInput, match="data_batch_4"):
        data.import_source(made.write_folder(files, tmp_path / "source"), tmp_path / "data")


def test_a_missing_class(ten: Splits, tmp_path: Path) -> None:
    x, y = ten["test"]
    files = made.binary_files("cifar10", {**ten, "test": (x, np.where(y == 7, 6, y))})
    with pytest.raises(BadInput, match=r"class 6 \(frog\).* 2 .* 4\b"):
        data.import_source(made.write_folder(files, tmp_path / "source"), tmp_path / "data")


def test_too_few_images(ten: Splits, tmp_path: Path) -> None:
    x, y = ten["test"]
    files = made.binary_files("cifar10", {**ten, "test": (x[:-1], y[:-1])})
    with pytest.raises(BadInput, match=r"\b20 images\b.*\b19 labels"):
        data.import_source(made.write_folder(files, tmp_path / "source"), tmp_path / "data")


def test_labels_of_another_set(ten: Splits, tmp_path: Path) -> None:
    x, y = ten["test"]
    files = made.binary_files("cifar10", {**ten, "test": (x, y * 20)})
    with pytest.raises(BadInput, match=r"0 to 9\b.*0 to 180"):
        data.import_source(made.write_folder(files, tmp_path / "source"), tmp_path / "data")


def test_one_changed_pixel_is_a_wrong_digest(ten: Splits, tmp_path: Path) -> None:
    x, y = ten["test"]
    changed = x.copy()
    changed[3, 5, 7, 1] ^= 1
    files = made.binary_files("cifar10", {**ten, "test": (changed, y)})
    path = made.write_archive(files, tmp_path / "cifar-10-binary.tar.gz", "inside")
    due = cifar.KINDS["cifar10"].digest["test"]
    with pytest.raises(BadInput, match=rf"sha256:\w+.*{due}.*md5.*c32a"):
        data.import_source(path, tmp_path / "data")
    np.savez(tmp_path / "arrays.npz", x_test=changed, y_test=y)
    with pytest.raises(BadInput, match=rf"x_test .*sha256:\w+.*{due}"):
        data.import_source(tmp_path / "arrays.npz", tmp_path / "data")


def test_swapped_images_are_a_wrong_digest(ten: Splits, tmp_path: Path) -> None:
    """The sample id is the index in the canonical order, so the order is checked too."""
    x, y = ten["test"]
    same = np.flatnonzero(y == y[0])[:2]
    order = np.arange(len(y))
    order[same] = same[::-1]
    np.savez(tmp_path / "arrays.npz", x_test=x[order], y_test=y[order])
    with pytest.raises(BadInput, match="its digest is"):
        data.import_source(tmp_path / "arrays.npz", tmp_path / "data")


def test_damaged_sheets(ten: Splits, tmp_path: Path) -> None:
    whole = made.npm_files(ten)
    for name, content, reason in (
        ("test_batch.png", whole["test_batch.png"][:-500], "picture"),
        ("test_batch.png", b"text", "picture"),
        ("test_lables.json", b"[1, 2", "not a list of labels"),
        ("test_lables.json", b"[1, 2]", "20 images, .*int64 of shape"),
    ):
        source = made.write_folder(whole | {name: content}, tmp_path / "source")
        with pytest.raises(BadInput, match=reason):
            data.import_source(source, tmp_path / "data")


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"x_test": np.zeros((20, 32, 32, 3), np.float32), "y_test": np.zeros(20, int)}, "must be uint8"),
        ({"x_test": np.zeros((20, 32, 32), np.uint8), "y_test": np.zeros(20, int)}, r"has shape \(20, 32, 32\)"),
        ({"x_test": np.zeros((20, 32, 32, 3), np.uint8), "y_test": np.zeros(20)}, "one integer per image"),
        ({"x_test": np.zeros((20, 32, 32, 3), np.uint8)}, "x_test has no partner with the labels"),
        ({"x_test": np.array([{}], dtype=object), "y_test": np.zeros(1, int)}, "arrays"),
    ],
)
def test_arrays_that_are_something_else(
    arrays: dict[str, np.ndarray], reason: str, ten: Splits, tmp_path: Path
) -> None:
    np.savez(tmp_path / "arrays.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=reason):
        data.import_source(tmp_path / "arrays.npz", tmp_path / "data")


def test_damaged_arrays(ten: Splits, tmp_path: Path) -> None:
    x, y = ten["test"]
    np.savez(tmp_path / "arrays.npz", x=x, y=y)
    (tmp_path / "arrays.npz").write_bytes((tmp_path / "arrays.npz").read_bytes()[:5000])
    with pytest.raises(BadInput, match="arrays"):
        data.import_source(tmp_path / "arrays.npz", tmp_path / "data")


def test_sources_that_are_nothing_we_know(tmp_path: Path) -> None:
    (tmp_path / "readme.txt").write_text("hello")
    made.write_archive({"readme.txt": b"hello"}, tmp_path / "other.tar.gz", "inside")
    (tmp_path / "empty").mkdir()
    for name in ("readme.txt", "other.tar.gz", "empty"):
        with pytest.raises(BadInput, match="no known form"):
            data.import_source(tmp_path / name, tmp_path / "data")
    with pytest.raises(BadInput, match="does not exist"):
        data.import_source(tmp_path / "absent", tmp_path / "data")
    with pytest.raises(BadInput, match="'mnist'; known: cifar10"):
        data.import_source(tmp_path / "empty", tmp_path / "data", "mnist")


def test_a_set_of_another_name_than_asked(ten: Splits, tmp_path: Path) -> None:
    source = made.write_folder(made.binary_files("cifar10", ten), tmp_path / "source")
    with pytest.raises(BadInput, match=r"no known form .*cifar100"):
        data.import_source(source, tmp_path / "data", "cifar100")


def test_a_directory_that_cannot_be_written(ten: Splits, tmp_path: Path) -> None:
    source = made.write_folder(made.binary_files("cifar10", ten), tmp_path / "source")
    (tmp_path / "data").write_text("a file is in the way")
    with pytest.raises(BadInput, match="cannot be written"):
        data.import_source(source, tmp_path / "data")


# ---------------------------------------------------------------- loading an imported set


def test_an_imported_set_that_was_changed_is_refused(ten: Splits, tmp_path: Path) -> None:
    source = made.write_folder(made.binary_files("cifar10", ten), tmp_path / "source")
    directory = tmp_path / "data"
    data.import_source(source, directory)
    text, images, card = (
        f"cifar10:dir={directory}",
        directory / "cifar10-test.images.npy",
        directory / "cifar10-test.json",
    )
    whole, said = images.read_bytes(), card.read_text()
    for content, reason in (
        (whole[:-1] + bytes([whole[-1] ^ 1]), "their digest is sha256:"),
        (whole[:-1], "cannot be read"),
        (b"", "cannot be read"),
    ):
        images.write_bytes(content)
        with pytest.raises(BadInput, match=rf"{reason}.*import the set again"):
            data.load(text)
    images.write_bytes(whole)
    for words, reason in (
        ("{", "cannot be read"),
        ("{}", "lacks classes, count"),
        (json.dumps(json.loads(said) | {"format": 0}), "has format 0"),
        (json.dumps(json.loads(said) | {"count": 19}), "are not 19 images"),
    ):
        card.write_text(words)
        with pytest.raises(BadInput, match=rf"{reason}.*import the set again"):
            data.load(text)


def test_a_set_that_is_not_there_says_how_to_get_it(tmp_path: Path) -> None:
    for text in (f"cifar100:dir={tmp_path}", f"cifar10:train,dir={tmp_path}"):
        with pytest.raises(BadInput, match=r"antiadv data import.*-python\.tar\.gz"):
            data.load(text)


# ---------------------------------------------------------------- the images in the package


def test_the_embedded_slice_is_cifar10s_first_thousand_test_images(tmp_path: Path) -> None:
    dataset = data.load(f"cifar10:dir={tmp_path}")
    assert (dataset.name, len(dataset), dataset.ids) == ("cifar10:test", 1000, range(1000))
    assert dataset.digest == "sha256:e600ce11aaf5eb6759aae8ec88c3ab7c664a3bb307f49f95ddb7a5333c26325a"
    assert dataset.labels(range(10)).tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]  # the published beginning
    assert dataset.images([0])[0, :, 0, 0].mul(255).round().tolist() == [158, 112, 49]  # the cat's first pixel
    x, y = dataset.arrays()
    assert digest(x, y) == cifar.SAMPLE_DIGEST


def test_a_folder_that_is_not_there_is_not_replaced_by_the_slice(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none.*folder"):
        data.load(f"cifar10:dir={tmp_path / 'none'}")


def test_an_id_beyond_the_slice_says_how_to_import(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"\b999\b.*\b1000\b.*antiadv data import"):
        data.load(f"cifar10:dir={tmp_path}").images([5, 1000])


def test_an_imported_set_comes_before_the_slice(ten: Splits, tmp_path: Path) -> None:
    assert len(data.load(f"cifar10:dir={tmp_path}")) == 1000
    data.import_source(made.write_folder(made.binary_files("cifar10", ten), tmp_path / "source"), tmp_path)
    assert len(data.load(f"cifar10:dir={tmp_path}")) == 20


def test_the_default_directory_is_in_the_users_home(
    ten: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    source = made.write_folder(made.binary_files("cifar10", ten), tmp_path / "source")
    (written, *_) = data.import_source(source, data.DIRECTORY)
    assert written.parent == tmp_path / ".antiadv" / "data"
    assert len(data.load("cifar10:test")) == 20


def test_a_damaged_slice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar, "SAMPLE_DIGEST", "sha256:another")
    with pytest.raises(BadInput, match=r"are damaged: digest sha256:1c7d.*reinstall"):
        cifar.read_sample()


# ---------------------------------------------------------------- facts


def test_facts_about_the_sets() -> None:
    for kind, classes in ((cifar.KINDS["cifar10"], 10), (cifar.KINDS["cifar100"], 100)):
        assert len(set(kind.classes)) == classes
        assert list(kind.classes) == sorted(kind.classes)
        assert kind.count == {"test": 10_000, "train": 50_000}
    assert imported.place(Path("x"), "cifar10", "test") == Path("x/cifar10-test.json")


def test_images_are_bytes_over_255(tmp_path: Path) -> None:
    dataset = data.load(f"cifar10:dir={tmp_path}")
    x, _ = dataset.arrays()
    images = dataset.images(torch.tensor([7, 3]))
    assert images.shape == (2, 3, 32, 32)
    assert images.dtype == torch.float32
    assert torch.equal(images, torch.from_numpy(x[[7, 3]]).permute(0, 3, 1, 2).float() / 255)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("cifar10", "cifar10:test"),
        ("cifar10:train,dir=/data", "cifar10:train"),
        ("cifar100:dir=/data,split=test", "cifar100:test"),
        ("imagenet", "imagenet:test"),
    ],
)
def test_canonical_names(text: str, normal: str) -> None:
    assert data.canonical(text) == normal == data.canonical(normal)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(BadSpec, match="did you mean cifar10"):
        data.load("cifra10")
    with pytest.raises(BadSpec, match="one of test, train"):
        data.load("cifar10:val")
