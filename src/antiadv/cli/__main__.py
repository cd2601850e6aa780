"""The commands and their exit codes: 0, 2 after an error message of one line, 130 after Ctrl-C, 143 after SIGTERM.

Commands import torch and the library when they run, so that help and version are quick.

The table `VERBS` lists them.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import typer

import antiadv
from antiadv import __version__
from antiadv.cli import (
    attack,
    catalogue,
    certify,
    check,
    data,
    demo,
    evaluate,
    export,
    league,
    options,
    play,
    report,
    reproduce,
    serve,
    start,
    theory,
    train,
    tune,
    verdict,
)
from antiadv.cli.start import ENDED, STOPPED
from antiadv.core.errors import AntiadvError, Suspicious
from antiadv.core.printable import printable
from antiadv.core.signals import handling

# the error for a wrong command line, from click or from the copy of click inside typer
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]

LONG_WORD = re.compile(r"(\S{100})\S{300,}(\S{100})")
PACKAGE = Path(antiadv.__file__).parent
RESUME = "finished work is kept, and the same command continues from there"
RESUMED = {"demo", "evaluate", "reproduce", "verdict", "certify", "league", "train"}  # the commands that keep work

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
VERBS = {
    "demo": demo,
    "check": check,
    "attack": attack,
    "evaluate": evaluate,
    "report": report,
    "reproduce": reproduce,
    "verdict": verdict,
    "certify": certify,
    "serve": serve,
    "tune": tune,
    "league": league,
    "play": play,
    "theory": theory,
    "train": train,
    "export": export,
    "list": catalogue,
}
for _name, _verb in VERBS.items():
    app.command(_name)(start.verb(_verb.command))
app.add_typer(data.app, name="data")


def _version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """The anti-adversary layer, and a test bench for adversarial robustness."""


def main(args: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    args = options.spelled_out(sys.argv[1:] if args is None else args)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # prints ? for a letter that the terminal lacks
    with warnings.catch_warnings(), _ending():
        warnings.showwarning = _in_one_line(warnings.showwarning)
        warnings.simplefilter("always", Suspicious)
        return _run(args)


def _run(args: list[str]) -> int:
    kept = f"; {RESUME}" if args and args[0] in RESUMED else ""
    try:
        code: int = app(args, standalone_mode=False) or 0
        if sys.stdout is not None:
            sys.stdout.flush()  # an error here is reported below, not by the interpreter at exit
    except (KeyboardInterrupt, typer.Abort):
        code = STOPPED
    except _Ended:
        code = ENDED
    except AntiadvError as error:
        if "--debug" in args:
            raise
        return _fail(str(error), 2)
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # no command was given: the message is the help
            print(error.format_message())  # type: ignore[attr-defined]
            return 0
        return _fail(error.format_message(), 2)  # type: ignore[attr-defined]
    except OSError as error:  # such as a full disk or too many open files
        if "--debug" in args:
            raise
        _discard_stdout()
        if isinstance(error, BrokenPipeError):  # the reader is gone, as with `| head`
            return 1
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}{kept}; --debug shows the traceback.", 2)
    return _fail(f"stopped{kept}", code) if code in (STOPPED, ENDED) else code


class _Ended(BaseException):
    """Raised on SIGTERM. typer converts KeyboardInterrupt, and a network may raise SystemExit: so neither is used."""


@contextlib.contextmanager
def _ending() -> Iterator[None]:
    """Make SIGTERM, which batch systems send before they kill, end a command as Ctrl-C does."""

    def end(*_: object) -> None:
        raise _Ended

    with handling({signal.SIGTERM: end}):
        yield


def _discard_stdout() -> None:
    """Drop the buffer of stdout if it cannot be written, or the interpreter would try again at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
        return
    with contextlib.suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _in_one_line(show: Callable[..., None]) -> Callable[..., None]:
    """Print warnings of this package in one line, like its errors; leave other warnings alone."""

    def warn(message: Warning | str, category: type[Warning], filename: str, *more: object) -> None:
        if Path(filename).is_relative_to(PACKAGE):
            _fail(str(message), 0)
        else:
            show(message, category, filename, *more)

    return warn


def _fail(message: str, code: int) -> int:
    """Print one line without control codes, with the middle of very long words cut, and return the exit code."""
    short = LONG_WORD.sub(r"\1…\2", printable(" ".join(message.split())))
    print(f"antiadv: {short}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
