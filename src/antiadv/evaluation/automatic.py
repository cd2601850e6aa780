"""What `auto`, the default, stands for: the precision of a search, and how long a search may become.

    resolve_precision("auto", attack, model, ball, device, survives)   →  float32, half, …: before a key is made
    most_queries(attack, model, threat)                                →  how long a job may become, before it runs

The judge always computes in float32, so a coarser search cannot invent a success, but it may miss one. So `auto` is
`half` on CUDA, and `mixed` on a CPU with bfloat16 arithmetic, for attacks that are known to miss nothing there
(`LOSES_NOTHING` says what is measured). It is float32 for all others, for an attack of your own, on other devices, and
for a network that does not compute in torch's floating-point numbers, or fails in the coarser ones (`digits.py`). An
attack that is made of others needs float32 if one of them does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import nn

from antiadv import attacks
from antiadv.attacks.adaptive.adaptive import Adaptive
from antiadv.core import spec, torch_private
from antiadv.core.attack import Attack
from antiadv.core.ball import Ball
from antiadv.core.errors import BadSpec
from antiadv.core.threat import Access, Threat
from antiadv.engine.precision import AUTO, PRECISIONS

FINEST = PRECISIONS[0]

# The precision that is fast on each device. The others of PRECISIONS are a person's choice.
FAST = {"cuda": "half", "cpu": "mixed"}

# What a search in that precision costs: true if it is known to miss nothing, on either device. Half a point on 200
# images counts as nothing. False stands for "it misses some" or "not known". What is measured: docs/precision.md. The
# rest is inferred, as the comments say. Every attack has a line here or in MADE_OF_OTHERS.
LOSES_NOTHING = {
    "pgd": True,
    "apgd": True,
    "fab": True,
    "autoattack": True,
    "minimum_margin": True,  # this and the next three: measured in mixed; half has more digits
    "probability_margin": True,
    "minimum_norm": True,
    "fast": True,
    "pseudo_label": True,  # not measured; its search is APGD's
    "nes": True,
    "square": True,
    "rays": True,
    "bandits": False,  # compares scores that differ in the last digits
    "simba": False,  # 1 point in half, 6 in mixed
    "boundary": False,  # measured only where it breaks nothing
    "hop_skip_jump": False,  # half a point in half, 1.5 in tf32, 2.5 in mixed
    "qeba": False,  # 3.5 points in all others
}
MADE_OF_OTHERS = ("cascade", "transfer", "bpda", "straight_through", "smooth", "go_on", "eot", "adaptive")

Survives = Callable[[str, bool], bool]  # (a coarser precision, whether gradients are needed) → whether it can be used

# Queries for a sample that withstands, of attacks whose options do not say it.
QUERIES = {"autoattack": 8_000, "fast": 300}


def resolve_precision(
    precision: str, attack: Attack, model: nn.Module, ball: Ball, device: torch.device, survives: Survives
) -> str:
    """The precision that is asked for, or the one that `auto` stands for with this attack on this device.

    `survives` tries whether the model answers in a coarser precision; it is asked last (`digits.py`).

    >>> from antiadv import Linf
    >>> gpu, net = torch.device("cuda"), nn.Linear(3, 2)
    >>> def half(text, survives):
    ...     return resolve_precision("auto", attacks.parse(text), net, Linf(0.1), gpu, lambda *_: survives)
    >>> half("square", True), half("cascade:stages=pgd+simba", True), half("square", False)
    ('half', 'float32', 'float32')
    """
    if precision not in (AUTO, *PRECISIONS):
        raise BadSpec(f"there is no precision {precision!r}; known are {', '.join((AUTO, *PRECISIONS))}.")
    if precision != AUTO:
        return precision
    fast = FAST.get(device.type, FINEST)
    if (fast == "mixed" and not torch_private.computes_in_bfloat16()) or not _takes_16_bits(model):
        return FINEST
    parts = list(_simple_parts(attack, model, ball))
    if fast == FINEST or not parts or not all(LOSES_NOTHING.get(_name(part), False) for part in parts):
        return FINEST
    return fast if survives(fast, any(part.access >= Access.GRADIENTS for part in parts)) else FINEST


def _takes_16_bits(model: nn.Module) -> bool:
    """Whether autocast changes what a network computes: not an endpoint, an ONNX file or quantised layers."""
    quantised = any("quantized" in type(m).__module__ for m in model.modules())
    return not quantised and any(p.is_floating_point() for p in model.parameters())


def most_queries(attack: Attack, model: nn.Module, threat: Threat) -> int:
    """About the most queries for one sample. Zero for an attack that does not say how long it searches."""
    return sum(_most(part, threat.queries) for part in _simple_parts(attack, model, threat.ball))


def _most(part: Attack, budget: int | None) -> int:
    most: int = QUERIES.get(_name(part), 0)
    if isinstance(steps := getattr(part, "steps", None), int):
        most = steps * math.prod(max(1, getattr(part, name, 1)) for name in ("targets", "restarts", "eot"))
    return most if budget is None else min(budget, most or budget)


def _simple_parts(attack: Attack, model: nn.Module, ball: Ball) -> Iterator[Attack]:
    """The attacks that search: the attack itself, or those that it is made of on this model."""
    for part in attacks.parts(attack) if _name(attack) else [attack]:
        if isinstance(part, Adaptive):
            for stage in part.against(model, ball).stages:
                yield from _simple_parts(stage, model, ball)
        elif _name(part) not in MADE_OF_OTHERS:
            yield part


def _name(attack: Attack) -> str:
    """Its name among ours; empty for an attack that is not registered."""
    name = spec.name_of(type(attack))
    return name if attacks.ATTACKS.get(name) is type(attack) else ""
