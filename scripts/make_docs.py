"""Write the pages that are made of facts: the zoo (its cards), the catalogue (registries), the flags (what a report
says of them), the theory (experiments), parity, benchmarks and precisions (stored comparisons), confidence (stored
measurements), the paper's tables (stored runs) and, between marks, the README's headline and its table of speeds.

make_docs.py            write what differs
make_docs.py --check    say what differs, and fail
"""

from __future__ import annotations

import json
import statistics
import sys
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from antiadv import attacks, defences, experiments, models, theory
from antiadv.cli import catalogue
from antiadv.core import spec
from antiadv.evaluate import Cell, Store
from antiadv.evaluate.cell import Receipt
from antiadv.evaluate.precision import PRECISIONS
from antiadv.models import Card
from antiadv.report import temperature
from antiadv.report.explained import EXPLAINED, Explanation
from antiadv.report.flags import changes_with_precision, stands
from antiadv.report.measures import difference
from antiadv.report.table import Row, coarse, level, make_row
from antiadv.train import interval

ROOT = Path(__file__).resolve().parents[1]

ZOO = """# The zoo

The networks that come with the project, trained with its own recipes (`antiadv train`), since the authors' weights
cannot be shipped; `--model wrn28-10:mart,path=FILE` and its kin load those for whoever has them. This page is generated
from the cards beside the weights (`make docs`).

- `compact:…` lies in the package and loads right after installation; `resnet18:…` and `wrn16-4:…` lie in `weights/` of
  the repository.
- The files are safetensors. `antiadv train` writes networks of a million half-precision weights or more short, without
  losing a bit (`models/halves.py`), and pruned ones without their zeros (`models/sparse.py`); `antiadv` reads both. For
  other readers make them plain:
  `safetensors.torch.save_file(antiadv.models.checkpoints.read(Path("SHORT.safetensors")), "PLAIN.safetensors")`.
- Accuracies are on the full test set, in per cent with 95 % Wilson intervals, of the rounded weights as a user loads
  them, and are functions of the records in `results/` (each card names its cell). PGD-20: the test bench's `pgd`, Linf
  8/255, 20 steps of 2/255 from one uniform start, done with a sample at the first image that fools. It is a yardstick,
  not a verdict: stronger attacks go lower.
- Seconds are those of the training steps on the hardware named, with up to four trainings sharing the GPU at a time.
- Where we differ from the paper: its five robust networks are WideResNet-28-10 and -34-10, some with 500,000 extra
  images; ours are smaller, trained for fewer epochs on CIFAR alone. `pretraining` stands for its ImageNet-Pre: ours is
  adversarially pre-trained on the other CIFAR set, not on ImageNet.

| load it as | architecture | recipe | epochs | clean | PGD-20 | seconds | hardware | weights |
|---|---|---|---|---|---|---|---|---|
{rows}

## How each was made, and its limits

{commands}
"""


def row(card: Card) -> str:
    def said(share: float, low: float, high: float) -> str:
        return f"{100 * share:.2f} [{100 * low:.1f}, {100 * high:.1f}]"

    clean, pgd = (said(a.share, *interval(a)) for a in (card.clean, card.pgd20))
    digest = (card.weights or "").removeprefix("sha256:")[:12]
    return (
        f"| `{card.spec}` | `{card.architecture}` | `{card.more['recipe']}` | {card.epochs} | {clean} | {pgd} "
        f"| {card.seconds:.0f} | {card.hardware} | `{digest}` |"
    )


def made(card: Card) -> str:
    return f"- `{card.spec}`: `{card.command}` " + " ".join([*card.more["limits"], NOTES.get(card.name, "")]).strip()


NOTES = {
    "compact-cifar10-self_ensemble": "PGD is done at the first image that fools once, while the judge wants the "
    "majority of ten looks: of the samples left standing nearly all were fooled once.",
    "compact-cifar10-hydra": "90 % of the weights of every layer are zero. Its first phase, training by TRADES, "
    "was not run: it began with `compact:trades`, whose epochs and seconds are not in its own.",
}


def zoo() -> str:
    cards = models.cards()
    return ZOO.format(rows="\n".join(map(row, cards)), commands="\n".join(map(made, cards)))


CATALOGUE = """# The catalogue

What there is, with the text to write for it; `antiadv list attacks` and its kin show the same. Generated from the
registries (`make docs`). The options are shown with their defaults.

## Attacks

{attacks}
## Defences

{defences}
## Recipes

{recipes}
## Data sets

{datasets}"""


def table(lines: list[dict[str, str]]) -> str:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"

    names = list(lines[0])
    return line(names) + line("---" for _ in names) + "".join(line(_code(n, row[n]) for n in names) for row in lines)


def _code(name: str, text: str) -> str:
    return f"`{text}`" if name in ("name", "options") and text else text


def lists() -> str:
    kinds = {str(kind): catalogue.lines(kind) for kind in catalogue.Kind if kind != catalogue.Kind.models}
    return CATALOGUE.format(**{kind: table(found) for kind, found in kinds.items()})


THEORY = """# The theory, tried

The paper argues that its layer makes attackers work harder, and by how much. This page says in words what is proved,
where it holds, and where the text says more than the proof. The numbers are computed exactly by `antiadv theory`
(`--out G.svg` draws them, `--json` prints them) on losses for which everything is known, and this page is generated
from them (`make docs`). The functions are in `antiadv.theory`; each checks the assumptions of its result and refuses
what is outside, unless it is told `beyond=True`.

## What is proved

The attacker maximises a loss L that is L-smooth and bounded above. SimBA, drawing coordinates with replacement and
trying both signs, is the stochastic three points method (Proposition 1). So more than K steps are *enough* to bring the
expected gradient below ρ (Corollary 1). The layer makes one step of its own, down, along the attacker's direction and
1 − c times as long. If that step is added to the attacker's, what is left is an attack whose steps are c times as long,
and the bound grows by G(c), for c in (0, 1) (Theorem 1). The same is done for gradient ascent (Theorems 2 and 3).

All of this is right where its assumptions hold. On a sum of four sigmoids, with ε half of what is allowed:

{points}
`enough` is the bound K_g, `needed` the exact number of steps, `honest` the same in the system as it is: see below.

## What is not

**K is enough, not needed.** The text calls it the minimum budget. {steps_needed[needed]:.0f} steps do what
K = {steps_needed[enough]:.1f} bounds. G is therefore a ratio of two upper bounds, and proves nothing about costs: for
ε = 1.5 ρ/(nL), past the paper's range but inside that of the bound, G({c}) = {longer_steps[factor]:.2g} < 1, while the
steps needed rise from {longer_steps[needed_bare]:.0f} to {longer_steps[needed]:.0f}.

**It counts steps to a small gradient, not to a wrong label.** For c < 0 the attack of the proof runs downhill, and the
gradient becomes small at the bottom as it does at the top: after {stationary_anyway[needed]:.0f} steps for c = −½,
where the paper says never, and after {stationary_anyway[mirror]:.0f} for c = ½.

**“For all c ≤ 0” is more than the proof gives.** It needs local monotonicity, which the main text leaves out, for steps
as long as the layer's. A layer that oversteps a valley stays where it is, and the attacker wins in
{far_below_zero[needed]:.0f} steps, as without it. With gradients, in a parabola, c = −3 turns x into
{c_minus_three[ratio]:.0f}x: the loss grows {c_minus_three[growth]:.0f} times a step.

**The printed derivative of G has an ε² too many.** Its sign, all that the proof needs, is right.

## The gap that matters

In the proofs the layer's step γ is added to the attacker's *iterate*: xᵏ⁺¹ = xᵏ + δᵏ + γᵏ. In the system the layer
makes γ for one query, classifies x + γ and forgets it; the attacker goes on from its own xᵏ + δᵏ. Along a direction in
which the loss is monotone the layer lowers both candidates alike, SimBA prefers the one it would have preferred, and
the path is the same for every c, c ≤ 0 included: after 40 steps the expected loss is {composition[honest_0]:.4g} for
every c from 1 to −3, where the proof has it between {composition[proof_1]:.4g} and {composition[proof_-3]:.2g}. What is
left of the layer, in this model of it, is one step of ε_g at the last query.

With straight-through gradients and c = 0, where the paper says that the attacker fails, x leaves a valley by a factor
of {gradients_seen_in_a_valley[ratio]:.4g} a step, and climbs a hill faster than without the layer:
{gradients_seen_on_a_hill[ratio]:.2g} of the way is left after a step, not {gradients_seen_on_a_hill[ratio_bare]:.2g}.

So the theorems are about an attacker whose image the defender may move. They do not say that a layer which only answers
queries makes SimBA dearer, and on the monotone losses that the proof asks for it does not. Whether it does on a network
is a question for the test bench, which answers it with counted queries.

## Every statement

“not beyond its range”: the case leaves the assumptions that the paper states, to show that they are sharp.

{rows}"""


def theory_page() -> str:
    found = list(theory.experiments())
    points = [
        {
            "c": f"{p.c:g}",
            "G(c)": f"{p.factor:.6f}",
            "enough": f"{p.enough:.2f}",
            "needed": f"{p.needed}",
            "honest": f"{p.honest}",
        }
        for p in theory.black_box.points()
    ]
    rows = [
        {"name": e.name, "result": e.result, "the paper says": e.says, "tried on": e.where, "found": e.found}
        | {"holds": e.verdict}
        for e in found
    ]
    numbers: dict[str, Any] = {e.name: dict(e.numbers) for e in found}
    return THEORY.format(points=table(points), rows=table(rows), c=0.5, **numbers)


FLAGS = """# Flags

A flag is a warning sign that the records of an evaluation show by themselves. None of them proves that a defence fails,
and a table without flags does not prove that it holds; each says where to look. They are functions of the rows given
and of nothing else: judging a defended model never marks the next plain one.

Two cells are compared on the samples both have, and a difference counts where McNemar's exact test gives p ≤ 5 % after
Holm's correction for all the comparisons that the rule makes: so honest rows, however many, raise a flag of a rule by
chance in one report of twenty at most. A share counts where the lower end of its 95 % Wilson interval is above the
threshold. With a few dozen samples only coarse signs can show; more samples show finer ones.

Each flag carries the cells it concerns and the numbers that raised it: `report.flags` in Python, `flags` in the JSON.
This page is generated from what a report says beside the flags it shows (`make docs`).

{flags}"""


def flags() -> str:
    def said(name: str, told: Explanation) -> str:
        parts = {"Raised if": told.raised, "What it means": told.means, "What to do": told.todo}
        texts = [textwrap.fill(f"**{heading}** {text}", 120) for heading, text in parts.items()]
        return f"## `{name}`\n\n" + "\n\n".join(texts) + "\n"

    return FLAGS.format(flags="\n".join(said(*item) for item in EXPLAINED.items()))


def reproduction() -> str:
    return experiments.page(ROOT / "results")


def readme() -> str:
    """The README as it stands, with what is stored between the marks of each part."""
    text = (ROOT / "README.md").read_text()
    for name, make in {"headline": lambda: experiments.headline(ROOT / "results"), "speed": how_fast}.items():
        begin, end = f"<!-- {name}: made of results/ by make docs -->", f"<!-- end of {name} -->"
        if [text.count(mark) for mark in (begin, end)] != [1, 1] or text.index(begin) > text.index(end):
            raise SystemExit(f"README.md must hold {begin} and below it {end}, once each; put them back.")
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{make()}{end}{rest.partition(end)[2]}"
    return text


def how_fast() -> str:
    """Of each race in which ours is to be several times as fast, the fastest setting that is as strong, if one is."""
    best: dict[tuple[str, str], tuple[tuple[bool, float], dict[str, str]]] = {}
    for facts in speed_module().stored(ROOT / "results" / "bench"):
        if facts["kind"] in ("overhead", "ceiling") or (facts["target"] or 0) <= 1:
            continue
        for row, side in zip(raced(facts), facts["verdict"]["sides"].values(), strict=True):
            key, rank = (facts["job"], facts["device"]), (side["strong"], side["times_faster"]["median"])
            if rank > best.get(key, ((False, 0.0), {}))[0]:
                behind = ", behind the layer" if facts["layer"] else ""
                unit = ("" if facts["kind"] == "distance" else " %") + ", weaker than asked" * (not side["strong"])
                best[key] = (
                    rank,
                    {
                        "ours": row["ours"],
                        "theirs": facts["peer"].split()[0] + (f", {q:,} queries" if (q := asked_by(facts)) else ""),
                        "network": f"{raced_on(facts)}{behind}",
                        "on": facts["device"] if facts["device"] != "cpu" else f"{facts['threads']} CPU threads",
                        "images": row["samples"],
                        "times as fast": row["times faster"],
                        "reached, ours / theirs": f"{row['by ours']} / {row['by theirs']}{unit}",
                    },
                )
    return table([row for _, row in best.values()])


def asked_by(facts: dict[str, Any]) -> int | None:
    """Queries a sample of theirs: the budget, or what it sent where the two are compared by how close they come."""
    given: int | None = facts["queries"]
    return round(facts["theirs"]["forwards"] / sum(facts["right"])) if facts["kind"] == "distance" else given


PARITY = """# Parity

Are these attacks as strong as other people's? Attack by attack, ours and theirs: the same network, the same images of
the embedded CIFAR-10 slice, the same ball, in one process. This page is generated from `results/parity` (`make docs`),
where every comparison is one file of facts by sample, written by `benchmarks/parity.py`.

- Both sides search in one precision, float32 unless the command below says another, and both sides' images are judged
  by the same code: put into [0, 1], labelled by the network in float32, and measured.
  Samples that the network gets wrong untouched are not attacked, and count as broken for both.
- *queries* are images sent through the network, *backward* those that a gradient was taken for, ours / theirs: counted
  by hooks on the network, whatever either side says of itself. Ours never asks again about a sample that is fooled;
  many others do.
- *seconds* is ours over theirs, each after a warm-up, in one run (on a CPU of processor time); theirs goes through the
  network as it stands.
- Accuracies are in per cent with 95 % Wilson intervals, differences (ours − theirs, negative: ours is stronger) with
  Newcombe's for pairs, ratios of medians by resampling samples.
- *allowed* is how much higher an accuracy may be under ours, in points, or how many times as long a distance. The rule
  compares what was found; the interval beside it says how much that many samples can tell.

{summary}
{sections}
## How each was made, and its limits

Networks are named in [the zoo](zoo.md); the digests of weights and images, the versions and every sample are in the
files.

{commands}
"""

PARTS = {
    "pyautoattack": (
        "AutoAttack, the authors' code",
        "Each attack on every sample; *worst* is the individual mode, standing under all four, made of the four rows. "
        "The GPU had other work at the time, so the seconds say little.",
    ),
    "published": (
        "NES and Bandits, the published loops",
        "No package has them, so theirs is a plain transcription (`benchmarks/published_loops.py`), which like the "
        "original asks about every image until all are fooled; steps of 0.01 and probes of 0.1 for both. Accuracies "
        "are after queries in the authors' counting, which leaves out the look after each update; the column *queries* "
        "has all that were sent.",
    ),
    "torchattacks": (
        "torchattacks",
        "Square is given as many queries a sample as theirs sends for one that stands.",
    ),
    "art": (
        "ART, the adversarial robustness toolbox",
        "Square and SimBA are given as many queries a sample as theirs sends for one that stands; for SimBA, which has "
        "no radius, the ball is wider than its 300 steps can leave. In attacks on labels both begin at the same noise, "
        "and ours is given, per sample, the mean of what theirs sent. The first steps of `boundary` were chosen with "
        "an eye on some of these images.",
    ),
    "foolbox": (
        "foolbox",
        "Both begin at the same noise; ours is given, per sample, the mean of what theirs sent.",
    ),
}


def parity() -> str:
    stored = [json.loads(path.read_text()) for path in sorted((ROOT / "results" / "parity").glob("*.json"))]
    sections = []
    for peer, (title, about) in PARTS.items():
        rows = [row for facts in stored if facts["peer"].split()[0] == peer for row in compared(facts)]
        if rows:
            devices = sorted({facts["device"] for facts in stored if facts["peer"].split()[0] == peer})
            sections.append(f"## {title}\n\n{about} Run on: {', '.join(devices)}.\n\n{table(rows)}")
    commands = "\n".join(f"- `{facts['job']}`: `{facts['command']}`" for facts in stored if facts["kind"] != "worst")
    return PARITY.format(summary=kept(stored), sections="\n".join(sections), commands=commands)


def kept(stored: list[dict[str, Any]]) -> str:
    """How many rules hold, and every one that does not, by name."""
    broken = [facts for facts in stored if not facts["verdict"]["holds"]]
    said = f"**{len(stored) - len(broken)} of {len(stored)} comparisons keep their rule.**"
    if not broken:
        return said + "\n"
    lines = [f"- `{facts['job']}`: {'; '.join(map(short_of, facts['verdict']['checks']))}." for facts in broken]
    return said + " These do not:\n\n" + "\n".join(lines) + "\n"


def short_of(check: dict[str, Any]) -> str:
    if "ratio" in check:
        return f"{check['what']} {check['ours']:.3g}, theirs {check['theirs']:.3g}"
    return f"{check['what']} {100 * check['ours']['value']:.1f}, theirs {100 * check['theirs']['value']:.1f}"


def compared(facts: dict[str, Any]) -> Iterable[dict[str, str]]:
    """A row for each comparison that a rule asks for."""
    ours, theirs = facts["ours"], facts["theirs"]
    worst = facts["kind"] == "worst"
    for check in facts["verdict"]["checks"]:
        if "ratio" in check:
            values = [f"{check[side]:.3g}" for side in ("ours", "theirs")]
        else:
            values = [percent(check[side]) for side in ("ours", "theirs")]
        apart, allowed = ours_to_theirs(check, facts["points"])
        yield {
            "network": facts["model"],
            "ours": "worst of the four" if worst else f"`{ours['attack']}`",
            "theirs": "worst of the four" if worst else f"`{theirs['attack']}`",
            "ball": facts["threat"] + (f", {facts['budget']:,} queries" if facts["budget"] else ""),
            "samples": str(len(facts["right"])),
            "what": check["what"],
            "by ours": values[0],
            "by theirs": values[1],
            "ours to theirs": apart,
            "queries": f"{ours['forwards']:,} / {theirs['forwards']:,}",
            "backward": f"{ours['backwards']:,} / {theirs['backwards']:,}",
            "seconds": "" if facts["seconds_ratio"] is None else f"× {facts['seconds_ratio']:.2f}",
            "allowed": allowed,
            "holds": "yes" if check["holds"] else "**no**",
        }


def percent(share: dict[str, float]) -> str:
    return f"{100 * share['value']:.1f} [{100 * share['low']:.1f}, {100 * share['high']:.1f}]"


BENCHMARKS = """# Benchmarks

How fast is it, beside other people's code? Ours and theirs on the same network, images and machine, in one run and in
turn, repeated where time allowed; and what each side reached, judged by the same code. This page is generated from
`results/bench` (`make docs`), where every job is one file, written by `benchmarks/speed.py`.

- *times faster* is the time of theirs over that of ours: the median over the repeats [least, greatest], or that of one
  run, which says nothing of how much the next would differ. It is time on the wall: on a GPU with the device waited
  for, on a CPU with equally many threads for everybody. Of jobs on one thread it is processor time, since other work
  may share the machine; of several threads that would count waiting as work.
- *by ours*, *by theirs*: robust accuracy in per cent, or the median L2 distance, of the images that were timed; *target
  met* asks that ours is as fast as the target and as strong as *allowed*: an accuracy not higher by more points, a
  distance not longer by more. Each repeat rolls dice of its own on both sides, and all that are stored count; of older
  files that is the first. *ours to theirs* is the difference in points (negative: ours is stronger), or the ratio of
  the distances, with the 95 % interval that so many images leave; of several repeats it is by resampling images.
  [Parity](parity.md) has more of them.
- The targets were set for a PreActResNet-18 of width 64 and 512 images. The robust one, `{robust}`, was
  trained for these races and does not come with the project, whose robust networks are smaller (`compact`, width 16) or
  of another kind (`wrn16-4`). Whoever trains it again gets other weights, of the same accuracy, and one race is of one
  file: the first digits of its digest stand beside the name, and its card, with the command, in `benchmarks/weights`.
- *passes* are images through the bare network, forward + backward, ours / theirs. Where ours has a number of queries,
  it is what theirs sends for a sample; in the jobs called *least*, the smallest of a few shares of that with which
  ours, with options for few queries that were chosen with other dice, comes as close, without what is allowed: the
  two then differ in what they send, not in what they reach.
- Ours as it stands asks a copy of the network whose weights suit the device. *compiled* is ours on a network compiled
  first, which is not the default; *half* and *mixed* besides search with 16-bit numbers inside (`--precision`), while
  theirs runs as stated. All are judged in float32 by the network itself; a search asks it before it ends at an image
  that fools, in runs of older revisions not, and a sample on which the two part in the end, and it had not asked, is
  searched again in float32 (in older ones asked or not), within the time and the passes that are shown. *once* is what
  is needed before the first run and then kept, as a share of one run: compilation, on a GPU graphs too, of all, ¾ and ½
  of the images (of older files of all of them, and the first repeat has the others); it is not in the ratio. A target
  counts as met if one of these meets it.

{summary}
{sections}
## How each was made

The digests of weights and images, the versions and every repeat are in the files.

{commands}
"""


def ours_to_theirs(check: dict[str, Any], points: float) -> tuple[str, str]:
    """How far apart the two sides are, with its interval, and how far they may be."""
    if "ratio" in check:
        r = check["ratio"]
        return f"× {r['value']:.2f} [{r['low']:.2f}, {r['high']:.2f}]", f"× {check['allowed']:g}"
    d = check["difference"]
    return f"{100 * d['value']:+.1f} [{100 * d['low']:+.1f}, {100 * d['high']:+.1f}]", f"{points:+g}"


def speed_module() -> ModuleType:
    """`benchmarks/speed.py`: which jobs there are, it alone knows."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
    import speed

    sys.path.pop()
    return speed


def benchmarks() -> str:
    speed = speed_module()
    folder = ROOT / "results" / "bench"
    found = speed.stored(folder)
    latency = json.loads((folder / "latency.json").read_text()) if (folder / "latency.json").exists() else None
    races = [facts for facts in found if facts["kind"] not in ("overhead", "ceiling")]
    sections = []
    for kind, title in (("cuda", "On a GPU"), ("cpu", "On a CPU")):
        here = [facts for facts in races if (facts["device"] == "cpu") == (kind == "cpu")]
        names = [race.name for race in speed.RACES.values() if race.target(kind) is not None]
        missing = [name for name in names if name not in {facts["job"] for facts in here}]
        where = sorted({f"{facts['device']}" + f", threads: {facts['threads']}" * (kind == "cpu") for facts in here})
        rows = [row for facts in here for row in raced(facts)]
        said = [f"Run on: {'; '.join(where)}.{company(here)}\n", table(rows)] if rows else []
        sections.append("\n".join([f"## {title}\n", *said, *not_yet(missing)]))
    limits = [facts for facts in found if facts["kind"] == "ceiling"]
    sections.append(
        "\n".join(["## What a CPU leaves to gain\n", *([bounded(facts) for facts in limits] or not_yet(["ceiling"]))])
    )
    sections.append("\n".join(["## The layer's latency\n", *latencies(latency)]))
    shares = [facts for facts in found if facts["kind"] == "overhead"]
    sections.append(
        "\n".join(["## The engine's own overhead\n", *([outside(facts) for facts in shares] or not_yet(["overhead"]))])
    )
    commands = [f"- `{facts['command'].removeprefix('python ')}`" for facts in found]
    if latency is not None:
        commands.append(f"- `benchmarks/speed.py --jobs latency --device cuda --precision {latency['precision']}`")
    return BENCHMARKS.format(
        robust=named(speed.ROBUST),
        summary=reached(found, latency, speed.met) + fewer(found, {n: r.queries for n, r in speed.RACES.items()}),
        sections="\n".join(sections),
        commands="\n".join(commands) or "None is stored.",
    )


def named(model: str) -> str:
    """A network of the zoo as it is loaded, another by its file."""
    return Path(model).stem if model.endswith(".safetensors") else model


def raced_on(facts: dict[str, Any]) -> str:
    """The network of a race; one that does not come with the project by its weights too, to tell trainings apart."""
    name = named(facts["model"])
    return name if name == facts["model"] else f"{name} ({facts['weights'].removeprefix('sha256:')[:8]})"


def company(found: list[dict[str, Any]]) -> str:
    """How much of the machine other programs took, where that is known."""
    taken = [facts["others"] for facts in found if facts.get("others") is not None]
    return f" Other programs took at most {100 * max(taken):.1f} % of its processors meanwhile." if taken else ""


def bounded(facts: dict[str, Any]) -> str:
    """Why no code is many times faster at equal passes."""
    found, shares = facts["verdict"], facts["verdict"]["shares"]
    said = (
        f"A forward pass of `{facts['model']}` takes {facts['multiplications'] / 1e6:.0f} million multiplications an "
        "image. At which share of the speed of a large matrix product in float32 it runs, for "
        f"{facts['samples']} images at once on {facts['threads']} threads:"
    )
    rows = [
        {"the network": {"ours": "a copy that suits the device"}.get(name, name), "share": ranged(row)}
        for name, row in shares.items()
    ]
    rest = (
        "Other people's code asks the network as it stands. So pass for pass no float32 code could be more than "
        f"{found['most']:.3g} times as fast as theirs, but for what theirs spends outside the passes, or on batches "
        "that do not fill the processor. More can only come of 16-bit numbers or of fewer passes. So five times as "
        "fast as ART's attacks on labels is out of reach where both send the same queries, and ours comes closer; it "
        "is asked where both come as close, in the jobs called *least*."
    )
    return "\n".join([textwrap.fill(said, 120) + "\n", table(rows), textwrap.fill(rest, 120) + "\n"])


def not_yet(missing: list[str]) -> list[str]:
    said = f"Not run yet: {', '.join(f'`{name}`' for name in missing)}."
    return [textwrap.fill(said, 120, break_on_hyphens=False) + "\n"] if missing else []


def reached(found: list[dict[str, Any]], latency: dict[str, Any] | None, met: Callable[[dict[str, Any]], bool]) -> str:
    """How many targets are met, and every one that is not, by name, and which options meet it."""
    every: dict[str, dict[str, Any]] = {}
    for facts in (facts for facts in found if facts["kind"] != "ceiling"):
        name = f"`{facts['job']}` ({facts['device']}, {facts['precision']})"
        verdict = facts["verdict"]
        if "sides" in verdict:  # which may lie in several files, a run for each
            sides = every.get(name, {"sides": {}})["sides"] | verdict["sides"]
            verdict = {"sides": sides, "met": met(sides)}
        every[name] = verdict
    if latency is not None:
        every[f"`latency` ({latency['device']}, {latency['precision']})"] = latency["verdict"]
    met_by = {name: [side for side, row in v.get("sides", {}).items() if row["met"]] for name, v in every.items()}
    short = [name for name, verdict in every.items() if not verdict["met"]]
    asked = [
        f"{name}: {' and '.join(met_by[name])}"
        for name, verdict in every.items()
        if verdict["met"] and "ours" in verdict.get("sides", {}) and "ours" not in met_by[name]
    ]
    said = f"**{len(every) - len(short)} of {len(every)} stored jobs meet their target.**\n"
    for what, names in (("These do so not as it stands:", asked), ("These do not:", short)):
        said += f"\n{what}\n\n" + "".join(f"- {name}\n" for name in names) if names else ""
    return said


def fewer(found: list[dict[str, Any]], due: dict[str, int | None]) -> str:
    """Which jobs have been run with other queries than their target's only."""
    seen: dict[str, set[int]] = {}
    for facts in found:
        if due.get(facts["job"]) is not None:
            seen.setdefault(facts["job"], set()).add(facts["queries"])
    short = {job: queries for job, queries in seen.items() if due[job] not in queries}
    if not short:
        return ""
    each = (f"- `{job}`: {due[job]:,} asked, {max(queries):,} run\n" for job, queries in short.items())
    return "\nThese were run with fewer queries than their target's, so far:\n\n" + "".join(each)


def raced(facts: dict[str, Any]) -> Iterable[dict[str, str]]:
    """A row for each side of ours."""
    said = f", {facts['budget']:,} queries" if facts["budget"] else ""
    for side, row in facts["verdict"]["sides"].items():
        (check,) = row["checks"]
        how = {"ours": "", "compiled": ", compiled"}.get(side, f", compiled, {side}")
        if "ratio" in check:
            ours, theirs = (f"{check[who]:.3g}" for who in ("ours", "theirs"))
        else:
            ours, theirs = (f"{100 * check[who]['value']:.1f}" for who in ("ours", "theirs"))
        apart, allowed = ours_to_theirs(check, facts["points"])
        passes = (f"{facts[who]['forwards']:,} + {facts[who]['backwards']:,}" for who in (side, "theirs"))
        cells = {
            "job": f"`{facts['job']}`",
            "network": raced_on(facts) + (f" behind `{facts['layer']}`" if facts["layer"] else ""),
            "ours": f"`{facts[side]['attack']}`" + said + how,
            "theirs": f"{facts['peer'].split()[0]} `{facts['theirs']['attack']}`",
            "samples": str(len(facts["ids"])),
            "times faster": repeated(row["times_faster"], len(facts["times_faster"][side])),
            "target": "" if facts["target"] is None else f"{facts['target']:g}",
            "by ours": ours,
            "by theirs": theirs,
            "ours to theirs": apart,
            "allowed": allowed,
            "passes": " / ".join(passes),
            "once": f"{facts['setup'][side]:.2g}",
        }
        if facts["seconds"] is not None:
            middle = (f"{statistics.median(facts['seconds'][who]):.1f}" for who in (side, "theirs"))
            cells |= {"precision": facts["precision"], "seconds": " / ".join(middle)}
        else:
            cells |= {"threads": str(facts["threads"])}
        yield cells | {"target met": answered(row["met"])}


def latencies(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return not_yet(["latency"])
    rows = [
        {
            "batch": batch,
            "times faster than the authors' structure": ranged(row["faster_than_authors"]),
            "target": f"{verdict['faster']:g}",
            "met": answered(verdict["fast"]),
            "times its floor": ranged(row["times_the_floor"]),
            "at most": f"{verdict['floor']:g}",
            "floor met": answered(verdict["near"]),
        }
        | {f"{side}, ms": f"{row['milliseconds'][side][1]:.2f}" for side in ("ours", "authors", "forward")}
        for batch, row, verdict in (
            (batch, row, found["verdict"]["batches"][batch]) for batch, row in found["batches"].items()
        )
    ]
    said = (
        f"K = {found['steps']} on `{found['model']}`, {found['precision']}, on: {found['device']}. The floor is "
        f"{2 * found['steps'] + 1} forwards of the network, captured as ours is; medians of {found['repeats']} calls "
        "in turn, the ratios of five rounds of them."
    )
    return [textwrap.fill(said, 120) + "\n", table(rows)]


def outside(facts: dict[str, Any]) -> str:
    shares = facts["verdict"]["shares"]
    said = (
        "The share of processor time that one `attack()` spends outside the network's passes, judge and bookkeeping "
        f"included: every attack with its defaults and {facts['queries']} queries for each of {facts['samples']} "
        f"samples, on `{facts['model']}`; those that open a defence, on the layer in front of it. The target is below "
        f"{100 * facts['target']:g} %: **{'met' if facts['verdict']['met'] else 'not met'}**. Median over the repeats "
        "[least, greatest], in per cent:"
    )
    rows = [
        {"name": name, "outside the passes": ranged(share, 100), "met": answered(share["median"] < facts["target"])}
        for name, share in shares.items()
    ]
    missing = [name for name in attacks.ATTACKS if name not in shares]
    return "\n".join([textwrap.fill(said, 120) + "\n", table(rows), *not_yet(missing)])


def ranged(spread: dict[str, float], scale: float = 1) -> str:
    form = ".1f" if scale > 1 else ".2f"
    return "{} [{}, {}]".format(*(f"{scale * spread[key]:{form}}" for key in ("median", "low", "high")))


def repeated(spread: dict[str, float], runs: int) -> str:
    """One run has no range."""
    return ranged(spread) if runs > 1 else f"{spread['median']:.2f} (one run)"


def answered(met: bool) -> str:
    return "yes" if met else "**no**"


CONFIDENCE = """# What it does to confidence

A score is a promise: of the answers given with 80 % confidence, 80 % should be right. The layer makes a network surer
of its own label, and does not ask whether the label is right. So it may mend one that is less sure than it is right, as
robust training leaves them, and harms one that is too sure already. Whoever returns scores should know which they have:
`antiadv verdict` says it of your network and images. This page is generated from `results/confidence.json`
(`make docs`), written by `scripts/measure_confidence.py`.

- *calibration error*: how far confidence and accuracy are apart, on average over 15 equal bins of confidence. It sees
  no direction, and on finitely many samples it is never quite 0: a few hundredths can be chance.
- *log-loss*: −log of the probability given to the true class, on average. It pays for being sure and wrong.
- *mean confidence*: the probability of the class that is named. Beside the accuracy it says which way a network errs.
- *bare*: f. *scaled*: f(x) / T, the cheap alternative (Guo et al., ICML 2017), one number fitted on the other half of
  the samples, each half in turn. It costs no pass and moves no label, and it is no answer to any attacker.
- {steps}: the layer, g(x) = f(x + γ) with K = 2 steps of that size. *labels kept*: the share of
  the images on which g names what f does.

{summary}

## Calibration error

{error}
## Log-loss

{loss}
## Mean confidence, accuracy and labels

In per cent.

{confidence}
## How it was made

On clean test images, in float32 on one thread of a CPU; the digests of weights and images and the versions are in the
file. What is stored is not run again. `compact:self_ensemble` is measured without its noise.

{commands}
"""

Measured = dict[str, dict[str, Any]]  # of a network: by what stands before the scores, their calibration
BARE, SCALED = defences.BARE, temperature.SCALED


def confidence_page() -> str:
    facts, cards = temperature.stored(ROOT / "results" / temperature.FILE), models.cards()
    known = {c.spec: facts[c.spec] for c in cards if facts.get(c.spec, {}).get("weights") == c.weights}
    if not known:
        raise SystemExit("no confidence is stored of any network; run scripts/measure_confidence.py first.")
    found: dict[str, Measured] = {name: of["found"] for name, of in known.items()}
    titles = {BARE: "bare", SCALED: "scaled"} | {text: alpha(text) for text in layers(found)}

    def shown(what: str, scale: float = 1, digits: int = 3) -> list[dict[str, str]]:
        return [
            {"network": f"`{name}`", "n": f"{of[BARE]['n']}"}
            | {title: f"{scale * of[side][what]:.{digits}f}" for side, title in titles.items()}
            for name, of in found.items()
        ]

    sure = shown("confidence", 100, 1)
    for row, of in zip(sure, found.values(), strict=True):
        row["accuracy of f"] = f"{100 * of[BARE]['accuracy']:.1f}"
        row |= {f"of g, {titles[g]}": f"{100 * of[g]['accuracy']:.1f}" for g in layers(found)}
        row |= {f"labels kept, {titles[g]}": f"{100 * of[g]['unchanged'] / of[g]['n']:.1f}" for g in layers(found)}
    commands = "\n".join(dict.fromkeys(f"- `{of['command']}`" for of in known.values()))
    return CONFIDENCE.format(
        steps=", ".join(f"*{alpha(text)}*" for text in layers(found)),
        summary=leanings(found),
        error=table(shown("error")),
        loss=table(shown("loss")),
        confidence=table(sure),
        commands="\n\n".join([commands, *not_yet([c.spec for c in cards if c.spec not in known])]).rstrip(),
    )


def layers(found: dict[str, Measured]) -> list[str]:
    return [side for side in next(iter(found.values())) if side not in (BARE, SCALED)]


def alpha(text: str) -> str:
    return f"α = {spec.read(text, defences.DEFENCES, 'defence').options['step_size']:g}"


def leanings(found: dict[str, Measured]) -> str:
    """By which way the bare networks err, what scaling and the layer do to them."""
    under = {name: of for name, of in found.items() if of[BARE]["confidence"] < of[BARE]["accuracy"]}
    over = {name: of for name, of in found.items() if name not in under}
    best = sum(of[SCALED]["loss"] <= min(of[g]["loss"] for g in layers(found)) for of in found.values())
    said = [f"**Scaling by a temperature has a smaller log-loss than the layer on {best} of {len(found)} networks.**"]
    for title, some in (("Less sure than right", under), ("Surer than right", over)):
        if some:
            names = ", ".join(f"`{name}`" for name in some)
            head = f"**{title}, {len(some)} of {len(found)}:** {names}. Bare, {ranges(some, BARE)}."
            said.append(filled(head) + "\n\n" + "\n".join(leaning(some)))
    return "\n\n".join(said)


def leaning(some: dict[str, Measured]) -> Iterable[str]:
    yield filled(f"- Scaled, {ranges(some, SCALED)}.", "  ")
    for text in layers(some):
        past = sum(of[text]["confidence"] > of[text]["accuracy"] for of in some.values())
        least = min(of[text]["unchanged"] / of[text]["n"] for of in some.values())
        lost = max(of[BARE]["accuracy"] - of[text]["accuracy"] for of in some.values())
        labels = (
            "Every label is kept" if least == 1 else f"Labels are kept on {100 * least:.1f} % of the images or more"
        )
        fall = f", and accuracy falls by up to {100 * lost:.1f} points" if lost > 0 else ""
        found = f"{ranges(some, text)}; it leaves {past} of {len(some)} surer than right"
        yield filled(f"- Behind the layer, {alpha(text)}, {found}. {labels}{fall}.", "  ")


def ranges(some: dict[str, Measured], side: str) -> str:
    """From the least to the greatest, and on how many it is smaller than bare."""

    def said(what: str) -> str:
        values = [of[side][what] for of in some.values()]
        ends = dict.fromkeys(f"{value:.3f}" for value in (min(values), max(values)))
        fewer = sum(of[side][what] < of[BARE][what] for of in some.values())
        return " to ".join(ends) + (f" (smaller on {fewer} of {len(some)})" if side != BARE else "")

    return f"the calibration error is {said('error')} and the log-loss {said('loss')}"


PRECISION = """# What a coarser search costs

`--precision` says what attacks search in; the judge looks in float32, always. So a coarser search can invent no
success, but it may miss one, and then a network looks stronger than it is. Here the same cells were searched twice,
with the same dice on the same images. This page is generated from the records in `results/` and `results/precision/`
(`make docs`).

- *left* is the robust accuracy, in per cent: what the attack did not break. *more left* is coarser minus finer, with
  Newcombe's 95 % interval for paired samples; *only finer* and *only coarser* count the samples that one of them broke.
- *again* is how many samples of the coarser search were searched again in float32, since search and judge parted in the
  end ([design/speed.md](design/speed.md)); older revisions did so within the radius alone.
- **Bold** where McNemar's exact test gives p ≤ 5 % after Holm's correction, as the warning sign
  `changes_with_precision` has it ([flags.md](flags.md)).

{summary}

{table}
## How each was made

Records of the finer search lie in `results/` where a table of [the reproduction](reproduction.md) has them.

{commands}
"""


def precision_page() -> str:
    pairs = searched_twice([ROOT / "results", ROOT / "results" / "precision"])
    if not pairs:
        raise SystemExit("no cell is stored in two precisions; run one of results/precision again first.")
    rows = [row for pair in pairs for row, _ in pair]
    signs = {flag.cells for flag in changes_with_precision(list({row.cell: row for row in rows}.values()))}
    lines = [twice(fine, coarse, (fine[0].cell, coarse[0].cell) in signs) for fine, coarse in pairs]
    commands = dict.fromkeys(f"- `{row.cell.command}`" for pair in pairs for row, _ in pair)
    weak = sorted({(c.attack, coarse(c.precision), f"`{c.attack}` in {c.precision}") for _, c in signs})
    named = ", ".join(said for *_, said in weak)
    found = f"**Too weak: {named}.**" if weak else "**None is weaker than chance allows.**"
    return PRECISION.format(
        summary=filled(f"{found} Of the {len(pairs)} pairs {len(signs)} differ so."),
        table=table(lines),
        commands="\n".join(commands),
    )


Searched = tuple[Row, list[Receipt]]


def searched_twice(folders: Iterable[Path]) -> list[tuple[Searched, Searched]]:
    """Cells that are stored in several precisions: the finest of each beside every other. The first folder counts."""
    found: dict[Cell, dict[str, Searched]] = {}
    for store in map(Store, folders):
        for cell in store.cells():
            searched = make_row(cell, store.read(cell), []), store.receipts(cell)
            same = found.setdefault(replace(cell, precision=PRECISIONS[0], samples=range(0)), {})
            same.setdefault(cell.precision, searched)
    several = [[some[p] for p in PRECISIONS if p in some] for some in found.values()]
    pairs = [(some[0], other) for some in several for other in some[1:]]

    def order(pair: tuple[Searched, Searched]) -> tuple[object, ...]:
        cell = pair[1][0].cell
        return cell.precision, level(cell), cell.attack, cell.model, cell.defence

    return sorted(pairs, key=order)


def twice(fine: Searched, coarse: Searched, sign: bool) -> dict[str, str]:
    (before, _), (after, receipts) = fine, coarse
    cell, left = after.cell, [stands([row]) for row in (before, after)]
    d, both = difference(*left), left[0].keys() & left[1].keys()
    gap = f"{100 * d.value:+.1f} [{100 * d.low:+.1f}, {100 * d.high:+.1f}]"
    return {
        "network": cell.model + ("" if cell.defence == "none" else f" behind `{cell.defence}`"),
        "attack": f"`{cell.attack}`",
        "threat": f"`{cell.threat}`",
        "n": str(d.n),
        "searched in": f"{before.cell.precision}, {cell.precision}",
        "left": ", ".join(f"{100 * sum(some[i] for i in both) / d.n:.1f}" for some in left),
        "more left": f"**{gap}**" if sign else gap,
        "only finer": str(d.gained),
        "only coarser": str(d.lost),
        "again": str(sum(r.again for r in receipts)),
        "revision": ", ".join(dict.fromkeys(r.revision for r in receipts)),
    }


def filled(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 120, subsequent_indent=indent, break_on_hyphens=False)


PAGES = {
    "docs/zoo.md": zoo,
    "docs/catalogue.md": lists,
    "docs/flags.md": flags,
    "docs/parity.md": parity,
    "docs/benchmarks.md": benchmarks,
    "docs/precision.md": precision_page,
    "docs/confidence.md": confidence_page,
    "docs/theory.md": theory_page,
    "docs/reproduction.md": reproduction,
    "README.md": readme,
}


def main() -> int:
    made = {name: make() for name, make in PAGES.items()}
    stale = [name for name, text in made.items() if not (ROOT / name).exists() or (ROOT / name).read_text() != text]
    if "--check" in sys.argv:
        print("\n".join(f"{name} is not what the facts say; run make docs" for name in stale) or "up to date")
        return 1 if stale else 0
    for name in stale:
        (ROOT / name).write_text(made[name])
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
