"""Write requirements-dev.lock: every package of the development environment with its hashes, except torch.

    python -m tools.lock        needs `uv` on the path (pip install uv) and access to a package index

Only wheels for Python 3.11 to 3.13 on 64-bit Linux, macOS and Windows are listed; the others would triple the file. A
package without wheels is listed with its source archive.
"""

from __future__ import annotations

import subprocess
import tempfile
import tomllib
from pathlib import Path
from typing import Any  # what a TOML file holds

from packaging.utils import parse_wheel_filename

ROOT = Path(__file__).resolve().parents[1]
INTERPRETERS = {"py3", "cp311", "cp312", "cp313"}
SYSTEMS = ("any", "manylinux", "macosx", "win_amd64")
MACHINES = ("any", "x86_64", "aarch64", "arm64", "universal2", "amd64")
HEADER = """\
# The development environment with hashes, for Python 3.11 to 3.13 on 64-bit Linux, macOS and Windows.
# Made by `python -m tools.lock`; do not edit.
#
# torch is not in this file. It comes as a CPU build or a CUDA build, and each build has its own hash.
# The packages that only torch needs (fsspec, networkx, on Linux the CUDA libraries) are left out with it.
#
#     pip install --require-hashes --no-deps -r requirements-dev.lock
#     pip install --constraint constraints.txt torch
#     pip install --no-deps --editable .
"""


def resolve(folder: Path) -> list[dict[str, Any]]:
    """Return the packages that uv finds, with all their files."""
    without_torch, found = folder / "overrides.txt", folder / "pylock.toml"
    without_torch.write_text("torch ; python_version < '3'\n")  # no such Python, so torch is dropped
    words = "uv pip compile pyproject.toml --extra dev --constraint constraints.txt --universal --python-version 3.11"
    more = ["--overrides", str(without_torch), "--format", "pylock.toml", "--quiet", "-o", str(found)]
    subprocess.run([*words.split(), *more], cwd=ROOT, check=True)
    packages: list[dict[str, Any]] = tomllib.loads(found.read_text())["packages"]
    return packages


def is_wanted(wheel: str) -> bool:
    """Return whether an interpreter and a system of the lock file can install the wheel with this file name.

    >>> is_wanted("a-1-py3-none-any.whl"), is_wanted("a-1-cp310-cp310-win_amd64.whl")
    (True, False)
    """
    tags = parse_wheel_filename(wheel)[3]
    return any(
        (tag.abi == "abi3" or (tag.interpreter in INTERPRETERS and not tag.abi.endswith("t")))
        and tag.platform.startswith(SYSTEMS)
        and tag.platform.endswith(MACHINES)
        for tag in tags
    )


def lines(package: dict[str, Any]) -> str:
    """Return the entry of one package: its version, when it is needed, and the hashes of its files."""
    wheels = [w for w in package.get("wheels", []) if is_wanted(w.get("name") or w["url"].rpartition("/")[2])]
    files = wheels or [package["sdist"]]
    marker = package.get("marker", "").replace("python_full_version >= '3.11' and ", "")
    needed = f" ; {marker}" if marker and marker != "python_full_version >= '3.11'" else ""
    hashes = [f"    --hash=sha256:{h}" for h in sorted({f["hashes"]["sha256"] for f in files})]
    return " \\\n".join([f"{package['name']}=={package['version']}{needed}", *hashes])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        packages = resolve(Path(folder))
    (ROOT / "requirements-dev.lock").write_text("\n".join([HEADER, *map(lines, packages)]) + "\n")


if __name__ == "__main__":
    main()
