"""The verbs, and what happens when one fails: one line and exit code 2 for bad input, 130 for Ctrl-C, 143 for SIGTERM.

Verbs import torch and the library inside their commands, so that help and version are quick.

antiadv demo | attack | evaluate | report | reproduce | verdict | theory | train | data import | list
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import typer

import antiadv
from antiadv import __version__
from antiadv.cli import attack, catalogue, data, demo, evaluate, report, reproduce, start, theory, train, verdict
from antiadv.cli.start import ENDED, STOPPED
from antiadv.core.errors import AntiadvError
from antiadv.core.printable import printable

# typer may stand on click or on a copy of its own: this is whichever it raises for a wrong command line
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]

LONG_WORD = re.compile(r"(\S{100})\S{300,}(\S{100})")
HERE = Path(antiadv.__file__).parent

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
    app.command(_name)(start.verb(_verb.command))
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
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a ? in a table where the terminal lacks a letter
    with warnings.catch_warnings(), _ending():
        warnings.showwarning = _in_one_line(warnings.showwarning)
        return _run(args)


def _run(args: list[str]) -> int:
    try:
        code: int = app(args, standalone_mode=False) or 0
        if sys.stdout is not None:
            sys.stdout.flush()  # what cannot be written is said below, not by the interpreter at its end
    except (KeyboardInterrupt, typer.Abort):
        code = STOPPED
    except _Ended:
        code = ENDED
    except AntiadvError as error:
        if "--debug" in args:
            raise
        return _say(" ".join(str(error).split()), 2)
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a verb was left out: its text is the help
            print(error.format_message())  # type: ignore[attr-defined]
            return 0
        return _say(" ".join(error.format_message().split()), 2)  # type: ignore[attr-defined]
    except OSError as error:  # of the machine, not of ours: a full disk behind stdout, too many open files
        if "--debug" in args:
            raise
        _let_go_of_stdout()
        if isinstance(error, BrokenPipeError):  # `| head`, which has seen enough
            return 1
        where = f"{error.filename}: " if error.filename else ""
        kept = "what was finished is kept, and the same command goes on from there"
        return _say(f"{where}{error.strerror or error}; {kept}. --debug shows where it was raised.", 2)
    if code in (STOPPED, ENDED):
        return _say("stopped; what was finished is kept, and the same command goes on from there", code)
    return code


class _Ended(BaseException):
    """SIGTERM came. No KeyboardInterrupt, of which typer makes its own; no SystemExit, which a network may raise."""


@contextlib.contextmanager
def _ending() -> Iterator[None]:
    """SIGTERM, which batch systems send before they kill, ends a verb as Ctrl-C does: workers, display and all."""

    def end(*_: object) -> None:
        raise _Ended

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _let_go_of_stdout() -> None:
    """What is left in its buffer goes nowhere, or the interpreter would try once more at its end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
        return
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _in_one_line(show: Callable[..., None]) -> Callable[..., None]:
    """Our own warnings as our errors are said; other people's as ever."""

    def warn(message: Warning | str, category: type[Warning], filename: str, *more: object) -> None:
        if Path(filename).is_relative_to(HERE):
            print(f"antiadv: {printable(' '.join(str(message).split()))}", file=sys.stderr)
        else:
            show(message, category, filename, *more)

    return warn


def _say(sentence: str, code: int) -> int:
    """One line, without control codes and without the middle of a word that fills a screen."""
    short = LONG_WORD.sub(r"\1…\2", printable(sentence))
    print(f"antiadv: {short}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
