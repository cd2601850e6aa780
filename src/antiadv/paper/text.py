"""The numbers that stand in the paper's text alone: small noise (SND) before AWP, and the random self-ensemble (RSE).

Beside them stand the rows they are compared with there: AWP and HYDRA, bare and behind the layer.
"""

from __future__ import annotations

from antiadv.paper.layout import Layout, Line
from antiadv.paper.networks import Source, compact
from antiadv.paper.rows import SND, ablation, clean, layer, pair, under, worst

TITLE = "Numbers in the text: SND and RSE"
SAMPLES = 500
SAMPLES_ENSEMBLE = 200  # every answer is ten passes, and an adaptive attacker averages many answers
ENSEMBLE = "self_ensemble"  # ten passes

PAPER = {
    "": {"clean": 88.25, "Square": 66.2, "AA": 60.53},
    "+ SND": {"clean": 70.03, "Square": 59.1, "AA": 27.04},
    "+ Anti-Adv": {"clean": 88.25, "Square": 80.7, "AA": 79.21, "AA gain": 18.68},
}
PAPER_RSE = {"clean": 86.7, "NES": 78.8, "Bandits": 85.5}
PAPER_HYDRA = {
    "": {"clean": 90.1, "NES": 79.2, "Bandits": 69.8},
    "+ Anti-Adv": {"clean": 90.1, "NES": 87.7, "Bandits": 89.4},
}
NOTES = (
    "Noise of 0.01 on pixels can hardly cost a network trained against 8/255 the 18 points of clean accuracy that the "
    "paper reports for SND before AWP; something else was measured there.",
    "RSE is trained with noise layers (docs/zoo.md), and answers with the mean of ten noisy passes. ε and budget of "
    "NES and Bandits are not stated; 0.031 and 10,000 queries here.",
)


def layout(source: Source, samples: int | None = None) -> Layout:
    n = samples or SAMPLES
    awp, rse, hydra = (compact(source, "cifar10", method) for method in ("awp", "self_ensemble", "hydra"))
    asked = (clean("NES"), under("NES"), under("Bandits"))
    lines = pair(awp, ablation(), {"+ SND": SND, "+ Anti-Adv": layer(awp)}, n, PAPER)
    known, gain = worst("adaptive", "NES", "Bandits", "adaptive, asked")
    alone = (*asked, known)  # no gain: RSE has no bare form
    lines.append(Line(rse, "ten passes", ENSEMBLE, alone, samples or SAMPLES_ENSEMBLE, PAPER_RSE))
    lines += pair(hydra, (*alone, gain), {"+ Anti-Adv": layer(hydra)}, n, PAPER_HYDRA)
    return Layout(TITLE, tuple(lines), NOTES)
