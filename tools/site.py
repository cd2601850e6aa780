"""Build the documentation as a site that keeps a folder for each version. `make site` calls it.

    site/0.2/            the pages of one version; a development version is called dev
    site/versions.json   the versions that are there, newest first: the theme makes a menu of them
    site/index.html      sends a reader to the newest release, or to dev where there is none

Versions that lie in site/ already stay. So a web server that keeps the folder keeps them too. It needs no network, and
the layout is the one that mike writes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEV = "dev"


def folder_of(version: str) -> str:
    """
    >>> folder_of("0.2.1"), folder_of("0.2.0.dev0")
    ('0.2', 'dev')
    """
    return DEV if "dev" in version else ".".join(version.split(".")[:2])


def versions(site: Path) -> list[str]:
    """The versions that lie in a site: releases with the newest first, then dev."""
    found = [path.parent.name for path in site.glob("*/index.html")]
    releases = [name for name in found if re.fullmatch(r"\d+\.\d+", name)]
    newest_first = sorted(releases, key=lambda name: tuple(map(int, name.split("."))), reverse=True)
    return [*newest_first, *(name for name in found if name == DEV)]


def write_index(site: Path) -> None:
    """Write the list of versions, and the page that leads to the first of them."""
    found = versions(site)
    listed = [{"version": name, "title": name, "aliases": ["latest"] if name == found[0] else []} for name in found]
    (site / "versions.json").write_text(json.dumps(listed, indent=1) + "\n")
    (site / "index.html").write_text(
        f'<!doctype html>\n<meta charset="utf-8">\n<title>antiadv</title>\n'
        f'<meta http-equiv="refresh" content="0; url={found[0]}/">\n<a href="{found[0]}/">The documentation</a>\n'
    )


def build(config: Path, target: Path, python: str = sys.executable) -> int:
    """Build the pages; the exit code is 1 if a link is broken. With `--quiet`, mkdocs would not count its warnings."""
    command = [python, "-m", "mkdocs", "build", "--strict", "--config-file", str(config), "--site-dir", str(target)]
    return subprocess.run(command, cwd=config.parent).returncode


def main() -> int:
    text = (ROOT / "src" / "antiadv" / "__init__.py").read_text()
    version = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    assert version is not None
    target = ROOT / "site" / folder_of(version[1])
    code = build(ROOT / "mkdocs.yml", target)
    if code == 0:
        write_index(target.parent)
    return code


if __name__ == "__main__":
    sys.exit(main())
