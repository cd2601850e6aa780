"""The shard file: the records of one shard, compressed. Line 1 is the header, line 2 the records by column.

The header names the cell, counts the records, holds the receipt and a digest of both lines. The file name says which
samples the file holds, so that planning reads names only. Equal records make equal second lines. A thousand records
take about 8 kB.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from antiadv.core.bounds import RECORDS, TEXT, WHOLE
from antiadv.core.errors import StoreMismatch
from antiadv.evaluation.cell import COLUMNS, FORMAT, Receipt, Record
from antiadv.evaluation.store.columns import check, columns_of, packed, records_of, unpacked
from antiadv.evaluation.store.files import (
    check_format,
    describe,
    digest,
    json_line,
    list_folder,
    read_bytes,
    write_bytes,
)

SHARD, IMAGES = ".json.xz", ".safetensors"
_NAME = re.compile(r"(\d{6,})-(\d{6,})-(\d+)" + re.escape(SHARD))
# Settings for text. The preset's dictionary of 64 MB takes longer to set up than to use.
_XZ = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": 2**20, "lc": 4, "lp": 0, "pb": 0}]
_MEMORY = 2**27  # bytes that unpacking may take: enough for the largest dictionary of any preset


@dataclass(frozen=True)
class ShardFile:
    """A shard as its name describes it: `count` samples from `first` to `last`."""

    path: Path
    first: int
    last: int
    count: int

    @property
    def samples(self) -> Iterable[int]:
        """The samples in the file. It is read only where the name leaves gaps."""
        unbroken = self.last - self.first + 1 == self.count
        return range(self.first, self.last + 1) if unbroken else (r.sample for r in self.read()[0])

    @property
    def has_images(self) -> bool:
        return self.path.with_name(self.path.name.removesuffix(SHARD) + IMAGES).exists()

    def read(self) -> tuple[list[Record], Receipt]:
        """The records and the receipt. Refused unless the file is complete, unedited and of this cell."""
        path = self.path
        header, columns = _read_lines(path)
        records = _read_records(path, columns, header.get("records"))
        if path.name != _name(records) + SHARD:
            raise StoreMismatch(f"{path} was renamed: it holds {_name(records)}. Give it that name, or delete it.")
        try:
            return records, _read_receipt(header["receipt"])
        except (TypeError, KeyError) as error:
            raise StoreMismatch(
                f"{path} has a receipt that this version cannot read ({describe(error)}). "
                "Read it with the version that wrote it, or use another store folder."
            ) from None


def shard_files(folder: Path) -> Iterator[ShardFile]:
    for path in (folder / name for name in list_folder(folder) if name.endswith(SHARD)):
        match = _NAME.fullmatch(path.name)
        if match is None:
            raise StoreMismatch(f"{path} is not named as the store names files. Move it out of the store.")
        first, last, count = map(int, match.groups())
        if not (count - 1 <= last - first and 0 < count <= RECORDS and last < WHOLE):
            raise StoreMismatch(f"{path} has a name that no shard has: {count} of {first} to {last}. Move it away.")
        yield ShardFile(path, first, last, count)


def write_shard(folder: Path, records: Sequence[Record], receipt: Receipt, images: Tensor | None) -> Path:
    """Write one shard. Images are written first, so that records never lack their images."""
    order = sorted(range(len(records)), key=lambda i: records[i].sample)
    ordered = [records[i] for i in order]
    name = _name(ordered)
    if images is not None:
        ids = torch.tensor([r.sample for r in ordered])
        write_bytes(folder / f"{name}{IMAGES}", save({"samples": ids, "images": images[order].contiguous()}))
    body = json_line(packed(columns_of(ordered)))
    header = {"format": FORMAT, "key": folder.name, "records": len(ordered), "receipt": receipt.json()}
    head = json_line({**header, "digest": digest(header, body)})
    path = folder / (name + SHARD)
    write_bytes(path, lzma.compress(head + b"\n" + body + b"\n", filters=_XZ))
    return path


def _name(records: Sequence[Record]) -> str:
    """The name of a file of these records, without its ending."""
    return f"{records[0].sample:06d}-{records[-1].sample:06d}-{len(records)}"


def _read_lines(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and columns, checked against the digest and the cell."""
    try:
        head, body, rest = _decompress(read_bytes(path)).split(b"\n")
        header, columns = json.loads(head), json.loads(body)
        number, key, stored_digest = header["format"], header["key"], header.pop("digest")
    except (EOFError, ValueError, LookupError, TypeError, AttributeError, RecursionError, lzma.LZMAError) as error:
        raise StoreMismatch(
            f"{path} is truncated or not a shard ({describe(error)}). Delete it and run again."
        ) from None
    check_format(path, number)
    if key != path.parent.name:  # a cell's folder is named by its key
        raise StoreMismatch(f"{path} belongs to another cell ({key}). Move it to the folder of that cell.")
    if stored_digest != digest(header, body) or rest or not isinstance(columns, dict) or tuple(columns) != COLUMNS:
        raise StoreMismatch(f"{path} was edited: it does not match its own digest. Delete it and run again.")
    return header, columns


def _decompress(content: bytes) -> bytes:
    """The content of one complete xz stream with nothing after it."""
    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, _MEMORY)
    plain = stream.decompress(content, max_length=TEXT + 1)
    if len(plain) > TEXT:
        raise ValueError(f"it unpacks to more than {TEXT:,} bytes")
    if not stream.eof or stream.unused_data:
        raise EOFError("its end is missing, or more follows")
    return plain


def _read_records(path: Path, columns: dict[str, Any], count: Any) -> list[Record]:
    try:
        if type(count) is not int or not 0 < count <= RECORDS:
            raise ValueError(f"it counts {count!r} records"[:200])
        full = unpacked(columns, count)
        check(full, count)
        return records_of(full, count)
    except (ValueError, TypeError, OverflowError) as error:
        raise StoreMismatch(f"{path} holds no records ({describe(error)}). Delete it and run again.") from None


def _read_receipt(content: Any) -> Receipt:
    """A receipt with the right types: reports add its numbers and show its texts."""
    receipt = Receipt(**content)
    counts = receipt.forwards, receipt.backwards, receipt.again, receipt.checks
    texts = receipt.device, receipt.revision, *receipt.versions, *receipt.versions.values()
    numbers = isinstance(receipt.seconds, int | float) and isinstance(receipt.agreement, int | float)
    if not numbers or not all(type(n) is int and 0 <= n < WHOLE for n in counts):
        raise TypeError("some of its numbers are not numbers")
    if not all(isinstance(text, str) for text in texts) or not isinstance(receipt.compiled, bool):
        raise TypeError("its device, versions or revision are not texts")
    return receipt
