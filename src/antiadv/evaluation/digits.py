"""Whether a network answers in a coarser precision as it does in float32, tried on a few images.

    survives(precision, model, x, gradients)   →  False if the search needs float32 with this network

With tensors of 16 bits inside, a network may raise, overflow, lose its gradients or name other classes. So `auto` tries
one pass, or one gradient if the attack uses gradients, before it takes such a precision. The images are always the
first of the data, so that a cell's precision does not depend on the samples that are asked for. These passes are no
queries, and they change no random numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from antiadv.core.defence import Randomised, base_of
from antiadv.core.draws import Draws
from antiadv.core.engine import Eager
from antiadv.core.losses import margin, wide
from antiadv.engine.meter import aside
from antiadv.engine.optimise import Copies
from antiadv.engine.switches import switched

TRIED = 4  # images
CLEAR = 0.1  # share of the spread of its scores by which the first class leads; bfloat16 moves scores by 3e-3 of it

Answer = tuple[Tensor, Tensor]  # scores, and gradients of the margin; no gradients if only scores are asked for


def survives(precision: str, model: nn.Module, x: Tensor, gradients: bool) -> bool:
    """Try the classifier; if the attack uses gradients, also the network behind a defence, which it may attack."""
    if x.ndim == 0:  # refused later
        return True
    x = x[:TRIED].detach().clamp(0, 1)
    nets = dict.fromkeys((model, base_of(model))) if gradients else (model,)
    return all(_survives(precision, net, x, gradients) for net in nets)


def _survives(precision: str, model: nn.Module, x: Tensor, gradients: bool) -> bool:
    exact = _answer("float32", model, x, gradients)
    if exact is None and gradients:  # it may have none
        return _survives(precision, model, x, gradients=False)
    if exact is None:  # the run itself says what is wrong
        return True
    rough = _answer(precision, model, x, gradients)
    return rough is not None and _alike(exact, rough)


def _answer(precision: str, model: nn.Module, x: Tensor, gradients: bool) -> Answer | None:
    """The answer of an engine in this precision; None if the network raises."""

    def run(net: nn.Module, x: Tensor) -> Answer:
        more = {"draws": Draws.of(0, torch.arange(len(x), device=x.device))} if isinstance(net, Randomised) else {}
        if not gradients:
            return wide(Eager().scores(net, x, **more)), x.new_zeros(0)
        s, g = Eager().gradient(net, x, _lead, **more)
        return wide(s), g

    cuda = [x.device] if x.device.type == "cuda" else []
    try:
        with aside(), torch.inference_mode(False), torch.random.fork_rng(devices=cuda), switched(precision, x.device):
            net = Copies(precision, compiled=False).of(model, lambda net: run(net, x[:1]), x)
            for generator in (torch.default_generator, *(torch.cuda.default_generators[d.index] for d in cuda)):
                generator.manual_seed(0)  # a network may draw random numbers: the same ones in both precisions
            return run(net, x)
    except (Exception, SystemExit):
        return None


def _lead(s: Tensor) -> Tensor:
    return margin(wide(s), s.detach().argmax(1))


def _alike(exact: Answer, rough: Answer) -> bool:
    """Whether the scores are finite, clear classes are the same, and no gradient vanishes or overflows."""
    (s, g), (s16, g16) = exact, rough
    if s.shape[1] < 2:  # refused later
        return True
    finite = s.isfinite().all(1)
    first, second = s.topk(2, 1).values.unbind(1)
    clear = first - second > CLEAR * (first - s.amin(1))
    fine = s16.isfinite().all(1) & (~clear | (s.argmax(1) == s16.argmax(1)))
    if len(g):
        slope, slope16 = (v.flatten(1).abs().amax(1) for v in (g, g16))
        fine &= ~slope.isfinite() | (slope16.isfinite() & ((slope16 > 0) | (slope == 0)))
    return bool((~finite | fine).all())
