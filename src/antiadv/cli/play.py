"""`antiadv play`: a page on this machine on which one image is attacked while you watch."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from antiadv.cli import options, show


def command(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 chooses a free one.")] = 8001,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
    model: Annotated[
        str | None,
        typer.Option("--model", help="Your own network, such as mine:make.", show_default="those of antiadv"),
    ] = None,
    data: options.Data = "cifar10",
    device: options.Device = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Attack an image in the browser, and watch.

    The page is served on this machine only, until Ctrl-C.
    """
    from antiadv.evaluation import Resources
    from antiadv.serving.playground.choices import Choices
    from antiadv.serving.playground.run import play

    resources = Resources(device)
    choices = Choices(images=resources.data(data))
    if model is not None:
        resources.model(model)  # its errors come before the page
        choices = Choices((model,), choices.images)

    def ready(url: str) -> None:
        if json:
            show.print_json({"url": url})
        else:
            print(f"The playground is at {url}; Ctrl-C ends it.", flush=True)
        if not no_open:
            webbrowser.open(url)

    play(port, device, ready, choices)
