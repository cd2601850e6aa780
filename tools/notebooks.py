"""The tutorials in docs/tutorials: run the cells of a notebook, keep what they show, and make a page of it.

    python -m tools.notebooks        run all tutorials, and write what they show into them; then `make docs`
    run(notebook)                    the same for one, in memory: the notebook with new outputs, and its variables
    page(notebook, name)             a notebook as Markdown, for the site

The cells are plain Python. Jupyter runs them as well, and shows the same.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import io
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "tutorials"
NAMES = ("layer", "evaluation", "verdict", "deploy")

Notebook = dict[str, Any]


def read(name: str) -> Notebook:
    made: Notebook = json.loads((FOLDER / f"{name}.ipynb").read_text())
    return made


def code(notebook: Notebook) -> list[str]:
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run(notebook: Notebook) -> tuple[Notebook, dict[str, Any]]:
    """Run the cells in order, as a kernel would: what is printed is kept, and the value of a last expression."""
    made, names = copy.deepcopy(notebook), dict[str, Any]({"__name__": "__main__"})
    for number, cell in enumerate((c for c in made["cells"] if c["cell_type"] == "code"), 1):
        cell["execution_count"] = number
        cell["outputs"] = _outputs("".join(cell["source"]), names, number)
    return made, names


def _outputs(source: str, names: dict[str, Any], number: int) -> list[Notebook]:
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), "<cell>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    stream: Notebook = {"name": "stdout", "output_type": "stream", "text": printed.getvalue().splitlines(keepends=True)}
    found = [stream] if stream["text"] else []
    if value is not None:
        shown = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            shown["text/html"] = value._repr_html_().splitlines(keepends=True)
        found.append({"data": shown, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return found


def texts(notebook: Notebook) -> list[str]:
    """What each code cell shows, as plain text."""
    return ["\n".join(map(_plain, cell["outputs"])) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _plain(output: Notebook) -> str:
    return "".join(output.get("text") or output["data"]["text/plain"])


def page(notebook: Notebook, name: str) -> str:
    """Return the notebook as Markdown. HTML is that of our own reprs, which is escaped."""
    parts: list[str] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [_shown(output) for output in cell["outputs"]]
    title, *rest = parts
    note = f"This page is made from a notebook: [{name}.ipynb]({name}.ipynb)."
    return "\n\n".join([title, note, *rest]) + "\n"


def _shown(output: Notebook) -> str:
    rich = output.get("data", {}).get("text/html")
    return "".join(rich) if rich else f"```text\n{_plain(output).rstrip()}\n```"


def main() -> None:
    for name in NAMES:
        made, _ = run(read(name))
        text = json.dumps(made, indent=1, ensure_ascii=False) + "\n"
        (FOLDER / f"{name}.ipynb").write_text(text)
        print(f"wrote {name}.ipynb")


if __name__ == "__main__":
    main()
