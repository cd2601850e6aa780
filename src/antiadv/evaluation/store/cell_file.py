"""The cell file: `cell.json` describes a cell by its specs (`cell`) and by all that its key covers (`identity`).

Folder name, specs and identity must agree. Where they differ only in the edition or the default options of the attack
or the defence, another version of the library wrote the cell: `OtherEdition`, unless the attack says that this edition
is still shown. Anything else is `StoreMismatch`.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from antiadv import attacks, data, models
from antiadv.core import spec
from antiadv.core.errors import AntiadvError, BadSpec, StoreMismatch
from antiadv.evaluation.cell import FORMAT, Cell, Identity, key_of, read_threat
from antiadv.evaluation.store.files import check_format, describe, read_bytes, write_bytes

CELL = "cell.json"
_WITH_EDITION = ("attack", "defence")
_TEXTS = ("data", "images", "model", "weights", "defence", "attack", "threat", "precision")


class OtherEdition(StoreMismatch):
    """The description is intact, but in this version its attack or defence has another edition or other options."""


def read_cell(folder: Path) -> Cell:
    """The cell that the folder's `cell.json` describes, without samples."""
    path = folder / CELL
    specs, identity = _read_description(path)
    try:
        cell = Cell(**{**specs, "threat": read_threat(specs["threat"]), "samples": range(0)})
        current = cell.identity
    except (AntiadvError, LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as error:
        if isinstance(error, BadSpec) and _was_valid(folder.name, identity, specs):
            raise OtherEdition(f"{folder.name} ({error})") from None
        raise StoreMismatch(
            f"{path} has a name that is unknown here ({describe(error)}). Move its folder away."
        ) from None
    if cell.key == folder.name and identity == current:
        return cell
    earlier = dataclasses.replace(cell, earlier=str(identity.get("attack", "")))
    if earlier.key == folder.name and identity == earlier.identity and _still_shown(earlier):
        return earlier
    if changed := _changed_editions(folder.name, identity, current):
        raise OtherEdition(f"{folder.name} ({changed})")
    raise StoreMismatch(
        f"{path} describes cell {cell.key}, but its folder is {folder.name}: it was edited or moved. "
        "Move its folder away."
    )


def write_cell(folder: Path, cell: Cell) -> None:
    """Describe the cell in its folder. An existing description is checked: nothing is added to a folder of another."""
    if (folder / CELL).exists():
        read_cell(folder)
        return
    specs = {
        "data": _portable_data(cell.data),
        "images": cell.images,
        "model": _portable_model(cell.model),
        "weights": cell.weights,
        "defence": cell.defence,
        "attack": cell.attack,
        "threat": str(cell.threat),
        "seed": cell.seed,
        "precision": cell.precision,
        **cell.own_looks,
        **cell.own_files,
    }
    content = {"format": FORMAT, "key": folder.name, "cell": specs, "identity": cell.identity}
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items()]
    write_bytes(folder / CELL, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def _read_description(path: Path) -> tuple[dict[str, Any], Identity]:
    try:
        content: dict[str, Any] = json.loads(read_bytes(path))
        number, specs, identity = content["format"], content["cell"], content["identity"]
        _check_types(specs, identity)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise StoreMismatch(
            f"{path} does not describe a cell ({describe(error)}). Delete it and run its cell again, which writes it "
            "again and keeps the records, or move its folder away."
        ) from None
    check_format(path, number)
    return specs, identity


def _check_types(specs: Any, identity: Any) -> None:
    """Only texts and whole numbers, nothing nested: the code that follows relies on it."""
    for values in (specs, identity):
        if not isinstance(values, dict) or not all(type(value) in (str, int) for value in values.values()):
            raise TypeError("its values are not texts and whole numbers")
    for name in ("seed", "looks"):
        if type(specs.get(name, 0)) is not int or not abs(specs.get(name, 0)) < 2**64:
            raise TypeError(f"its {name} is not a whole number of at most 64 bits")
    if any(type(value) is not str for name, value in specs.items() if name in _TEXTS):
        raise TypeError("its specs are not texts")


def _was_valid(folder: str, identity: Identity, specs: dict[str, Any]) -> bool:
    """Whether the version that wrote it knew the names that are unknown here: folder, identity and specs agree."""
    return key_of(identity) == folder and all(
        _name(str(identity.get(part))) == _name(str(specs.get(part))) for part in _WITH_EDITION
    )


def _still_shown(cell: Cell) -> bool:
    """Whether the earlier edition is one that the attack names, with the same options."""
    attack = attacks.parse(cell.attack)
    text, _, edition = cell.earlier.rpartition("@")
    shown: frozenset[int] = getattr(attack, "still_shown", frozenset())
    return text == attacks.full_text(attack).rpartition("@")[0] and edition in map(str, shown)


def _changed_editions(folder: str, identity: Identity, current: Identity) -> str:
    """`square@1, here square@2`, where the folder has the key of its identity and only editions or options changed."""
    intact = identity.keys() == current.keys() and key_of(identity) == folder
    changed = [part for part in current if identity[part] != current[part]] if intact else []
    if not set(changed) <= set(_WITH_EDITION):
        return ""
    return " and ".join(_edition(str(identity[part]), str(current[part])) for part in changed)


def _edition(stored: str, current: str) -> str:
    """
    >>> _edition("square:steps=5000,p=0.8@1", "square:steps=5000,p=0.8@2"), _edition("square:p=0.8@1", "square:p=0.7@1")
    ('square@1, here square@2', 'square@1, here with other options')
    """
    old, new = (f"{_name(text)}@{text.rpartition('@')[2]}" for text in (stored, current))
    return f"{old}, here {'with other options' if old == new else new}"


def _name(text: str) -> str:
    return text.partition(":")[0].partition("@")[0]


def _portable_model(model: str) -> str:
    """A model's name without the folder of its file. A `file:` keeps it, since it has no other name."""
    return model if models.is_file(model) else models.canonical(model)


def _portable_data(text: str) -> str:
    """A data set's name without an absolute path. Arrays keep a relative path."""
    path = spec.read(text, data.DATASETS, "data set").options.get("path")
    relative = path is not None and not Path(path).expanduser().is_absolute()
    return text.strip() if relative else data.canonical(text)
