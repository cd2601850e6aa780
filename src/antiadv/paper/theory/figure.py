"""Draw G(c) of Theorems 1 and 3 and the computed ratios of steps. Needs matplotlib (`antiadv[report]`).

line        G(c), the ratio of two bounds
dots        the ratio of the steps needed if γ is added to the iterate, as in the proofs
squares     the same if γ is used in each query only, as in the real layer
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from antiadv.core.errors import BadInput, MissingExtra
from antiadv.paper.theory import black_box, theorem_1, theorem_3, white_box
from antiadv.paper.theory.experiment import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = (".png", ".svg")
CS = tuple(i / 20 for i in range(20, 1, -1))
LINE = tuple(i / 200 for i in range(200, 19, -1))


def draw(path: Path) -> None:
    """Write the figure as PNG or SVG, by the file's suffix. The bytes are the same in every run."""
    if path.suffix.lower() not in KINDS:
        raise BadInput(
            f"the name of the figure must end in {' or '.join(KINDS)}; found {path.name!r}. Give another name."
        )
    try:
        import matplotlib
        from matplotlib.figure import Figure  # not pyplot: no window, no global state
    except ImportError as missing:
        raise MissingExtra("matplotlib", "report") from missing
    with matplotlib.rc_context({"svg.hashsalt": "antiadv", "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 4), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        box = black_box.sigmoids()
        near = dataclasses.replace(white_box.BOX, target=1e-12)  # more steps, so that their ratio is finer
        _panel(left, [black_box.point(c, box) for c in CS], [theorem_1.factor(c, box) for c in LINE])
        _panel(right, [white_box.point(c, near) for c in CS], [theorem_3.factor(c, near) for c in LINE])
        left.set(title="SimBA, sum of sigmoids (Theorem 1)", ylabel="times the steps on f")
        right.set(title="gradient ascent, hill (Theorem 3)")
        right.legend(frameon=False)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
        except OSError as error:
            raise BadInput(f"the figure cannot be written to {path}: {error.strerror}. Give another file.") from error


def _panel(axes: Axes, points: Sequence[Point], factors: Sequence[float]) -> None:
    bare, cs = points[0].needed, [p.c for p in points]
    in_system = [(p.c, p.in_system / bare) for p in points if p.in_system is not None]
    axes.plot(LINE, factors, color="C0", label="G(c)")
    axes.plot(cs, [p.needed / bare for p in points], "o", color="C1", label="steps, γ added to the iterate")
    axes.plot(*zip(*in_system, strict=True), "s", color="C2", label="steps, γ in each query only")
    axes.axhline(1, color="0.7", linewidth=0.8, zorder=0)
    axes.set_xlabel("c = 1 − step of the layer / step of the attacker")
    axes.set_yscale("log")
    axes.set_yticks([0.5, 1, 2, 5, 10], labels=["½", "1", "2", "5", "10"], minor=False)
