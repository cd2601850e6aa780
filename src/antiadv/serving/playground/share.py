"""An attack as one HTML file: pictures, bars and the margin curve, without scripts and without requests.

share(story)    the JSON of a story  →  the text of the file
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any  # a story, as JSON

from antiadv import __version__

WIDTH, HEIGHT = 640, 180  # of the curve, in its own units
DRAWN = 1000  # points of a curve at most: more cannot be seen

STYLE = """
:root { color-scheme: light dark; --back: #fff; --ink: #1b1f24; --soft: #57606b; --line: #d5dbe1; --f: #1c5cb8;
  --g: #8a4bb5; --good: #17703f; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --back: #14171b; --ink: #e4e7ea; --soft: #a0a9b3; --line: #363d46;
  --f: #85b7ff; --g: #d3a4f5; --good: #6fce97; --bad: #ff8a80; } }
body { margin: 0 auto; padding: 1rem; max-width: 60rem; background: var(--back); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; }
.row { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 12rem)); gap: 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(16rem, 1fr)); gap: 1.5rem; margin: 1rem 0; }
figure { margin: 0; } img { width: 100%; max-width: 12rem; image-rendering: pixelated; border-radius: 4px; }
figcaption, .soft { color: var(--soft); font-size: .9rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; } caption { text-align: left; font-weight: 600; }
th { text-align: right; font-weight: normal; padding-right: .5rem; width: 6rem; } th.label { font-weight: 600; }
td:last-child { width: 4rem; text-align: right; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; } rect { fill: var(--soft); } .good { fill: var(--good); } .bad { fill: var(--bad); }
.axis { stroke: var(--line); } .each { fill: none; stroke: var(--f); opacity: .45; }
.best { fill: none; stroke: var(--g); stroke-width: 2; } text { fill: var(--soft); font-size: 11px; }
"""


def share(story: dict[str, Any]) -> str:
    parts = [f"<h1>{escape(story['title'])}</h1>", f"<p>{escape(story['sentence'])}</p>"]
    parts.append("<h2>The clean image</h2>" + _frame(story, story["clean"], clean=True))
    for track in story["tracks"]:
        if track["frame"] is None:
            continue
        parts.append(f"<h2>{escape(track['attack'])}</h2><p>{escape(track['sentence'])}</p>")
        parts.append(_frame(story, track["frame"]) + _curve(track))
    parts.append(f'<p class="soft">Made by antiadv {escape(__version__)}, antiadv play.</p>')
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">"
        f"<title>{escape(story['title'])}</title><style>{STYLE}</style></head><body>{''.join(parts)}</body></html>"
    )


def _frame(story: dict[str, Any], frame: dict[str, Any], clean: bool = False) -> str:
    pictures = [_picture(frame["image"], "the clean image" if clean else "the image that was sent")]
    if not clean:
        far = f"the change, times {frame['factor']:g}; at most {frame['distance']:g}/255"
        pictures.append(_picture(frame["change"], far))
    bars = _bars(story, "f, the bare network", frame["f"]) + _bars(story, "g, with its defence", frame["g"])
    return f'<div class="row">{"".join(pictures)}</div><div class="pair">{bars}</div>'


def _picture(source: str, caption: str) -> str:
    alt = escape(caption, quote=True)
    return f'<figure><img src="{escape(source, quote=True)}" alt="{alt}"><figcaption>{alt}</figcaption></figure>'


def _bars(story: dict[str, Any], caption: str, odds: Sequence[float]) -> str:
    top, rows = max(odds), []
    for k, p in enumerate(odds):
        label = ' class="label"' if k == story["label"] else ""
        colour = "good" if k == story["label"] else "bad" if p == top else ""
        bar = f'<svg viewBox="0 0 100 8" preserveAspectRatio="none" height="10"><rect class="{colour}" '
        bar += f'width="{100 * p:.1f}" height="8"/></svg>'
        rows.append(f"<tr><th{label}>{escape(_called(story, k))}</th><td>{bar}</td><td>{p:.1%}</td></tr>")
    return f"<table><caption>{escape(caption)}</caption>{''.join(rows)}</table>"


def _called(story: dict[str, Any], k: int) -> str:
    return str(story["classes"][k]) if k < len(story["classes"]) else f"class {k}"


def _curve(track: dict[str, Any]) -> str:
    points = track["points"]
    if len(points) < 2:
        return ""
    best, low = [], points[0][1]
    for sent, m in points:
        low = min(low, m)
        best.append((sent, low))
    bottom, top = min(0.0, low), max(0.0, *(m for _, m in points))
    last, span = points[-1][0], (top - bottom) or 1.0

    def place(line: Sequence[Sequence[float]]) -> str:
        every = -(-len(line) // DRAWN)
        shown = [*line[::every], line[-1]]
        return " ".join(f"{WIDTH * n / last:.1f},{HEIGHT * (top - m) / span:.1f}" for n, m in shown)

    zero = HEIGHT * top / span
    asked = escape(track["asked"])
    caption = f"The margin of {asked} over {last} images sent to {asked}: at each, and the lowest so far. Below 0 "
    return (
        f'<figure><svg viewBox="-4 -8 {WIDTH + 8} {HEIGHT + 16}" role="img" aria-label="margin curve">'
        f'<line class="axis" x1="0" x2="{WIDTH}" y1="{zero:.1f}" y2="{zero:.1f}"/>'
        f'<polyline class="each" points="{place(points)}"/><polyline class="best" points="{place(best)}"/>'
        f'<text x="0" y="{zero - 3:.1f}">0</text><text x="0" y="4">{top:.1f}</text></svg>'
        f"<figcaption>{caption}{asked} is wrong.</figcaption></figure>"
    )
