"""The Store class: records by cell, in a folder."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from torch import Tensor

from antiadv.core.errors import StoreMismatch, StoreUnwritable
from antiadv.core.files import sweep
from antiadv.evaluation.cell import Cell, Receipt, Record
from antiadv.evaluation.probe import Probe
from antiadv.evaluation.store.cell_file import CELL, OtherEdition, read_cell, write_cell
from antiadv.evaluation.store.files import list_folder
from antiadv.evaluation.store.probe_file import read_probe, write_probe
from antiadv.evaluation.store.shard_file import SHARD, shard_files, write_shard

ANSWERS = "answers.journal"
_KEY = re.compile(r"[0-9a-f]{20}")


class Store:
    """Records by cell. Opening a folder writes nothing; `prepare` makes the folder."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self._warned: set[str] = set()  # so that no warning is given twice

    @classmethod
    def of(cls, store: Store | str | Path) -> Store:
        """The store itself, or the one in this folder."""
        return store if isinstance(store, Store) else cls(store)

    def __repr__(self) -> str:
        return f"Store({str(self.root)!r})"

    def folder(self, cell: Cell) -> Path:
        return self.root / cell.key

    def answers(self, cell: Cell) -> Path:
        """Where the answers of an endpoint are kept until their shard is stored."""
        return self.folder(cell) / ANSWERS

    # ---------------------------------------------------------------- reading

    def done(self, cell: Cell) -> set[int]:
        """The samples already stored."""
        return {i for file in shard_files(self.folder(cell)) for i in file.samples}

    def pictured(self, cell: Cell) -> set[int]:
        """The stored samples whose attacked images were kept."""
        return {i for file in shard_files(self.folder(cell)) if file.has_images for i in file.samples}

    def read(self, cell: Cell) -> list[Record]:
        """The stored records of the samples that the cell asks for, in order of samples."""
        by_sample: dict[int, Record] = {}
        for file in shard_files(self.folder(cell)):
            for record in file.read()[0]:
                by_sample.setdefault(record.sample, record)
        asked = cell.samples  # not iterated: the samples of a foreign store may be very far apart
        return [by_sample[i] for i in sorted(by_sample, reverse=asked.step < 0) if i in asked]

    def receipts(self, cell: Cell) -> list[Receipt]:
        return [file.read()[1] for file in shard_files(self.folder(cell))]

    def probe(self, cell: Cell) -> Probe | None:
        """What the cell's network answered to the probe images; None where an earlier version stored the cell."""
        return read_probe(self.folder(cell))

    def cells(self) -> list[Cell]:
        """The cells of this store, each with the samples from the first to the last stored one.

        Cells of another edition and folders without cell.json are left out, and named in a warning.
        """
        cells, other_editions, undescribed = list[Cell](), list[str](), list[str]()
        for name in list_folder(self.root):
            folder = self.root / name
            try:
                inside = list_folder(folder)
            except StoreMismatch:
                if _KEY.fullmatch(name):
                    raise
                continue  # not a folder of the store, for example lost+found of a disk
            if CELL not in inside:
                undescribed += [name] * any(file.endswith(SHARD) for file in inside)
                continue
            try:
                cells.append(_with_stored_samples(read_cell(folder), folder))
            except OtherEdition as error:
                other_editions.append(str(error))
        self._warn(
            "the cells in these folders are left out, because another edition of their attack or defence made them",
            other_editions,
            "Run them again, and move the folders away.",
        )
        self._warn(
            "the records in these folders are left out, because their cell.json is missing",
            undescribed,
            "Run their cells again, which writes it and keeps the records, or move the folders away.",
        )
        return [cell for cell in cells if len(cell.samples)]

    def _warn(self, what: str, folders: Sequence[str], advice: str) -> None:
        message = f"in the store {self.root} {what}: {', '.join(folders)}. {advice}"
        if folders and message not in self._warned:
            self._warned.add(message)
            warnings.warn(message, stacklevel=1)  # always this line, so that Python shows it once

    # ---------------------------------------------------------------- writing

    def prepare(self, cell: Cell) -> None:
        """Make the cell's folder and description, and read what it holds.

        Called before the work: an unwritable store or a damaged file is then reported before it and not after.
        """
        folder = self.folder(cell)
        if cell.earlier:
            raise StoreMismatch(f"{folder} holds records of {cell.earlier}, an earlier edition. Make the cell again.")
        with self._writing():
            write_cell(folder, cell)
            if not os.access(folder, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            sweep(folder)
        self.receipts(cell)

    def append(self, cell: Cell, records: Sequence[Record], receipt: Receipt, images: Tensor | None = None) -> Path:
        """Store one shard."""
        folder = self.folder(cell)
        with self._writing():
            write_cell(folder, cell)
            return write_shard(folder, records, receipt, images)

    def keep_probe(self, cell: Cell, probe: Probe) -> None:
        with self._writing():
            write_probe(self.folder(cell), probe)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn any failure of the disk into `StoreUnwritable`. Files stored before are intact."""
        try:
            yield
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            advice = "free some space" if full else "make it writable, or choose another folder with --store,"
            raise StoreUnwritable(
                f"the store {self.root} cannot be written ({error.strerror or error}). "
                f"What it held is intact; {advice} and run again to resume."
            ) from error


def _with_stored_samples(cell: Cell, folder: Path) -> Cell:
    files = list(shard_files(folder))
    start, stop = min((f.first for f in files), default=0), max((f.last + 1 for f in files), default=0)
    return dataclasses.replace(cell, samples=range(start, stop))
