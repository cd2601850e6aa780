"""Checks made once, at the door of `attack`, `evaluate` and of a defence, and trusted from there on.

    check_base(f)          a network in evaluation mode, with all its parts         costs nothing
    check_still(f)         in evaluation mode, at every call of a defence
    check_images(x)        floating point, [N, …], finite, in [0, 1]                one synchronisation
    check_labels(y, x)     whole numbers, one per image
    check_scores(s, x)     [N, K], K ≥ 2 or the data's, finite, no probabilities    one synchronisation
    check_sound(bad, ids)  no NaN or infinity in any answer during an attack
    check_slope(s)         scores through which gradients flow                      costs nothing
    arrived(g)             a gradient that came back to the images                  costs nothing
    fitting(f, x)          why f fails on x, where x is elsewhere or of another kind
    untouched(x)           what f does to x but look at it

Each failure is a `BadInput` of one sentence: what was asked, what was found, what to do.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from numbers import Integral

import torch
from torch import Tensor, nn

from antiadv.core.errors import AntiadvError, BadInput, BadSpec, first_line

NO_WAY = (
    "the classifier must pass gradients on to its images; found scores that autograd knows no way back from. "
    "Keep to torch inside it, without detach or no_grad, or use what sees scores or labels only."
)
TRAINING = "the classifier must be in evaluation mode; found it in training mode. Call .eval() on it first."
FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})  # float8 knows no arithmetic
WHOLE = frozenset(
    getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)
)  # no bool, and no complex number, which is not floating point either

NAMED = 8  # samples that a sentence names at most
ROUNDING = 1e-5  # images that went through a resize or a normalise-and-back overshoot [0, 1] by less than this


def check_base(base: nn.Module) -> None:
    if not isinstance(base, nn.Module):
        raise BadInput(f"a classifier must be a torch.nn.Module; found {type(base).__name__}. Wrap it in one.")
    if any(getattr(m, "training", False) for m in base.modules()):  # frozen TorchScript has no such flag
        raise BadInput(TRAINING)


def check_still(base: nn.Module) -> None:
    """The part of `check_base` that looks at no module inside: what trains would change itself at every call."""
    if getattr(base, "training", False):
        raise BadInput(TRAINING)


def check_float(x: Tensor) -> None:
    """The part of `check_images` that looks at no pixel."""
    if not isinstance(x, Tensor):
        raise BadInput(f"images must be a torch tensor [N, C, H, W]; found {type(x).__name__}. Use torch.as_tensor.")
    if (odd := odd_tensor(x)) is not None:
        raise BadInput(f"images must be a plain tensor [N, C, H, W]; found {odd}. Make a plain one of them first.")
    if x.dtype not in FLOATS:
        todo = "Convert them with x.float()." if x.is_floating_point() else "Divide bytes by 255."
        raise BadInput(f"images must be floating point in [0, 1]; found {x.dtype}. {todo}")
    if x.ndim < 2:
        raise BadInput(f"images must be a batch [N, …]; found shape {tuple(x.shape)}. Add a batch dimension.")


def odd_tensor(t: Tensor) -> str | None:
    """What keeps the usual operations from working on this tensor, whatever its numbers; nothing where they do."""
    if t.is_nested:
        return "a nested tensor"
    if t.layout is not torch.strided:
        return f"a tensor of the layout {t.layout}"
    return "a quantised tensor" if t.is_quantized else None


def is_whole(t: object, shape: torch.Size) -> bool:
    """Whether these are whole numbers in a plain tensor of this shape."""
    return isinstance(t, Tensor) and odd_tensor(t) is None and not t.is_meta and t.dtype in WHOLE and t.shape == shape


def describe(t: object) -> str:
    """What was found in the place of a tensor of whole numbers."""
    if not isinstance(t, Tensor):
        return type(t).__name__
    return odd_tensor(t) or f"{t.dtype} {tuple(t.shape)}" + (" on the device meta" if t.is_meta else "")


def check_images(x: Tensor) -> None:
    check_float(x)
    if x.numel() == 0:
        return
    if x.is_meta:
        raise BadInput("images must hold numbers; found them on the device meta. Make them on another.")
    low, high = (v.item() for v in torch.stack(torch.aminmax(x.detach())))
    if not (low >= -ROUNDING and high <= 1 + ROUNDING):  # also true of NaN
        raise BadInput(f"images must lie in [0, 1]; found [{low:.4g}, {high:.4g}]. {_remedy(low, high)}")


def _remedy(low: float, high: float) -> str:
    if not math.isfinite(high - low):
        return "Look for what is no number in them."
    if low >= 0 and high > 2:  # no normalisation gives this
        return "Divide bytes by 255."
    return "If the network needs normalised input, put the normalisation inside it."


def check_labels(y: Tensor, x: Tensor) -> None:
    if not is_whole(y, x.shape[:1]):
        todo = "Pass class indices, and a single image as a batch of one." if x.ndim == 3 else "Pass class indices."
        raise BadInput(
            f"labels must be whole numbers in a tensor, one per image ({len(x)}); "
            f"found {describe(y)} for images {tuple(x.shape)}. {todo}"
        )


def check_shape(s: Tensor, x: Tensor) -> None:
    """The part of `check_scores` that looks at no number."""
    if isinstance(s, Tensor):
        _check_plain(s, x)
    if not isinstance(s, Tensor) or s.ndim != 2 or len(s) != len(x):
        found = tuple(s.shape) if isinstance(s, Tensor) else type(s).__name__
        todo = (
            "Flatten its output." if isinstance(s, Tensor) and s.ndim > 2 else "Wrap it so that it returns these alone."
        )
        raise BadInput(f"the classifier must return scores [N, K] for {len(x)} images; found {found}. {todo}")
    if s.shape[1] < 2:
        raise BadInput(
            "the classifier must return one score per class; found a single column. "
            "For a binary classifier with logit v return torch.cat([-v / 2, v / 2], 1): softmax is then its sigmoid."
        )


def _check_plain(s: Tensor, x: Tensor) -> None:
    found = odd_tensor(s)
    if found is None and (s.dtype in FLOATS or s.dtype in WHOLE) and (not s.is_meta or x.is_meta):
        return
    found = found or ("a tensor on the device meta" if s.is_meta else str(s.dtype))
    raise BadInput(
        f"the classifier must return scores as a plain tensor of real numbers; found {found}. "
        "Convert them inside it, for example with s.float()."
    )


def check_scores(
    s: Tensor, x: Tensor, y: Tensor | None = None, ids: Tensor | None = None, classes: int | None = None
) -> None:
    """`ids`, the samples' numbers where they have any, are what a failure names them by; `classes` are the data's."""
    check_shape(s, x)
    if classes is not None and s.shape[1] != classes:
        raise BadInput(
            f"the classifier must return a score for each of the data set's {classes} classes; found {s.shape[1]}. "
            "Name the data that it was trained on, or another network."
        )
    if len(s) == 0:
        return
    if not torch.isfinite(s).all():
        bad = (~torch.isfinite(s).all(1)).nonzero().flatten()
        which = f"in row {int(bad[0])}" if ids is None else f"for sample {int(ids[bad[0]])}"
        raise BadInput(
            f"scores must be finite; found NaN or infinity for {len(bad)} of {len(s)} images, "
            f"first {which}. Check the weights and the input range of the network."
        )
    total = s.detach().double().sum(1)
    if ((s >= 0) & (s <= 1)).all() and torch.allclose(total, torch.ones_like(total), atol=1e-3):
        raise BadInput("scores must be logits; found probabilities (rows in [0, 1] that sum to 1). Remove the softmax.")
    if y is not None and ((y < 0) | (y >= s.shape[1])).any():
        first = int(y[(y < 0) | (y >= s.shape[1])][0])
        raise BadInput(
            f"labels must lie in 0 … {s.shape[1] - 1}; found {first}. Check the classes of network and data."
        )


def check_sound(unsound: Tensor, ids: Tensor) -> None:
    """`unsound`, one for each sample, is true where an answer during its attack had NaN or infinity in it."""
    bad = ids.cpu()[unsound.cpu().bool()].tolist()
    if bad:
        named = ", ".join(map(str, bad[:NAMED])) + (", …" if len(bad) > NAMED else "")
        raise BadInput(
            f"scores and gradients must be finite in every answer; found NaN or infinity during the attack for "
            f"{len(bad)} of {len(ids)} images: sample{'s' if len(bad) > 1 else ''} {named}. "
            "Check the network for overflow, division by zero and roots of zero."
        )


def check_slope(s: Tensor) -> None:
    """Whether autograd can go back from these scores to the images they were made of."""
    if not s.requires_grad:
        raise BadInput(NO_WAY)


def require_gradient(g: Tensor | None) -> Tensor:
    """A gradient asked for with `allow_unused`: scores may know a way to weights that learn, and none to images."""
    if g is None:
        raise BadInput(NO_WAY)
    return g


@contextlib.contextmanager
def fitting(model: nn.Module, x: Tensor) -> Iterator[None]:
    """Inside, a network that fails on images which lie elsewhere or are of another kind than its weights is told so.

    Only where it fails, for it may move, convert or reshape them itself.
    """
    try:
        yield
    except AntiadvError:
        raise
    except Exception as error:
        if (sentence := _misfit(model, x, first_line(error))) is None:
            raise
        raise BadInput(sentence) from error


@contextlib.contextmanager
def untouched(x: Tensor) -> Iterator[None]:
    """Inside, a network that writes into its images is refused: every later answer would be about other ones."""
    before = _writes(x)
    yield
    if _writes(x) != before:
        raise BadInput(
            "the classifier must leave the images that it is given as they are; found it writing into them. "
            "Let it work on its own, for example with x = x - mean in place of x.sub_(mean)."
        )


def _writes(x: Tensor) -> int:
    """How often it was written into, which torch counts, but for tensors made in inference mode."""
    return 0 if x.is_inference() else x._version


def _misfit(model: nn.Module, x: Tensor, reason: str) -> str | None:
    """What can be seen from outside of images on which the network failed for this reason."""
    weights = [*model.parameters(), *model.buffers()]
    places = [t.device for t in weights]
    kinds = [t.dtype for t in weights if t.is_floating_point()]
    if places and x.device not in places:
        asked, found = f"lie where the classifier does, on {places[0]}", f"them on {x.device}"
        todo = "Move one of the two"
    elif kinds and x.dtype not in kinds:
        asked, found = f"be {kinds[0]} as the classifier's weights are", f"{x.dtype}"
        todo = "Convert one of the two"
    elif x.ndim != 4:
        asked, found = "be a batch as the classifier takes it, mostly [N, C, H, W]", f"shape {tuple(x.shape)}"
        todo = "Reshape them; a single image is a batch of one"
    elif x.shape[3] in (1, 3) and x.shape[1] not in (1, 3):
        asked, found = "be [N, C, H, W]", f"shape {tuple(x.shape)}, with the channels last"
        todo = "Turn them: x.permute(0, 3, 1, 2)"
    elif (channels := _channels(model)) not in (None, x.shape[1]):
        asked, found = f"have {channels} channels as the classifier takes them", f"{x.shape[1]}"
        todo = "Repeat a grey channel, or make colour grey"
    else:
        return None
    return f"images must {asked}; found {found}, and it fails ({reason}). {todo}."


def _channels(model: nn.Module) -> int | None:
    """How many channels the first convolution of a network takes."""
    return next((m.in_channels for m in model.modules() if isinstance(m, nn.Conv2d)), None)


def check_whole(**options: object) -> None:
    """Every option is a whole number; True is none."""
    for name, value in options.items():
        if not isinstance(value, Integral) or isinstance(value, bool):
            raise BadSpec(f"{name} must be a whole number; found {value!r}. Give for example {name}=100.")


def is_number(value: object, most: float) -> bool:
    """Whether this is a number from 0 to `most`; True is none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= most


def check_flag(**options: object) -> None:
    """Every option is True or False: a text such as "no" would count as True."""
    for name, value in options.items():
        if not isinstance(value, bool):
            raise BadSpec(f"{name} is True or False; found {value!r}. Give one of the two.")


def at_least(bound: float, **options: float) -> None:
    """Every option of a configuration is a number no smaller than this."""
    for name, value in options.items():
        if not value >= bound:
            raise BadSpec(f"{name} must be at least {bound:g}; found {value!r}. Give a larger number.")
