"""The verbs, and what happens when one fails: one line and exit code 2 for bad input, 130 for Ctrl-C.

antiadv demo | attack | evaluate | report | reproduce | verdict | theory | train | data import | list
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import typer

import antiadv
from antiadv import __version__
from antiadv.cli import attack, catalogue, data, demo, evaluate, report, reproduce, show, theory, train, verdict
from antiadv.core.errors import AntiadvError

# typer may stand on click or on a copy of its own: this is whichever it raises for a wrong command line
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]

HERE = Path(antiadv.__file__).parent
STOPPED = 130  # what typer too makes of Ctrl-C: 128 and the number of the signal

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
VERBS = {
    "demo": demo,
    "attack": attack,
    "evaluate": evaluate,
    "report": report,
    "reproduce": reproduce,
    "verdict": verdict,
    "theory": theory,
    "train": train,
    "list": catalogue,
}
for _name, _verb in VERBS.items():
    app.command(_name)(show.apart()(_verb.command))
app.add_typer(data.app, name="data")


def _version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print it.")) -> None:
    """The anti-adversary layer, and the test bench that tells what it is worth."""


def main(args: list[str] | None = None) -> int:
    """Run a verb; the exit code. Also the entry point of the `antiadv` script."""
    args = sys.argv[1:] if args is None else args
    with warnings.catch_warnings():
        warnings.showwarning = _in_one_line(warnings.showwarning)
        return _run(args)


def _run(args: list[str]) -> int:
    try:
        code: int = app(args, standalone_mode=False) or 0
    except (KeyboardInterrupt, typer.Abort):
        code = STOPPED
    except AntiadvError as error:
        if "--debug" in args:
            raise
        return _say(" ".join(str(error).split()), 2)
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a verb was left out: its text is the help
            print(error.format_message())  # type: ignore[attr-defined]
            return 0
        return _say(" ".join(error.format_message().split()), 2)  # type: ignore[attr-defined]
    if code == STOPPED:
        return _say("stopped; what was finished is kept, and the same command goes on from there", code)
    return code


def _in_one_line(show: Callable[..., None]) -> Callable[..., None]:
    """Our own warnings as our errors are said; other people's as ever."""

    def warn(message: Warning | str, category: type[Warning], filename: str, *more: object) -> None:
        if Path(filename).is_relative_to(HERE):
            print(f"antiadv: {' '.join(str(message).split())}", file=sys.stderr)
        else:
            show(message, category, filename, *more)

    return warn


def _say(sentence: str, code: int) -> int:
    print(f"antiadv: {sentence}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
