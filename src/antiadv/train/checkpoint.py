"""A training half-way, in one safetensors file: the tensors a step changes, and in the header whose they are.

    write      beside, then renamed: a checkpoint is whole or absent, and a kill at any moment leaves the last one
    read       refused in one sentence if the training it belongs to differs in recipe, network, data or settings

safetensors holds numbers and text only, so reading one runs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any  # facts are what json holds

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from antiadv.core.errors import BadInput
from antiadv.core.files import beside

FORMAT = 1
Facts = dict[str, Any]


def write(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Tensors and facts to one file; the facts must be plain json."""
    held = {name: t.detach().to("cpu", copy=True).contiguous() for name, t in tensors.items()}
    try:
        with beside(path) as part:
            save_file(held, part, {"antiadv": json.dumps({"format": FORMAT, **facts})})
            part.chmod(0o644)  # safetensors makes it private; weights are there to be read
    except OSError as error:
        raise BadInput(
            f"{path} cannot be written: {error.strerror or error}; free some space or choose another place"
        ) from error


def read(path: Path) -> tuple[dict[str, Tensor], Facts]:
    """What `write` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            header = (file.metadata() or {}).get("antiadv", "{}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dictionary
    except (SafetensorError, OSError) as error:
        raise BadInput(f"{path} is not a whole safetensors file: {error}; delete it to start again") from error
    return tensors, json.loads(header)


def read_training(path: Path, identity: Mapping[str, Any]) -> tuple[dict[str, Tensor], Facts]:
    """A checkpoint of exactly this training; another's is refused, naming what differs."""
    tensors, facts = read(path)
    found = {"format": facts.get("format")} | dict(facts.get("identity", {}))
    asked = {"format": FORMAT} | dict(identity)
    other = [f"{key} is {found.get(key)}, asked is {asked.get(key)}" for key in asked if found.get(key) != asked[key]]
    if other:
        raise BadInput(
            f"{path} is a checkpoint of another training ({'; '.join(other)}); delete it or write to another file"
        )
    return tensors, facts
