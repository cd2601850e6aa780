"""API keys: only digests are stored, wrong keys are refused, and budgets are counted in rows and kept."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from antiadv.core.errors import BadInput
from antiadv.serving.keys import Key, Keys, digest
from antiadv.serving.limits import Refused
from antiadv.serving.serve import read_keys

TEXT = f"""
# clients
ann {digest("ann's key")} 10
bob {digest("bob's key")}   # no limit
"""


def status(call: object, *args: object) -> int:
    with pytest.raises(Refused) as caught:
        call(*args)  # type: ignore[operator]
    return caught.value.status


def test_a_key_names_its_client_and_other_keys_are_refused() -> None:
    keys = Keys.read(TEXT)
    assert (keys.client("ann's key"), keys.client("bob's key")) == ("ann", "bob")
    for wrong in (None, "", "ann", digest("ann's key"), "é" * 1000):
        assert status(keys.client, wrong) == 401


def test_a_budget_counts_rows_and_charges_nothing_beyond_it() -> None:
    keys = Keys.read(TEXT)
    keys.charge("ann", 7)
    assert status(keys.charge, "ann", 4) == 429
    keys.charge("ann", 3)
    assert status(keys.charge, "ann", 1) == 429
    keys.charge("bob", 10**9)
    assert keys.spent == {"ann": 10, "bob": 10**9}


def test_without_keys_everyone_may_ask() -> None:
    keys = Keys.read("")
    assert not keys
    assert keys.client(None) is None
    keys.charge(None, 10**9)


def test_the_ledger_survives_a_restart(tmp_path: Path) -> None:
    ledger = tmp_path / "spent.json"
    keys = Keys.read(TEXT, ledger)
    keys.charge("ann", 9)
    keys.save()
    again = Keys.read(TEXT, ledger)
    assert status(again.charge, "ann", 2) == 429
    again.charge("ann", 1)
    assert json.loads(ledger.read_text()) == {"ann": 9, "bob": 0}


def test_renewed_keys_keep_what_was_spent() -> None:
    keys = Keys.read(TEXT)
    keys.charge("ann", 10)
    keys.charge("bob", 4)
    keys.renew(Keys.read(f"ann {digest('a new key')} 12\ncid {digest('c')} 1"))
    assert status(keys.client, "ann's key") == status(keys.client, "bob's key") == 401
    assert keys.client("a new key") == "ann"
    keys.charge("ann", 2)
    assert status(keys.charge, "ann", 1) == 429
    keys.charge("cid", 1)
    assert status(keys.check, "bob", 1) == 401  # its request was under way
    keys.renew(Keys.read(TEXT))
    assert status(keys.charge, "ann", 1) == 429  # 12 were spent, and 10 are the budget again
    assert keys.spent == {"ann": 12, "bob": 4, "cid": 1}


@pytest.mark.parametrize("text", ["ann", "ann abc", f"ann {'a' * 64} -3", f"a/b {'a' * 64}", f"ann {'a' * 64} 1 2"])
def test_a_bad_line_is_named(text: str) -> None:
    with pytest.raises(BadInput, match="line 1"):
        Keys.read(text)


def test_an_empty_key_is_refused_in_a_file_and_never_matches(tmp_path: Path) -> None:
    text = f"admin {digest('')}"
    (tmp_path / "keys").write_text(text)
    for path, given in ((tmp_path / "keys", None), (None, text)):
        with pytest.raises(BadInput, match="line 1 of the keys has the digest of an empty key"):
            read_keys(path, given, None)
    keys = Keys([Key("admin", digest(""))])
    assert status(keys.client, None) == status(keys.client, "") == 401


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs sha256sum")
def test_the_recipe_of_the_page_makes_a_key_that_is_taken(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "serving.md"
    lines = page.read_text().partition("## Keys")[2].partition("```sh\n")[2].partition("antiadv serve")[0]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", lines], cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=True
    )
    keys = read_keys(tmp_path / "keys.txt", None, None)
    assert keys.client(done.stdout.strip()) == "ann"
    assert status(keys.charge, "ann", 10_001) == 429


def test_a_name_twice_is_refused() -> None:
    with pytest.raises(BadInput):
        Keys.read(f"ann {digest('1')}\nann {digest('2')}")


@pytest.mark.parametrize(
    "text", ["", "[]", '{"ann": -1}', '{"ann": "all"}', "[" * 100_000, '{"ann": ' + "9" * 5000 + "}"]
)
def test_a_strange_ledger_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "spent.json").write_text(text)
    with pytest.raises(BadInput):
        Keys.read(TEXT, tmp_path / "spent.json")


def test_keys_come_from_a_file_or_from_a_text(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(TEXT)
    assert read_keys(tmp_path / "keys", None, None).client("ann's key") == "ann"
    assert read_keys(None, TEXT, None).client("bob's key") == "bob"
    with pytest.raises(BadInput):
        read_keys(tmp_path / "none", None, None)
    with pytest.raises(BadInput, match="larger than"):
        read_keys(Path("/dev/zero"), None, None)  # it never ends
    with pytest.raises(BadInput):
        read_keys(None, None, tmp_path / "ledger")
    for empty in ("", "# ann left\n"):
        with pytest.raises(BadInput, match="ANTIADV_KEYS"):
            read_keys(None, empty, None)
    assert not read_keys(None, None, None), "no keys are asked for"
    (tmp_path / "keys").write_text("# nobody\n")
    with pytest.raises(BadInput, match="no key"):
        read_keys(tmp_path / "keys", None, None)
