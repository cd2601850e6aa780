"""For `make site`: show the examples of docstrings as code. Read by mkdocstrings, named in mkdocs.yml."""

from __future__ import annotations

from typing import Any

from griffe import Extension, Object


class FenceDoctests(Extension):  # type: ignore[misc]
    """Put a fence around each example, which would otherwise be a quotation in Markdown."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Fence the examples of a docstring: from a line with `>>>` to the next empty line.

    >>> fenced("Adds.\\n\\n>>> 1 + 1\\n2\\n\\nEnd.").splitlines()
    ['Adds.', '', '```pycon', '>>> 1 + 1', '2', '```', '', 'End.']
    """
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith(">>>") and not inside:
            lines.append("```pycon")
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)
