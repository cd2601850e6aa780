"""Checkpoints of a training: one safetensors file with the tensors that a step changes and a header.

    write           to a temporary file, then renamed: a kill at any moment leaves a complete checkpoint
    read_training   raises if the checkpoint is from a training with another recipe, network, data or settings

A safetensors file holds only numbers and text, so reading it runs no code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any  # values of the header, as in JSON

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from antiadv.core.errors import BadInput
from antiadv.core.files import atomic_write

FORMAT = 1
Facts = dict[str, Any]


def write(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors and facts (JSON values) to one file."""
    copies = {name: t.detach().to("cpu", copy=True).contiguous() for name, t in tensors.items()}
    try:
        with atomic_write(path) as part:
            save_file(copies, part, {"antiadv": json.dumps({"format": FORMAT, **facts})})
            part.chmod(0o644)  # safetensors makes the file private
    except OSError as error:
        raise BadInput(
            f"{path} cannot be written: {error.strerror or error}; free some space or choose another folder"
        ) from error


def read(path: Path) -> tuple[dict[str, Tensor], Facts]:
    """Read a file written by `write`."""
    try:
        with safe_open(path, framework="pt") as file:
            header = (file.metadata() or {}).get("antiadv", "{}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dictionary
    except (SafetensorError, OSError) as error:
        raise BadInput(f"{path} is not a complete safetensors file: {error}; delete it to start again") from error
    return tensors, json.loads(header)


def read_training(path: Path, identity: Mapping[str, Any]) -> tuple[dict[str, Tensor], Facts]:
    """Read a checkpoint of exactly this training; the error for another training names the differences."""
    tensors, facts = read(path)
    stored = {"format": facts.get("format")} | dict(facts.get("identity", {}))
    asked = {"format": FORMAT} | dict(identity)
    differences = [f"{key} is {stored.get(key)}, not {asked[key]}" for key in asked if stored.get(key) != asked[key]]
    if differences:
        raise BadInput(
            f"{path} is a checkpoint of another training ({'; '.join(differences)}); delete it or write to another file"
        )
    return tensors, facts
