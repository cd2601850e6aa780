"""The page in a real browser: it opens offline, complains of nothing, shows its figures, sorts its tables by mouse and
by keyboard, fits a telephone, is readable in the dark, and prints. Skipped, with the reason, where there is no browser.

A screenshot of each look stays with the test's files; where ANTIADV_SCREENSHOT names a folder, it is copied there.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from antiadv.core.threat import Access, Threat
from antiadv.evaluation import Resources, Store
from antiadv.reporting import folder
from antiadv.reporting.build import TITLE
from antiadv.reporting.document import Document
from tests.engine.probes import RECEIPT, record
from tests.reporting.browser import Browser, Page
from tests.reporting.stores import document, really_run, weaker, written
from tests.said import in_order

ODD = "</title><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Document:
    """A network of the package attacked for real, the paper's figure 4 in written records, a name that might run."""
    root, resources = tmp_path_factory.mktemp("store"), Resources("cpu")
    store = really_run(root, resources)
    cells = written(root, "figure-4", resources, weaker)
    for defence in ("none", "anti_adversary"):
        threat = Threat(cells[0].threat.ball, Access.SCORES, 100)
        odd = dataclasses.replace(cells[0], model=ODD, defence=defence, attack="square", threat=threat)
        store.append(odd, [record(i, queries=3 * i + 3) for i in range(9)], RECEIPT)
    return document(Store(root), images=2)


@pytest.fixture(scope="module")
def report(made: Document, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder.write(made, tmp_path_factory.mktemp("report"))[0]


@pytest.fixture
def page(browser: Browser, report: Path) -> Page:
    return browser.open(report)


def keep(page: Page, name: str, tmp_path: Path) -> None:
    shot = page.screenshot(tmp_path / f"{name}.png")
    assert shot.stat().st_size > 10_000
    wanted = os.environ.get("ANTIADV_SCREENSHOT")
    if wanted:
        Path(wanted).mkdir(parents=True, exist_ok=True)
        shutil.copy(shot, wanted)


def column(page: Page, table: str, heading: str) -> list[str]:
    """What a column shows, from the top."""
    found: list[str] = page.value(
        f"(() => {{ const t = document.getElementById('table-{table}');"
        f" const i = [...t.tHead.rows[0].cells].findIndex(c => c.innerText.trim() === {heading!r});"
        " return [...t.tBodies[0].rows].map(r => r.cells[i].dataset.sort) })()"
    )
    return found


def sorted_as(page: Page, table: str, heading: str) -> str:
    script = (
        f"[...document.querySelectorAll('#table-{table} thead th')]"
        f".find(c => c.innerText.trim() === {heading!r}).getAttribute('aria-sort')"
    )
    return str(page.value(script))


def click(page: Page, table: str, heading: str) -> None:
    page.value(
        f"[...document.querySelectorAll('#table-{table} thead button')]"
        f".find(b => b.innerText.trim() === {heading!r}).click()"
    )


# ---------------------------------------------------------------- opening


@pytest.mark.parametrize(
    ("name", "look"),
    [
        ("wide", {}),
        ("dark", {"dark": True}),
        ("telephone", {"width": 390, "height": 844}),
        ("telephone-dark", {"width": 390, "height": 844, "dark": True}),
    ],
)
def test_it_opens_without_a_complaint_and_fits(
    name: str, look: dict[str, Any], browser: Browser, report: Path, tmp_path: Path
) -> None:
    page = browser.open(report, **look)
    assert page.complaints == []
    assert {url.split(":")[0] for url in page.requests} == {"file", "data"}
    assert [url for url in page.requests if url.startswith("file")] == [report.resolve().as_uri()]
    assert page.value("document.title") == TITLE
    assert page.value("document.documentElement.scrollWidth <= innerWidth"), "the page itself must not scroll sideways"
    keep(page, name, tmp_path)
    page.value("document.documentElement.style.scrollBehavior = 'auto'; location.hash = 'figures'")
    keep(page, f"{name}-figures", tmp_path)


def test_the_browser_hears_complaints(browser: Browser, tmp_path: Path) -> None:
    """The tests above could not fail if it did not."""
    bad = tmp_path / "bad.html"
    bad.write_text("<script>console.error('one'); missing()</script><img src='https://nowhere.invalid/x.png'>")
    page = browser.open(bad)
    assert any("one" in said for said in page.complaints)
    assert any("missing is not defined" in said for said in page.complaints)
    assert "https://nowhere.invalid/x.png" in page.requests


def test_nothing_can_be_fetched(page: Page) -> None:
    """The page's own policy forbids it, whatever slips into it."""
    tried = "fetch('https://nowhere.invalid/').then(() => 'sent', () => 'refused')"
    assert page.value(tried) == "refused"
    assert any("Content Security Policy" in said for said in page.complaints)


def test_a_name_is_shown_and_never_run(page: Page) -> None:
    assert page.value("document.title") != "owned"
    assert page.value("document.querySelectorAll('img[src=x]').length") == 0
    assert ODD in page.value("document.getElementById('table-cells').textContent")


def test_every_link_leads_somewhere_and_no_name_is_given_twice(page: Page) -> None:
    assert (
        page.value(
            "[...document.querySelectorAll('a[href]')].map(a => a.getAttribute('href'))"
            ".filter(h => !h.startsWith('samples.html'))"
            ".filter(h => !h.startsWith('#') || !document.getElementById(h.slice(1)))"
        )
        == []
    )
    names = page.value("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(names) == len(set(names))


# ---------------------------------------------------------------- what is on it


def test_the_verdict_is_seen_first(page: Page, made: Document) -> None:
    first = page.value("document.querySelector('main p').innerText")
    assert first == made.summary[0].replace("`", "")
    assert page.value("document.querySelector('main p').getBoundingClientRect().bottom < innerHeight")


def test_the_figures_are_there_and_say_what_they_show(page: Page, made: Document) -> None:
    panels = sum(len(figure.panels) for figure in made.figures)
    found = page.value(
        "[...document.querySelectorAll('#figures svg')].map(s => { const r = s.getBoundingClientRect();"
        " return [r.width, r.height, s.querySelectorAll('path').length, s.querySelector('desc').textContent] })"
    )
    assert {"ablations", "access", "radius-fab-steps-3"} <= {figure.name for figure in made.figures}
    assert len(found) == panels > 5
    for width, height, paths, words in found:
        assert width > 250
        assert height > 100
        assert paths > 3
        assert words


def test_the_gallery_shows_its_images(page: Page, made: Document) -> None:
    sizes = page.value("[...document.querySelectorAll('.exhibit img')].map(i => [i.naturalWidth, i.alt.length > 0])")
    assert sizes == [[32, True]] * 3 * len(made.gallery.exhibits)
    assert page.value("document.querySelectorAll('.exhibit tbody td').length") == 4 * len(made.gallery.exhibits)


def test_flags_stand_with_their_explanation(page: Page, made: Document) -> None:
    assert made.flags
    text = page.value("document.getElementById('flags').textContent")
    for part in made.flags:
        assert part.name in text
        assert part.explained.todo.replace("`", "") in text
        assert all(sentence in text for sentence in part.sentences)


def test_a_link_opens_what_it_points_into(page: Page) -> None:
    page.value("location.hash = 'claim-1'")
    assert page.value("new Promise(r => setTimeout(() => r(document.getElementById('claim-1').open), 50))") is True


# ---------------------------------------------------------------- sorting


def test_a_heading_sorts_up_down_and_back(page: Page) -> None:
    first = column(page, "cells", "robust %")
    assert sorted_as(page, "cells", "robust %") == "none"
    click(page, "cells", "robust %")
    assert [float(v) for v in column(page, "cells", "robust %")] == sorted(map(float, first))
    assert sorted_as(page, "cells", "robust %") == "ascending"
    click(page, "cells", "robust %")
    assert [float(v) for v in column(page, "cells", "robust %")] == sorted(map(float, first), reverse=True)
    assert sorted_as(page, "cells", "robust %") == "descending"
    click(page, "cells", "robust %")
    assert column(page, "cells", "robust %") == first
    assert page.complaints == []


def test_words_sort_as_words_and_nothing_comes_last(page: Page) -> None:
    click(page, "cells", "attack")
    found = column(page, "cells", "attack")
    assert found == sorted(found)
    assert sorted_as(page, "cells", "robust %") == "none"
    for _ in range(2):  # up, then down
        click(page, "cells", "gain")
        gains = column(page, "cells", "gain")
        held = [g for g in gains if g]
        assert gains == held + [""] * (len(gains) - len(held))
        assert len(held) not in (0, len(gains))


def test_every_table_with_buttons_sorts(page: Page, made: Document) -> None:
    assert page.value("document.querySelectorAll('table.sorts').length") == len([s for s in made.all_tables if s.lines])
    assert page.value(
        "[...document.querySelectorAll('table.sorts')].map(t => { const b = t.querySelector('thead button'); b.click();"
        " const up = t.querySelector('thead th').getAttribute('aria-sort'); b.click(); b.click(); return up })"
        ".every(way => way === 'ascending')"
    )


def test_it_can_be_used_without_a_mouse(page: Page) -> None:
    page.press("Tab", 9)
    assert page.value("document.activeElement.className") == "skip"
    assert page.value("document.activeElement.getBoundingClientRect().left") == 0
    page.press("Enter", 13, "\r")
    assert page.value("document.activeElement.id") == "main"
    page.value("document.querySelector('#table-cells thead th:nth-child(10) button').focus({focusVisible: true})")
    assert page.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.press("Enter", 13, "\r")
    assert sorted_as(page, "cells", "robust %") == "ascending"
    assert in_order(page.value("document.getElementById('said').textContent"), "robust %", "ascending")
    assert page.value(
        "[...document.querySelectorAll('.scroll')].every(s => s.tabIndex === 0 && s.getAttribute('aria-label'))"
    )


# ---------------------------------------------------------------- reading

CONTRAST = """(() => {
  const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b };
  const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (!/, 0\\)$/.test(c)) return c } };
  const kinds = 'p, li, td, th, a, small, code, h2, h3, dt, dd, figcaption, summary, .badge, .paper';
  const pairs = [...document.querySelectorAll(kinds)].map(e => [light(getComputedStyle(e).color), light(behind(e))]);
  return Math.min(...pairs.map(pair => (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05)));
})()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_stands_out(dark: bool, browser: Browser, report: Path) -> None:
    """4.5 : 1 is what WCAG 2.1 asks of text."""
    page = browser.open(report, dark=dark)
    brightness = page.value("getComputedStyle(document.body).backgroundColor")
    assert (brightness == "rgb(255, 255, 255)") != dark
    assert page.value(CONTRAST) >= 4.5


def test_figures_take_the_colour_of_the_page(browser: Browser, report: Path) -> None:
    inks = [
        browser.open(report, dark=dark).value("getComputedStyle(document.querySelector('#figures svg text')).fill")
        for dark in (False, True)
    ]
    assert inks[0] != inks[1]


def test_on_a_telephone_one_column_says_which_line_it_is(browser: Browser, report: Path) -> None:
    page = browser.open(report, width=390, height=844)
    shown = (
        "[...document.querySelector('#table-cells tbody tr').cells].filter(c => c.offsetWidth).map(c => c.className)"
    )
    assert page.value(shown)[:2] == ["pin", "number"]
    assert page.value("document.querySelector('#table-cells .rest').offsetHeight") > 0
    page.look()
    assert page.value("document.querySelector('#table-cells .rest').offsetHeight") == 0


def test_on_paper_everything_is_open_and_nothing_is_cut(page: Page) -> None:
    closed = "document.querySelectorAll('details:not([open])').length"
    before = page.value(closed)
    page.look(media="print")
    page.value("dispatchEvent(new Event('beforeprint'))")
    assert page.value("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert page.value(closed) == 0 < before
    assert page.value(
        "[...document.querySelectorAll('.scroll')].every(s => getComputedStyle(s).overflowX === 'visible')"
    )
    page.value("dispatchEvent(new Event('afterprint'))")
    assert page.value(closed) == before
    assert page.printed().startswith(b"%PDF")
