"""The entry point of the command line: `antiadv`, and `python -m antiadv` where the script is not on the path.

It imports next to nothing itself, so that Ctrl-C ends it in one line from the first moment on.
"""

import sys

from antiadv.cli.start import STOPPED, share_processors, stoppable_at_once


def main() -> int:
    """Run the verb that the command line names; the exit code."""
    share_processors()
    try:
        with stoppable_at_once():
            from antiadv.cli.__main__ import main as run
        return run()
    except KeyboardInterrupt:
        print("antiadv: stopped", file=sys.stderr)  # noqa: T201
        return STOPPED


if __name__ == "__main__":
    sys.exit(main())
