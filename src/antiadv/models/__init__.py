"""Networks: they take images in [0, 1], normalise them inside, and return logits. `MODELS` lists all names.

    load("compact:trades")               a trained network in eval mode and float32, without parameter gradients
    load("wrn28-10:mart,path=FILE")      the weights that the authors published
    load("my.module:make_net")           your own: a function without arguments that returns an nn.Module
    load("onnx:net.onnx")                other files: ONNX, TorchScript, Hugging Face, timm (`wrap.py`)
    load("http://127.0.0.1:8000/v2/models/net")        a classifier behind an address (`remote.py`)
    build("preact18:width=16")           an untrained network
    digest(network)                      its identity, a sha256
    canonical(text), label(text)         its name in cells, without the path of its file, and its name in reports

Building and loading do not touch torch's global random numbers.
"""

from __future__ import annotations

import importlib
import inspect
import re
import typing
from pathlib import Path
from urllib.parse import urlsplit

import torch
from torch import nn

from antiadv.core import spec
from antiadv.core.errors import AntiadvError, BadInput, BadSpec
from antiadv.core.imports import current_directory_importable
from antiadv.models import loaders, remote
from antiadv.models import wrap as wrapping
from antiadv.models.card import Accuracy, Card
from antiadv.models.checkpoints import digest
from antiadv.models.connection import is_this_machine
from antiadv.models.loaders import ARCHITECTURES, build, find_cards
from antiadv.models.preprocess import Normalise

__all__ = [
    "ARCHITECTURES",
    "MODELS",
    "Accuracy",
    "Card",
    "Normalise",
    "build",
    "canonical",
    "cards",
    "catalogue",
    "digest",
    "is_elsewhere",
    "is_file",
    "is_known",
    "is_registered",
    "is_remote",
    "label",
    "load",
    "ready",
    "returned",
]

MODELS: spec.Registry = {
    "compact": loaders.compact,
    "resnet18": loaders.resnet18,
    "wrn16-4": loaders.wrn16_4,
    "wrn28-10": loaders.wrn28_10,
    "wrn34-10": loaders.wrn34_10,
    "resnet50": loaders.resnet50,
    "file": loaders.file,
    "onnx": wrapping.onnx,
    "torchscript": wrapping.torchscript,
    "huggingface": wrapping.huggingface,
    "timm": wrapping.timm,
    "http": remote.http,
    "https": remote.https,
}

FILES = ("file", "onnx", "torchscript", "huggingface")  # names that mean nothing without the path of a file

cards = find_cards


def load(text: str) -> nn.Module:
    """Load the network of a spec or import path, in eval mode and float32, without parameter gradients."""
    return ready(returned(text))


def returned(text: str) -> nn.Module:
    """The network of a spec or import path as its loader or your function returns it."""
    if _is_import_path(text):
        return _imported(text.strip())
    if not is_registered(text):
        raise _unknown(text)
    network: nn.Module = spec.parse(text, MODELS, "model")
    return network


def ready(network: nn.Module) -> nn.Module:
    """The same network in eval mode and float32, without parameter gradients."""
    return network.eval().requires_grad_(False).float()


def canonical(text: str) -> str:
    """Return the normal form of a spec, without the path of its file. Cells are named and keyed by it.

    For an address it is without the options that change no answer, such as its rate. A name that is not registered,
    such as an import path, is its own normal form.
    """
    if not is_registered(text):
        return text.strip()
    read = spec.read(text, MODELS, "model")
    hidden = remote.HOW if is_remote(text) else ("path",)
    rest = read.text(leave_out=("variant", "url", *hidden)).removeprefix(read.name).removeprefix(":")
    options = [spec.show(read.options[key]) for key in ("variant", "url") if key in read.options] + [rest] * bool(rest)
    return read.name + (":" + ",".join(options) if options else "")


def is_registered(text: str) -> bool:
    """Return whether the text begins with a name in `MODELS`."""
    return text.partition(":")[0].strip() in MODELS


def is_file(text: str) -> bool:
    """Return whether the text names a network by its file alone, such as `file:` and `onnx:`."""
    return text.partition(":")[0].strip() in FILES


def is_remote(text: str) -> bool:
    """Return whether the text is an address."""
    return text.partition(":")[0].strip() in ("http", "https")


def is_elsewhere(text: str) -> bool:
    """Return whether the text is an address on another machine, which only its owner may permit to attack."""
    if not is_remote(text):
        return False
    read = spec.read(text, MODELS, "model")
    return not is_this_machine(urlsplit(f"{read.name}:{read.options['url']}").hostname or "")


def is_known(text: str) -> bool:
    """Return whether `load` can try it: a registered name or an import path.

    >>> [is_known(text) for text in ("compact:trades", "my.module:make", "mine")]
    [True, True, False]
    """
    return is_registered(text) or _is_import_path(text)


def label(text: str) -> str:
    """Return the name of a network in reports: its normal form, and for `file:` and the like the name of the file.

    >>> label("file:/data/runs/net.safetensors"), label("wrn28-10:mart,path=/data/net.pt")
    ('file:net.safetensors', 'wrn28-10:mart')
    """
    if not is_file(text):
        return canonical(text)
    read = spec.read(text, MODELS, "model")
    rest = read.text(leave_out=("path",)).removeprefix(read.name).removeprefix(":")
    return f"{read.name}:" + ",".join([spec.show(Path(read.options["path"]).name), *[rest] * bool(rest)])


def catalogue() -> list[dict[str, str]]:
    """Return a row for each network at hand, then one for each name that needs a file."""
    lines = [
        {
            "name": card.spec,
            "clean": f"{card.clean.share:.1%}",
            "pgd-20": f"{card.pgd20.share:.1%}",
            "about": f"{card.architecture}, {card.data['name']}",
        }
        for card in cards()
    ]
    for name, loader in MODELS.items():
        known = spec.parameters(loader)
        variants = typing.get_args(known["variant"].annotation) if "variant" in known else ()
        needed = [f"{k.upper()}," for k, p in known.items() if k != "path" and p.default is inspect.Parameter.empty]
        names = [f"{name}:{variant},path=FILE" for variant in variants]
        names = names or [f"{name}:{''.join(needed)}path=FILE"] * ("path" in known)
        names = [f"{name}://127.0.0.1:8000/v2/models/NAME"] if "url" in known else names
        about = (inspect.getdoc(loader) or "").partition("\n")[0]
        lines += [{"name": text, "clean": "", "pgd-20": "", "about": about} for text in names]
    return lines


def _is_import_path(text: str) -> bool:
    """Return whether the text looks like `my.module:make_net`. Registered names take precedence."""
    match = re.fullmatch(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*(?:\.[^\W\d]\w*)*)", text.strip())
    return match is not None and match[1] not in MODELS


def _imported(text: str) -> nn.Module:
    """Call the function at an import path. The seed is fixed, so every worker gets the same untrained weights."""
    where, _, name = text.partition(":")
    try:
        with current_directory_importable(), torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            make = importlib.import_module(where)
            torch.default_generator.manual_seed(0)  # an import may use random numbers, but runs only once
            for part in name.split("."):
                make = getattr(make, part)
            if isinstance(make, nn.Module):
                raise BadInput(
                    f"{text!r} is a network, not a function; give a function without arguments that returns it"
                )
            network = make()  # type: ignore[operator]  # an object that cannot be called is reported below
    except ModuleNotFoundError as error:
        if error.name is None or not f"{where}.".startswith(f"{error.name}."):
            raise BadInput(f"{text!r} cannot be loaded: {error}; install the missing module") from error
        raise BadSpec(f"{_unknown(text)}; and there is no module {error.name!r} to import") from error
    except AntiadvError:
        raise
    except (Exception, SystemExit) as error:
        raise BadInput(f"{text!r} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(network, nn.Module):
        raise BadInput(f"{text!r} returned {type(network).__name__}; return an nn.Module from images to logits")
    return network


def _unknown(text: str) -> BadSpec:
    """Return the error for a name that is not registered: the nearest registered names, and how to name one's own."""
    try:
        spec.read(text, MODELS, "model")
    except BadSpec as error:
        where, _, name = text.strip().partition(":")
        module = Path(where).name.removesuffix(".py") or "mine"
        function = name if name.isidentifier() else "make"
        return BadSpec(
            f"{error}; a network of your own is MODULE:FUNCTION, such as {module}:{function}, "
            f"and {module.replace('.', '/')}.py is looked for in {Path.cwd()}"
        )
    raise AssertionError(f"{text} is registered")
