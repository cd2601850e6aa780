"""The defences: `DEFENCES = {name: class}`. To add one, write a file here and a line below."""

from __future__ import annotations

from torch import nn

from antiadv.core import spec
from antiadv.core.defence import Defence
from antiadv.defences.anti_adversary import AntiAdversary
from antiadv.defences.bit_depth import BitDepth
from antiadv.defences.hedge import Hedge
from antiadv.defences.jpeg import Jpeg
from antiadv.defences.mirrored_scores import MirroredScores
from antiadv.defences.resize_pad import ResizePad
from antiadv.defences.robust_features import RobustFeatures
from antiadv.defences.rounded_scores import RoundedScores
from antiadv.defences.scaled_scores import ScaledScores
from antiadv.defences.score_noise import ScoreNoise
from antiadv.defences.self_ensemble import SelfEnsemble
from antiadv.defences.small_noise import SmallNoise
from antiadv.defences.smoothing import Smoothing
from antiadv.defences.stateful import Stateful

DEFENCES: dict[str, type[Defence]] = {
    "anti_adversary": AntiAdversary,
    "small_noise": SmallNoise,
    "self_ensemble": SelfEnsemble,
    "resize_pad": ResizePad,
    "rounded_scores": RoundedScores,
    "mirrored_scores": MirroredScores,
    "scaled_scores": ScaledScores,
    "score_noise": ScoreNoise,
    "hedge": Hedge,
    "jpeg": Jpeg,
    "bit_depth": BitDepth,
    "stateful": Stateful,
    "smoothing": Smoothing,
    "robust_features": RobustFeatures,
}

BARE = "none"  # the text of a cell without a defence


def wrap(text: str, base: nn.Module) -> nn.Module:
    """The classifier `base` with the defence that `text` names; `none` returns it bare."""
    if text == BARE:
        return base
    defence: Defence = spec.parse(text, DEFENCES, "defence", base)
    return defence


def full_text(text: str) -> str:
    """The spec with its defaults and the edition of the class, as a cell's key holds it."""
    if text == BARE:
        return BARE
    parsed = spec.read(text, DEFENCES, "defence")
    return f"{parsed.text(defaults=True)}@{DEFENCES[parsed.name].edition}"


def files(text: str) -> tuple[str, ...]:
    """The files that this defence reads. A cell's key has the digest of their content."""
    if text == BARE:
        return ()
    parsed = spec.read(text, DEFENCES, "defence")
    return tuple(parsed.options[option] for option in DEFENCES[parsed.name].files)
