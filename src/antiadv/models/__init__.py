"""Networks: images in [0, 1] in, logits out; normalisation inside. `MODELS` is the table of contents.

    load("compact:trades")               a trained network, ready to be attacked: eval mode, float32, no gradients kept
    load("wrn28-10:mart,path=FILE")      the authors' own weights, in the layout they published
    load("my.module:make_net")           yours: a callable without arguments that returns an nn.Module
    build("preact18:width=16")           an untrained network, by its architecture
    digest(network)                      its identity; `canonical(text)` is its name, without where the file lies, and
                                         `label(text)` what to call it

Neither building nor loading reads or writes torch's global generator.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from antiadv.core import spec
from antiadv.core.errors import AntiadvError, BadInput, BadSpec
from antiadv.models import loaders
from antiadv.models.card import Accuracy, Card
from antiadv.models.checkpoints import digest
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
    "is_known",
    "is_registered",
    "label",
    "load",
]

MODELS: spec.Registry = {
    "compact": loaders.compact,
    "resnet18": loaders.resnet18,
    "wrn16-4": loaders.wrn16_4,
    "wrn28-10": loaders.wrn28_10,
    "wrn34-10": loaders.wrn34_10,
    "resnet50": loaders.resnet50,
    "file": loaders.file,
}

cards = find_cards


def load(text: str) -> nn.Module:
    """The network of that spec or import path, in eval mode, float32, its parameters not asking for gradients."""
    network: nn.Module = _imported(text.strip()) if _is_import_path(text) else spec.parse(text, MODELS, "model")
    return network.eval().requires_grad_(False).float()


def canonical(text: str) -> str:
    """The normal form of a spec, without the path of its file: what a cell is named and keyed by.

    A name that is not registered, such as an import path or that of a network in hand, is its own normal form.
    """
    if not is_registered(text):
        return text.strip()
    read = spec.read(text, MODELS, "model")
    rest = read.text(leave_out=("path", "variant")).removeprefix(read.name).removeprefix(":")
    said = [str(read.options[key]) for key in ("variant",) if key in read.options] + [rest] * bool(rest)
    return read.name + (":" + ",".join(said) if said else "")


def is_registered(text: str) -> bool:
    """Whether it begins with a name of the table of contents."""
    return text.partition(":")[0].strip() in MODELS


def is_known(text: str) -> bool:
    """Whether `load` could look for it: a name of its own table, or an import path; that of a network in hand is not.

    >>> [is_known(text) for text in ("compact:trades", "my.module:make", "mine")]
    [True, True, False]
    """
    return is_registered(text) or _is_import_path(text)


def label(text: str) -> str:
    """What a network is called in reports and commands: its normal form, and of a file that is one by itself its name.

    >>> label("file:/data/runs/net.safetensors"), label("wrn28-10:mart,path=/data/net.pt")
    ('file:net.safetensors', 'wrn28-10:mart')
    """
    if text.partition(":")[0].strip() != "file":
        return canonical(text)
    read = spec.read(text, MODELS, "model")
    rest = read.text(leave_out=("path",)).removeprefix("file").removeprefix(":")
    return "file:" + ",".join([spec.show(Path(read.options["path"]).name), *[rest] * bool(rest)])


def catalogue() -> list[dict[str, str]]:
    """A line for every network at hand, then one for every name that needs a file."""
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
        said = [f"{name}:{variant},path=FILE" for variant in variants] or [f"{name}:path=FILE"] * ("path" in known)
        about = (inspect.getdoc(loader) or "").partition("\n")[0]
        lines += [{"name": text, "clean": "", "pgd-20": "", "about": about} for text in said]
    return lines


def _is_import_path(text: str) -> bool:
    """`my.module:make_net`; a registered name comes first."""
    match = re.fullmatch(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*(?:\.[^\W\d]\w*)*)", text.strip())
    return match is not None and match[1] not in MODELS


def _imported(text: str) -> nn.Module:
    """What the callable returns. Untrained weights are drawn from a fixed seed: every worker makes the same network."""
    where, _, name = text.partition(":")
    try:
        with _current_directory_importable(), torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            make = importlib.import_module(where)
            torch.default_generator.manual_seed(0)  # an import may draw too, and happens once
            for part in name.split("."):
                make = getattr(make, part)
            if isinstance(make, nn.Module):
                raise BadInput(f"{text!r} is a network already; name a function without arguments that returns it")
            network = make()  # type: ignore[operator]  # whether it is callable is the user's affair: see below
    except ModuleNotFoundError as error:
        if error.name is None or not f"{where}.".startswith(f"{error.name}."):
            raise BadInput(f"{text!r} cannot be loaded: {error}; install what it needs") from error
        raise BadSpec(f"{_unknown(text)}; nor is there a module {error.name!r} to import it from") from error
    except AntiadvError:
        raise
    except (Exception, SystemExit) as error:
        raise BadInput(f"{text!r} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(network, nn.Module):
        raise BadInput(f"{text!r} returned {type(network).__name__}; return an nn.Module from images to logits")
    return network


def _unknown(text: str) -> BadSpec:
    """What `spec` says of a name that is not registered: the nearest ones that are."""
    try:
        spec.read(text, MODELS, "model")
    except BadSpec as error:
        return error
    raise AssertionError(f"{text} is registered")


@contextlib.contextmanager
def _current_directory_importable() -> Iterator[None]:
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
