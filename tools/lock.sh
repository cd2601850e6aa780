#!/usr/bin/env bash
# Write requirements-dev.lock: every package of the development environment with its hashes, except torch.
# Usage: tools/lock.sh        needs `uv` on the path (pip install uv) and access to a package index
set -euo pipefail
cd "$(dirname "$0")/.."

header="# The development environment with hashes, for Python 3.11 to 3.13. Made by tools/lock.sh; do not edit.
#
# torch is not in this file. It comes as a CPU build or a CUDA build, and each build has its own hash.
# The packages that only torch needs (fsspec, networkx, on Linux the CUDA libraries) are left out with it.
#
#     pip install --require-hashes --no-deps -r requirements-dev.lock
#     pip install --constraint constraints.txt torch
#     pip install --no-deps --editable .
"
# the override names a Python that does not exist, so torch is dropped from the resolution
locked=$(uv pip compile pyproject.toml --extra dev --constraint constraints.txt --universal --python-version 3.11 \
    --overrides <(echo "torch ; python_version < '3'") --generate-hashes --no-header --no-annotate --quiet)
printf '%s\n%s\n' "$header" "$locked" > requirements-dev.lock
