"""What the tables share: the attacks behind their columns, the layer in its settings, and lines made of both.

    white-box    APGD = apgd, ADLR = apgd:loss=dlr,targets=9, FAB = fab:targets=9, and Square with 5,000 queries, each a
                 cell of its own on every sample; AA is their worst case, sample by sample. Linf 8/255
    black-box    NES and Bandits with 10,000 queries, Linf 0.031
    adaptive     the worst case of the line's other attacks in the same ball and of `adaptive`, which knows the defence

Where the paper is silent or says two things:
    ε of AutoAttack    the text says 8/255, the authors' scripts 0.031: 8/255 here
    ε of NES, Bandits  not stated: 0.031, the scripts' only default, for CIFAR and ImageNet alike
    5k and 10k         one run of 10,000 queries; a sample fooled by its 5,000th query counts as fallen at 5k. Success
                       is sticky and neither attack's steps depend on the budget: a run of 5,000 would find the same.
                       (Behind noise, up to the few that the judge gives up although the attacker never saw them fall.)
                       A query is any image sent: the published loops leave out the look after each step, so their
                       10k is 9,999 of ours for NES, and 14,997 for Bandits
    the samples        the first of the test set, in its order
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from antiadv import defences
from antiadv.core import spec
from antiadv.paper.layout import Column, Line
from antiadv.paper.networks import Network

EPS, EPS_ASKED = "linf:8/255", "linf:0.031"

# an attack and its threat; read when a layout is made, so that a trial run may put smaller ones in their place
ATTACKS = {
    "APGD": ("apgd", EPS),
    "ADLR": ("apgd:loss=dlr,targets=9", EPS),
    "FAB": ("fab:targets=9", EPS),
    "Square": ("square", f"{EPS},queries=5000"),
    "NES": ("nes", f"{EPS_ASKED},queries=10000"),
    "Bandits": ("bandits", f"{EPS_ASKED},queries=10000"),
    "Bandits, wide": ("bandits:tile=50", f"{EPS_ASKED},queries=10000"),  # the authors' tile for ImageNet
    "adaptive": ("adaptive", EPS),
    "adaptive, asked": ("adaptive", EPS_ASKED),
    "BA": ("boundary", "l2:8/255,queries=10000"),
    "QEBA": ("qeba", f"{EPS},queries=10000"),
}
WHITE_BOX = ("APGD", "ADLR", "FAB", "Square")

SND = "small_noise"  # std 0.01


def layer(network: Network, steps: int = 2, step_size: str = "0.15") -> str:
    """The text of the layer with K and α, α in this network's units."""
    alpha = tuple(spec.number(step_size) * unit for unit in network.unit)
    said = "+".join(map(spec.show_number, alpha))
    return spec.read(f"anti_adversary:steps={steps},step_size={said}", defences.DEFENCES, "defence").text()


def under(heading: str, *names: str, queries: int | None = None, radius: float | None = None) -> Column:
    """Accuracy under these attacks, by default under the one the heading names."""
    return Column(heading, _attacks(names or (heading,)), "robust", queries, radius)


def clean(name: str) -> Column:
    """Clean accuracy, which every cell of a line records: taken from this one."""
    return Column("clean", _attacks([name]), "clean")


def _attacks(names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple(ATTACKS[name] for name in names)


def worst(heading: str, *names: str) -> tuple[Column, Column]:
    """The worst case of several attacks, and what the defence gains in it."""
    return under(heading, *names), Column(f"{heading} gain", _attacks(names), "gain")


def white_box(square: bool = True) -> tuple[Column, ...]:
    """The columns of tables 3, 5 and 6: the attacks one by one, their worst case, and the adaptive attacker's."""
    single = ("APGD", "ADLR", "FAB", *["Square"] * square)
    return clean("APGD"), *map(under, single), *worst("AA", *WHITE_BOX), *worst("adaptive", *WHITE_BOX, "adaptive")


def ablation() -> tuple[Column, ...]:
    """The columns of the figures."""
    return clean("APGD"), under("Square"), *worst("AA", *WHITE_BOX), *worst("adaptive", *WHITE_BOX, "adaptive")


def pair(
    network: Network,
    columns: Sequence[Column],
    defended: Mapping[str, str],
    samples: int,
    paper: Mapping[str, Mapping[str, float]],
) -> list[Line]:
    """A network bare, then behind each of these defences, by label; only behind one has it something to gain."""
    bare = tuple(c for c in columns if "gain" not in c.measure)
    lines = [Line(network, "", defences.BARE, bare, samples, paper.get("", {}))]
    lines += [Line(network, label, d, tuple(columns), samples, paper.get(label, {})) for label, d in defended.items()]
    return lines
