"""docs/confidence.md: what the layer does to confidence, from `results/confidence.json`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any  # what a JSON file holds

from antiadv import defences, models
from antiadv.core import spec
from antiadv.core.errors import BadInput
from antiadv.reporting import temperature
from tools.docs.markdown import current_command, not_run_yet, render, table, wrap

BARE, SCALED = defences.BARE, temperature.SCALED

Measured = dict[str, dict[str, Any]]  # of one network: its calibration bare, scaled, and with each layer


def page(root: Path) -> str:
    facts, cards = temperature.stored(root / "results" / temperature.FILE), models.cards()
    known = {c.spec: facts[c.spec] for c in cards if facts.get(c.spec, {}).get("weights") == c.weights}
    if not known:
        raise BadInput(
            "docs/confidence.md needs the stored confidence of a network; found none. "
            "Run python -m tools.measure_confidence first."
        )
    found: dict[str, Measured] = {name: network["found"] for name, network in known.items()}
    commands = "\n".join(dict.fromkeys(f"- `{current_command(network['command'])}`" for network in known.values()))
    missing = not_run_yet([c.spec for c in cards if c.spec not in known])
    return render(
        "confidence",
        steps=", ".join(f"*{alpha(text)}*" for text in layers(found)),
        summary=summary(found),
        error=table(measure_rows(found, "error")),
        loss=table(measure_rows(found, "loss")),
        confidence=table(confidence_rows(found)),
        commands="\n\n".join([commands, *missing]).rstrip(),
    )


def layers(found: dict[str, Measured]) -> list[str]:
    """Return the texts of the measured layers, which are the same for every network."""
    return [side for side in next(iter(found.values())) if side not in (BARE, SCALED)]


def alpha(text: str) -> str:
    return f"α = {spec.read(text, defences.DEFENCES, 'defence').options['step_size']:g}"


def measure_rows(found: dict[str, Measured], what: str, scale: float = 1, digits: int = 3) -> list[dict[str, str]]:
    """Return a row per network with one measure: bare, scaled, and with each layer."""
    titles = {BARE: "bare", SCALED: "scaled"} | {text: alpha(text) for text in layers(found)}
    return [
        {"network": f"`{name}`", "n": f"{network[BARE]['n']}"}
        | {title: f"{scale * network[side][what]:.{digits}f}" for side, title in titles.items()}
        for name, network in found.items()
    ]


def confidence_rows(found: dict[str, Measured]) -> list[dict[str, str]]:
    """Return a row per network: mean confidence, accuracy, and how many labels the layer keeps, in per cent."""
    rows = measure_rows(found, "confidence", 100, 1)
    for row, network in zip(rows, found.values(), strict=True):
        row["accuracy of f"] = f"{100 * network[BARE]['accuracy']:.1f}"
        for g in layers(found):
            row[f"of g, {alpha(g)}"] = f"{100 * network[g]['accuracy']:.1f}"
        for g in layers(found):
            row[f"labels kept, {alpha(g)}"] = f"{100 * network[g]['unchanged'] / network[g]['n']:.1f}"
    return rows


def summary(found: dict[str, Measured]) -> str:
    """Group the networks by whether they are less or more confident than accurate, and sum up each group."""
    under = {name: n for name, n in found.items() if n[BARE]["confidence"] < n[BARE]["accuracy"]}
    over = {name: n for name, n in found.items() if name not in under}
    best = sum(n[SCALED]["loss"] <= min(n[g]["loss"] for g in layers(found)) for n in found.values())
    parts = [f"**Temperature scaling has a smaller log-loss than the layer on {best} of {len(found)} networks.**"]
    for title, some in (("Confidence below accuracy", under), ("Confidence above accuracy", over)):
        if some:
            names = ", ".join(f"`{name}`" for name in some)
            head = f"**{title}, {len(some)} of {len(found)}:** {names}. Bare, {ranges(some, BARE)}."
            parts.append(wrap(head) + "\n\n" + "\n".join(group_items(some)))
    return "\n\n".join(parts)


def group_items(some: dict[str, Measured]) -> Iterable[str]:
    """Yield list items that say what scaling and each layer do to a group of networks."""
    yield wrap(f"- Scaled, {ranges(some, SCALED)}.", "  ")
    for text in layers(some):
        over = sum(n[text]["confidence"] > n[text]["accuracy"] for n in some.values())
        least = min(n[text]["unchanged"] / n[text]["n"] for n in some.values())
        lost = max(n[BARE]["accuracy"] - n[text]["accuracy"] for n in some.values())
        labels = (
            "Every prediction is kept"
            if least == 1
            else f"Predictions are kept on at least {100 * least:.1f} % of the images"
        )
        fall = f", and accuracy falls by up to {100 * lost:.1f} points" if lost > 0 else ""
        effect = f"{ranges(some, text)}; confidence is above accuracy on {over} of {len(some)}"
        yield wrap(f"- With the layer, {alpha(text)}, {effect}. {labels}{fall}.", "  ")


def ranges(some: dict[str, Measured], side: str) -> str:
    """Say the range of calibration error and log-loss, and on how many networks each is smaller than bare."""

    def described(what: str) -> str:
        values = [n[side][what] for n in some.values()]
        ends = dict.fromkeys(f"{value:.3f}" for value in (min(values), max(values)))
        fewer = sum(n[side][what] < n[BARE][what] for n in some.values())
        return " to ".join(ends) + (f" (smaller on {fewer} of {len(some)})" if side != BARE else "")

    return f"the calibration error is {described('error')} and the log-loss {described('loss')}"
