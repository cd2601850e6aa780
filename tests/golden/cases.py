"""The golden cases: every attack and every defence on a small classifier in float64.

The classifier's weights are multiples of 1/16, and it has neither convolutions nor matrix products. So its logits
differ between CPUs by about 1e-16. The random numbers differ by 1e-7 at most (`erfinv`). Labels, queries and gradients
are therefore compared exactly, and the other numbers to 1e-4.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv.attacks import full_text, parse
from antiadv.core.ball import Ball
from antiadv.core.defence import Defence, Randomised
from antiadv.core.draws import Draws
from antiadv.core.ledger import Ledger
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.defences import DEFENCES, wrap
from antiadv.defences.anti_adversary import AntiAdversary
from antiadv.models.noise import GaussianNoise
from tests.toys import spec_for

FILE = Path(__file__).with_name("golden.json")
CLASSES, SAMPLES, SHAPE = 5, 5, (3, 6, 6)
RADIUS = {math.inf: 0.0625, 2: 0.625}  # some samples fall and some do not, with labels and scores
TIGHT = {math.inf: 0.015625, 2: 0.140625}  # and with gradients

Golden = dict[str, object]  # one case: its edition and its results


class Quadratic(nn.Module):
    """s_k(x) = mean over pixels of 8·a_k·(x − ½) − 8·b_k·(x − ½)², for images of any size."""

    def forward(self, x: Tensor) -> Tensor:
        a, b = weights(x.shape[1:], 5, 31), weights(x.shape[1:], 11, 29).abs()
        u = (x - 0.5)[:, None]
        return (8 * u * (a - b * u)).flatten(2).mean(2)


class Mixed(nn.Linear):
    """Five scores from the five of `Quadratic`, without a matrix product."""

    def __init__(self) -> None:
        super().__init__(CLASSES, CLASSES, dtype=torch.float64)
        with torch.no_grad():
            self.weight.copy_(weights((CLASSES,), 5, 31))
            self.bias.zero_()

    def forward(self, h: Tensor) -> Tensor:
        return (h[:, None] * self.weight).sum(2)


def weights(shape: torch.Size | tuple[int, ...], factor: int, modulus: int) -> Tensor:
    """`[K, *shape]`: multiples of 1/16 in (−1, 1), without a pattern that an attack could meet by symmetry."""
    place = torch.arange(CLASSES * math.prod(shape)).view(CLASSES, *shape)
    return ((place * place * factor + place * 7 + factor) % modulus - modulus // 2).double() / 16


def samples() -> tuple[Tensor, Tensor]:
    """Images and the labels that the classifier gives them."""
    place = torch.arange(SAMPLES * math.prod(SHAPE)).view(SAMPLES, *SHAPE)
    x = ((place * place * 13 + place * 3) % 97).double() / 128 + 0.125
    return x, Quadratic()(x).argmax(1)


@dataclass(frozen=True)
class AttackCase:
    """An attack under a threat: on the bare classifier, or on one with a defence."""

    attack: str
    p: float
    queries: int = 200
    defence: str = "none"
    closest: bool = False  # no radius: the search for the closest image
    targeted: bool = False

    @property
    def name(self) -> str:
        norm = "linf" if self.p == math.inf else "l2"
        extras = [self.defence] * (self.defence != "none") + ["closest"] * self.closest + ["targeted"] * self.targeted
        return " ".join([self.attack, norm, str(self.queries), *extras])

    @property
    def edition(self) -> str:
        return full_text(parse(self.attack)).rpartition("@")[2]

    def run(self) -> Golden:
        x, y = samples()
        model, attack = wrap(self.defence, Quadratic().eval()), parse(self.attack)
        y = (y + 1) % CLASSES if self.targeted else y
        radius = TIGHT if attack.access >= Access.GRADIENTS and not self.targeted else RADIUS
        ball = Ball(self.p, math.inf if self.closest else radius[self.p])
        ledger = Ledger(len(x), self.queries)
        oracle = Oracle(model, Threat(ball, attack.access, self.queries, self.targeted), ledger)
        z = attack(oracle, x, y, ball, Draws.of(3, torch.arange(len(x))))
        moved = (z - x) * weights(SHAPE, 3, 23)[0]
        return {
            "edition": self.edition,
            "label": Quadratic()(z).argmax(1).tolist(),
            "queries": ledger.queries.tolist(),
            "gradients": ledger.gradients.tolist(),
            "distance": _short(ball.distance(x, z)),
            "image": _short(moved.flatten(1).sum(1)),  # a number that depends on every pixel
        }


@dataclass(frozen=True)
class DefenceCase:
    """A defence around the classifier: its logits, and the gradient of their cross-entropy.

    With `clip=true` the layer moves pixels exactly to 0 or 1 and clamps them again there. What the gradient of `clamp`
    is at its own bounds differs between versions of torch, so these pixels are left out of the gradient.
    """

    defence: str

    @property
    def name(self) -> str:
        return f"defence {self.defence}"

    @property
    def edition(self) -> str:
        return str(DEFENCES[self.defence.partition(":")[0]].edition)

    def run(self) -> Golden:
        x, y = samples()
        base = nn.Sequential(GaussianNoise(0.0625), Quadratic(), *[Mixed()] * (self.defence == "robust_features"))
        g = wrap(spec_for(self.defence, base), base.eval())
        assert isinstance(g, Defence)
        weight, moved = weights(SHAPE, 3, 23)[0], x + g.correction(x) if isinstance(g, AntiAdversary) else x
        inside = (moved != 0) & (moved != 1)
        results: Golden = {"edition": self.edition}
        for name, model, pixels in (("", g, weight * inside), ("surrogate ", g.surrogate(), weight)):
            z = x.clone().requires_grad_()
            s = model(z, Draws.of(3, torch.arange(len(x)))) if isinstance(model, Randomised) else model(z)
            (slope,) = torch.autograd.grad(F.cross_entropy(s, y, reduction="sum"), z)
            results[f"{name}label"] = s.argmax(1).tolist()
            results[f"{name}logits"] = [_short(row) for row in s.detach()]
            results[f"{name}gradient"] = _short((slope * pixels).flatten(1).sum(1))
        return results


def _short(v: Tensor) -> list[float]:
    return [round(value, 6) + 0.0 for value in v.tolist()]  # no negative zero


BOTH, LINF, L2 = (math.inf, 2.0), (math.inf,), (2.0,)
LAYER, NOISE = "anti_adversary:steps=2,step_size=0.03125", "small_noise:std=0.015625"
ATTACKS: list[tuple[str, tuple[float, ...], dict[str, object]]] = [
    ("pgd", BOTH, {}),
    ("pgd:restarts=2,steps=5,random_start=false", BOTH, {"targeted": True}),
    ("apgd", BOTH, {}),
    ("apgd:loss=dlr,restarts=2,steps=40", BOTH, {}),
    ("apgd:loss=dlr,targets=2,steps=40", BOTH, {}),
    ("apgd:loss=dlr,steps=30", LINF, {"targeted": True}),
    ("apgd:eot=2,steps=30", LINF, {"defence": NOISE}),
    ("fab", BOTH, {}),
    ("fab:restarts=2,steps=20", BOTH, {"closest": True}),
    ("fab:targets=2,steps=40", BOTH, {}),
    ("fab:steps=20", L2, {"targeted": True}),
    ("minimum_norm:steps=40", BOTH, {}),
    ("minimum_norm:steps=30,gamma=0.1", BOTH, {"closest": True}),
    ("minimum_norm:steps=30", L2, {"targeted": True}),
    ("minimum_margin", BOTH, {}),
    ("minimum_margin:targets=4,steps=10,give_up=0.5", LINF, {}),
    ("minimum_margin", BOTH, {"targeted": True}),
    ("probability_margin:steps=40", BOTH, {}),
    ("probability_margin:steps=10", LINF, {"targeted": True}),
    ("probability_margin:steps=10,on=logits", LINF, {"targeted": True}),
    ("cascade", BOTH, {}),
    ("cascade:stages=(fab:steps=10)+(hop_skip_jump:probes=10)", BOTH, {"closest": True}),
    ("autoattack", BOTH, {"queries": 700}),
    ("autoattack:version=plus", LINF, {"queries": 700}),
    ("autoattack:version=rand", LINF, {"queries": 700, "defence": NOISE}),
    ("fast", BOTH, {"queries": 700}),
    ("fast:probe=10", LINF, {"queries": 700, "defence": LAYER}),
    ("nes:probes=10", BOTH, {}),
    ("nes:probes=10", BOTH, {"targeted": True}),
    ("bandits", BOTH, {}),
    ("bandits:tile=2", BOTH, {"queries": 900}),
    ("simba", BOTH, {}),
    ("simba:basis=dct,frequencies=3", BOTH, {}),
    ("simba:basis=dct,rule=stp", BOTH, {}),
    ("square", BOTH, {}),
    ("square:rescale=true", BOTH, {"targeted": True}),
    ("square", BOTH, {"targeted": True, "queries": 1500}),
    ("square:loss=dlr", BOTH, {"defence": "scaled_scores"}),
    ("square:loss=dlr", LINF, {"targeted": True}),
    ("square:accept=both", LINF, {"defence": "mirrored_scores:tau=0.25"}),
    ("square:accept=pendulum", BOTH, {"defence": "mirrored_scores:tau=0.25"}),
    ("boundary", L2, {}),
    ("boundary", L2, {"closest": True, "queries": 400}),
    ("hop_skip_jump:probes=20", BOTH, {}),
    ("hop_skip_jump:probes=20", BOTH, {"closest": True, "queries": 400}),
    ("qeba", BOTH, {}),
    ("qeba:basis=dct", BOTH, {"closest": True}),
    ("rays", LINF, {}),
    ("rays", LINF, {"closest": True}),
    ("transfer", BOTH, {"defence": LAYER}),
    ("bpda", BOTH, {"defence": LAYER}),
    ("straight_through", BOTH, {"defence": "bit_depth"}),
    ("smooth", BOTH, {"defence": LAYER}),
    ("go_on", BOTH, {}),
    ("pseudo_label:restarts=2", BOTH, {"defence": LAYER}),
    ("smooth", LINF, {"defence": f"{LAYER},gate=0.2285"}),
    ("square", LINF, {"defence": f"{LAYER},gate=0.2285"}),
    ("eot:samples=4", BOTH, {"defence": NOISE}),
    ("eot:attack=(hop_skip_jump:probes=10),samples=3", L2, {"defence": NOISE, "queries": 400}),
    ("adaptive:steps=100", BOTH, {"defence": LAYER, "queries": 700}),
    ("adaptive:steps=100,samples=2", LINF, {"defence": NOISE, "queries": 700}),
    ("adaptive", BOTH, {}),
    ("square", LINF, {"defence": "stateful:window=4"}),
]

CASES: list[AttackCase | DefenceCase] = [
    *(AttackCase(attack, p, **more) for attack, norms, more in ATTACKS for p in norms),  # type: ignore[arg-type]
    *map(
        DefenceCase,
        (
            "anti_adversary",
            "anti_adversary:steps=3,step_size=0.0625+0.125+0.25,clip=true",
            "anti_adversary:step_size=0.0625,gate=0.2285",
            "small_noise",
            "small_noise:std=0.25,clip=true",
            "self_ensemble",
            "resize_pad",
            "resize_pad:margin=0.5",
            "rounded_scores",
            "rounded_scores:digits=1",
            "small_noise:gate=0.25",
            "mirrored_scores",
            "mirrored_scores:tau=0.25,kind=sine",
            "mirrored_scores:tau=0.5,alpha=0.5",
            "mirrored_scores:tau=0.25,exact=true",
            "scaled_scores",
            "score_noise",
            "score_noise:std=0.1,gate=0.25",
            "hedge",
            "hedge:steps=3,step_size=0.03125,radius=0.25",
            "jpeg",
            "jpeg:quality=20,subsample=false",
            "bit_depth",
            "bit_depth:bits=2",
            "stateful",
            "smoothing",
            "smoothing:std=0.0625,samples=25",
            "robust_features",
        ),
    ),
]


def load() -> dict[str, Golden]:
    """The recorded results by the names of their cases; nothing where no file was written yet."""
    recorded: dict[str, Golden] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return recorded


def complaint(name: str, recorded: Golden | None, result: Golden) -> str | None:
    """What is wrong with a result in one sentence, or nothing."""
    again = "Run `python -m tests.golden.record`."
    if recorded is None:
        return f"{name} has no golden record. {again}"
    if recorded["edition"] != result["edition"]:
        return f"{name} has edition {result['edition']}; the golden record has {recorded['edition']}. {again}"
    changed = [key for key in {**recorded, **result} if not _close(recorded.get(key), result.get(key))]
    if changed:
        return (
            f"{name} has other results ({', '.join(changed)}) in the same edition {result['edition']}. Undo the "
            "change, or raise `edition` in the class and run `python -m tests.golden.record`."
        )
    return None


def _close(a: object, b: object) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_close, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-4)
    return type(a) is type(b) and a == b
