"""Read weights from files into networks, without running code from the files.

    read(path)              the tensors of a safetensors or torch file
    plain(state)            the same with plain names: no `module.` prefix, no unused keys, HYDRA's pruning applied
    fill(network, state)    load them; a missing, surplus or misshapen key is an error
    digest(network)         sha256 of everything that decides what the network computes

Published files have quirks. TRADES, MART, HYDRA and RST-AWP hold an unused `sub_block1`. HYDRA holds dense weights and
the scores that prune them. ImageNet-Pre was saved from DataParallel. RobustBench stores the normalisation as `mu` and
`sigma`. Old files have no `num_batches_tracked`.
"""

from __future__ import annotations

import hashlib
import pickle
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any  # content of a file before it is checked

import safetensors.torch
import torch
from torch import Tensor, nn

from antiadv.core.bounds import check_zip
from antiadv.core.errors import BadInput, reason
from antiadv.models import packing
from antiadv.models.preprocess import Normalise

WRAPPERS = ("state_dict", "model_state_dict", "net", "model")
PREFIXES = ("module.", "model.", "net.", "network.", "_orig_mod.")
CONSTANTS = {"mu": "mean", "sigma": "std", "mean": "mean", "std": "std"}
CONSTANTS |= {"normalize.mean": "mean", "normalize.std": "std"}
KEEP = 0.1  # share of weights that HYDRA keeps in each layer


def read(path: Path) -> dict[str, Tensor]:
    """Return the state_dict in a file, also from a wrapper such as {"state_dict": …, "epoch": …}."""
    if not path.is_file():
        raise BadInput(f"{path} is not a file; give the path of a checkpoint")
    content = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
    for _ in WRAPPERS:  # wrappers can be nested; the bound stops a file that holds itself
        key = next((k for k in WRAPPERS if isinstance(content, dict) and isinstance(content.get(k), dict)), None)
        content = content if key is None else content[key]
    if not isinstance(content, dict) or not content:
        raise BadInput(f"{path} holds {type(content).__name__}, not a state_dict; save one with net.state_dict()")
    for key, value in content.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            raise BadInput(
                f"{path} holds {type(value).__name__} under {key!r}, not a tensor; save only net.state_dict()"
            )
        if value.layout != torch.strided or value.numel() * value.element_size() > value.untyped_storage().nbytes():
            raise BadInput(f"{path} holds {key} of shape {tuple(value.shape)}, but not all its data; get it again")
    return dict(content)


def _read_safetensors(path: Path) -> Any:
    try:
        packed = safetensors.torch.load_file(path)
    except Exception as error:  # SafetensorError, OSError, ValueError, KeyError for an unknown type …
        raise BadInput(f"{path} is truncated or no safetensors file: {reason(error)}; get the file again") from error
    return packing.unpack(packed, str(path))


def _read_torch(path: Path) -> Any:
    """Read a torch file with `weights_only`: torch refuses anything that could run code."""
    try:
        with path.open("rb") as file:
            kind = file.read(2)
            if not kind.startswith((b"PK", b"\x80")):
                raise BadInput(f"{path} is truncated or no checkpoint: neither a zip nor a pickle; get the file again")
            if kind == b"PK":
                check_zip(file, path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except BadInput:
        raise
    except Exception as error:  # a damaged file: UnpicklingError, RuntimeError, EOFError, OSError, KeyError …
        wanted = re.search(r"GLOBAL (\S+)", str(error)) if isinstance(error, pickle.UnpicklingError) else None
        if wanted is None:
            raise BadInput(f"{path} is truncated or no checkpoint: {reason(error)}; get the file again") from error
        raise BadInput(
            f"{path} is refused: it needs {wanted[1]} besides tensors, and unpickling that could run code; "
            "load it where you trust it, and save only its state_dict"
        ) from error


def plain(state: Mapping[str, Tensor], keep: float = KEEP) -> dict[str, Tensor]:
    """Rename keys to those of our networks, drop unused ones, and apply HYDRA's scores to their weights."""
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
            raise BadInput(f"the checkpoint has scores {key} but no {weight} of that shape; it is no file of HYDRA")
        out[weight] = out[weight] * mask(out.pop(key), keep)
    return out


@torch.no_grad()
def mask(scores: Tensor, keep: float) -> Tensor:
    """Return 0 for the ⌊(1 − keep)·n⌋ entries with the lowest |scores|, 1 for the others; ties: the first are 0."""
    flat = scores.detach().abs().flatten()
    lowest = flat.argsort(stable=True)[: int((1 - keep) * flat.numel())]
    return torch.ones_like(flat).scatter_(0, lowest, 0.0).view(scores.shape)


def fill(network: nn.Module, state: Mapping[str, Tensor], where: str) -> None:
    """Load a plain state_dict. Every key must be used and every weight must be given."""
    expected, given = network.state_dict(), dict(state)
    for old in [key for key in given if key.startswith("linear.")]:  # another common name of the last layer
        if (new := "fc." + old.removeprefix("linear.")) not in given:
            given[new] = given.pop(old)
    for key in [key for key in given if key in CONSTANTS and key not in expected]:
        _check_constant(network, CONSTANTS[key], given.pop(key), f"{where}: {key}")
    for key, value in expected.items():
        if key.endswith("num_batches_tracked"):
            given.setdefault(key, value)
    missing, surplus = [k for k in expected if k not in given], [k for k in given if k not in expected]
    if missing or surplus:
        faults = [f"it lacks {_some(missing)}"] * bool(missing) + [f"it has {_some(surplus)} too many"] * bool(surplus)
        raise BadInput(f"{where} does not fit {type(network).__name__}: {' and '.join(faults)}; is it another network?")
    for key, value in expected.items():
        if given[key].shape != value.shape:
            raise BadInput(
                f"{where} does not fit {type(network).__name__}: {key} has shape {tuple(given[key].shape)}, "
                f"expected {tuple(value.shape)}; is it another width, depth or number of classes?"
            )
    network.load_state_dict({key: given[key].to(value.dtype) for key, value in expected.items()})


def digest(network: nn.Module) -> str:
    """sha256 over name, dtype, shape and little-endian bytes of every tensor of the state_dict, sorted by name.

    It covers buffers that are not saved too: a normalisation constant changes predictions as a weight does. Quantised
    weights, which torch packs, count with their integers, scales and zero points.
    """
    held: dict[str, Any] = {**dict(network.named_buffers()), **network.state_dict()}
    total = hashlib.sha256()
    for name in sorted(held):
        for part, tensor in _tensors(name, held[name]):
            total.update(f"{part} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            raw = tensor.reshape(-1).view(torch.uint8).numpy()
            if sys.byteorder == "big":
                raw = raw.reshape(-1, tensor.element_size())[:, ::-1].copy()
            total.update(raw.data)
    return "sha256:" + total.hexdigest()


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """The plain tensors in an entry of a state_dict. Other values are part of their names."""
    if isinstance(value, Tensor) and value.is_quantized:
        yield f"{name} {value.dtype} {value.qscheme()}", value.int_repr().cpu().contiguous()
        each = value.qscheme() in (torch.per_channel_affine, torch.per_channel_affine_float_qparams)
        scales = (value.q_per_channel_scales(), value.q_per_channel_zero_points()) if each else ()
        for part in scales or map(torch.tensor, (value.q_scale(), value.q_zero_point())):
            yield f"{name} scale", part.cpu().contiguous()
    elif isinstance(value, Tensor):
        yield name, value.detach().cpu().contiguous()
    elif isinstance(value, torch.ScriptObject):
        yield from _tensors(name, value.__getstate__())
    elif isinstance(value, tuple | list):
        for i, part in enumerate(value):
            yield from _tensors(f"{name}.{i}", part)
    else:
        yield f"{name} {value!r}", torch.empty(0)


def _check_constant(network: nn.Module, name: str, found: Tensor, where: str) -> None:
    """Refuse a file whose normalisation is not the one of the network."""
    normalise = getattr(network, "normalise", None)
    identity = torch.tensor(0.0 if name == "mean" else 1.0)
    expected = getattr(normalise, name).flatten() if isinstance(normalise, Normalise) else identity
    fits = found.numel() == expected.numel() or expected.ndim == 0
    if not fits or not torch.allclose(found.float().flatten(), expected.expand(found.numel()), atol=1e-4):
        raise BadInput(f"{where} is {found.flatten().tolist()}, but this network normalises with {expected.tolist()}")


def _without_prefixes(key: str) -> str:
    while prefix := next((p for p in PREFIXES if key.startswith(p)), None):
        key = key.removeprefix(prefix)
    return key


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")
