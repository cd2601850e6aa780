"""Who takes part in a league, with which settings, and under which attacks.

    entrants("robust")             →  names and specs of the defences, the bare network first
    kind_of(model, x)              →  "standard" or "robust": which settings suit a network
    columns(ball, queries)         →  the attacks, from cheap to expensive, each with its threat

A step, a width or a noise that suits a standard network does not suit a robust one: its margins and its confidence are
smaller. One rule chooses. A network whose median confidence on clean images is above 0.9 counts as standard, any other
as robust.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from antiadv import attacks, defences
from antiadv.core import spec
from antiadv.core.ball import Ball
from antiadv.core.errors import BadInput
from antiadv.core.threat import Threat

Kind = Literal["standard", "robust"]
KINDS: tuple[Kind, ...] = ("standard", "robust")
SURE = 0.9  # median confidence above which a network counts as standard
QUERIES = 1000  # of the attacks that see labels or scores
SCORES, LABELS, GRADIENTS, ADAPTIVE = "scores", "labels", "gradients", "adaptive"

# Gradients: `apgd`, not `fast`, which goes on to all of AutoAttack where gradients mislead, as those of the layer do.
# Adaptive: its last two parts, Square and RayS on the defence itself, have 100 steps each; labels and scores have
# columns of their own, with more. It averages over 5 draws of a randomised defence, not 20: the transfer, which comes
# first, needs none.
COLUMNS = {SCORES: "square", LABELS: "rays", GRADIENTS: "apgd", ADAPTIVE: "adaptive:steps=100,samples=5"}
LIMITED = (SCORES, LABELS)  # the columns with a budget of queries


@dataclass(frozen=True)
class Settings:
    """The spec of one entrant on each kind of network."""

    standard: str
    robust: str

    def on(self, kind: Kind) -> str:
        return self.standard if kind == "standard" else self.robust


def _same(text: str) -> Settings:
    return Settings(text, text)


# A line for each entrant. The noise of smoothing is what a network that was trained without noise bears. Left out is
# robust_features, which needs a file made for the network from training images: name it with `--entrants`.
ENTRANTS: dict[str, Settings] = {
    "bare": _same(defences.BARE),
    "layer": Settings("anti_adversary:step_size=0.01", "anti_adversary"),
    "gated layer": Settings("anti_adversary:step_size=0.01,gate=0.99", "anti_adversary:gate=0.5"),
    "mirrored scores": Settings("mirrored_scores:tau=6", "mirrored_scores:tau=1"),
    "small noise": _same("small_noise"),
    "score noise": Settings("score_noise", "score_noise:std=0.3"),
    "scaled scores": _same("scaled_scores"),
    "rounded scores": _same("rounded_scores"),
    "resize and pad": _same("resize_pad"),
    "jpeg": _same("jpeg"),
    "bit depth": _same("bit_depth"),
    "hedge": _same("hedge"),
    "stateful": _same("stateful"),
    "smoothing": Settings("smoothing:std=0.02", "smoothing:std=0.05"),
}


def entrants(kind: Kind) -> dict[str, str]:
    """The specs of the defences by name, as cells write them.

    >>> list(entrants("robust").items())[:3]
    [('bare', 'none'), ('layer', 'anti_adversary'), ('gated layer', 'anti_adversary:gate=0.5')]
    """
    return {name: normal(settings.on(kind)) for name, settings in ENTRANTS.items()}


def named(specs: Sequence[str]) -> dict[str, str]:
    """The entrants that a person names; each is called by its spec. The bare network always takes part."""
    return {"bare": defences.BARE} | {text: text for text in map(normal, specs) if text != defences.BARE}


def normal(text: str) -> str:
    """The spec as cells write it; an unknown one is refused."""
    return text if text == defences.BARE else spec.read(text, defences.DEFENCES, "defence").text()


def columns(ball: Ball, queries: int = QUERIES) -> dict[str, tuple[str, Threat]]:
    """Attack and threat of each column that this ball allows, the cheapest first."""
    parsed = {name: attacks.parse(text) for name, text in COLUMNS.items()}
    allowed = {name: a for name, a in parsed.items() if ball.p in a.norms}
    budgets = dict.fromkeys(LIMITED, queries)
    return {name: (COLUMNS[name], Threat(ball, a.access, budgets.get(name))) for name, a in allowed.items()}


@torch.no_grad()
def kind_of(model: nn.Module, x: Tensor, batch: int = 100) -> Kind:
    """The settings that suit this network, by its median confidence on clean images."""
    if len(x) == 0:
        raise BadInput("a league needs clean images to choose settings by; found none. Pass at least one.")
    sure = torch.cat([model(part).float().softmax(1).amax(1) for part in x.split(batch)])
    return "standard" if float(sure.median()) > SURE else "robust"
