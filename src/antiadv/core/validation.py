"""Checks of what a user passes in: made once, in `attack`, `evaluate` and the defences, and trusted afterwards.

Each failure is a `BadInput` of one sentence: what was asked, what was found, what to do.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from numbers import Integral

import torch
from torch import Tensor, nn

from antiadv.core import torch_private
from antiadv.core.errors import AntiadvError, BadInput, BadSpec, first_line

NO_GRADIENT = (
    "the classifier must pass gradients on to its images; found scores without a gradient. "
    "Keep to torch operations inside it, without detach or no_grad, or use an attack on scores or labels."
)
TRAINING = "the classifier must be in evaluation mode; found it in training mode. Call .eval() on it first."
FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})  # float8 has no arithmetic
COARSE = frozenset({torch.float16, torch.bfloat16})
INTEGERS = frozenset(getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64))  # no bool

SAMPLES_NAMED = 8  # at most, in one message
OF_SIZES = "shapes cannot be multiplied", "must match the size", "channels"  # in torch's messages about sizes
CHANNELS_LAST = "For a network that takes channels last, write antiadv.wrap(net, channels_last=True)"
OVERSHOOT = 1e-5  # by which images may leave [0, 1]: resizing and normalising make less


def check_base(base: nn.Module) -> None:
    """A module, with all its parts in evaluation mode."""
    if not isinstance(base, nn.Module):
        raise BadInput(f"a classifier must be a torch.nn.Module; found {type(base).__name__}. {_wrapping(base)}")
    if any(getattr(m, "training", False) for m in base.modules()):  # a frozen TorchScript module has no such flag
        raise BadInput(TRAINING)


def _wrapping(base: object) -> str:
    return "Write antiadv.wrap(function) for a function on arrays." if callable(base) else "Give the network itself."


def check_still(base: nn.Module) -> None:
    """The part of `check_base` that does not search the parts of the module; made at every call of a defence."""
    if getattr(base, "training", False):
        raise BadInput(TRAINING)


def check_float(x: Tensor) -> None:
    """The part of `check_images` that reads no pixel."""
    if not isinstance(x, Tensor):
        raise BadInput(f"images must be a torch tensor [N, C, H, W]; found {type(x).__name__}. Use torch.as_tensor.")
    if (odd := odd_tensor(x)) is not None:
        raise BadInput(
            f"images must be a plain tensor [N, C, H, W]; found {odd}. Convert them to a plain tensor first."
        )
    if x.dtype not in FLOATS:
        todo = "Convert them with x.float()." if x.is_floating_point() else "Divide bytes by 255."
        raise BadInput(f"images must be floating point in [0, 1]; found {x.dtype}. {todo}")
    if x.ndim < 2:
        raise BadInput(f"images must be a batch [N, …]; found shape {tuple(x.shape)}. Add a batch dimension.")


def odd_tensor(t: Tensor) -> str | None:
    """The kind of a tensor on which the usual operations do not work; None for a plain tensor."""
    if t.is_nested:
        return "a nested tensor"
    if t.layout is not torch.strided:
        return f"a tensor of the layout {t.layout}"
    return "a quantised tensor" if t.is_quantized else None


def is_whole(t: object, shape: torch.Size) -> bool:
    """Whether t is a plain tensor of integers of this shape."""
    return (
        isinstance(t, Tensor) and odd_tensor(t) is None and not t.is_meta and t.dtype in INTEGERS and t.shape == shape
    )


def describe(t: object) -> str:
    """What t is, for the message about a tensor of integers."""
    if not isinstance(t, Tensor):
        return type(t).__name__
    return odd_tensor(t) or f"{t.dtype} {tuple(t.shape)}" + (" on the device meta" if t.is_meta else "")


def check_images(x: Tensor) -> None:
    """A batch of finite float32 or float64 images in [0, 1]. Waits for the device once.

    In 16 bits, an image at the edge of a ball is rounded to a point outside, so an attack would seem to fail.
    """
    check_float(x)
    if x.dtype in COARSE:
        raise BadInput(
            f"images must be float32, since 16 bits round them out of the ball; found {x.dtype}. "
            "Convert images and network with .float()."
        )
    if x.numel() == 0:
        return
    if x.is_meta:
        raise BadInput("images must hold numbers; found them on the device meta. Create them on another device.")
    low, high = (v.item() for v in torch.stack(torch.aminmax(x.detach())))
    if not (low >= -OVERSHOOT and high <= 1 + OVERSHOOT):  # NaN fails here too
        raise BadInput(f"images must lie in [0, 1]; found [{low:.4g}, {high:.4g}]. {_remedy(low, high)}")


def _remedy(low: float, high: float) -> str:
    if not math.isfinite(high - low):
        return "Look for NaN or infinity in them."
    if low >= 0 and high > 2:  # not normalised
        return "Divide bytes by 255."
    return "If the network needs normalised input, put the normalisation inside it."


def check_labels(y: Tensor, x: Tensor) -> None:
    """Integers, one per image."""
    if not is_whole(y, x.shape[:1]):
        todo = "Pass class indices, and a single image as a batch of one." if x.ndim == 3 else "Pass class indices."
        raise BadInput(
            f"labels must be whole numbers in a tensor, one per image ({len(x)}); "
            f"found {describe(y)} for images {tuple(x.shape)}. {todo}"
        )


def check_shape(s: Tensor, x: Tensor) -> None:
    """The part of `check_scores` that reads no number."""
    if isinstance(s, Tensor):
        _check_plain(s, x)
    if not isinstance(s, Tensor) or s.ndim != 2 or s.shape[0] != x.shape[0]:  # len() would fix the size in a trace
        found = tuple(s.shape) if isinstance(s, Tensor) else type(s).__name__
        todo = "Wrap it so that it returns these alone."
        if not isinstance(s, Tensor):
            todo = "Write antiadv.wrap(net): it takes the scores out of a tuple, or what a dict names logits."
        elif s.ndim > 2:
            todo = "Flatten its output."
        raise BadInput(f"the classifier must return scores [N, K] for {len(x)} images; found {found}. {todo}")
    if s.shape[1] < 2:
        raise BadInput(
            "the classifier must return one score per class; found a single column. "
            "For a binary classifier with logit v return torch.cat([-v / 2, v / 2], 1): softmax is then its sigmoid."
        )


def _check_plain(s: Tensor, x: Tensor) -> None:
    found = odd_tensor(s)
    if found is None and (s.dtype in FLOATS or s.dtype in INTEGERS) and (not s.is_meta or x.is_meta):
        return
    found = found or ("a tensor on the device meta" if s.is_meta else str(s.dtype))
    raise BadInput(
        f"the classifier must return scores as a plain tensor of real numbers; found {found}. "
        "Convert them inside it, for example with s.float()."
    )


def check_scores(
    s: Tensor, x: Tensor, y: Tensor | None = None, ids: Tensor | None = None, classes: int | None = None
) -> None:
    """Finite logits [N, K], K ≥ 2. Waits for the device once.

    A message names samples by `ids`, or else by row. `classes` is the number of classes of the data.
    """
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
    check_logits(s)
    if y is not None and ((y < 0) | (y >= s.shape[1])).any():
        first = int(y[(y < 0) | (y >= s.shape[1])][0])
        raise BadInput(
            f"labels must lie in 0 … {s.shape[1] - 1}; found {first}. Check the classes of network and data."
        )


def check_logits(s: Tensor) -> None:
    """Refuse probabilities. Waits for the device."""
    total = s.detach().double().sum(1)
    if ((s >= 0) & (s <= 1)).all() and torch.allclose(total, torch.ones_like(total), atol=1e-3):
        raise BadInput("scores must be logits; found probabilities (rows in [0, 1] that sum to 1). Remove the softmax.")


def check_sound(unsound: Tensor, ids: Tensor, precision: str = "float32") -> None:
    """`unsound`, one per sample, is true where an answer, computed in this precision, had NaN or infinity."""
    bad = ids.cpu()[unsound.cpu().bool()].tolist()
    if bad:
        named = ", ".join(map(str, bad[:SAMPLES_NAMED])) + (", …" if len(bad) > SAMPLES_NAMED else "")
        raise BadInput(
            f"scores and gradients must be finite in every answer; found NaN or infinity during the attack for "
            f"{len(bad)} of {len(ids)} images: sample{'s' if len(bad) > 1 else ''} {named}. "
            f"Check the network for overflow, division by zero and roots of zero{in_float32(precision)}."
        )


def in_float32(precision: str) -> str:
    """What else to try if a search in this precision failed; goes before the full stop of the advice."""
    return "" if precision == "float32" else f"; or search in float32 instead of {precision}: --precision float32"


def check_slope(s: Tensor) -> None:
    """Refuse scores from which autograd cannot reach the images."""
    if not s.requires_grad:
        raise BadInput(NO_GRADIENT)


def require_gradient(g: Tensor | None) -> Tensor:
    """Refuse a missing gradient: scores may depend on trainable weights without depending on the images."""
    if g is None:
        raise BadInput(NO_GRADIENT)
    return g


@contextlib.contextmanager
def fitting(model: nn.Module, x: Tensor) -> Iterator[None]:
    """Explain a failure of the network by images on another device, or of another type or shape.

    Nothing is checked before a failure, because a network may move, convert or reshape its images itself.
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
    """Refuse a network that writes into its images: later answers would be about other images."""
    before = torch_private.times_written(x)
    yield
    if torch_private.times_written(x) != before:
        raise BadInput(
            "the classifier must leave the images that it is given as they are; found it writing into them. "
            "Let it work on new tensors, for example with x = x - mean instead of x.sub_(mean)."
        )


def _misfit(model: nn.Module, x: Tensor, reason: str) -> str | None:
    """Return what to change in images on which the network failed, or None if they seem to fit it."""
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
    elif turned(x, reason):
        asked, found = "have their channels where the classifier takes them", f"shape {tuple(x.shape)}"
        todo = CHANNELS_LAST
    elif any(words in reason for words in OF_SIZES):
        asked, found = "have the size that the classifier takes", " × ".join(map(str, x.shape[1:]))
        todo = "Resize them, or use the network that they are for"
    else:
        return None
    return f"images must {asked}; found {found}, and it fails ({reason}). {todo}."


def turned(x: Tensor, reason: str) -> bool:
    """Whether torch says that a convolution got the height or width of images whose channels it wants."""
    said = re.search(r"to have (\d+) channels, but got (\d+)", reason)
    return said is not None and int(said[1]) == x.shape[1] != int(said[2]) and int(said[2]) in x.shape[2:]


def _channels(model: nn.Module) -> int | None:
    """The input channels of the first convolution of a network."""
    return next((m.in_channels for m in model.modules() if isinstance(m, nn.Conv2d)), None)


def check_whole(**options: object) -> None:
    """Every option is an integer; True and False are not."""
    for name, value in options.items():
        if not isinstance(value, Integral) or isinstance(value, bool):
            raise BadSpec(f"{name} must be a whole number; found {value!r}. Give for example {name}=100.")


def is_count(value: object, least: int, most: float = math.inf) -> bool:
    """Whether this is an integer from `least` to `most`; True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_number(value: object, most: float) -> bool:
    """Whether this is a number from 0 to `most`; True and False are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= most


def check_flag(**options: object) -> None:
    """Every option is True or False. A text such as "no" would count as True."""
    for name, value in options.items():
        if not isinstance(value, bool):
            raise BadSpec(f"{name} is True or False; found {value!r}. Give one of the two.")


def at_least(bound: float, **options: float) -> None:
    """Every option is at least `bound`."""
    for name, value in options.items():
        if not value >= bound:
            raise BadSpec(f"{name} must be at least {bound:g}; found {value!r}. Give a larger number.")
