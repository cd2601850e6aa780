"""Curves are the measures at every point, and what is drawn is one SVG that says what it shows and meets no other."""

from __future__ import annotations

import dataclasses
import re
import sys
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from antiadv.core.ball import L2, Linf
from antiadv.core.errors import MissingExtra
from antiadv.evaluation.cell import Record
from antiadv.reporting.curves import by_access, by_cost, by_queries, by_radius, falling, radii
from antiadv.reporting.figures import COLOURS, INK, Figure, Panel, Series, alone, draw, svg
from antiadv.reporting.measures import paired, robust_accuracy, standing_by
from antiadv.reporting.rows import Row, make_row
from antiadv.reporting.verdict import levels
from tests.engine.probes import MODEL, cell, record
from tests.said import in_order, numbers

ANTI = "anti_adversary"
PANEL = Panel(
    "a <b> & $x_1$",
    "queries",
    "accuracy, %",
    (
        Series("bare & $y$", (1, 10, 100), (70, 60, 50), (68, 58, 48), (72, 62, 52)),
        Series("behind <it>", (1, 10, 100), (70, 65, 61), kind="dots"),
        Series("", (), (40,), kind="level"),
        Series("paper", (10,), (80,), kind="marks"),
    ),
    log=True,
)
SIDEWAYS = Panel("gains", "points", "", (Series("asks", (3.0,), (1.0,), (1.0,), (5.0,)),), ("one", "two"), zero=0.0)


def spent(n: int, step: int, ball: float = 2 / 255) -> list[Record]:
    """Every other sample falls, the i-th after step·(i+1) queries; the first was wrong from the start."""
    fell: dict[str, Any] = {"attacked": 5, "distance": 0.9 * ball}
    first = record(0, clean=7, attacked=7)
    return [first, *(record(i, queries=step * (i + 1), **(fell if i % 2 else {})) for i in range(1, n))]


def row(
    attack: str, records: list[Record], defence: str = "none", bare: list[Record] | None = None, **words: Any
) -> Row:
    return make_row(cell(attack, defence=defence, **words), records, bare or [])


def pair(attack: str, step: int = 2, threat: str = "linf:2/255,queries=500") -> list[Row]:
    before, after = spent(40, 1), spent(40, step)
    return [row(attack, before, threat=threat), row(attack, after, ANTI, before, threat=threat)]


# ---------------------------------------------------------------- what is drawn


def test_a_curve_is_the_accuracy_as_of_every_budget() -> None:
    r = pair("square")[0]
    points = falling(r)
    assert (points[0][0], points[-1][0]) == (1, 500)
    for q, found in points:
        stood = sum(standing_by(x, r.cell.threat.ball, int(q)) for x in r.records)
        assert found.value == stood / 40
        assert found.n == 40
    assert points[0][1].value == 39 / 40
    assert points[-1][1].value == robust_accuracy(r.records, r.cell.threat.ball).value == 19 / 40


@pytest.mark.parametrize("attack", ["square", "nes", "bandits"])
def test_a_panel_for_each_network_that_is_attacked_bare_and_defended(attack: str) -> None:
    (figure,) = by_queries([*pair(attack), *pair("pgd")])
    (panel,) = figure.panels
    assert figure.name == f"queries-{attack}"
    assert [s.label for s in panel.series] == ["bare", f"with {ANTI}"]
    assert panel.log
    assert len(figure.sources) == 2
    assert by_queries(pair(attack)[:1]) == []
    assert by_queries(pair("rays")) == []  # it goes on after success, so a run says nothing of smaller budgets


def test_defences_that_are_not_drawn_are_named() -> None:
    rows = pair("square")[:1] + [
        row("square", spent(40, 2), f"{ANTI}:steps={k}", threat="linf:2/255,queries=500") for k in range(3, 9)
    ]
    (figure,) = by_queries(rows)
    assert len(figure.panels[0].series) == 5
    assert figure.caption.endswith(f"with {ANTI}:steps=7 and with {ANTI}:steps=8.")


def test_of_seeds_and_precisions_the_fullest_is_drawn() -> None:
    few = row("square", spent(10, 1), threat="linf:2/255,queries=500", seed=1)
    (figure,) = by_queries([few, *pair("square")])
    assert figure.panels[0].series[0].y[-1] == pytest.approx(100 * 19 / 40)
    assert len(figure.panels[0].series) == 2
    coarse = row("square", spent(40, 2), threat="linf:2/255,queries=500", precision="mixed")
    (alone,), (figure,) = by_queries(pair("square")), by_queries([coarse, *pair("square")])
    assert figure.panels == alone.panels, "of equals the finest"
    assert "float32" in figure.caption
    assert "mixed" not in figure.caption
    (figure,) = by_queries([coarse, pair("square")[1]])
    assert figure.panels != alone.panels
    assert in_order(figure.caption, "float32 (1)", "mixed (1)", "float32")


def test_lines_of_a_panel_are_of_the_same_samples() -> None:
    """The bare run is whole, the other one half done: its twenty samples are compared with the same twenty."""
    before, after = spent(40, 1), spent(40, 2)[:20]
    rows = [row("square", r, d, threat="linf:2/255,queries=500") for r, d in ((before, "none"), (after, ANTI))]
    (figure,) = by_queries(rows)
    assert [s.y[-1] for s in figure.panels[0].series] == [45.0, 45.0]  # 9 of 20
    assert by_queries([rows[0], row("square", spent(60, 1)[40:], ANTI, threat="linf:2/255,queries=500")]) == []


def test_a_curve_ends_where_its_run_did() -> None:
    rows = [*pair("square")[:1], row("square", spent(40, 1), ANTI, threat="linf:2/255,queries=20")]
    (figure,) = by_queries(rows)
    assert [s.x[-1] for s in figure.panels[0].series] == [500, 20]


def test_balls_are_not_compared() -> None:
    rows = [row("square", spent(40, 1), d, threat=f"linf:{e}/255,queries=9") for d, e in (("none", 2), (ANTI, 4))]
    assert by_queries(rows) == []


def test_the_closest_image_tells_of_larger_radii_only() -> None:
    """A quarter of the samples stands at ε, and falls at twice and three times that radius."""
    eps = 2 / 255
    records = [record(i, attacked=5, distance=eps * (0.5 if i < 30 else 1.5 if i < 35 else 2.5)) for i in range(40)]
    rows = [row("fab", records, d) for d in ("none", ANTI)]
    (figure,) = by_radius(rows)
    series = figure.panels[0].series[0]
    assert (series.x[0], series.x[-1]) == pytest.approx((2, 8))
    assert (series.y[0], series.y[-1]) == (25, 0)
    assert {round(y, 1) for y in series.y} == {25, 12.5, 0}
    assert "run's own" in figure.caption


def test_a_search_that_the_judge_does_not_follow_tells_of_no_larger_radius() -> None:
    """Of a sample that is still right beyond ε nobody knows how far a fooling image lies."""
    eps = 2 / 255
    records = [record(i, attacked=5, distance=1.5 * eps) for i in range(40)]
    astray = [record(0, distance=1.5 * eps), *records[1:]]
    both = [row("fab", records, "none"), row("fab", records, ANTI)]
    (figure,) = by_radius([*both, row("fab", astray, "rounded_scores")])
    assert [len(panel.series) for panel in figure.panels] == [2]
    assert "rounded_scores" in figure.caption
    assert ANTI not in figure.caption
    assert by_radius([both[0], row("fab", astray, ANTI)]) == []


def test_a_run_without_a_radius_shows_every_radius_on_its_own() -> None:
    records = [record(i, attacked=5, distance=(i + 1) / 255) for i in range(20)]
    alone = row("minimum_norm", records, threat="linf:inf")
    (figure,) = by_radius([alone])
    (series,) = figure.panels[0].series
    assert series.x[0] == 0
    assert series.x[-1] == pytest.approx(20)
    assert (series.y[0], series.y[-1]) == (100, 0)
    assert "run's own" not in figure.caption
    (said,) = radii([alone, row("pgd", records)])
    assert all(f"{share} [" in said for share in ("95.0", "90.0", "80.0", "60.0", "20.0"))
    assert "at 8/255" in said
    (l2,) = radii([row("minimum_norm", [record(0, attacked=5, distance=0.7)], threat="l2:inf")])
    assert "at 0.25" in l2
    (both,) = by_radius([alone, row("minimum_norm", records[:10], ANTI, threat="linf:inf")])
    assert [s.x[-1] for s in both.panels[0].series] == [pytest.approx(10)] * 2, "the samples that both have"
    assert by_radius([alone, row("fab", records)])[0].sources == (alone.cell.key,)


def test_cells_at_several_radii_make_a_curve() -> None:
    rows = [
        row("pgd", [record(i, attacked=5, distance=0.0) if i < fell else record(i) for i in range(40)], d, threat=t)
        for t, fell in (("linf:4/255", 30), ("linf:2/255", 10))
        for d in ("none", ANTI)
    ]
    (figure,) = by_radius(rows)
    assert [(s.x, s.y) for s in figure.panels[0].series] == [((2.0, 4.0), (75.0, 25.0))] * 2
    assert by_radius(rows[:2]) == []


@pytest.mark.parametrize("attack", ["rays", "square"])
def test_radii_are_compared_at_one_budget_alone(attack: str) -> None:
    """A cell with more queries is no point of the curve of one with fewer, nor the bare line beside its defence."""

    def at(radius: int, queries: int, *sides: str) -> list[Row]:
        threat = f"linf:{radius}/255,queries={queries}"
        return [row(attack, spent(40, 1), d, threat=threat) for d in sides]

    assert by_radius([*at(2, 500, "none"), *at(4, 500, "none"), *at(2, 50, ANTI), *at(4, 50, ANTI)]) == []
    both = [made for q in (50, 500) for radius in (2, 4) for made in at(radius, q, "none", ANTI)]
    (figure,) = by_radius(both)
    assert [panel.title for panel in figure.panels] == [f"{MODEL}, 50 queries", f"{MODEL}, 500 queries"]
    assert [panel.title for panel in by_radius(both[:4])[0].panels] == [MODEL]


def test_gains_by_access_are_those_of_the_verdict() -> None:
    rows = [r for a in ("square", "pgd", "transfer") for r in pair(a, threat="linf:2/255")]
    (figure,) = by_access(levels(rows))
    (panel,) = figure.panels
    assert panel.names == (f"toys:bands with {ANTI}",)
    assert [s.label for s in panel.series] == ["sees scores", "has gradients", "knows the defence"]
    expected = paired(rows[0].records, rows[1].records, Linf(2 / 255))
    assert panel.series[0].x == (100 * expected.value,)
    assert (panel.series[0].low, panel.series[0].high) == ((100 * expected.low,), (100 * expected.high,))
    assert by_access([]) == []


def test_one_network_on_two_data_sets_is_two() -> None:
    other = [
        dataclasses.replace(r, cell=dataclasses.replace(r.cell, data="cifar10:train", images="other"))
        for r in pair("square")
    ]
    (figure,) = by_queries([*pair("square"), *other])
    assert {panel.title.split(",")[0] for panel in figure.panels} == {
        f"toys:bands (cifar10:{s})" for s in ("test", "train")
    }
    (figure,) = by_access(levels([*pair("square"), *other]))
    assert len(figure.panels[0].names) == 2


def test_the_price_in_queries_is_drawn_as_what_it_is() -> None:
    (figure,) = by_cost(pair("square", step=3))
    (series,) = figure.panels[0].series
    (defended,) = [r for r in pair("square", step=3) if r.ratio is not None]
    assert defended.ratio is not None
    assert series.x == (defended.ratio.value,)
    assert (
        series.label
        == {"exactly": "measured", "more": "more than this", "less": "less than this"}[defended.ratio.bound]
    )
    assert by_cost(pair("pgd", threat="linf:2/255")) == []  # nobody counts queries that have no limit


# ---------------------------------------------------------------- how it is drawn


@pytest.mark.parametrize("panel", [PANEL, SIDEWAYS], ids=["upright", "sideways"])
def test_a_drawing_is_well_formed_and_says_what_it_shows(panel: Panel) -> None:
    root = ET.fromstring(svg(panel, "one"))
    space = {"s": "http://www.w3.org/2000/svg"}
    title, words = root.find("s:title", space), root.find("s:desc", space)
    assert title is not None
    assert words is not None
    assert (title.text, words.text) == (panel.title, panel.about)
    assert root.get("aria-labelledby") == f"{title.get('id')} {words.get('id')}"
    assert root.get("role") == "img"
    shown = {"".join(e.itertext()).strip() for e in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {panel.title, panel.x_label} <= shown
    assert {s.label for s in panel.series if s.label} <= shown or len(panel.series) == 1


def test_ink_is_the_pages_and_nothing_is_painted_behind() -> None:
    drawn = svg(PANEL, "one")
    assert INK not in drawn
    assert "currentColor" in drawn
    assert "<style" not in drawn  # inside a page it would be the whole page's
    assert "#ffffff" not in drawn.lower()


def test_the_words_hold_the_numbers() -> None:
    bare, behind, level, paper = PANEL.about.split(";")
    assert in_order(bare, PANEL.title, "queries", "accuracy, %", "bare & $y$", "70.0")
    assert numbers(bare.partition("$y$")[2]) == ["70.0", "50.0", "1", "100"]
    assert "behind <it>" in behind
    assert [numbers(series) for series in (behind, level, paper)] == [
        ["70.0", "61.0", "1", "100"],
        ["40.0"],
        ["80.0", "10"],
    ]
    assert in_order(SIDEWAYS.about, "gains", "points", "asks", "two", "3")
    assert numbers(SIDEWAYS.about) == ["3"]


def test_two_drawings_share_no_name_and_every_reference_is_met() -> None:
    both = draw([Figure("f", "F", "", (PANEL, PANEL)), Figure("g", "G", "", (SIDEWAYS,))])
    assert list(both) == ["f-1", "f-2", "g-1"]
    names = [set(re.findall(r'\bid="([^"]+)"', text)) for text in both.values()]
    assert not names[0] & names[1]
    assert not names[0] & names[2]
    for text, known in zip(both.values(), names, strict=True):
        assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', text)) <= known


def test_the_same_bytes_whenever_it_is_drawn() -> None:
    assert svg(PANEL, "one") == svg(PANEL, "one")


def test_a_name_that_no_font_has_is_drawn_all_the_same() -> None:
    odd = Panel("网络 🦆", "x", "y", (Series("s", (1, 2), (3, 4)),))
    assert "网络" in svg(odd, "one")


def test_a_file_of_its_own_has_its_own_ink() -> None:
    root = ET.fromstring(alone(svg(PANEL, "one")).partition("\n")[2])
    style = root.findall("{http://www.w3.org/2000/svg}style")
    assert len(style) == 1
    assert "prefers-color-scheme:dark" in (style[0].text or "")


@pytest.mark.parametrize("back", ["#ffffff", "#14171b"])
def test_series_stand_out_from_a_light_and_from_a_dark_page(back: str) -> None:
    """3 : 1 is what WCAG 2.1 asks of graphics."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    for colour in COLOURS:
        low, high = sorted((luminance(colour), luminance(back)))
        assert (high + 0.05) / (low + 0.05) >= 3, colour


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"antiadv\[report\]"):
        svg(Panel("t", "x", "y", (Series("s", (1,), (2,)),)), "n")


def test_l2_radii_are_not_in_pixels() -> None:
    records = [record(i, attacked=5, distance=0.5) for i in range(10)]
    rows = [row("boundary", records, d, threat="l2:0.25") for d in ("none", ANTI)]
    (figure,) = by_radius(rows)
    assert figure.panels[0].x_label == "L2 radius"
    assert figure.panels[0].series[0].x[-1] == pytest.approx(4 * L2(0.25).eps)
