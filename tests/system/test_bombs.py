"""Small files that would unpack to much memory: each is refused in one sentence and takes little memory."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import pickle
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from antiadv.core import bounds
from antiadv.data.imagenet import crop
from antiadv.evaluation import Store
from antiadv.evaluation.cell import COLUMNS, FORMAT
from antiadv.evaluation.store.files import digest, json_line
from tests.engine.probes import RECEIPT, cell, record

MEMORY = 2**29  # bytes that reading one file may add

CELL = cell()
READ = """
import json, resource, sys
from pathlib import Path
import antiadv, antiadv.data
from antiadv.cli.attack import read_image
from antiadv.core.errors import AntiadvError
from antiadv.data import imagenet
from antiadv.models import checkpoints
from antiadv.models.card import read_card

READERS = {
    "picture": lambda path: imagenet.crop(path.read_bytes(), path.name),
    "attack": lambda path: read_image(path, None),
    "arrays": lambda path: antiadv.data.load(f"arrays:{path}"),
    "import": lambda path: antiadv.data.import_source(path, path.parent / "imported"),
    "store": antiadv.report,
    "checkpoint": checkpoints.read,
    "card": read_card,
}
antiadv.data.load("cifar10:test")  # so that all imports are in memory by now
found = {}
for what, (reader, path) in json.loads(sys.stdin.read()).items():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        READERS[reader](Path(path))
        said = "taken"
    except AntiadvError as error:
        said = str(error)
    except Exception as error:
        said = "raised " + repr(error)
    found[what] = said, 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
print(json.dumps(found))
"""


def png(width: int, height: int, rows: bytes = b"") -> bytes:
    """A PNG file with a header of this size and the given rows of pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def npy(shape: tuple[int, ...], dtype: str = "|u1") -> bytes:
    """The header of an array, without the array."""
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": dtype, "fortran_order": False, "shape": shape})
    return out.getvalue()


def packed_zeros(path: Path, names: dict[str, bytes], size: int) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, head in names.items():
            with archive.open(name, "w", force_zip64=True) as file:
                file.write(head)
                for _ in range(size // 2**24):
                    file.write(bytes(2**24))


def tall_picture(folder: Path) -> Path:
    (folder / "a.png").write_bytes(png(1, 60_000, bytes(2 * 60_000)))
    return folder / "a.png"


def wide_picture(folder: Path) -> Path:
    (folder / "a.png").write_bytes(png(60_000, 60_000))
    return folder / "a.png"


def arrays(folder: Path) -> Path:
    head = npy((800 * 2**20 // 3072, 32, 32, 3))
    packed_zeros(folder / "a.npz", {"images.npy": head}, 800 * 2**20)
    return folder / "a.npz"


def claimed_arrays(folder: Path) -> Path:
    """A header that claims far more data than follows."""
    with zipfile.ZipFile(folder / "a.npz", "w") as archive:
        archive.writestr("images.npy", npy((2**22, 32, 32, 3)) + bytes(100))
        archive.writestr("labels.npy", npy((2**22,), "<i8"))
    return folder / "a.npz"


def archive_of(folder: Path, *members: tuple[tarfile.TarInfo, int]) -> Path:
    """A tar.gz with members that are all zeros."""
    with gzip.open(folder / "a.tar.gz", "wb", 1) as out, tarfile.open(fileobj=out, mode="w|") as archive:
        for info, size in members:
            info.size = size
            archive.addfile(info, _Zeros(size))  # type: ignore[arg-type]
    return folder / "a.tar.gz"


class _Zeros:
    def __init__(self, size: int) -> None:
        self.left = size

    def read(self, size: int) -> bytes:
        size = min(size, self.left)
        self.left -= size
        return bytes(size)


def archive(folder: Path) -> Path:
    names = [f"data_batch_{i}" for i in range(1, 5)]
    return archive_of(folder, *((tarfile.TarInfo(name), 2**28 - 512) for name in names))


def archive_with_a_long_name(folder: Path) -> Path:
    """A name of 800 MB, which a tar reader keeps in memory."""
    info = tarfile.TarInfo("././@LongLink")
    info.type = tarfile.GNUTYPE_LONGNAME
    return archive_of(folder, (info, 800 * 2**20), (tarfile.TarInfo("test_batch"), 0))


def pickled_batch(folder: Path) -> Path:
    """A memo number of 2^28, for which the C unpickler would make a table of 4 GB."""
    (folder / "test_batch").write_bytes(b"\x80\x02}r" + struct.pack("<I", 2**28) + b".")
    return folder


def nest(folder: Path) -> Path:
    """A key whose hash needs 2^60 hashes."""
    content = b"\x80\x02}K\x01" + b"2\x86" * 60 + b"K\x01s."
    pickle.loads(b"\x80\x02K\x01" + b"2\x86" * 60 + b".")  # it is a pickle
    (folder / "test_batch").write_bytes(content)
    return folder


def shard(folder: Path, count: int, queries: bytes = b"") -> Path:
    """A shard with a correct digest, in the folder of a described cell."""
    path = Store(folder).append(CELL, [record(0)], RECEIPT)
    path.unlink()
    columns = dict.fromkeys(COLUMNS, 0) | {"draws": 1}
    body = json_line(columns | ({"queries": "Q"} if queries else {})).replace(b'"Q"', queries)
    header = {"format": FORMAT, "key": CELL.key, "records": count, "receipt": RECEIPT.json()}
    whole = json_line({**header, "digest": digest(header, body)}) + b"\n" + body + b"\n"
    (path.parent / f"000000-{count - 1:06d}-{count}.json.xz").write_bytes(lzma.compress(whole, preset=0))
    return folder


def many_records(folder: Path) -> Path:
    return shard(folder, 10**8)


def long_columns(folder: Path) -> Path:
    return shard(folder, 50_000, b"[" + b"[]," * 20_000_000 + b"[]]")


def nested_shard(folder: Path) -> Path:
    path = shard(folder, 1)
    file = next(path.rglob("*.json.xz"))
    file.write_bytes(lzma.compress(b"[" * 100_000 + b"\n" + b"]" * 100_000 + b"\n"))
    return path


def checkpoint(folder: Path) -> Path:
    packed_zeros(folder / "a.pt", {"archive/data/0": b""}, 800 * 2**20)
    return folder / "a.pt"


def stretched(folder: Path) -> Path:
    """One number that is expanded to a tensor of 40 GB."""
    torch.save({"weight": torch.zeros(1).expand(10**5, 10**5)}, folder / "a.pt")
    return folder / "a.pt"


def card(folder: Path) -> Path:
    (folder / "a.json").write_text("[" * 10**6)
    return folder / "a.json"


def long_card(folder: Path) -> Path:
    with (folder / "a.json").open("wb") as file:
        file.truncate(2**32)  # a sparse file of 4 GB
    return folder / "a.json"


BOMBS = {
    "a picture of 1 x 60,000": ("picture", tall_picture),
    "a picture of 60,000 x 60,000": ("picture", wide_picture),
    "the same to be attacked": ("attack", wide_picture),
    "a packed array": ("arrays", arrays),
    "an array that is not there": ("arrays", claimed_arrays),
    "a packed archive": ("import", archive),
    "a long name in an archive": ("import", archive_with_a_long_name),
    "a memo number": ("import", pickled_batch),
    "a nest of tuples": ("import", nest),
    "a count of records": ("store", many_records),
    "a packed shard": ("store", long_columns),
    "a nested shard": ("store", nested_shard),
    "a packed checkpoint": ("checkpoint", checkpoint),
    "a stretched tensor": ("checkpoint", stretched),
    "a nested card": ("card", card),
    "a long card": ("card", long_card),
}


@pytest.mark.slow
def test_a_small_file_takes_little_memory(tmp_path: Path) -> None:
    """One process reads all files, because importing torch takes longer than refusing a file."""
    asked = {}
    for place, (what, (reader, make)) in enumerate(BOMBS.items()):
        (tmp_path / str(place)).mkdir()
        asked[what] = reader, str(make(tmp_path / str(place)))
    done = subprocess.run(
        [sys.executable, "-c", READ], input=json.dumps(asked), capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert not {what: said for what, (said, _) in found.items() if said.startswith(("taken", "raised"))}
    assert not {what: said for what, (said, _) in found.items() if "\n" in said}
    assert not {what: grown for what, (_, grown) in found.items() if grown > MEMORY}


def test_a_large_picture_within_the_limit_is_read() -> None:
    width, height = 8000, 8000
    assert width * height <= bounds.PIXELS
    assert crop(png(width, height, bytes((width + 1) * height)), "x").shape == (224, 224, 3)
