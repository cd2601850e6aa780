"""`python -m antiadv`: the command line, where the script `antiadv` is not on the path."""

import sys

from antiadv.cli.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
