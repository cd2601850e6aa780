"""Other people's attacks, called as their authors call them: a network, images and a radius in, images out.

    PEERS["pyautoattack apgd-t"].run(task, short)  →  z            `short`: a few steps only, to warm up

A package is imported when its attack runs, so a machine only needs the packages it compares with. They draw from global
random generators, which the caller seeds and restores. Settings are the packages' defaults, except for what `said`
names: numbers of steps that finish in minutes, and switches without which another attack would run.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any  # none of these packages is typed

import torch
from torch import Tensor, nn

from antiadv.core.ball import Ball
from antiadv.core.errors import BadInput
from benchmarks import published_loops


@dataclass(frozen=True)
class Task:
    """What both sides get. `start`, if there is one, is noise that fools, where attacks on labels begin."""

    net: nn.Module
    x: Tensor
    y: Tensor
    classes: int
    ball: Ball
    seed: int
    start: Tensor | None = None

    def __getitem__(self, rows: Tensor) -> Task:
        start = None if self.start is None else self.start[rows]
        return replace(self, x=self.x[rows], y=self.y[rows], start=start)


@dataclass(frozen=True)
class Found:
    """The images that an attack returns.

    `fell` is the query count, as the attack counts, at which each sample was fooled (0: it was not).
    Not all attacks report it.
    """

    z: Tensor
    fell: Tensor | None = None


@dataclass(frozen=True)
class Peer:
    """An attack of another package. `said` is how it is called; with `alone` it gets one image at a time."""

    package: str
    said: str
    run: Callable[[Task, bool], Found]
    alone: bool = False


def load(package: str, module: str) -> Any:
    """Import a module of another package, or say how to get it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about their own dependencies
            return importlib.import_module(module)
    except ImportError as error:
        raise BadInput(
            f"this comparison needs the package {package}, which cannot be imported here ({error}). "
            "Run make bench, which sets up an environment that has it."
        ) from error


# ---------------------------------------------------------------- pyautoattack: the authors' AutoAttack


def _autoattack(name: str) -> Callable[[Task, bool], Found]:
    def run(task: Task, short: bool) -> Found:
        made = load("pyautoattack", "pyautoattack").AutoAttack(
            task.net, version="standard", norm="Linf", eps=task.ball.eps, seed=task.seed, device=task.x.device
        )
        made.apgd.loss, made.fab.targeted = "ce", True  # as the package itself sets them
        if short:
            made.apgd.n_iter = made.apgd_targeted.n_iter = made.fab.n_iter = made.square.n_queries = 2
        each = {"apgd-ce": made.apgd, "apgd-t": made.apgd_targeted, "fab-t": made.fab, "square": made.square}
        with torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "there are .* points with zero gradient")
            if name == "standard":  # all four, each on the samples that still stand
                made.logger.setLevel(logging.ERROR)  # it warns about defences
                return Found(made.run_standard_evaluation(task.x, task.y, batch_size=len(task.x))[0])
            return Found(each[name].perturb(task.x.clone(), task.y.clone()))

    return run


# ---------------------------------------------------------------- the published loops of NES and Bandits


def _nes(task: Task, short: bool) -> Found:
    return Found(*published_loops.nes(task.net, task.x, task.y, task.ball.eps, 300 if short else 10_000))


def _bandits(task: Task, short: bool) -> Found:
    return Found(*published_loops.bandits(task.net, task.x, task.y, task.ball.eps, 10 if short else 10_000))


# ---------------------------------------------------------------- torchattacks


def _torchattacks(name: str, steps: str, count: int, **more: object) -> Callable[[Task, bool], Found]:
    def run(task: Task, short: bool) -> Found:
        make = getattr(load("torchattacks", "torchattacks"), name)
        sized = {steps: 2 if short else count}
        attack = make(task.net, norm="Linf", eps=task.ball.eps, seed=task.seed, **sized, **more)
        return Found(attack(task.x, task.y))

    return run


# ---------------------------------------------------------------- ART


def _art(name: str, steps: int, *, softmax: bool = False, **more: object) -> Callable[[Task, bool], Found]:
    def run(task: Task, short: bool) -> Found:
        kinds = load("adversarial-robustness-toolbox", "art.attacks.evasion")
        wrap = load("adversarial-robustness-toolbox", "art.estimators.classification").PyTorchClassifier
        net = nn.Sequential(task.net, nn.Softmax(1)).eval() if softmax else task.net
        shape = tuple(task.x.shape[1:])
        model = wrap(net, nn.CrossEntropyLoss(), shape, task.classes, clip_values=(0.0, 1.0), device_type="cpu")
        radius = {"eps": task.ball.eps} if name == "SquareAttack" else {}
        attack = getattr(kinds, name)(model, max_iter=2 if short else steps, verbose=False, **radius, **more)
        start = {} if task.start is None else {"x_adv_init": task.start.numpy()}
        truth = nn.functional.one_hot(task.y, task.classes).numpy()
        return Found(torch.from_numpy(attack.generate(task.x.numpy(), truth, **start)))

    return run


# ---------------------------------------------------------------- foolbox


def _foolbox(name: str, steps: int) -> Callable[[Task, bool], Found]:
    def run(task: Task, short: bool) -> Found:
        foolbox = load("foolbox", "foolbox")
        model = foolbox.PyTorchModel(task.net, bounds=(0, 1), device=task.x.device)
        attack = getattr(foolbox.attacks, name)(steps=1 if short else steps)
        wanted = foolbox.criteria.Misclassification(task.y)
        return Found(attack.run(model, task.x, wanted, starting_points=task.start))

    return run


_AUTOATTACK = "AutoAttack(version='standard', norm='Linf')"
_ART = "adversarial-robustness-toolbox"

PEERS: dict[str, Peer] = {
    "pyautoattack apgd-ce": Peer("pyautoattack", f"{_AUTOATTACK}.apgd, loss='ce'", _autoattack("apgd-ce")),
    "pyautoattack apgd-t": Peer("pyautoattack", f"{_AUTOATTACK}.apgd_targeted", _autoattack("apgd-t")),
    "pyautoattack fab-t": Peer("pyautoattack", f"{_AUTOATTACK}.fab, targeted", _autoattack("fab-t")),
    "pyautoattack square": Peer("pyautoattack", f"{_AUTOATTACK}.square", _autoattack("square")),
    "pyautoattack standard": Peer("pyautoattack", f"{_AUTOATTACK}.run_standard_evaluation", _autoattack("standard")),
    "published nes": Peer("torch", "published_loops.nes: q 50, σ 0.1, η 0.01", _nes),
    "published bandits": Peer("torch", "published_loops.bandits: tile 16, σ 0.1, η 0.01, h 100, δ 1", _bandits),
    "torchattacks apgd": Peer("torchattacks", "APGD(steps=100, loss='ce')", _torchattacks("APGD", "steps", 100)),
    "torchattacks square": Peer("torchattacks", "Square(n_queries=500)", _torchattacks("Square", "n_queries", 500)),
    "art square": Peer(_ART, "SquareAttack(max_iter=200)", _art("SquareAttack", 200)),
    "art simba": Peer(
        _ART,
        "SimBA(attack='px', epsilon=0.2, max_iter=300, freq_dim=32) on probabilities",
        _art("SimBA", 300, softmax=True, attack="px", epsilon=0.2, freq_dim=32),
        alone=True,
    ),
    "art simba-dct": Peer(
        _ART,
        "SimBA(attack='dct', epsilon=0.2, max_iter=300, freq_dim=8) on probabilities",
        _art("SimBA", 300, softmax=True, attack="dct", epsilon=0.2, freq_dim=8),
        alone=True,
    ),
    "art hop_skip_jump": Peer(_ART, "HopSkipJump(norm=2, max_iter=4)", _art("HopSkipJump", 4), alone=True),
    "art boundary": Peer(
        _ART, "BoundaryAttack(targeted=False, max_iter=20)", _art("BoundaryAttack", 20, targeted=False), alone=True
    ),
    "foolbox hop_skip_jump": Peer(
        "foolbox", "HopSkipJumpAttack(steps=4)", _foolbox("HopSkipJumpAttack", 4), alone=True
    ),
    "foolbox hop_skip_jump batch": Peer(
        "foolbox", "HopSkipJumpAttack(steps=4), all images at once", _foolbox("HopSkipJumpAttack", 4)
    ),
    "foolbox boundary": Peer("foolbox", "BoundaryAttack(steps=700)", _foolbox("BoundaryAttack", 700)),
}
