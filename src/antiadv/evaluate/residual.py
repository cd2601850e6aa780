"""The norm at the end of a residual stage becomes part of the stage, where all blocks add to one sum before it.

    x = x₀ + Σ conv_j(·),    bn(x) = s·x + t   at its end,   and norms a_r·x_r + b_r read what there is of it before
    s·x + t = s·x₀ + Σ s·conv_j(·) + t:   every convolution that adds is scaled by s, and the last has t as its bias;
    a norm on the way reads s·x_r with a_r / s instead of a_r

so that what follows the last sum is its rectifier, which a GPU adds to the convolution (`fused.py`): no pass over the
activations between two stages. Who adds and who reads is seen in one pass, and if anything else does, or the network
answers otherwise afterwards, the stage stays as it was.
"""

from __future__ import annotations

import types
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from antiadv.evaluate.folded import fixed, has_own, is_fixed, is_plain, line_of, pass_on, put_back, same
from antiadv.evaluate.precision import switched

ADDS = (torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor)
CONV = torch.ops.aten.convolution.default
EVEN = 1 / 64  # of the largest entry of s: a smaller one would cost the sum its digits


@dataclass(frozen=True)
class Stage:
    """A sum: the convolutions that add to it, the last of them among these; the norms on the way, and the one at its
    end."""

    convs: Sequence[nn.Conv2d]
    last: nn.Conv2d
    norms: Sequence[nn.BatchNorm2d]
    end: nn.BatchNorm2d

    @property
    def parts(self) -> list[nn.Module]:
        return [*self.convs, *self.norms, self.end]


@torch.no_grad()
def fold_stages(twin: nn.Module, x: Tensor) -> int:
    """Fold what can be folded in this copy, tried on these images; → how many stages."""
    with switched("float32", x.device):
        try:
            with _Watch(twin) as seen:
                want: Tensor = twin(x)
        except Exception:  # it is asked otherwise than alone: behind a defence that gives it something else
            return 0
        if not isinstance(want, Tensor):  # or takes more than scores of it
            return 0
        return sum(_tried(twin, x, want, stage) for stage in seen.stages())


def _tried(twin: nn.Module, x: Tensor, want: Tensor, stage: Stage) -> bool:
    before = [(m, {**m._parameters}, {**m._buffers}, vars(m).get("forward")) for m in stage.parts]
    _fold(stage)
    if same(twin(x), want):
        return True
    for m, parameters, buffers, forward in before:
        m._parameters, m._buffers = parameters, buffers
        if "forward" in vars(m):
            put_back(m, forward)
    return False


def _fold(stage: Stage) -> None:
    s, t = line_of(stage.end)
    stage.end.forward = types.MethodType(pass_on, stage.end)  # type: ignore[method-assign]
    for conv in stage.convs:
        w = conv.weight.double() * s.view(-1, 1, 1, 1)
        b = None if conv.bias is None else conv.bias.double() * s
        if conv is stage.last:
            b = t if b is None else b + t
        conv.weight = fixed(w.to(conv.weight).contiguous(memory_format=torch.channels_last))
        conv.bias = None if b is None else fixed(b.to(conv.weight))
    for norm in stage.norms:
        a, b = line_of(norm)
        like = norm.running_var
        assert like is not None
        norm.weight, norm.bias = fixed((a / s).to(like)), fixed(b.to(like))
        norm.running_mean, norm.running_var = torch.zeros_like(like), torch.full_like(like, 1 - norm.eps)


class _Watch(TorchDispatchMode):
    """Who makes and who takes every tensor of one pass. A tensor that is written into counts as another one."""

    def __init__(self, twin: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        convs = [m for m in twin.modules() if is_plain(m)]
        norms = [m for m in twin.modules() if is_fixed(m) and has_own(m)]
        self._modules = {id(m.weight): m for m in convs} | {id(m.running_mean): m for m in norms}
        self._shared = Counter(id(p) for m in twin.modules() for p in (*m._parameters.values(), *m._buffers.values()))
        self._number: dict[int, int] = {}  # of each tensor, as it is now
        self._held: list[Any] = []  # lest another tensor get its id
        self._maker: dict[int, Any] = {}  # a convolution, or the two numbers of a sum
        self._takers: defaultdict[int, list[Any]] = defaultdict(list)  # norms, numbers of sums, and others as nothing
        self._calls = Counter[nn.Module]()

    def __torch_dispatch__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        taken = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        module = next((self._modules[id(t)] for t in taken if id(t) in self._modules), None)
        numbers, made = [self._of(t) for t in taken], -1
        for t in tree_leaves(out):
            if isinstance(t, Tensor):
                made = self._new(t)
        sums = func in ADDS and not kwargs and len(args) == 2 and len(taken) == 2 and taken[0].shape == taken[1].shape
        if sums:
            self._maker[made] = numbers
        elif func is CONV and isinstance(module, nn.Conv2d):
            self._maker[made] = module
        if module is not None:
            self._calls[module] += 1
        for place, number in enumerate(numbers):
            reads = isinstance(module, nn.BatchNorm2d) and place == 0
            self._takers[number].append(made if sums else module if reads else None)
        return out

    def _of(self, t: Tensor) -> int:
        return self._number[id(t)] if id(t) in self._number else self._new(t)

    def _new(self, t: Tensor) -> int:
        self._held.append(t)
        self._number[id(t)] = len(self._held)
        return len(self._held)

    def stages(self) -> list[Stage]:
        """From the norm at the end of each back to whatever was added."""
        ends = [(number, takers[0]) for number, takers in self._takers.items() if len(takers) == 1]
        found = [self._stage(number, norm) for number, norm in ends if isinstance(norm, nn.BatchNorm2d)]
        return [stage for stage in found if stage is not None]

    def _stage(self, number: int, end: nn.BatchNorm2d) -> Stage | None:
        if not isinstance(self._maker.get(number), list):
            return None
        convs, norms, inside, waiting = list[nn.Conv2d](), list[nn.BatchNorm2d](), {number}, [number]
        while waiting:
            maker = self._maker.get(waiting.pop())
            if isinstance(maker, nn.Conv2d):
                convs.append(maker)
            elif isinstance(maker, list):
                waiting += [n for n in maker if n not in inside]
                inside |= {*maker}
            else:
                return None
        for taker in (taker for at in inside - {number} for taker in self._takers[at]):
            if isinstance(taker, nn.BatchNorm2d):
                norms.append(taker)
            elif taker not in inside:
                return None
        lasts = [self._maker[n] for n in self._maker[number] if len(self._takers[n]) == 1 and self._maker[n] in convs]
        stage = Stage(convs, lasts[-1], norms, end) if lasts else None
        return stage if stage is not None and self._sound(stage) else None

    def _sound(self, stage: Stage) -> bool:
        """Every part is asked once, shares nothing with others, and s has no entry near zero."""
        parts = stage.parts
        alone = all(self._calls[m] == 1 for m in parts) and len({*parts}) == len(parts)
        tensors = [t for m in parts for t in (*m._parameters.values(), *m._buffers.values()) if t is not None]
        s = line_of(stage.end)[0].abs()
        return alone and all(self._shared[id(t)] == 1 for t in tensors) and bool(s.min() > EVEN * s.max())
