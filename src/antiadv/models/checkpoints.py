"""Weights from a file into a network: official layouts, safe loading, digests.

    read(path)              the tensors of a .safetensors file or of a torch file, which is never allowed to run code
    plain(state)            without wrappers: a leading module. or model., dead sub_block keys, popup scores
    fill(network, state)    strictly: a missing, surplus or misshapen key is an error that names it
    digest(network)         sha256 over everything that decides what the network computes

What is in the files: TRADES, MART, HYDRA and RST-AWP were trained with a `sub_block1` that no forward pass uses;
HYDRA's pruned file holds dense weights beside the scores that prune them; ImageNet-Pre was saved from DataParallel;
RobustBench keeps the normalisation as `mu` and `sigma`; old files have no `num_batches_tracked`.
"""

from __future__ import annotations

import hashlib
import pickle
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any  # what a file holds, until it is checked

import safetensors.torch
import torch
from torch import Tensor, nn

from antiadv.core.bounds import check_zip
from antiadv.core.errors import BadInput, reason
from antiadv.models import halves, sparse
from antiadv.models.preprocess import Normalise

WRAPPERS = ("state_dict", "model_state_dict", "net", "model")
PREFIXES = ("module.", "model.", "net.", "network.", "_orig_mod.")
CONSTANTS = {"mu": "mean", "sigma": "std", "mean": "mean", "std": "std"}
CONSTANTS |= {"normalize.mean": "mean", "normalize.std": "std"}
KEEP = 0.1  # HYDRA's share of weights kept, per layer


def read(path: Path) -> dict[str, Tensor]:
    """The state_dict in a file; wrappers such as {"state_dict": …, "epoch": …} are taken off."""
    if not path.is_file():
        raise BadInput(f"{path} is not a file; give the path of a checkpoint")
    content = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
    for _ in WRAPPERS:  # one in another, at most: a file may hold itself
        key = next((k for k in WRAPPERS if isinstance(content, dict) and isinstance(content.get(k), dict)), None)
        content = content if key is None else content[key]
    if not isinstance(content, dict) or not content:
        raise BadInput(f"{path} holds {type(content).__name__}, not a state_dict; save one with net.state_dict()")
    for key, value in content.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            raise BadInput(
                f"{path} holds {type(value).__name__} under {key!r}, not a tensor; save net.state_dict() alone"
            )
        if value.layout != torch.strided or value.numel() * value.element_size() > value.untyped_storage().nbytes():
            raise BadInput(f"{path} holds {key} as {tuple(value.shape)}, more than it stores of it; get the file again")
    return dict(content)


def _read_safetensors(path: Path) -> Any:
    try:
        short = safetensors.torch.load_file(path)
    except Exception as error:  # SafetensorError, OSError, ValueError, KeyError of an unknown type …
        raise BadInput(f"{path} is truncated or no safetensors file: {reason(error)}; get the file again") from error
    return sparse.expand(halves.expand(short, str(path)), str(path))


def _read_torch(path: Path) -> Any:
    """`weights_only`: torch's own unpickler for tensors and containers; anything that could run code is refused."""
    try:
        with path.open("rb") as file:
            kind = file.read(2)
            if not kind.startswith((b"PK", b"\x80")):
                raise BadInput(
                    f"{path} is truncated or no checkpoint: it is neither a zip nor a pickle; get the file again"
                )
            if kind == b"PK":
                check_zip(file, path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except BadInput:
        raise
    except pickle.UnpicklingError as error:
        wanted = re.search(r"GLOBAL (\S+)", str(error))
        if wanted is None:
            raise BadInput(f"{path} is truncated or no checkpoint: {reason(error)}; get the file again") from error
        raise BadInput(
            f"{path} is refused: besides tensors it needs {wanted[1]}, and unpickling that could run code; "
            "save its state_dict alone, where you trust it"
        ) from error
    except Exception as error:  # torch reports a damaged file in many ways: RuntimeError, EOFError, OSError, KeyError …
        raise BadInput(f"{path} is truncated or no checkpoint: {reason(error)}; get the file again") from error


def plain(state: Mapping[str, Tensor], keep: float = KEEP) -> dict[str, Tensor]:
    """Keys as the network calls them; scores applied to the weights they belong to."""
    out: dict[str, Tensor] = {}
    for key, value in state.items():
        name = _without_prefixes(key)
        if "sub_block" in name:
            continue
        if name in out:
            raise BadInput(f"the checkpoint has {name} twice, once as {key}; it holds more than one network")
        out[name] = value
    for key in [key for key in out if key.endswith(".popup_scores")]:
        weight = key.removesuffix("popup_scores") + "weight"
        if weight not in out or out[weight].shape != out[key].shape:
            raise BadInput(f"the checkpoint has scores {key} but no {weight} of their shape; the file is not HYDRA's")
        out[weight] = out[weight] * mask(out.pop(key), keep)
    return out


def mask(scores: Tensor, keep: float) -> Tensor:
    """1 for the largest |scores| of the layer, 0 for the ⌊(1 − keep)·n⌋ lowest."""
    order = scores.abs().flatten().argsort(stable=True)
    out = torch.ones(scores.numel(), dtype=scores.dtype)
    out[order[: int((1 - keep) * scores.numel())]] = 0
    return out.view_as(scores)


def fill(network: nn.Module, state: Mapping[str, Tensor], where: str) -> None:
    """Load a plain state_dict; every key must be used and every weight must be given."""
    due, given = network.state_dict(), dict(state)
    for old in [key for key in given if key.startswith("linear.")]:  # the head's other common name
        if (new := "fc." + old.removeprefix("linear.")) not in given:
            given[new] = given.pop(old)
    for key in [key for key in given if key in CONSTANTS and key not in due]:
        _same_constant(network, CONSTANTS[key], given.pop(key), f"{where}: {key}")
    for key, value in due.items():
        if key.endswith("num_batches_tracked"):
            given.setdefault(key, value)
    missing, surplus = [k for k in due if k not in given], [k for k in given if k not in due]
    if missing or surplus:
        said = [f"it lacks {_some(missing)}"] * bool(missing) + [f"it has {_some(surplus)} too many"] * bool(surplus)
        raise BadInput(f"{where} does not fit {type(network).__name__}: {' and '.join(said)}; is it another network?")
    for key, value in due.items():
        if given[key].shape != value.shape:
            raise BadInput(
                f"{where} does not fit {type(network).__name__}: {key} has shape {tuple(given[key].shape)}, "
                f"{tuple(value.shape)} is due; is it another width, depth or number of classes?"
            )
    network.load_state_dict({key: given[key].to(value.dtype) for key, value in due.items()})


def digest(network: nn.Module) -> str:
    """sha256 over name, dtype, shape and little-endian bytes of every tensor of the state_dict, sorted by name.

    Buffers that are not saved are in it too: a normalisation constant decides a prediction as much as a weight does.
    """
    tensors = {**dict(network.named_buffers()), **network.state_dict()}
    whole = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        whole.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        raw = tensor.reshape(-1).view(torch.uint8).numpy()
        if sys.byteorder == "big":
            raw = raw.reshape(-1, tensor.element_size())[:, ::-1].copy()
        whole.update(raw.data)
    return "sha256:" + whole.hexdigest()


def _same_constant(network: nn.Module, name: str, found: Tensor, where: str) -> None:
    """The file brings its own normalisation: it must be the network's."""
    normalise = getattr(network, "normalise", None)
    identity = torch.tensor(0.0 if name == "mean" else 1.0)
    due = getattr(normalise, name).flatten() if isinstance(normalise, Normalise) else identity
    fits = found.numel() == due.numel() or due.ndim == 0
    if not fits or not torch.allclose(found.float().flatten(), due.expand(found.numel()), atol=1e-4):
        raise BadInput(f"{where} is {found.flatten().tolist()}, but this network normalises with {due.tolist()}")


def _without_prefixes(key: str) -> str:
    """Only what the key starts with is cut, and exactly that: a key that merely contains `module` stays whole."""
    while prefix := next((p for p in PREFIXES if key.startswith(p)), None):
        key = key.removeprefix(prefix)
    return key


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")
