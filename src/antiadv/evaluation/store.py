"""The store: a folder of small immutable files, each written beside and renamed into place.

    root/<key>/cell.json                            what the cell is, in words and digests, with FORMAT
    root/<key>/probe.json                           what its network answered to a few fixed images (`probe.py`)
    root/<key>/000000-000249-250.json.xz            250 records, samples 0 … 249: line 1 the header, line 2 the columns
    root/<key>/000000-000249-250.safetensors        the attacked images, on request

A file is whole or absent. Its header names its cell, counts its records, holds the receipt and carries the digest of
it all, so a truncated, edited, renamed or foreign file is named and refused, never half-read; one that cannot be read
is named too, and not taken for a damaged one, which a person would delete. A cell that another edition of its attack or
defence made is whole, but no cell of today, and records without their cell.json are nobody's: a listing names them in a
warning and goes on. Two writers of one cell write equal facts under equal names; where files overlap, the first by name
counts. Records are kept by column (`columns.py`) and compressed, so equal records are equal second lines and a thousand
of them take about 8 kB.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import lzma
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from antiadv import data, models
from antiadv.core import spec
from antiadv.core.bounds import RECORDS, TEXT, WHOLE
from antiadv.core.errors import AntiadvError, BadSpec, StoreMismatch, StoreUnwritable, reason
from antiadv.core.files import beside, sweep
from antiadv.evaluation.cell import COLUMNS, FORMAT, Cell, Identity, Receipt, Record, key_of, read_threat
from antiadv.evaluation.columns import check, columns_of, packed, records_of, unpacked
from antiadv.evaluation.probe import Probe

_RECORDS, _IMAGES, _PROBE = ".json.xz", ".safetensors", "probe.json"
# as for text, whose bytes stand anywhere; the preset's dictionary of 64 MB takes longer to set up than to use
_XZ = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": 2**20, "lc": 4, "lp": 0, "pb": 0}]
_MEMORY = 2**27  # bytes that unpacking may take, as the largest dictionary of any preset does
_NAME = re.compile(r"(\d{6,})-(\d{6,})-(\d+)" + re.escape(_RECORDS))
_TEXTS = ("data", "images", "model", "weights", "defence", "attack", "threat", "precision")
_KEY = re.compile(r"[0-9a-f]{20}")


PARTS = ("attack", "defence")  # what has editions


class _OtherEdition(StoreMismatch):
    """A whole description of a cell whose attack or defence has another edition or other options here."""


class Store:
    """Records by cell. Opening a folder writes nothing; `prepare` makes it."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self._told: set[str] = set()  # warnings, which are not given twice

    def folder(self, cell: Cell) -> Path:
        return self.root / cell.key

    # ---------------------------------------------------------------- reading

    def done(self, cell: Cell) -> set[int]:
        """The samples already stored. File names tell, where they hold an unbroken run; else the file is read."""
        return {i for file in self._files(cell) for i in self._samples(*file)}

    def pictured(self, cell: Cell) -> set[int]:
        """Those of them whose attacked images were kept."""
        kept = {name.removesuffix(_IMAGES) for name in _listed(self.folder(cell)) if name.endswith(_IMAGES)}
        files = (file for file in self._files(cell) if file[0].name.removesuffix(_RECORDS) in kept)
        return {i for file in files for i in self._samples(*file)}

    def _samples(self, path: Path, first: int, last: int, count: int) -> Iterable[int]:
        unbroken = last - first + 1 == count
        return range(first, last + 1) if unbroken else (r.sample for r in self._read(path)[0])

    def read(self, cell: Cell) -> list[Record]:
        """Every record of the cell whose sample it asks for, in order of samples."""
        found: dict[int, Record] = {}
        for path, *_ in self._files(cell):
            for record in self._read(path)[0]:
                found.setdefault(record.sample, record)
        asked = cell.samples  # a foreign store may name samples very far apart
        return [found[i] for i in sorted(found, reverse=asked.step < 0) if i in asked]

    def receipts(self, cell: Cell) -> list[Receipt]:
        return [self._read(path)[1] for path, *_ in self._files(cell)]

    def cells(self) -> list[Cell]:
        """The cells of this store, each asking for the samples from the first to the last stored of it.

        Those of another edition are left out, with one warning that names them all, and so are folders whose cell.json
        is missing.
        """
        found, others, nameless = list[Cell](), list[str](), list[str]()
        for name in _listed(self.root):
            folder = self.root / name
            try:
                inside = _listed(folder)
            except StoreMismatch:
                if _KEY.fullmatch(name):
                    raise
                continue  # other people's, such as a disk's lost+found
            if "cell.json" not in inside:
                nameless += [name] * any(file.endswith(_RECORDS) for file in inside)
                continue
            try:
                found.append(self._spanned(self._cell(folder / "cell.json")))
            except _OtherEdition as other:
                others.append(str(other))
        self._tell(
            "the cells in these folders are left out, which another edition of their attack or defence made",
            others,
            "Run them again, and move the folders away.",
        )
        self._tell(
            "the records in these folders are left out, whose cell.json is missing",
            nameless,
            "Run their cells again, which puts it back and keeps the records, or move the folders away.",
        )
        return [c for c in found if len(c.samples)]

    def _tell(self, what: str, folders: Sequence[str], todo: str) -> None:
        said = f"of the store {self.root} {what}: {', '.join(folders)}. {todo}"
        if folders and said not in self._told:
            self._told.add(said)
            warnings.warn(said, stacklevel=1)  # here, wherever the listing was asked for: Python says it once

    def _spanned(self, cell: Cell) -> Cell:
        files = list(self._files(cell))
        start, stop = min((f[1] for f in files), default=0), max((f[2] + 1 for f in files), default=0)
        return dataclasses.replace(cell, samples=range(start, stop))

    def _cell(self, path: Path) -> Cell:
        """The cell that a cell.json describes, refused unless its folder, its words and its identity agree."""
        try:
            said: dict[str, Any] = json.loads(_content(path))
            number, words, identity = said["format"], said["cell"], said["identity"]
            _check_words(words, identity)
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise StoreMismatch(
                f"{path} does not describe a cell ({_short(error)}). Delete it and run its cell again, which puts it "
                "back and keeps the records, or move its folder away."
            ) from None
        if number != FORMAT:
            raise StoreMismatch(f"{path} has format {number}; this version reads {FORMAT}. Use another store folder.")
        try:
            cell = Cell(**{**words, "threat": read_threat(words["threat"]), "samples": range(0)})
            mine = cell.identity
        except (
            AntiadvError,
            LookupError,
            TypeError,
            AttributeError,
            ValueError,
            ArithmeticError,
            RecursionError,
        ) as error:
            if isinstance(error, BadSpec) and _was_whole(path.parent.name, identity, words):
                raise _OtherEdition(f"{path.parent.name} ({error})") from None
            raise StoreMismatch(f"{path} names what is unknown here ({_short(error)}). Move its folder away.") from None
        if cell.key == path.parent.name and identity == mine:
            return cell
        if changed := _editions(path.parent.name, identity, mine):
            raise _OtherEdition(f"{path.parent.name} ({changed})")
        raise StoreMismatch(
            f"{path} describes cell {cell.key}, but its folder is {path.parent.name}: it was edited or moved. "
            "Move its folder away."
        )

    def _files(self, cell: Cell) -> Iterator[tuple[Path, int, int, int]]:
        folder = self.folder(cell)
        for path in (folder / name for name in _listed(folder) if name.endswith(_RECORDS)):
            match = _NAME.fullmatch(path.name)
            if match is None:
                raise StoreMismatch(f"{path} is not named as the store names files. Move it out of the store.")
            first, last, count = map(int, match.groups())
            if not (count - 1 <= last - first and 0 < count <= RECORDS and last < WHOLE):
                raise StoreMismatch(f"{path} is named as no shard is: {count} of {first} to {last}. Move it away.")
            yield path, first, last, count

    def _read(self, path: Path) -> tuple[list[Record], Receipt]:
        """One file, refused unless it is whole, unedited and of this cell."""
        try:
            head, body, rest = _plain(_content(path)).split(b"\n")
            header, columns = json.loads(head), json.loads(body)
            number, key, digest = header["format"], header["key"], header.pop("digest")
        except (EOFError, ValueError, LookupError, TypeError, AttributeError, RecursionError, lzma.LZMAError) as error:
            raise StoreMismatch(
                f"{path} is truncated or not a shard ({_short(error)}). Delete it and run again."
            ) from None
        if number != FORMAT:
            raise StoreMismatch(f"{path} has format {number}; this version reads {FORMAT}. Use another store folder.")
        if key != path.parent.name:  # the cell's own key: see `folder`
            raise StoreMismatch(f"{path} belongs to another cell ({key}). Move it where it belongs.")
        if digest != _digest(header, body) or rest or not isinstance(columns, dict) or tuple(columns) != COLUMNS:
            raise StoreMismatch(f"{path} was edited: it does not match its own digest. Delete it and run again.")
        records = self._records(path, columns, header.get("records"))
        if path.name != _name(records) + _RECORDS:
            raise StoreMismatch(f"{path} was renamed: it holds {_name(records)}. Give it that name, or delete it.")
        try:
            return records, _receipt(header["receipt"])
        except (TypeError, KeyError) as error:
            raise StoreMismatch(
                f"{path} has a receipt that this version cannot read ({_short(error)}). "
                "Read it with the version that wrote it, or use another store folder."
            ) from None

    def probe(self, cell: Cell) -> Probe | None:
        """What the cell's network answered to the probe images; None where an earlier version stored the cell."""
        path = self.folder(cell) / _PROBE
        if not path.exists():
            return None
        try:
            said = json.loads(_content(path))
            digest = said.pop("digest")
            if digest != _digest(said, b"") or said["format"] != FORMAT or said["key"] != path.parent.name:
                raise ValueError("it was edited, or is another cell's")
            rows = tuple(None if row is None else tuple(map(float, row)) for row in said["scores"])
            return Probe(str(said["images"]), rows)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise StoreMismatch(
                f"{path} does not hold the answers of a network ({error}). Move its folder away, or name another one "
                "with --store, and run again."
            ) from None

    def _records(self, path: Path, columns: dict[str, Any], count: Any) -> list[Record]:
        try:
            if type(count) is not int or not 0 < count <= RECORDS:
                raise ValueError(f"it counts {count!r} records"[:200])
            whole = unpacked(columns, count)
            check(whole, count)
            return records_of(whole, count)
        except (ValueError, TypeError, OverflowError) as error:
            raise StoreMismatch(f"{path} holds no records ({_short(error)}). Delete it and run again.") from None

    # ---------------------------------------------------------------- writing

    def keep_probe(self, cell: Cell, probe: Probe) -> None:
        folder = self.folder(cell)
        said = {"format": FORMAT, "key": folder.name, "images": probe.images, "scores": probe.scores}
        with self._writing():
            _write(folder / _PROBE, _line({**said, "digest": _digest(said, b"")}) + b"\n")

    def append(self, cell: Cell, records: Sequence[Record], receipt: Receipt, images: Tensor | None = None) -> Path:
        """Store one shard. Images are written first, so that a file of records is never without its images."""
        ordered = sorted(records, key=lambda r: r.sample)
        name, folder = _name(ordered), self.folder(cell)
        with self._writing():
            self._describe(cell, folder)
            if images is not None:
                order = sorted(range(len(records)), key=lambda i: records[i].sample)
                ids = torch.tensor([r.sample for r in ordered])
                _write(folder / f"{name}{_IMAGES}", save({"samples": ids, "images": images[order].contiguous()}))
            body = _line(packed(columns_of(ordered)))
            header = {"format": FORMAT, "key": folder.name, "records": len(ordered), "receipt": receipt.json()}
            head = _line({**header, "digest": _digest(header, body)})
            path = folder / (name + _RECORDS)
            _write(path, lzma.compress(head + b"\n" + body + b"\n", filters=_XZ))
        return path

    def prepare(self, cell: Cell) -> None:
        """Make the cell's folder and its description, and read what it holds: so that a store that cannot be written,
        or a damaged file beside which the work would lie, is named before the work and not after it."""
        folder = self.folder(cell)
        with self._writing():
            self._describe(cell, folder)
            if not os.access(folder, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            sweep(folder)
        self.receipts(cell)

    def _describe(self, cell: Cell, folder: Path) -> None:
        """Nothing is ever added to a folder that is not what it says."""
        path = folder / "cell.json"
        if path.exists():
            self._cell(path)
            return
        words = {"data": _portable_data(cell.data), "images": cell.images}
        words |= {"model": _portable(cell.model), "weights": cell.weights}
        words |= {"defence": cell.defence, "attack": cell.attack, "threat": str(cell.threat)}
        whole = {**words, "seed": cell.seed, "precision": cell.precision, **cell.own_looks, **cell.own_files}
        said = {"format": FORMAT, "key": folder.name, "cell": whole, "identity": cell.identity}
        lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in said.items()]
        _write(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Any failure of the disk becomes one sentence; what was stored before is whole."""
        try:
            yield
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            todo = "free some space" if full else "make it writable, or choose another folder with --store,"
            raise StoreUnwritable(
                f"the store {self.root} cannot be written ({error.strerror or error}). "
                f"What it held is whole; {todo} and run again to resume."
            ) from error


def _editions(folder: str, identity: Identity, mine: Identity) -> str:
    """`square@1, here square@2`, where the folder is named by its identity and only such parts of that have changed."""
    same = isinstance(identity, dict) and identity.keys() == mine.keys() and key_of(identity) == folder
    changed = [part for part in mine if identity[part] != mine[part]] if same else []
    if not set(changed) <= set(PARTS):
        return ""
    return " and ".join(_edition(str(identity[part]), str(mine[part])) for part in changed)


def _was_whole(folder: str, identity: Any, words: Any) -> bool:
    """Whether what is unknown here was known to who wrote it: folder, identity and words name the same."""
    if not (isinstance(identity, dict) and isinstance(words, dict) and key_of(identity) == folder):
        return False
    named = [[str(said.get(part)).partition(":")[0].partition("@")[0] for part in PARTS] for said in (identity, words)]
    return named[0] == named[1]


def _edition(there: str, here: str) -> str:
    """
    >>> _edition("square:steps=5000,p=0.8@1", "square:steps=5000,p=0.8@2"), _edition("square:p=0.8@1", "square:p=0.7@1")
    ('square@1, here square@2', 'square@1, here with other options')
    """
    old, new = (f"{said.partition(':')[0].partition('@')[0]}@{said.rpartition('@')[2]}" for said in (there, here))
    return f"{old}, here {'with other options' if old == new else new}"


def _portable(model: str) -> str:
    """A model's name without the folder its file lay in; a `file:` is nothing without it."""
    return model if model.partition(":")[0].strip() == "file" else models.canonical(model)


def _portable_data(said: str) -> str:
    """A data set's name without any folder of this machine; arrays keep the way to them from where they were run."""
    path = spec.read(said, data.DATASETS, "data set").options.get("path")
    near = path is not None and not Path(path).expanduser().is_absolute()
    return said.strip() if near else data.canonical(said)


def _name(records: Sequence[Record]) -> str:
    """What a file of these records, in order of samples, is called."""
    return f"{records[0].sample:06d}-{records[-1].sample:06d}-{len(records)}"


def _listed(folder: Path) -> list[str]:
    """What lies in a folder, in order; nothing where there is none. One that cannot be read is not an empty one."""
    try:
        return sorted(path.name for path in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _unreadable(folder, error) from error


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(TEXT + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(content) > TEXT:
        raise StoreMismatch(f"{path} is larger than {TEXT:,} bytes, which no file of a store is. Move it away.")
    return content


def _unreadable(path: Path, error: OSError) -> StoreMismatch:
    return StoreMismatch(
        f"{path} cannot be read ({error.strerror or error}). Make it readable, or choose another folder with --store, "
        "and run again."
    )


def _plain(content: bytes) -> bytes:
    """What a file holds; it must be one whole stream and nothing else."""
    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, _MEMORY)
    plain = stream.decompress(content, max_length=TEXT + 1)
    if len(plain) > TEXT:
        raise ValueError(f"it unpacks to more than {TEXT:,} bytes")
    if not stream.eof or stream.unused_data:
        raise EOFError("its end is missing, or more follows")
    return plain


def _short(error: Exception) -> str:
    """A foreign file may say anything, at any length."""
    return f"{type(error).__name__}: {reason(error)}" if not isinstance(error, AntiadvError) else str(error)[:500]


def _check_words(words: Any, identity: Any) -> None:
    """Texts and whole numbers, and nothing that holds another: so that all that follows may rely on it."""
    for said in (words, identity):
        if not isinstance(said, dict) or not all(type(value) in (str, int) for value in said.values()):
            raise TypeError("its words are no texts and numbers")
    for name in ("seed", "looks"):
        if type(words.get(name, 0)) is not int or not abs(words.get(name, 0)) < 2**64:
            raise TypeError(f"its {name} is no whole number that a seed or a count can be")
    if any(type(value) is not str for name, value in words.items() if name in _TEXTS):
        raise TypeError("its words are no texts")


def _receipt(said: Any) -> Receipt:
    """Its types are checked, for they are added up and shown."""
    made = Receipt(**said)
    counts = made.forwards, made.backwards, made.again, made.checks
    texts = made.device, made.revision, *made.versions, *made.versions.values()
    numbers = isinstance(made.seconds, int | float) and isinstance(made.agreement, int | float)
    if not numbers or not all(type(n) is int and 0 <= n < WHOLE for n in counts):
        raise TypeError("its numbers are no numbers")
    if not all(isinstance(text, str) for text in texts) or not isinstance(made.compiled, bool):
        raise TypeError("its device, versions or revision are no texts")
    return made


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _digest(header: dict[str, Any], body: bytes) -> str:
    return hashlib.sha256(_line(header) + b"\n" + body).hexdigest()[:32]


def _write(path: Path, content: bytes) -> None:
    """Beside, flushed to disk, and renamed into place: a reader sees the whole file or none."""
    with beside(path) as part, open(part, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
