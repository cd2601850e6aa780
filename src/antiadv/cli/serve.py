"""`antiadv serve`: answer requests over HTTP, with the Open Inference Protocol."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from antiadv.cli import options
from antiadv.core.errors import BadInput

MIB = 2**20


def command(
    bundle: Annotated[Path | None, typer.Argument(help="Folder written by antiadv export.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Network instead of a bundle, such as compact:trades.")
    ] = None,
    defence: options.Defence = "anti_adversary",
    shape: Annotated[str, typer.Option("--shape", help="Shape of one image, for --model.")] = "3,32,32",
    backend: Annotated[
        str, typer.Option("--backend", help="For --model: auto, eager, or graph (captured CUDA graphs).")
    ] = "auto",
    device: Annotated[
        str | None, typer.Option("--device", help="For --model: cpu, cuda, or several: cuda:0,cuda:1.")
    ] = None,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Threads of the passes on a CPU.")] = None,
    name: Annotated[str, typer.Option("--name", help="Name of the model in requests.")] = "",
    host: Annotated[str, typer.Option("--host", help="Address to listen at; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 chooses a free one.")] = 8000,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Largest number of rows in one pass.")] = 32,
    wait_ms: Annotated[float, typer.Option("--wait-ms", help="How long a row waits for others.")] = 2.0,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Largest number of rows in a request (413).")] = 256,
    queue: Annotated[int, typer.Option("--queue", min=1, help="Largest number of rows that wait (503).")] = 512,
    body_mb: Annotated[int, typer.Option("--body-mb", min=1, help="Largest body in MiB (413).")] = 64,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds until a request must be answered (504).")] = 60.0,
    drain: Annotated[float, typer.Option("--drain", help="Seconds between SIGTERM and the end of listening.")] = 0.5,
    keys: Annotated[
        Path | None,
        typer.Option("--keys", help="File of API keys: NAME SHA256 [QUERIES]. Or the same in ANTIADV_KEYS."),
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", help="File in which spent queries survive a restart.")
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Open a bundle whose format can run code of its maker.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log events, not each request.")] = False,
    runner: Annotated[str, typer.Option("--runner", help="local, ray, or ray:ADDRESS for a cluster.")] = "local",
    replicas: Annotated[str, typer.Option("--replicas", help="With ray: 2, or 1:8 for autoscaling.")] = "1",
    debug: options.Debug = False,
) -> None:
    """Answer requests with a defended network over HTTP.

    Serves a bundle, or a network and a defence by name, until SIGTERM.
    """
    from antiadv.serving import logs, serve
    from antiadv.serving.limits import Limits
    from antiadv.serving.source import Source

    kind, _, address = runner.partition(":")
    if kind not in ("local", "ray") or (kind == "local" and address):
        raise BadInput(f"--runner is local, ray or ray:ADDRESS here; found {runner!r}.")
    if kind == "ray" and ledger is not None:
        raise BadInput("--ledger is a file of one process; leave it out with --runner ray.")
    devices = tuple(device.split(",")) if device else ()
    named = defence if model else "none"
    source = Source(bundle, model or "", named, _shape(shape), backend, devices, threads, name, trust)
    limits = Limits(
        batch,
        wait_ms / 1e3,
        rows,
        max(queue, rows),
        body_mb * MIB,
        max(512, body_mb) * MIB,
        answer=timeout,
        drain=drain,
    )
    read = partial(serve.read_keys, keys, os.environ.get("ANTIADV_KEYS"), ledger)
    if kind == "local":
        serve.serve(source, limits, read, host, port, logs.to(), quiet)
        return
    from antiadv.serving import on_ray

    many = on_ray.parse_replicas(replicas)
    on_ray.serve_on_ray(source, limits, read(), host, port, address or None, many, logs.to(), quiet)


def _shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(word) for word in text.split(","))
    except ValueError:
        shape = ()
    if not shape or not all(0 < n < 2**20 for n in shape):
        raise BadInput(f"--shape is the shape of one image, such as 3,32,32; found {text!r}.")
    return shape
