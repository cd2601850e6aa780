"""The pre-flight: what is wrong with a model or its images, before an attack gives a wrong number.

    preflight(model, x, y)   →  findings, each with what was checked, whether it is fine, and the line to write

    range           images lie in [0, 1] and use it
    mode            every part is in evaluation mode
    dtype           weights are float32, as the judge computes
    torch           a note where this version was never tested
    scores          [N, K], finite, logits and not probabilities; labels fit the classes
    determinism     the same images give the same scores twice
    batch           an image gives the same scores alone and in a batch
    gradients       they reach the images, are finite, and not all zero
    normalisation   clean accuracy with the images as they are, and under plausible mistakes: another normalisation,
                    channels in another order, bytes. If one of them is clearly better, it is the line to write.
    accuracy        in place of it, where the network only guesses whatever the preparation

Cost:       about a dozen passes over the images. Nothing of the model changes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from antiadv.core.engine import Eager
from antiadv.core.errors import AntiadvError, BadInput, first_line
from antiadv.core.losses import margin
from antiadv.core.validation import NO_GRADIENT, check_base, check_images, check_labels, check_scores, fitting
from antiadv.evaluation.early import FEW, NO_MORE, guesses
from antiadv.models.preprocess import CONSTANTS, Normalise

APART = 1e-3  # of the scores' spread: more than rounding in another batch size makes
TESTED = (2, 11), (2, 15)  # versions of torch
GUESSED = "  # a guess: use the constants of your training"
CLEARLY = 3.0  # standard errors by which a variant must be better to be named


@dataclass(frozen=True)
class Finding:
    """`fine` is None where the check cannot decide. `todo` is the line to write; empty if there is nothing to do."""

    name: str
    fine: bool | None
    found: str
    todo: str = ""


def preflight(model: nn.Module, x: Tensor, y: Tensor, batch: int = 64) -> list[Finding]:
    """Check a classifier on images [N, C, H, W] and their labels; about 100 images are enough.

    >>> import torch
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).eval()
    >>> x = torch.linspace(0, 1, 96).reshape(8, 3, 2, 2)
    >>> [f.name for f in preflight(net, x, net(x).argmax(1)) if f.fine is False]
    []
    """
    findings = [
        _try("mode", lambda: check_base(model), "evaluation mode"),
        _dtype(model),
        *untested(torch.__version__),
        _range(x),
    ]
    ask = Eager(batch)
    try:
        with fitting(model, x):
            s = ask.scores(model, x)
    except AntiadvError as error:
        return [*findings, Finding("scores", False, str(error))]
    except Exception as error:
        return [*findings, Finding("scores", False, f"the model fails on these images ({first_line(error)})")]

    def check() -> None:
        check_labels(y, x)
        check_scores(s, x, y)

    findings.append(_try("scores", check, f"logits of {s.shape[1] if s.ndim > 1 else 0} classes"))
    if findings[-1].fine:
        findings += [_determinism(model, x, s, ask), _batch(model, x, s), _gradients(model, x, y, ask)]
        findings.append(_normalisation(model, x, y, s, ask))
    return findings


def _try(name: str, check: Callable[[], None], fine: str) -> Finding:
    try:
        check()
    except AntiadvError as error:
        found, _, todo = str(error).partition(". ")
        return Finding(name, False, found, todo)
    return Finding(name, True, fine)


def _dtype(model: nn.Module) -> Finding:
    """Other types are only a note: a model may turn the images into its own type."""
    weights = (*model.parameters(), *model.buffers())
    others = {str(w.dtype).removeprefix("torch.") for w in weights if w.is_floating_point()} - {"float32"}
    if not others:
        return Finding("dtype", True, "weights are float32")
    found = f"some weights are {' and '.join(sorted(others))}, so every result is computed with these"
    return Finding("dtype", None, found, "model = model.float()")


def untested(version: str) -> list[Finding]:
    """A note where the tests were never run with this version."""
    number = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    (a, b), (c, d) = TESTED
    if TESTED[0] <= number <= TESTED[1]:
        return []
    return [Finding("torch", None, f"version {version} is outside the tested range, {a}.{b} to {c}.{d}")]


def as_returned(model: nn.Module) -> list[Finding]:
    """The state in which your function returns a network. The command line corrects it itself; your code must do so."""
    mode, dtype = _try("mode", lambda: check_base(model), "evaluation mode"), _dtype(model)
    if not mode.fine:
        found = "your function returns it in training mode; antiadv sets .eval() itself, your own code must"
        mode = Finding("mode", None, found, "model = model.eval()")
    if not dtype.fine:
        found = f"{dtype.found.partition(',')[0]}, as your function returns it; antiadv computes in float32"
        dtype = Finding("dtype", None, found, dtype.todo)
    return [mode, dtype]


def _range(x: Tensor) -> Finding:
    finding = _try("range", lambda: check_images(x), "")
    if not finding.fine or not x.numel():
        return finding
    low, high = x.min().item(), x.max().item()
    if high <= 2 / 255:
        return Finding(
            "range", False, f"images use [{low:.3g}, {high:.3g}] of [0, 1]", "Divide bytes by 255 only once."
        )
    return Finding("range", True, f"images lie in [{low:.2f}, {high:.2f}]")


def _spread(s: Tensor) -> float:
    return max(s.std().item(), 1e-12)


def _determinism(model: nn.Module, x: Tensor, s: Tensor, ask: Eager) -> Finding:
    return _same_scores(
        "determinism",
        (ask.scores(model, x) - s) / _spread(s),
        "the same images give the same scores",
        "the scores of the same images",
        "Switch dropout and noise off with .eval(), or write randomness as a Randomised defence.",
    )


def _batch(model: nn.Module, x: Tensor, s: Tensor) -> Finding:
    few = x[: min(4, len(x))]
    todo = "Keep samples apart: no statistics over the batch. Batch norm must be in eval mode."
    if any("quantized.dynamic" in type(part).__module__ for part in model.modules()):
        todo = "Dynamic quantisation takes its scales from the whole batch: run with --batch 1, or quantise statically."
    return _same_scores(
        "batch",
        (Eager(1).scores(model, few) - s[: len(few)]) / _spread(s),
        "an image gives the same scores alone and in a batch",
        "the scores of an image alone and in a batch",
        todo,
    )


def _same_scores(name: str, difference: Tensor, fine: str, what: str, todo: str) -> Finding:
    apart = difference.abs().max().item()
    if apart <= APART:
        return Finding(name, True, fine)
    return Finding(name, False, f"{what} differ by {apart:.2g} of their spread", todo)


def _gradients(model: nn.Module, x: Tensor, y: Tensor, ask: Eager) -> Finding:
    few = slice(0, min(16, len(x)))
    try:
        _, g = ask.gradient(model, x[few], margin, y[few])
    except BadInput:
        return Finding("gradients", None, "none: attacks on scores and labels work, attacks with gradients do not")
    if broken := (~g.flatten(1).isfinite().all(1)).float().mean().item():
        todo = "Look for roots of zero, divisions by zero and overflow; attacks with gradients stop there."
        return Finding("gradients", False, f"NaN or infinity for {broken:.0%} of the images", todo)
    dead = (g.flatten(1).abs().amax(1) == 0).float().mean().item()
    if dead:
        todo = "Look for rounding, detach or saturated outputs; gradient attacks will look weak."
        return Finding("gradients", False, f"zero for {dead:.0%} of the images", todo)
    return Finding("gradients", True, "they reach the images")


def passes_gradients(model: nn.Module, x: Tensor, y: Tensor) -> bool:
    """Whether attacks with gradients can run: ONNX files and functions on arrays pass none."""
    try:
        Eager(1).gradient(model, x[:1], margin, y[:1].to(x.device))
    except Exception as error:  # of any other, the run itself says what is wrong
        return str(error) != NO_GRADIENT
    return True


Change = Callable[[Tensor], Tensor]


def variants(channels: int) -> Iterator[tuple[str, str, Change]]:
    """Plausible mistakes: a name, the line that mends it, and what the line does to images in [0, 1]."""
    for name, (mean, std) in CONSTANTS.items():
        if name == "cifar100" or max(len(mean), len(std)) not in (1, channels):  # cifar10's are within 0.03 of it
            continue
        normalise = Normalise(mean, std)
        line = f"model = antiadv.wrap(model, mean={_short(mean)}, std={_short(std)}){GUESSED}"
        yield f"normalised with the constants of {name}", line, _done(normalise)
        line = "The model normalises twice: take one of the two out."
        yield f"with the constants of {name} undone", line, _undone(normalise)
    if channels == 3:
        yield "with the channels turned", "model = antiadv.wrap(model, bgr=True)", lambda x: x.flip(1)
    yield "as bytes", "model = antiadv.wrap(model, scale=255)", lambda x: x * 255


def _done(normalise: Normalise) -> Change:
    return lambda x: (x - normalise.mean.to(x)) / normalise.std.to(x)  # where the images are


def _undone(normalise: Normalise) -> Change:
    return lambda x: x * normalise.std.to(x) + normalise.mean.to(x)


def _normalisation(model: nn.Module, x: Tensor, y: Tensor, s: Tensor, ask: Eager) -> Finding:
    plain = s.argmax(1) == y
    best, name, todo = plain, "", ""
    for variant, line, change in variants(x.shape[1] if x.ndim == 4 else 0):
        try:
            right = ask.scores(model, change(x)).argmax(1) == y
        except Exception:  # a model may refuse other numbers
            continue
        if right.sum() > best.sum():
            best, name, todo = right, variant, line
    won, lost = int((best & ~plain).sum()), int((plain & ~best).sum())
    clean, other = (f"{right.float().mean().item():.1%}" for right in (plain, best))
    if name and won - lost > CLEARLY * math.sqrt(won + lost):  # the same images, so only those that differ count
        return Finding("normalisation", False, f"clean accuracy is {clean}; {name} it is {other}", todo)
    classes = s.shape[1]
    if len(y) >= FEW and guesses(int(plain.sum()), len(y), classes):
        todo = "Check the labels, the order of the classes and the weights."
        return Finding("accuracy", False, f"clean accuracy is {clean}, {NO_MORE} among {classes} classes", todo)
    return Finding("normalisation", True, f"clean accuracy is {clean}, and no other preparation is clearly better")


def _short(values: tuple[float, ...]) -> str:
    return "(" + ", ".join(f"{v:.4g}" for v in values) + ("," if len(values) == 1 else "") + ")"
