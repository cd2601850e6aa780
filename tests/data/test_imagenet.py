"""ImageNet: folders by wnid, images with a csv, and arrays; read when needed, in a fixed order."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from antiadv import data
from antiadv.core.errors import BadInput
from antiadv.data.dataset import Bytes, Mapped
from antiadv.data.imagenet import crop

WNIDS = [f"n{i:08d}" for i in range(1000)]


def png(pixels: Bytes) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "png")
    return buffer.getvalue()


def plain(value: int, side: int = 8) -> bytes:
    return png(np.full((side, side, 3), value, np.uint8))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A thousand classes of one image each; class c holds file number 7c mod 1000, of colour c mod 256."""
    root = tmp_path_factory.mktemp("val")
    for label, wnid in enumerate(WNIDS):
        (root / wnid).mkdir()
        (root / wnid / f"ILSVRC2012_val_{7 * label % 1000:08d}.JPEG").write_bytes(plain(label % 256))
    return root


def write_table(folder: Path, rows: Sequence[Mapping[str, object]], name: str = "table.csv") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return folder


# ---------------------------------------------------------------- folders by wnid


def test_folders_by_wnid(folders: Path, tmp_path: Path) -> None:
    written = data.import_source(folders, tmp_path)
    assert [path.name for path in written] == ["imagenet-test.json"]
    assert list(tmp_path.iterdir()) == written  # the images stay where they are
    dataset = data.load(f"imagenet:dir={tmp_path}")
    assert (dataset.name, len(dataset), dataset.classes) == ("imagenet:test", 1000, tuple(WNIDS))
    # sample i is file number i, whatever its folder: 7·143 = 1001, so file i is of class 143i mod 1000
    ids = [0, 1, 2, 999]
    assert dataset.labels(ids).tolist() == [143 * i % 1000 for i in ids]
    images = dataset.images(ids)
    assert images.shape == (4, 3, 224, 224)
    assert torch.equal(images[:, 0, 100, 100], dataset.labels(ids) % 256 / 255)


def test_images_are_opened_only_when_asked_for(folders: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folders, tmp_path / "val")
    data.import_source(copy, tmp_path / "data")
    missing, changed = (
        copy / WNIDS[143] / "ILSVRC2012_val_00000001.JPEG",
        copy / WNIDS[286] / "ILSVRC2012_val_00000002.JPEG",
    )
    missing.unlink()
    changed.write_bytes(plain(9))
    dataset = data.load(f"imagenet:dir={tmp_path / 'data'}")
    assert dataset.images([0]).shape == (1, 3, 224, 224)
    with pytest.raises(BadInput, match=r"val_00000001\.JPEG .*No such file"):
        dataset.images([1])
    with pytest.raises(BadInput, match=r"val_00000002\.JPEG has changed"):
        dataset.images([2])


def test_a_missing_class_is_refused(folders: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folders, tmp_path / "val")
    (copy / WNIDS[7] / "ILSVRC2012_val_00000049.JPEG").unlink()
    with pytest.raises(BadInput, match=r"n00000007 .*class 7"):
        data.import_source(copy, tmp_path / "data")
    (copy / WNIDS[7]).rmdir()
    with pytest.raises(BadInput, match=r"has 999 folders .*expected 1000"):
        data.import_source(copy, tmp_path / "data")


# ---------------------------------------------------------------- flat, with a csv


def test_the_same_images_flat_have_the_same_ids_and_digest(folders: Path, tmp_path: Path) -> None:
    rows = [{"ImageId": f.stem, "PredictionString": f"{f.parent.name} 1 2 3 4"} for f in folders.glob("*/*")]
    flat = write_table(tmp_path / "flat", rows, "LOC_val_solution.csv")
    (flat / "images").mkdir()
    for file in folders.glob("*/*"):
        shutil.copy(file, flat / "images")
    data.import_source(folders, tmp_path / "a")
    data.import_source(flat, tmp_path / "b")
    one, two = (data.load(f"imagenet:dir={tmp_path / name}") for name in "ab")
    assert one.digest == two.digest
    assert torch.equal(one.labels(one.ids), two.labels(two.ids))
    assert torch.equal(one.images([3, 500]), two.images([3, 500]))


@pytest.mark.parametrize(
    ("name_column", "class_column", "first"),
    [("ImageId", "TrueLabel", 1), ("image_id", "class_index", 0), ("filename", "label", 0)],
)
@pytest.mark.parametrize("given", ["folder", "csv"])
def test_csv_columns(name_column: str, class_column: str, first: int, given: str, tmp_path: Path) -> None:
    names = ["f00d", "beef", "cafe"]
    rows = [
        {name_column: name + (".png" if name_column == "filename" else ""), class_column: label + first, "author": "x"}
        for name, label in zip(names, (305, 0, 999), strict=True)
    ]
    folder = write_table(tmp_path / "flat", rows)
    for value, name in enumerate(names):
        (folder / f"{name}.png").write_bytes(plain(value, 224))
    data.import_source(folder if given == "folder" else folder / "table.csv", tmp_path / "data")
    dataset = data.load(f"imagenet:dir={tmp_path / 'data'}")
    assert dataset.labels(range(3)).tolist() == [305, 0, 999]  # the order of the csv
    assert dataset.images(range(3))[:, 1, 5, 5].mul(255).tolist() == [0, 1, 2]


def test_the_competitions_images_are_recognised_by_their_ids(tmp_path: Path) -> None:
    folder = write_table(tmp_path / "flat", [{"ImageId": "0c7ac4a8c9dfa802", "TrueLabel": 306}])
    (folder / "0c7ac4a8c9dfa802.png").write_bytes(plain(1, 224))
    assert [p.name for p in data.import_source(folder, tmp_path / "data")] == ["nips2017-test.json"]
    assert data.load(f"nips2017:dir={tmp_path / 'data'}").labels([0]).tolist() == [305]
    assert [p.name for p in data.import_source(folder, tmp_path / "data", "imagenet")] == ["imagenet-test.json"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"ImageId": "b", "label": 3}, "lists 1 images, .* 1 are .*'b'"),
        ({"ImageId": "a", "label": 1000}, r"column label: classes are 0 to 999; found 1000"),
        ({"ImageId": "a", "TrueLabel": 0}, r"column TrueLabel: classes are 1 to 1000; found 0"),
        ({"ImageId": "a", "label": "cat"}, "a class is a whole number"),
        ({"ImageId": "a", "wnid": "n01440764"}, "names 1 wnids, expected 1000"),
        ({"name": "a", "kind": 3}, "no known form"),
    ],
)
def test_a_csv_that_does_not_fit_is_one_sentence(row: dict[str, object], reason: str, tmp_path: Path) -> None:
    folder = write_table(tmp_path / "flat", [row])
    (folder / "a.png").write_bytes(plain(0))
    with pytest.raises(BadInput, match=reason):
        data.import_source(folder, tmp_path / "data")


# ---------------------------------------------------------------- arrays


def test_arrays_are_kept_as_they_are_and_memory_mapped(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (3, 224, 224, 3), np.uint8)
    (tmp_path / "source").mkdir()
    np.save(tmp_path / "source" / "nips2017_x.npy", x)
    np.save(tmp_path / "source" / "nips2017_y.npy", np.array([5, 999, 0]))
    assert [p.name for p in data.import_source(tmp_path / "source", tmp_path / "data")] == ["nips2017-test.json"]
    dataset = data.load(f"nips2017:dir={tmp_path / 'data'}")
    assert isinstance(dataset.pixels, Mapped)
    assert isinstance(dataset.pixels.x, np.memmap)
    assert np.array_equal(dataset.arrays()[0], x)
    assert dataset.labels([1, 0]).tolist() == [999, 5]
    for kept, other in (("labels", np.array([0, 999, 5])), ("images", 255 - x)):
        path = tmp_path / "data" / f"nips2017-test.{kept}.npy"
        before = path.read_bytes()
        np.save(path, other)
        with pytest.raises(BadInput, match="have changed"):
            data.load(f"nips2017:dir={tmp_path / 'data'}")
        path.write_bytes(before)
    np.save(tmp_path / "source" / "nips2017_y.npy", np.array([5, 1000, 0]))
    with pytest.raises(BadInput, match=r"0 to 999\b.*0 to 1000"):
        data.import_source(tmp_path / "source", tmp_path / "data")


def test_what_is_not_imported_says_how(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"imagenet is not in .*antiadv data import SOURCE --name imagenet"):
        data.load(f"imagenet:dir={tmp_path}")


# ---------------------------------------------------------------- the crop


def random_image(height: int, width: int) -> Bytes:
    return np.random.default_rng(height).integers(0, 256, (height, width, 3), np.uint8)


def test_an_image_whose_shorter_side_is_256_is_only_cropped() -> None:
    wide, tall = random_image(256, 300), random_image(301, 256)
    assert np.array_equal(crop(png(wide), "wide"), wide[16:240, 38:262])
    assert np.array_equal(crop(png(tall), "tall"), tall[38:262, 16:240])  # 38.5 rounds to the even 38


def test_an_image_of_224_stays() -> None:
    x = random_image(224, 224)
    assert np.array_equal(crop(png(x), "x"), x)


def test_larger_images_are_scaled_to_256_first() -> None:
    x = np.repeat(np.repeat(random_image(256, 320), 2, axis=0), 2, axis=1)  # every pixel four times
    small = np.asarray(Image.fromarray(x).resize((320, 256), Image.Resampling.BILINEAR))
    assert np.array_equal(crop(png(x), "x"), small[16:240, 48:272])


def test_the_longer_side_is_the_whole_part_of_its_share() -> None:
    """206 · 256 / 103 is exactly 512; the usual code computes 511.99…."""
    x = random_image(103, 206)
    scaled = np.asarray(Image.fromarray(x).resize((512, 256), Image.Resampling.BILINEAR))
    assert np.array_equal(crop(png(x), "x"), scaled[16:240, 144:368])


@pytest.mark.parametrize(("height", "width"), [(1, 1), (255, 257), (333, 500), (2000, 3)])
def test_every_size_becomes_224(height: int, width: int) -> None:
    assert crop(png(random_image(height, width)), "x").shape == (224, 224, 3)


def test_grey_images_and_palettes_become_colours() -> None:
    grey = np.arange(224 * 224, dtype=np.uint32).reshape(224, 224).astype(np.uint8)
    assert np.array_equal(crop(png(grey), "grey"), np.repeat(grey[:, :, None], 3, axis=2))


def test_what_is_no_image_is_one_sentence() -> None:
    for content in (b"text", plain(3, 300)[:-30]):
        with pytest.raises(BadInput, match="x cannot be read as a picture"):
            crop(content, "x")
