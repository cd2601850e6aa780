"""One loop for all recipes: phases, epochs, steps; checkpoints on the way, a file of weights and a card at the end.

    for each phase       enter → steps along recipe.gradients → the averaged network → leave
    every few epochs     a checkpoint beside the output; killed and started again, training goes on from there
    at the end           weights rounded to float16, evaluated as a user will load them, written with their card

All randomness is a function of (seed, phase, epoch, step), so nothing of a generator needs saving: on a CPU a resumed
training ends with the very bits of an unbroken one (tests/train/test_loop.py). On CUDA steps run in bfloat16,
channels last, compiled and captured (train/step.py), and equality holds up to the order of additions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any  # curves and identities are what json holds

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
    """Said after every epoch."""

    phase: str
    epoch: int  # of this phase, from 1
    epochs: int  # in this phase
    loss: float
    accuracy: float  # on the training images the loss was taken at
    images_per_second: float
    left: float  # seconds to the end of the last phase, at the speed of this epoch


class Diverged(AntiadvError):
    """The loss is no longer a number."""


@dataclass(frozen=True)
class How:
    """How a training is run, which decides nothing about its result but the order of additions."""

    device: torch.device
    speed: Speed
    save_every: int
    progress: Callable[[Progress], None]
    say: Callable[[str], None]


@dataclass
class Journal:
    """What has been done so far. A checkpoint is this and the tensors of the step."""

    path: Path
    identity: Mapping[str, Any]
    total: int  # epochs, of all phases together
    phase: int = 0
    epoch: int = 0
    seconds: float = 0.0
    curves: list[dict[str, Any]] = field(default_factory=list)
    tensors: Mapping[str, Tensor] | None = None  # read and not yet put back

    @classmethod
    def open(cls, path: Path, identity: Mapping[str, Any], total: int) -> Journal:
        if not path.exists():
            return cls(path, identity, total)
        tensors, facts = checkpoint.read_training(path, identity)
        return cls(path, identity, total, facts["phase"], facts["epoch"], facts["seconds"], facts["curves"], tensors)

    def save(self, step: Step) -> None:
        facts = {k: getattr(self, k) for k in ("identity", "phase", "epoch", "seconds", "curves")}
        checkpoint.write(self.path, step.state(), facts)


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
    """Train `model` (an architecture's spec) by `recipe` on `data`; write weights to `out` and a card beside it.

    `start` is a file with the network that the first phase would have trained, for a recipe of several phases.
    `partial` is where checkpoints go, by default beside `out`; it is deleted at the end. Returns the card.
    """
    check_settings(settings)
    if out.suffix != ".safetensors":
        raise BadInput(f"weights are written as safetensors; found {out.name}. Name it {out.stem}.safetensors.")
    phases = recipe.phases()
    if start is not None and len(phases) < 2:
        raise BadInput(f"start skips the first of several phases; {spec.text(recipe)} has only one: leave it out")
    how = How(
        torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")), speed, save_every, progress, say
    )
    sets = load(data)
    architecture = with_classes(model, sets.classes)
    identity = {
        "recipe": spec.full(recipe),
        "architecture": architecture,
        "data": sets.digest,
        "start": None if start is None else file_digest(start),
        **asdict(settings),
    }
    first = 0 if start is None else 1
    total = sum(phase.epochs(settings.epochs) for phase in phases[first:])
    journal = Journal.open(partial or out.with_suffix(".partial"), identity, total)

    net = models.build(architecture)
    for index, phase in enumerate(phases):
        here = sets if phase.data is None else load(renamed(data, phase.data))
        net = phase.enter(net, here.classes)
        if index < first and start is not None:
            load_weights(net, start)
        if index >= max(first, journal.phase):
            journal.phase, journal.epoch = index, journal.epoch if index == journal.phase else 0
            # shapes are static, so the search for the fastest kernels is paid once
            with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False, allow_tf32=True):
                net = run_phase(net, phase, here, settings, journal, how)
        net = phase.leave(net)  # before the resumed phase only its shape matters: the values are in the checkpoint

    facts = {
        "command": command,
        "recipe": identity["recipe"],
        "architecture": architecture,
        "data": {"name": sets.name, "train": sets.digest, "test": sets.test_digest},
        "epochs": len(journal.curves),
        "seconds": round(journal.seconds, 1),
        "settings": asdict(settings),
        "curves": journal.curves,
    } | ({} if start is None else {"start": {"file": start.name, "digest": identity["start"]}})
    card = publish(contiguous(net).eval(), recipe, out, sets, how.device, facts)
    journal.path.unlink(missing_ok=True)
    return card


def run_phase(net: nn.Module, phase: Phase, sets: Sets, settings: Settings, journal: Journal, how: How) -> nn.Module:
    """The epochs of one phase that are still to come; returns the averaged network."""
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
    """On the device; on CUDA with its kernels' channels last, the layout its convolutions are fastest in."""
    net = net.to(device)
    return net.to(memory_format=torch.channels_last) if device.type == "cuda" else net  # type: ignore[call-overload]


def contiguous(net: nn.Module) -> nn.Module:
    """On the CPU, in the layout of a fresh network."""
    return net.to("cpu").to(memory_format=torch.contiguous_format)  # type: ignore[call-overload, no-any-return]


def check_settings(settings: Settings) -> None:
    """The door: what cannot be trained with, in one sentence."""
    if settings.epochs < 1 or settings.batch < 2:
        raise BadInput(
            f"a training has at least 1 epoch and batches of at least 2; found {settings.epochs} and {settings.batch}"
        )
    if not (settings.learning_rate > 0 and settings.weight_decay >= 0 and 0 <= settings.momentum < 1):
        raise BadInput(
            "a training needs learning_rate > 0, weight_decay >= 0 and 0 <= momentum < 1; "
            f"found {settings.learning_rate}, {settings.weight_decay}, {settings.momentum}"
        )
    if not (0 <= settings.warmup < 1 and 0 <= settings.ema < 1):
        raise BadInput(f"warmup and ema lie in [0, 1); found {settings.warmup} and {settings.ema}")


def with_classes(model: str, classes: int) -> str:
    """The architecture's spec with the number of classes of the data; another number said by the user is refused."""
    asked = spec.read(model, models.ARCHITECTURES, "architecture")
    if "classes" in asked.given and asked.options["classes"] != classes:
        raise BadInput(f"{model} has {asked.options['classes']} classes, the data {classes}; leave classes out")
    return spec.Spec(asked.name, asked.factory, {**asked.options, "classes": classes}).text()


def load_weights(net: nn.Module, path: Path) -> None:
    """The weights of a file into a network of the same shape; anything missing or left over is named."""
    tensors = checkpoints.read(path)
    try:
        net.load_state_dict(tensors)
    except RuntimeError as error:
        raise BadInput(f"{path} does not fit the network of the first phase: {error}") from error


def restore(step: Step, saved: Mapping[str, Tensor]) -> None:
    """The tensors of a checkpoint into those of the step, in place."""
    with torch.no_grad():
        for name, tensor in step.state().items():
            tensor.copy_(saved[name])
