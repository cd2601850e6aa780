"""The measured parts of docs/export.md and docs/serving.md, from `results/bench`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any  # what a JSON file holds

from tools.docs.markdown import not_run_yet, replace_part, table, wrap, yes_or_no

Facts = dict[str, Any]


def export_page(root: Path) -> str:
    return replace_part(root / "docs" / "export.md", "latency", latency_part(_read(root, "export-latency-cpu")))


def serving_page(root: Path) -> str:
    return replace_part(root / "docs" / "serving.md", "load", load_part(_read(root, "serve-load-cpu")))


def _read(root: Path, name: str) -> Facts | None:
    path = root / "results" / "bench" / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def latency_part(found: Facts | None) -> str:
    """What an exported layer costs: a table with a line for each number of threads and images."""
    if found is None:
        return not_run_yet(["benchmarks.export_latency"])[0]
    limits, steps = found["verdict"], found["steps"]
    rows = [
        {"threads": str(run["threads"]), "images": str(run["batch"])}
        | {f"{side}, ms": f"{ms:.2f}" for side, ms in run["minimum_ms"].items()}
        | {
            "times the floor": f"{run['times_the_floor']:.2f}",
            f"≤ {limits['floor']:g}": yes_or_no(run["times_the_floor"] <= limits["floor"]),
            "faster than eager": f"{run['faster_than_eager']:.1f}",
        }
        for run in found["runs"]
    ]
    checked = found["checks"]["layer"]
    said = (
        f"The network is `{found['model']}` (weights {_short(found['weights'])}) with K = {steps}; times are minima of "
        f"{found['repeats']} interleaved calls (a quarter of them for 64 images). The floor is {2 * steps + 1} passes "
        f"of the bare ONNX file. With one image the file must be {limits['faster']:g} times as fast as the eager "
        f"layer; that is {'met' if limits['fast'] else '**not met**'}. The file was compared with PyTorch on "
        f"{checked['images']} images: {checked['same_labels']} labels are equal."
    )
    return f"{wrap(said)}\n\n{table(rows)}\n`{found['command']}`\n"


def load_part(found: Facts | None) -> str:
    """The server under load: a table with a line for each target."""
    if found is None:
        return not_run_yet(["benchmarks.serve_load"])[0]
    engine, verdict, memory = found["engine"], found["verdict"], found["memory"]["mebibytes"]
    p99, overload = found["open"]["milliseconds"]["p99"], found["overload"]["statuses"]
    answered = {name: sum(found[name]["statuses"].values()) for name in ("closed", "open", "plain")}
    lines = [
        (
            f"rows per second of 64 clients, one row each (n = {answered['closed']:,})",
            f"{found['closed']['rows_per_second']:.0f}, {100 * verdict['share_of_engine']:.0f} % of the engine's",
            "85 %",
            verdict["throughput"],
        ),
        (
            f"99th percentile at 70 % load (n = {answered['open']:,})",
            f"{p99:.0f} ms, {verdict['p99_in_batches']:.1f} times a batch",
            "below 3 times",
            verdict["latency"],
        ),
        (
            f"memory over {found['memory']['minutes']:g} minutes",
            f"{memory[0]:.0f} MiB at first, {memory[5]:.0f} half-way, {memory[-1]:.0f} at the end",
            "flat in the second half",
            verdict["memory"],
        ),
        (
            "four times as many clients, a short queue",
            ", ".join(f"{n:,} answers {status}" for status, n in overload.items()),
            "200 and 503 only",
            verdict["overload"],
        ),
        ("after the overload", "answers 200 only" if verdict["recovers"] else "refusals", "200", verdict["recovers"]),
    ]
    rows = [
        dict(zip(("what", "found", "target", "met"), (*line[:3], yes_or_no(line[3])), strict=True)) for line in lines
    ]
    said = (
        f"Measured with the backend `{found['backend']}`, the weights {_short(found['weights'])} and batches of "
        f"{engine['batch']} ({1e3 * engine['seconds']:.0f} ms each, the fastest size), on {found['machine']['cores']} "
        f"cores, clients included. An endpoint without batches answers {found['plain']['rows_per_second']:.0f} rows "
        f"per second of the same clients (n = {answered['plain']:,}): this server is {verdict['times_plain']:.1f} "
        "times as fast."
    )
    return f"{wrap(said)}\n\n{table(rows)}\n`{found['command']}`\n"


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:8]
