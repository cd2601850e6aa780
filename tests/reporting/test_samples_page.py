"""The samples behind a report, in a real browser: from a number to its samples, filtered, sorted, opened, compared.
Skipped, with the reason, where there is no browser.

Where ANTIADV_SCREENSHOT names a folder, a picture of an opened sample is written there as samples.png.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from antiadv.core.threat import Access, Threat
from antiadv.evaluation import Resources, Store, evaluate, make_cell
from antiadv.reporting import folder
from tests.engine.probes import RECEIPT, record
from tests.reporting.browser import Browser, Page
from tests.reporting.stores import document, weaker, written
from tests.reporting.test_html import CONTRAST, ODD
from tests.said import in_order

REAL = "pgd:steps=3", "linf:16/255"
COUNTED = ("clean %", "robust %", "clean", "AA", "AA gain", "gain", "Square", "adaptive")  # what the page counts again

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network really attacked, its images kept; figure 4 in written records; and a name that might run."""
    root, resources = tmp_path_factory.mktemp("store"), Resources("cpu")
    asked: dict[str, Any] = {"attack": REAL[0], "threat": REAL[1], "samples": range(12), "resources": resources}
    cells = [make_cell(model="compact:trades", defence=d, **asked) for d in ("none", "anti_adversary")]
    evaluate(cells, root, resources=resources, keep_images=True)
    first = written(root, "figure-4", resources, weaker)[0]
    threat = Threat(first.threat.ball, Access.SCORES, 100)
    odd = dataclasses.replace(first, model=ODD, attack="square", threat=threat)
    Store(root).append(odd, [record(i, queries=3 * i + 3) for i in range(9)], RECEIPT)
    return folder.write(document(Store(root)), tmp_path_factory.mktemp("report"))[0]


def opened(browser: Browser, report: Path, fragment: str = "", **look: Any) -> Page:
    page = browser.open(f"{report.with_name('samples.html').resolve().as_uri()}{fragment}", **look)
    page.until("!!document.documentElement.dataset.shown || document.documentElement.dataset.shown === ''")
    return page


def shown(page: Page) -> list[list[str]]:
    """The numbers of each side."""
    script = "[...document.querySelectorAll('#numbers tbody tr')].map(r => [...r.cells].map(c => c.innerText))"
    found: list[list[str]] = page.value(script)
    return found


def samples(page: Page) -> list[int]:
    script = "[...document.querySelectorAll('#records tbody button')].map(b => Number(b.textContent))"
    found: list[int] = page.value(script)
    return found


def column(page: Page, heading: str) -> list[str]:
    script = (
        "(() => { const t = document.getElementById('records');"
        f" const i = [...t.tHead.rows[0].cells].findIndex(c => c.innerText.trim() === {heading!r});"
        " return [...t.tBodies[0].rows].map(r => r.cells[i].innerText) })()"
    )
    found: list[str] = page.value(script)
    return found


def click(page: Page, selector: str) -> None:
    page.value(f"document.querySelector({selector!r}).click()")


def head(page: Page, heading: str) -> None:
    page.value(
        f"[...document.querySelectorAll('#records thead button')].find(b => b.innerText === {heading!r}).click()"
    )


def count(page: Page, *kinds: str) -> int:
    return int(page.value(f"document.querySelector('#counts [data-kinds=\"{','.join(kinds)}\"]').textContent"))


def links(browser: Browser, report: Path) -> list[dict[str, str]]:
    """Every number with samples: its table, heading, text and address."""
    found: list[dict[str, str]] = browser.open(report).value(
        "[...document.querySelectorAll('table a.drill')].map(a => ({table: a.closest('table').id,"
        " head: a.closest('table').tHead.rows[0].cells[a.closest('td, th').cellIndex].innerText.trim(),"
        " line: a.closest('tr').innerText, text: a.innerText, to: a.getAttribute('href')}))"
    )
    return found


def of_real(browser: Browser, report: Path, head: str) -> dict[str, str]:
    """A number of the defended network that was really attacked."""
    cells = [a for a in links(browser, report) if (a["table"], a["head"]) == ("table-cells", head)]
    return next(a for a in cells if REAL[0] in a["line"] and "anti_adversary" in a["line"])


def of_written(browser: Browser, report: Path) -> tuple[str, str]:
    """The fragments of a robust accuracy and of its gain, in the written records: 20 of 40 fell bare, 8 defended."""
    cells = [a for a in links(browser, report) if (a["table"], a["head"]) == ("table-cells", "gain")]
    both = next(a["to"].partition("#")[2] for a in cells if a["text"] == "+30.0")
    return both.partition("&")[0], both


def test_from_a_number_to_its_samples(browser: Browser, report: Path, tmp_path: Path) -> None:
    asked = of_real(browser, report, "gain")
    page = browser.open(report, height=1000)
    page.loaded = False
    click(page, f'a[href="{asked["to"]}"]')
    page.until("document.title === 'Samples' && !!document.documentElement.dataset.shown")
    a, b = shown(page)
    assert a[3] == b[3] == "12"
    assert float(a[5]) - float(b[5]) == pytest.approx(float(asked["text"]), abs=0.11)
    fell = samples(page)[column(page, "B: outcome").index("fell")]
    page.value(f"[...document.querySelectorAll('#records tbody button')].find(b => b.textContent === '{fell}').click()")
    assert page.value("document.getElementById('one').open")
    assert page.value("document.querySelectorAll('#images .crop').length") == 5  # clean; attacked and change, twice
    assert page.value("document.querySelectorAll('#one-curve circle').length") >= 1
    assert page.value("document.getElementById('answers').rows.length") > 8
    keep(page, tmp_path)  # which paints the pictures
    assert page.complaints == []
    assert {url.split(":")[0] for url in page.requests} <= {"file", "data"}
    assert {Path(url).suffix for url in page.requests if "/samples/" in url} == {".js", ".png"}
    for name in ("attacked", "change"):
        assert page.value(f"document.querySelector('#images [aria-label^={name}]').style.backgroundImage") != ""


def keep(page: Page, tmp_path: Path) -> None:
    shot = page.screenshot(tmp_path / "samples.png")
    assert shot.stat().st_size > 10_000
    if wanted := os.environ.get("ANTIADV_SCREENSHOT"):
        small = Image.open(shot).convert("P", palette=Image.Palette.ADAPTIVE, colors=128)
        small.save(Path(wanted) / "samples.png", optimize=True)


def test_every_number_is_counted_again_from_its_samples(browser: Browser, report: Path) -> None:
    """The page counts as the report does: worst cases, gains, budgets and clean images."""
    asked = [a for a in links(browser, report) if a["head"] in COUNTED and a["text"].strip()]
    page, seen = opened(browser, report), set()
    for a in asked:
        page.value(f"location.hash = {a['to'].partition('#')[2]!r}")
        page.until("document.documentElement.dataset.shown === location.hash")
        sides = shown(page)
        value = float(sides[0][5]) - (float(sides[1][5]) if "b=" in a["to"] else 0)
        assert value == pytest.approx(float(a["text"].replace("−", "-")), abs=0.11), a
        seen.add((a["table"], a["head"]))
    assert {("table-cells", "robust %"), ("table-cells", "gain"), ("table-figure-4", "AA")} <= seen
    assert page.complaints == []


def test_every_link_names_cells_that_are_there(browser: Browser, report: Path) -> None:
    asked = {a["to"] for a in links(browser, report)}
    assert len(asked) > 20
    for to in asked:
        keys = [
            key for part in to.partition("#")[2].split("&") if part[:2] in ("a=", "b=") for key in part[2:].split(".")
        ]
        assert keys
        assert all((report.parent / "samples" / f"{key}.js").is_file() for key in keys)
    claims = browser.open(report).value("document.querySelectorAll('.claims a.drill').length")
    assert claims > 0


def test_filter_and_sort(browser: Browser, report: Path) -> None:
    page = opened(browser, report, f"#{of_written(browser, report)[0]}")
    assert samples(page) == list(range(40))
    assert [count(page, kind) for kind in ("stood", "fell", "wrong")] == [32, 8, 0]
    head(page, "queries")
    head(page, "queries")
    assert samples(page) == list(range(39, -1, -1))
    assert page.value("document.querySelector('#records th[aria-sort=descending]').innerText.trim()") == "queries"
    click(page, '#counts [data-kinds="fell"]')
    assert samples(page) == list(range(7, -1, -1))
    assert set(column(page, "outcome")) == {"fell"}
    page.value("(() => { const s = document.getElementById('sample'); s.value = 7; s.oninput() })()")
    assert samples(page) == [7]
    assert page.value("document.getElementById('shown').textContent") == "1 of 40 samples"
    click(page, "#all")
    assert len(samples(page)) == 40
    page.value(f"location.hash = {of_real(browser, report, 'robust %')['to'].partition('#')[2]!r}")
    page.until("document.querySelectorAll('#records tbody tr').length === 12")
    page.value("(() => { const s = document.getElementById('label'); s.selectedIndex = 1; s.onchange() })()")
    assert 0 < len(samples(page)) < 12
    assert len(set(column(page, "class"))) == 1
    assert page.complaints == []


def test_compare_two_cells_sample_by_sample(browser: Browser, report: Path) -> None:
    one, both = of_written(browser, report)
    page = opened(browser, report, f"#{one}")
    assert len(shown(page)) == 1
    click(page, "#bare")
    page.until("document.querySelectorAll('#numbers tbody tr').length === 2")
    assert page.value("location.hash.slice(1)") == both
    (_, _, defended, *_), (_, _, bare, *_) = shown(page)
    assert (defended.split()[0].partition(":")[0], bare.split()[0]) == ("anti_adversary", "none")
    assert page.value("document.querySelectorAll('#curve path.a, #curve path.b').length") == 2
    assert "+30.0 points. 12 samples" in page.value("document.getElementById('difference').textContent")
    assert [count(page, *kinds) for kinds in (("stood", "fell"), ("fell", "fell"), ("stood", "stood"))] == [12, 8, 20]
    click(page, '#counts [data-kinds="stood,fell"]:enabled')
    assert samples(page) == list(range(8, 20))
    assert (set(column(page, "A: outcome")), set(column(page, "B: outcome"))) == ({"stood"}, {"fell"})
    click(page, "#swap")
    page.until("document.querySelector('#numbers tbody td:nth-child(3)').innerText.startsWith('none')")
    assert count(page, "fell", "stood") == 12
    page.value("(() => { const s = document.getElementById('b'); s.value = ''; s.onchange() })()")
    page.until("document.querySelectorAll('#numbers tbody tr').length === 1")
    assert page.complaints == []


def test_the_keyboard_opens_a_sample_and_turns_to_the_next(browser: Browser, report: Path) -> None:
    page = opened(browser, report, "#" + of_real(browser, report, "robust %")["to"].partition("#")[2])
    page.value("document.querySelector('#records tbody button').focus()")
    page.press("Enter", 13, "\r")
    title = "document.getElementById('one-title').textContent.split(':')[0]"
    assert page.value(title) == "Sample 0"
    page.press("ArrowRight", 39)
    assert page.value(title) == "Sample 1"
    assert page.value("location.hash").endswith("s=1")
    page.press("ArrowLeft", 37)
    assert page.value(title) == "Sample 0"
    page.press("Escape", 27)
    assert not page.value("document.getElementById('one').open")
    assert page.value("document.activeElement.textContent") == "0"
    page.until("!location.hash.includes('s=')")  # the dialog tells of its end after it has closed
    page.value("location.hash += '&s=5'")  # an address that someone sent
    page.until(f"document.getElementById('one').open && {title} === 'Sample 5'")
    controls = "[...document.querySelectorAll('button, input, select')]"
    assert page.value(f"{controls}.every(c => c.labels?.length || c.ariaLabel || c.textContent.trim())")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_a_telephone_and_is_readable(dark: bool, browser: Browser, report: Path) -> None:
    page = opened(browser, report, "#" + of_real(browser, report, "gain")["to"].partition("#")[2], width=390, dark=dark)
    assert page.value("document.documentElement.scrollWidth") <= 390
    assert page.value(CONTRAST) >= 4.5
    click(page, "#records tbody button")
    assert page.value("document.getElementById('one').getBoundingClientRect().right") <= 390
    assert page.value(CONTRAST) >= 4.5
    assert page.complaints == []


def test_what_is_not_there_gets_a_sentence(browser: Browser, report: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(report.parent, tmp_path / "copy") / "report.html"
    gone = of_real(browser, report, "robust %")["to"].partition("#")[2]
    (copy.parent / "samples" / f"{gone.removeprefix('a=')}.js").unlink()
    page = opened(browser, copy, f"#{gone}")
    assert f"samples/{gone.removeprefix('a=')}.js" in page.value("document.getElementById('wrong').textContent")
    asked = len(page.requests)
    page.value("location.hash = 'a=../../else'")
    page.until("document.documentElement.dataset.shown === location.hash")
    assert in_order(page.value("document.getElementById('wrong').textContent"), "no cell", " /")
    assert len(page.requests) == asked


def test_a_name_is_shown_and_never_run(browser: Browser, report: Path) -> None:
    page = opened(browser, report)
    assert page.value("document.title") == "Samples"
    assert page.value("document.querySelectorAll('img[src=x]').length") == 0
    assert page.value(f"[...document.querySelectorAll('optgroup')].some(o => o.label.includes({ODD[:20]!r}))")
