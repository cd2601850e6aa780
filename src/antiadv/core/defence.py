"""The Defence base class: a module that wraps a classifier f (`base`) and is a classifier g again.

    g = Defence(f, **options)        images [N, C, H, W] in [0, 1] → scores [N, K]

`forward` works under `no_grad` and `inference_mode`. It does not change the images, the base, the training flags or the
global random generators. Options are constructor arguments, kept as attributes of the same name. So a defence has a
text form like every other configuration: `anti_adversary:steps=2,step_size=0.15`.

A `Randomised` defence uses random numbers at every call. The oracle and the judge pass them as `draws`, one key per
image. A plain call `g(x)` uses new ones each time.

A defence that remembers queries returns a `Session`. The oracle makes one, and asks it about every answer.
"""

from __future__ import annotations

import inspect
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from antiadv.core import torch_private
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput
from antiadv.core.validation import check_base, check_float, check_logits, check_shape, check_still, fitting

LARGEST = torch.finfo(torch.float16).max  # value of an option in pixels: beyond it float16 images overflow
TRANSFERS = ("transfer:attack=fast",)  # it queries only the bare classifier
FURTHER = "transfer:attack=go_on"  # the same, far beyond the edge of its decision


class Stages(NamedTuple):
    """A defence that needs the host in the middle, as two models that do not.

    `first` answers every sample. Where `goes_on(scores of first)` is true, `second` answers instead.
    """

    first: nn.Module
    goes_on: Callable[[Tensor], Tensor]
    second: nn.Module


class Session(ABC):
    """The memory of a defence that remembers queries. Each attacked sample is a client, with a memory of its own."""

    @abstractmethod
    def answer(self, clients: Tensor, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """What clients `[N]`, on the host, get who send x, where a new client gets s; and which answers are repeated.

        An answer depends on what this client sent before, in order, and on nothing else.
        """


class Defence(nn.Module, ABC):
    """A classifier in front of a classifier.

    `edition` is raised by 1 with every intended change of results; it is part of every cell's key. `later` names the
    options that are newer than stored results: at their defaults they are left out of the key, so that stored cells
    keep theirs. `files` names the options that are paths of files: the key has the digest of their content. `adaptive`
    lists the attacks against this defence, as specs: the attack `adaptive` runs them first.
    """

    edition: ClassVar[int] = 1
    later: ClassVar[tuple[str, ...]] = ()
    files: ClassVar[tuple[str, ...]] = ()
    randomised: ClassVar[bool] = False
    adaptive: ClassVar[tuple[str, ...]] = (
        *TRANSFERS,
        "bpda:attack=apgd",
        "straight_through:attack=(probability_margin:steps=20)",
    )
    base: nn.Module
    _answered = False  # whether the base was seen to return logits

    def __init__(self, base: nn.Module) -> None:
        check_base(base)
        super().__init__()
        self.base = base
        self.training = False  # like the base; `train()` still changes both

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor: ...

    def extra_repr(self) -> str:
        options = [name for name in inspect.signature(type(self)).parameters if name != "base" and hasattr(self, name)]
        return ", ".join(f"{name}={getattr(self, name)}" for name in options)

    def surrogate(self, kappa: float = 3.0) -> nn.Module:
        """A differentiable surrogate for an adaptive attacker, sharper for larger κ; by default the defence itself."""
        return self

    def shown(self, x: Tensor) -> Tensor:
        """The images that the base sees, for a defence that changes them without random numbers and without a slope."""
        return x

    def stages(self) -> Stages | None:
        """The two models of a defence that runs only some of its samples through its steps; None for any other."""
        return None

    def session(self) -> Session | None:
        """An empty memory, if the defence remembers queries. The oracle keeps it; a plain call has no memory."""
        return None

    def ask(self, x: Tensor, change: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """The scores of the base for x, or for `change(x)`, with every check of a plain call."""
        check_float(x)
        check_still(self.base)
        # a copy: the base may write in place
        s = self.explained(x, lambda: self.base(x.clone() if change is None else change(x)))
        self.check_answer(s, x)
        return s

    def explained(self, x: Tensor, call: Callable[[], Tensor]) -> Tensor:
        """What `call` returns. A failure by images that do not fit the base is explained, outside compilers."""
        if torch.compiler.is_compiling():
            return call()
        with fitting(self.base, x):
            return call()

    def check_answer(self, s: Tensor, x: Tensor) -> None:
        """Check the scores of the base for x. Numbers are read once, at the first call outside compilers and graphs."""
        check_shape(s, x)
        if torch.compiler.is_compiling() or self._answered or not torch_private.readable(s) or len(s) == 0:
            return
        check_logits(s)
        self._answered = True


class Randomised(Defence):
    """A defence with random numbers. An answer depends on the image, its key and the options only.

    The attacks of `adaptive` are run through `eot`, which averages over the random numbers, so they are plain attacks.
    """

    randomised: ClassVar[bool] = True
    adaptive: ClassVar[tuple[str, ...]] = (
        *(*TRANSFERS, FURTHER, "go_on"),
        *("apgd", "apgd:loss=dlr"),
    )

    def forward(self, x: Tensor, draws: Draws | None = None) -> Tensor:
        check_float(x)
        check_still(self.base)
        if draws is None:
            # unpredictable: copies of a network must not use the same numbers, and an attacker must not know them
            draws = Draws.of(secrets.randbits(64), torch.arange(len(x), device=x.device))
        if len(draws) != len(x):
            raise BadInput(f"a randomised defence needs one key per image ({len(x)}); found {len(draws)}. Select them.")
        s = self.explained(x, lambda: self.answer(x, draws))
        self.check_answer(s, x)
        return s

    @abstractmethod
    def answer(self, x: Tensor, draws: Draws) -> Tensor:
        """The scores of these images with these random numbers."""


def check_dice(model: nn.Module) -> None:
    """Refuse a randomised defence inside another module: `draws` would not reach it, and calls would not repeat."""
    for outer in model.modules():
        for inner in outer.children():
            if isinstance(inner, Defence) and inner.randomised:
                raise BadInput(
                    "a randomised defence must be the outermost module, because it is given its random numbers; "
                    f"found {type(inner).__name__} inside {type(outer).__name__}. {_outwards(inner, outer)}"
                )


def _outwards(inner: Defence, outer: nn.Module) -> str:
    """What to do about a randomised defence inside another module."""
    if not isinstance(outer, Defence):
        return "Put it in front of that."
    if outer.randomised:
        return "Keep one of the two."
    return f"Wrap them the other way round: {type(inner).__name__}({type(outer).__name__}(f))."


def base_of(model: nn.Module) -> nn.Module:
    """The bare classifier inside a defence; a classifier without a defence is its own base."""
    return base_of(model.base) if isinstance(model, Defence) else model
