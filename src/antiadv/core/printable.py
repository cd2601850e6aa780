"""Texts that may come from a stranger, made harmless for where they are shown. What is stored is never changed.

    printable(text)      no control codes: a terminal obeys them, and a line break ends a line of a table
    in_markdown(text)    the same, and nothing that Markdown takes for HTML, a link or a picture
    in_table(text)       the same, in a table, where a bar would end the column
    in_csv(text)         the same as printable, and nothing that a spreadsheet takes for a formula

HTML and LaTeX have their own escapes, in `reporting/render/html.py` and `latex.py`.
"""

from __future__ import annotations

import re
import unicodedata

# control codes, invisible marks such as those that turn the direction of writing, and line separators
_UNSEEN = {"Cc", "Cf", "Zl", "Zp"}
_OPENING = re.compile(r"<(?=[A-Za-z/!?])")
_LINK = re.compile(r"\](?=[(\[:])")
_FORMULA = ("=", "+", "-", "@")


def printable(text: str) -> str:
    r"""Characters that are not seen but obeyed become their escapes; a text without any stays as it is.

    >>> printable("a\x1b[31mb\u202ec"), printable("α = 8/255")
    ('a\\x1b[31mb\\u202ec', 'α = 8/255')
    """
    if text.isprintable():
        return text
    return "".join(repr(c)[1:-1] if unicodedata.category(c) in _UNSEEN else c for c in text)


def in_markdown(text: str) -> str:
    """
    >>> in_markdown("<script>"), in_markdown("p < 0.05"), in_markdown("![x](http://y)"), in_markdown("[1, 2] (3)")
    ('&lt;script>', 'p < 0.05', '![x&#93;(http://y)', '[1, 2] (3)')
    """
    return _LINK.sub("&#93;", _OPENING.sub("&lt;", printable(text)))


def in_table(text: str) -> str:
    r"""
    >>> in_table("a|b")
    'a\\|b'
    """
    return in_markdown(text).replace("|", "\\|")


def in_csv(text: str) -> str:
    r"""
    >>> in_csv("=1+1"), in_csv("\t=1"), in_csv("compact:trades"), in_csv("–")
    ("'=1+1", '\\t=1', 'compact:trades', '–')
    """
    plain = printable(text)
    return f"'{plain}" if plain.lstrip().startswith(_FORMULA) else plain
