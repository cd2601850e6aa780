"""The house keeps its own rules: import order, names, exports, docstrings, links, no global random numbers."""

from __future__ import annotations

import ast
import datetime
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import antiadv
from antiadv.evaluation import Store
from antiadv.paper.claims import claims
from antiadv.paper.store_index import StoreIndex
from tools.docs.architecture import imported

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "antiadv"
FILES = sorted(SOURCE.rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "results" / "index.md"])

# a module may import from the groups before its own, and from its own folder
LAYERS = [
    {"core"},
    {"models", "data"},
    {"engine"},
    {"attacks", "defences"},
    {"evaluation", "train"},
    {"reporting"},
    {"paper", "serving"},
    {"cli"},
]
RANK = {folder: rank for rank, layer in enumerate(LAYERS) for folder in layer}


@pytest.mark.parametrize("path", [f for f in FILES if f.parent != SOURCE], ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    folder = path.relative_to(SOURCE).parts[0]
    for other in imported(path) - {folder, "__version__"}:
        assert RANK[other] < RANK[folder], f"{path.relative_to(ROOT)} imports antiadv.{other}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_every_file_says_what_it_is(path: Path) -> None:
    said = ast.get_docstring(ast.parse(path.read_text()))
    assert said, f"{path.relative_to(ROOT)} has no docstring"
    assert not {"utils", "helpers", "common", "misc"} & set(path.with_suffix("").parts)


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the first statement to the last, without signature and docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


@pytest.mark.parametrize("folder", ["src", "tools", "benchmarks", "examples", "tests"])
def test_no_function_is_longer_than_fifty_lines(folder: str) -> None:
    lengths = {
        f"{path.relative_to(ROOT)}: {node.name}": body_lines(node)
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert lengths
    assert {name: lines for name, lines in lengths.items() if lines > 50} == {}


def test_every_attack_states_problem_and_cost() -> None:
    for path in (SOURCE / "attacks").glob("[!_]*/[!_]*.py"):
        said = ast.get_docstring(ast.parse(path.read_text())) or ""
        assert "Cost:" in said, path.name


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_file_uses_global_random_numbers(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"torch\.(manual_seed|rand|randn|randint|randperm)\((?!.*generator=)", text), path.name
    assert not re.search(r"np\.random\.(seed|rand|randn|randint|permutation|shuffle)\(", text), path.name


def test_public_names() -> None:
    asked = ("AntiAdversary", "Linf", "L2", "Threat", "Access", "attack", "evaluate", "Store", "report", "models")
    assert {*asked, "data", "Resources"} <= set(antiadv.__all__)
    assert all(hasattr(antiadv, name) for name in antiadv.__all__)
    assert callable(antiadv.evaluate)
    assert callable(antiadv.report)


@pytest.mark.parametrize("name", [n for n in antiadv.__all__ if inspect.isfunction(getattr(antiadv, n))])
def test_every_public_function_has_an_example(name: str) -> None:
    """Which runs: doctests are collected with the tests."""
    assert ">>> " in (inspect.getdoc(getattr(antiadv, name)) or "")


def test_the_library_needs_none_of_the_command_lines_packages() -> None:
    """Training and evaluation run where only torch, numpy, safetensors and Pillow are installed."""
    code = (
        "import sys\n"
        "for name in ('typer', 'rich', 'scipy', 'matplotlib', 'jinja2', 'ray', 'pydantic'): sys.modules[name] = None\n"
        "import antiadv, antiadv.train, torch\n"
        "net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3)).eval()\n"
        "x = torch.rand(4, 3, 2, 2)\n"
        "print(antiadv.attack(net, x, net(x).argmax(1), 'pgd', antiadv.Linf(0.1)).robust_accuracy)\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_changelog_begins_with_unreleased_and_dates_every_release() -> None:
    """The version is that of the newest release, or a development version after it."""
    first, *releases = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first == "Unreleased"
    found = [re.fullmatch(r"(\d+\.\d+\.\d+) \((\d{4}-\d\d-\d\d)\)", release) for release in releases]
    assert None not in found, "a release is written: ## 0.2.0 (2026-12-01)"
    versions, dates = zip(*(match.groups() for match in found if match), strict=True)
    assert list(dates) == sorted(map(str, map(datetime.date.fromisoformat, dates)), reverse=True)
    coming, development, _ = antiadv.__version__.partition(".dev")
    assert coming not in versions if development else coming == versions[0]


def _heading(line: str) -> str:
    """What a link to a heading names it by."""
    return re.sub(r"[^\w\- ]", "", line.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_of_the_documentation_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        name, _, place = link.partition("#")
        if ":" in name:
            continue  # out into the world
        target = page.parent / name if name else page
        assert target.exists(), f"{link} leads nowhere"
        if place:
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            assert place in map(_heading, headings), f"{link} leads to no heading"


def test_pages_warn_of_the_settings_that_make_networks_weaker() -> None:
    """Those with which the paper's lower bound fails in what is stored, all of them and no others but the default."""
    setting, default = r"K = \d+, α = [\d./]*\d", "K = 2, α = 0.15"
    bound = claims(StoreIndex(Store(ROOT / "results")))[-1]
    failed = " ".join(check.line for check in bound.measured if not check.passes)
    for name in ("README.md", "docs/index.md", "docs/threat-models.md", "src/antiadv/defences/anti_adversary.py"):
        said = " ".join((ROOT / name).read_text().split())
        assert set(re.findall(setting, said)) - {default} == set(re.findall(setting, failed)), name


@pytest.mark.parametrize(
    "name",
    ["src/antiadv/cli/options.py", "docs/index.md", "docs/design/engine.md"],
)
def test_pages_agree_on_how_long_compiling_takes(name: str) -> None:
    assert "half a minute" in " ".join((ROOT / name).read_text().split())


@pytest.mark.parametrize("name", ["README.md", pytest.param("docs/index.md", marks=pytest.mark.slow)])
def test_code_blocks_of_the_documentation_run(name: str, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    script = tmp_path / "blocks.py"
    script.write_text("\n".join(blocks))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_pages_made_of_facts_are_up_to_date() -> None:
    script = [sys.executable, "-m", "tools.docs", "--check"]
    done = subprocess.run(script, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_tracked_files_stay_under_fifty_megabytes() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    total = sum((ROOT / name).stat().st_size for name in listed.stdout.split("\0") if name and (ROOT / name).exists())
    assert total < 50 * 2**20  # megabytes as `du` counts them; a call to a GPU machine takes 64 of them
