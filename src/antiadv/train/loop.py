"""The training loop of all recipes: phases, epochs, steps, checkpoints, and the final weights with their card.

    for each phase       enter → steps along recipe.gradients → the averaged network → leave
    every few epochs     a checkpoint next to the output, from which a stopped training resumes
    at the end           weights rounded to float16, evaluated as a user loads them, written with their card

All random numbers depend only on (seed, phase, epoch, step), so no generator state is saved. On a CPU a resumed
training gives exactly the same weights as an uninterrupted one (tests/train/test_loop.py). On CUDA steps run in
bfloat16, compiled and as a CUDA graph (train/step.py), and results are equal up to the order of additions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any  # values of curves and identities, as in JSON

import torch
from torch import Tensor, nn

from antiadv import models
from antiadv.core import spec
from antiadv.core.errors import AntiadvError, BadInput
from antiadv.models import checkpoints
from antiadv.models.card import Card
from antiadv.models.loaders import file_digest
from antiadv.train import checkpoint
from antiadv.train.card import publish
from antiadv.train.measure import accuracy
from antiadv.train.recipe import Phase, Recipe
from antiadv.train.sets import Sets, images, read_sets, renamed
from antiadv.train.step import Settings, Speed, Step, accelerate, schedule


@dataclass(frozen=True)
class Progress:
    """The state of a training after an epoch."""

    phase: str
    epoch: int  # of this phase, from 1
    epochs: int  # in this phase
    loss: float
    accuracy: float  # on the training images
    images_per_second: float
    left: float  # seconds to the end, at the speed of this epoch


class Diverged(AntiadvError):
    """The loss is not finite."""


@dataclass(frozen=True)
class How:
    """How a training is run. Only the speed `mixed` changes more of the result than the order of additions."""

    device: torch.device
    speed: Speed
    save_every: int
    progress: Callable[[Progress], None]
    say: Callable[[str], None]


@dataclass
class Journal:
    """The progress of a training. A checkpoint holds it and the tensors of the step."""

    path: Path
    identity: Mapping[str, Any]
    total: int  # epochs of all phases together
    phase: int = 0
    epoch: int = 0
    seconds: float = 0.0
    curves: list[dict[str, Any]] = field(default_factory=list)
    tensors: Mapping[str, Tensor] | None = None  # of a checkpoint, not yet restored

    @classmethod
    def open(cls, path: Path, identity: Mapping[str, Any], total: int) -> Journal:
        if not path.exists():
            return cls(path, identity, total)
        tensors, facts = checkpoint.read_training(path, identity)
        return cls(path, identity, total, facts["phase"], facts["epoch"], facts["seconds"], facts["curves"], tensors)

    def save(self, step: Step) -> None:
        facts = {k: getattr(self, k) for k in ("identity", "phase", "epoch", "seconds", "curves")}
        checkpoint.write(self.path, step.state(), facts)

    def facts(self, sets: Sets, settings: Settings) -> dict[str, Any]:
        """Return the entries of the card that describe the training."""
        return {
            "recipe": self.identity["recipe"],
            "architecture": self.identity["architecture"],
            "data": {"name": sets.name, "train": sets.digest, "test": sets.test_digest},
            "epochs": len(self.curves),
            "seconds": round(self.seconds, 1),
            "settings": asdict(settings),
            "curves": self.curves,
        }


def train(
    recipe: Recipe,
    model: str,
    data: str,
    out: Path,
    settings: Settings,
    *,
    start: Path | None = None,
    partial: Path | None = None,
    save_every: int = 1,
    device: str | None = None,
    speed: Speed = "auto",
    progress: Callable[[Progress], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
    command: str = "",
    load: Callable[[str], Sets] = read_sets,
) -> Card:
    """Train `model` (the spec of an architecture) by `recipe` on `data`; write weights and card, and return the card.

    `out` is the file for the weights; the card is written next to it.
    `start` is a file with weights that replace the first phase of a recipe with several phases.
    `partial` is the file for checkpoints, by default next to `out`. It is deleted at the end.
    """
    check_settings(settings)
    if out.suffix != ".safetensors":
        raise BadInput(f"weights are written as safetensors; found {out.name}. Name it {out.stem}.safetensors.")
    if start is not None and len(recipe.phases()) < 2:
        raise BadInput(f"start replaces the first of several phases; {spec.text(recipe)} has only one. Omit start.")
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    how = How(place, speed, save_every, progress, say)
    sets = load(data)
    architecture = with_classes(model, sets.classes)
    identity: dict[str, Any] = {"recipe": spec.full(recipe), "architecture": architecture, "data": sets.digest}
    identity |= {"start": None if start is None else file_digest(start), **asdict(settings)}
    phases = recipe.phases()
    total = sum(phase.epochs(settings.epochs) for phase in (phases if start is None else phases[1:]))
    journal = Journal.open(partial or out.with_suffix(".partial"), identity, total)

    def sets_of(phase: Phase) -> Sets:
        return sets if phase.data is None else load(renamed(data, phase.data))

    net = run_phases(models.build(architecture), phases, start, sets_of, settings, journal, how)
    facts = {"command": command, **journal.facts(sets, settings)}
    if start is not None:
        facts["start"] = {"file": start.name, "digest": identity["start"]}
    card = publish(contiguous(net).eval(), recipe, out, sets, how.device, facts)
    journal.path.unlink(missing_ok=True)
    return card


def run_phases(
    net: nn.Module,
    phases: Sequence[Phase],
    start: Path | None,
    sets_of: Callable[[Phase], Sets],
    settings: Settings,
    journal: Journal,
    how: How,
) -> nn.Module:
    """Run the remaining phases; return the trained network."""
    for index, phase in enumerate(phases):
        sets = sets_of(phase)
        net = phase.enter(net, sets.classes)
        if index == 0 and start is not None:
            load_weights(net, start)
        elif index >= journal.phase:
            journal.phase, journal.epoch = index, journal.epoch if index == journal.phase else 0
            # shapes do not change, so the search for the fastest kernels runs once
            with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False, allow_tf32=True):
                net = run_phase(net, phase, sets, settings, journal, how)
        net = phase.leave(net)  # for a finished phase only the shapes matter: the checkpoint has the values
    return net


def run_phase(net: nn.Module, phase: Phase, sets: Sets, settings: Settings, journal: Journal, how: How) -> nn.Module:
    """Run the remaining epochs of one phase; return the averaged network."""
    x, y = sets.x.to(how.device), sets.y.to(how.device)
    test_x, test_y = images(sets.test_x).to(how.device), sets.test_y.to(how.device)
    step = Step(placed(net, how.device), phase.recipe, x, y, settings)
    if journal.tensors is not None:
        restore(step, journal.tensors)
        journal.tensors = None
    epochs = phase.epochs(settings.epochs)
    knobs = schedule(epochs * step.steps, settings, phase.rate).to(how.device)
    go = accelerate(step, how.speed, how.say)
    for epoch in range(journal.epoch, epochs):
        rows = step.order(journal.phase, epoch)
        began = time.perf_counter()
        for k in range(step.steps):
            mine = rows[k * step.size : (k + 1) * step.size]
            step.draw(mine, knobs[epoch * step.steps + k], journal.phase, epoch, k)
            go()
        loss, hits = step.read_sums()
        took = time.perf_counter() - began
        if not math.isfinite(loss):
            raise Diverged(f"the loss is {loss} in {phase.name} epoch {epoch + 1}; lower the learning rate")
        point = {"phase": phase.name, "epoch": epoch + 1, "loss": round(loss, 5), "accuracy": round(hits, 5)}
        journal.curves.append(point)
        journal.epoch, journal.seconds = epoch + 1, journal.seconds + took
        if (epoch + 1) % how.save_every == 0 or epoch + 1 == epochs:
            point["test_accuracy"] = accuracy(phase.recipe.classifier(step.finish()), test_x, test_y).share
            journal.save(step)
        left = (journal.total - len(journal.curves)) * took
        how.progress(Progress(phase.name, epoch + 1, epochs, loss, hits, step.steps * step.size / took, left))
    return step.finish()


def placed(net: nn.Module, device: torch.device) -> nn.Module:
    """Move the network to a device; on CUDA with channels last, the fastest layout for convolutions."""
    net = net.to(device)
    return net.to(memory_format=torch.channels_last) if device.type == "cuda" else net  # type: ignore[call-overload]


def contiguous(net: nn.Module) -> nn.Module:
    """Move the network to the CPU, in the default memory layout."""
    return net.to("cpu").to(memory_format=torch.contiguous_format)  # type: ignore[call-overload, no-any-return]


def check_settings(settings: Settings) -> None:
    """Raise if a setting is out of range."""
    if settings.epochs < 1 or settings.batch < 2:
        raise BadInput(f"a training needs epochs >= 1 and batch >= 2; found {settings.epochs} and {settings.batch}")
    if not (settings.learning_rate > 0 and settings.weight_decay >= 0 and 0 <= settings.momentum < 1):
        raise BadInput(
            "a training needs learning_rate > 0, weight_decay >= 0 and 0 <= momentum < 1; "
            f"found {settings.learning_rate}, {settings.weight_decay}, {settings.momentum}"
        )
    if not (0 <= settings.warmup < 1 and 0 <= settings.ema < 1):
        raise BadInput(f"warmup and ema must be in [0, 1); found {settings.warmup} and {settings.ema}")


def with_classes(model: str, classes: int) -> str:
    """Add the number of classes to the spec of an architecture; raise if the spec has another number."""
    asked = spec.read(model, models.ARCHITECTURES, "architecture")
    if "classes" in asked.given and asked.options["classes"] != classes:
        raise BadInput(f"{model} has {asked.options['classes']} classes, the data {classes}; omit classes")
    return spec.Spec(asked.name, asked.factory, {**asked.options, "classes": classes}).text()


def load_weights(net: nn.Module, path: Path) -> None:
    """Load the weights of a file into a network; the error names missing and surplus keys."""
    tensors = checkpoints.read(path)
    try:
        net.load_state_dict(tensors)
    except RuntimeError as error:
        raise BadInput(f"{path} does not fit the network of the first phase: {error}") from error


def restore(step: Step, saved: Mapping[str, Tensor]) -> None:
    """Copy the tensors of a checkpoint into those of the step."""
    with torch.no_grad():
        for name, tensor in step.state().items():
            tensor.copy_(saved[name])
