"""One class for each library whose attacks run here. The library is imported when the attack starts.

    options=(steps=40+rel_stepsize=0.1)     arguments of the library's class: key=value, joined by +
    level=labels                            what the attack may see: labels, scores or gradients (the default)

The radius is the threat's. Where the library's class takes `eps` or `epsilons`, it is set to it. The budget holds: when
a sample has spent it, the attack ends. A library may attack one sample after another, so each sample that still stands
and has queries left is then attacked alone. The best images that were sent are judged. Attacks of ART and torchattacks
on scores and labels send images in an order of their own, so they run on one sample at a time. Random numbers of torch,
numpy and Python are seeded from the samples' keys, and put back afterwards.
Cost:       what the library sends; the oracle counts it.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from antiadv.attacks.foreign.counting_model import CountingModel
from antiadv.core.ball import Ball, per_row
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput, BadSpec, BudgetSpent, first_line
from antiadv.core.imports import current_directory_importable
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access

Level = Literal["labels", "scores", "gradients"]


class Foreign:
    """What the classes below share. A subclass says in `_run` how its library is called."""

    norms: ClassVar[frozenset[float]] = frozenset({2, math.inf})
    minimal: ClassVar[bool] = False
    orderless: ClassVar[bool] = False  # without gradients, its attacks do not keep to the batch
    level: Level = "gradients"

    @property
    def alone(self) -> bool:
        """Whether it runs on one sample at a time."""
        return self.orderless and self.level != "gradients"

    @property
    def edition(self) -> int:
        return 2 if self.alone else 1

    @property
    def access(self) -> Access:
        return Access[self.level.upper()]

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        if len(x) == 0:
            return x.clone()
        if oracle.targeted:
            raise BadInput("attacks of other libraries run untargeted here; found a targeted threat. Use one of ours.")
        if self.alone and len(x) > 1:
            rows = torch.arange(len(x)).split(1)
            return torch.cat([self(oracle[row], x[row], y[row], ball, draws[row]) for row in rows])
        counted = CountingModel(oracle, x, y, ball, self.access)
        with seeded(int(draws.keys[0])), contextlib.suppress(BudgetSpent):
            z = self._run(counted, x, y, ball).detach().to(x)
            return torch.where(per_row(counted.fooled, x), counted.images, z)
        if len(x) > 1:
            for row in (~counted.fooled.cpu() & (oracle.left() > 0)).nonzero():
                counted.images[row] = self(oracle[row], x[row], y[row], ball, draws[row])
        return counted.images

    def _run(self, counted: CountingModel, x: Tensor, y: Tensor, ball: Ball) -> Tensor:
        raise AssertionError("a subclass calls its library here")


@dataclass(frozen=True)
class Foolbox(Foreign):
    """A class of `foolbox.attacks`: `foolbox:LinfPGD`, `foolbox:HopSkipJumpAttack,level=labels`."""

    attack: str = "LinfPGD"
    options: str = ""
    level: Level = "gradients"

    def _run(self, counted: CountingModel, x: Tensor, y: Tensor, ball: Ball) -> Tensor:
        foolbox = library("foolbox")
        made = member(foolbox.attacks, self.attack, "foolbox.attacks")(**arguments(self.options))
        model = foolbox.PyTorchModel(counted, bounds=(0, 1), device=x.device)
        radius = None if ball.eps == math.inf else ball.eps
        raw, clipped, _ = made(model, x, foolbox.criteria.Misclassification(y), epsilons=radius)
        found: Tensor = raw if radius is None else clipped
        return found


@dataclass(frozen=True)
class Torchattacks(Foreign):
    """A class of `torchattacks`: `torchattacks:PGD,options=(steps=40)`."""

    orderless: ClassVar[bool] = True
    attack: str = "PGD"
    options: str = ""
    level: Level = "gradients"

    def _run(self, counted: CountingModel, x: Tensor, y: Tensor, ball: Ball) -> Tensor:
        made = with_radius(member(library("torchattacks"), self.attack, "torchattacks"), ball, self.options)
        found: Tensor = made(counted)(x, y)
        return found


@dataclass(frozen=True)
class Art(Foreign):
    """A class of `art.attacks.evasion`: `art:SquareAttack,level=scores`."""

    orderless: ClassVar[bool] = True
    attack: str = "ProjectedGradientDescent"
    options: str = ""
    level: Level = "gradients"

    def _run(self, counted: CountingModel, x: Tensor, y: Tensor, ball: Ball) -> Tensor:
        evasion, estimators = library("art.attacks.evasion"), library("art.estimators.classification")
        classes = counted(x).shape[1]  # one query per sample
        device = "gpu" if x.is_cuda else "cpu"
        model = estimators.PyTorchClassifier(
            counted, torch.nn.CrossEntropyLoss(), tuple(x.shape[1:]), classes, clip_values=(0, 1), device_type=device
        )
        norm: object = math.inf if ball.p == math.inf else 2
        cls = member(evasion, self.attack, "art.attacks.evasion")
        extra = {"norm": norm} if "norm" in inspect.signature(cls).parameters else {}
        made = with_radius(cls, ball, self.options)(model, **extra)
        return torch.from_numpy(made.generate(x.cpu().numpy(), y.cpu().numpy())).to(x.device)


@dataclass(frozen=True)
class Pyautoattack(Foreign):
    """AutoAttack as the package pyautoattack has it: `pyautoattack:standard`."""

    version: Literal["standard", "plus", "rand"] = "standard"

    def _run(self, counted: CountingModel, x: Tensor, y: Tensor, ball: Ball) -> Tensor:
        norm = "Linf" if ball.p == math.inf else "L2"
        made = library("pyautoattack").AutoAttack(
            counted, eps=ball.eps, norm=norm, device=x.device, version=self.version, seed=0
        )
        found: Tensor = made.run_standard_evaluation(x, y, batch_size=len(x))[0]
        return found


@dataclass(frozen=True)
class Function(Foreign):
    """Your own function (model, x, y, eps) → images: `function:(my.module:attack)`."""

    path: str
    level: Level = "gradients"

    @property
    def files(self) -> tuple[str, ...]:
        """The file of the module, so that an edited function has results of its own."""
        with current_directory_importable(), contextlib.suppress(ImportError, ValueError):
            found = importlib.util.find_spec(self.path.partition(":")[0])
            if found is not None and found.has_location and found.origin is not None:
                return (found.origin,)
        return ()

    def _run(self, counted: CountingModel, x: Tensor, y: Tensor, ball: Ball) -> Tensor:
        where, _, name = self.path.partition(":")
        with current_directory_importable():
            run = member(_own_module(where), name, where)
        return _called(run, self.path, counted, x, y, ball)


@dataclass(frozen=True)
class InHand(Foreign):
    """A function (model, x, y, eps) → images that `antiadv.attack` was given."""

    function: Callable[..., Any]
    level: Level = "gradients"

    def _run(self, counted: CountingModel, x: Tensor, y: Tensor, ball: Ball) -> Tensor:
        return _called(self.function, self.name, counted, x, y, ball)

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)


def _called(run: Callable[..., Any], name: str, counted: CountingModel, x: Tensor, y: Tensor, ball: Ball) -> Tensor:
    found = run(counted, x, y, ball.eps)
    if not isinstance(found, Tensor) or found.shape != x.shape:
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise BadInput(f"{name} must return images of shape {tuple(x.shape)}; found {shape}. Return these.")
    return found


LIBRARIES: dict[str, Callable[..., Foreign]] = {
    "foolbox": Foolbox,
    "torchattacks": Torchattacks,
    "art": Art,
    "pyautoattack": Pyautoattack,
    "function": Function,
}


def library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise BadInput(f"this attack needs the module {name}; found none ({error}). Install it with pip.") from error


def _own_module(name: str) -> Any:
    """A module of the user's own. An import that fails inside it is told as it is."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise BadInput(f"{name} cannot be imported: {error}. Install the missing module.") from error
        raise BadInput(
            f"there is no module {error.name!r} to import. Run it in the folder with {error.name}.py, or check "
            "its name."
        ) from error
    except (Exception, SystemExit) as error:
        raise BadInput(f"{name} cannot be imported ({first_line(error)}). Repair it first.") from error


def member(module: Any, name: str, where: str) -> Any:
    found = getattr(module, name, None)
    if found is None:
        raise BadSpec(f"{where} has no attack {name!r}; write the name of one of its classes, letter by letter.")
    return found


def arguments(text: str) -> dict[str, object]:
    """`steps=40+rel_stepsize=0.1` to keyword arguments.

    >>> arguments("steps=40+rel_stepsize=0.1+random_start=false")
    {'steps': 40, 'rel_stepsize': 0.1, 'random_start': False}
    """
    pairs = [item.partition("=") for item in text.split("+") if item]
    if any(not key.isidentifier() or not equals for key, equals, _ in pairs):
        raise BadSpec(f"options are key=value, joined by +; found {text!r}. Write options=(steps=40+restarts=2).")
    return {key: _literal(value) for key, _, value in pairs}


def _literal(text: str) -> object:
    if text in ("true", "false", "none"):
        return {"true": True, "false": False, "none": None}[text]
    for read in (int, float):
        with contextlib.suppress(ValueError):
            return read(text)
    return text


def with_radius(cls: Any, ball: Ball, options: str) -> Callable[..., Any]:
    """The class with the options of the text, and with the threat's radius as `eps` if it takes one."""
    given = arguments(options)
    if "eps" in inspect.signature(cls).parameters and ball.eps < math.inf:
        given.setdefault("eps", ball.eps)
    return lambda *args, **more: cls(*args, **more, **given)


@contextlib.contextmanager
def seeded(key: int) -> Iterator[None]:
    """Seed the global random numbers that other libraries use, and put them back."""
    seed = key % 2**32
    numpy, python = np.random.get_state(), random.getstate()  # noqa: NPY002  what they use
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        torch.random.manual_seed(seed)
        np.random.set_state(np.random.RandomState(seed).get_state())  # noqa: NPY002
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy)  # noqa: NPY002
            random.setstate(python)
