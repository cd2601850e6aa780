"""API keys and their query budgets: who may ask, and how many rows.

    keys = Keys.read(text, ledger)       one key per line: NAME SHA256 [QUERIES]
    client = keys.client(given)          its name; Refused 401 for a wrong key
    keys.charge(client, rows)            Refused 429 if that many rows are not left; then nothing is charged
    keys.renew(read)                     take the keys and budgets of a file that was read again

The file holds digests of the keys, so it gives no access to who reads it. Keys must be long and random, because the
digest is a plain SHA-256: `python -c "import secrets; print(secrets.token_urlsafe(32))"`. A given key is compared with
all digests in constant time. An empty key matches none. What each key has spent is kept in the file `ledger`, if there
is one, and survives a restart.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from pathlib import Path

from antiadv.core.bounds import read_json
from antiadv.core.errors import BadInput, reason
from antiadv.core.files import write_json
from antiadv.serving.limits import Refused

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True)
class Key:
    """`queries` is the budget in rows; None means no limit."""

    name: str
    digest: str
    queries: int | None = None


def digest(key: str) -> str:
    """The SHA-256 of a key, as the file holds it."""
    return hashlib.sha256(key.encode()).hexdigest()


class Keys:
    """See the head of this file. Without keys everyone may ask."""

    def __init__(self, keys: list[Key], ledger: Path | None = None) -> None:
        self._keys, self._ledger = keys, ledger
        self._budgets = {key.name: key.queries for key in keys}
        if len(self._budgets) < len(keys) or len({key.digest for key in keys}) < len(keys):
            raise BadInput("the file of keys has a name or a digest twice; give each client a key of its own.")
        self.spent = dict.fromkeys(self._budgets, 0) | _read_ledger(ledger)
        self._saved = dict(self.spent)

    @classmethod
    def read(cls, text: str, ledger: Path | None = None) -> Keys:
        lines = [line.split("#")[0].split() for line in text.splitlines()]
        return cls([_key(words, number) for number, words in enumerate(lines, 1) if words], ledger)

    def renew(self, fresh: Keys) -> None:
        """Take these keys and budgets. What a name has spent stays, also if it is gone and comes back later."""
        self._keys, self._budgets = fresh._keys, fresh._budgets
        self.spent = fresh.spent | self.spent

    def __bool__(self) -> bool:
        return bool(self._keys)

    def client(self, given: str | None) -> str | None:
        """The name of the client; None if there are no keys."""
        if not self._keys:
            return None
        found = self._owner(given) if given else None
        if found is None:
            raise Refused(401, "this server needs an API key, in the header Authorization: Bearer KEY or X-API-Key.")
        return found

    def _owner(self, given: str) -> str | None:
        found, asked = None, digest(given)
        for key in self._keys:  # all of them, so that the time does not tell which one is near
            if hmac.compare_digest(key.digest, asked):
                found = key.name
        return found

    def check(self, client: str | None, rows: int) -> None:
        """Refuse if the budget does not hold this many rows more."""
        if client is None:
            return
        if client not in self._budgets:
            raise Refused(401, "this API key was removed while the request was under way.")
        budget = self._budgets[client]
        if budget is not None and self.spent[client] + rows > budget:
            left = max(0, budget - self.spent[client])
            raise Refused(429, f"the budget of this key is {budget} queries; {left} are left and {rows} were asked.")

    def charge(self, client: str | None, rows: int) -> None:
        """Charge each row, as the ledger of an evaluation does."""
        self.check(client, rows)
        if client is not None:
            self.spent[client] += rows

    def save(self) -> None:
        """Write the ledger if it changed."""
        if self._ledger is not None and self.spent != self._saved:
            now = dict(self.spent)
            write_json(self._ledger, now)
            self._saved = now


def _key(words: list[str], number: int) -> Key:
    name, code, *rest = [*words, ""] if len(words) == 1 else words
    sound = NAME.fullmatch(name) and re.fullmatch(r"[0-9a-f]{64}", code) and len(rest) <= 1
    if not sound or not all(re.fullmatch(r"[0-9]{1,15}", word) for word in rest):
        raise BadInput(f"line {number} of the keys must be NAME SHA256 [QUERIES], the digest in 64 hex digits.")
    if code == digest(""):
        raise BadInput(
            f"line {number} of the keys has the digest of an empty key. Give the digest of a long, random key."
        )
    return Key(name, code, int(rest[0]) if rest else None)


def _read_ledger(path: Path | None) -> dict[str, int]:
    if path is None or not path.exists():
        return {}
    try:
        spent = read_json(path)
    except OSError as error:
        raise BadInput(f"the ledger {path} cannot be read: {reason(error)}. Name another with --ledger.") from error
    except (ValueError, RecursionError):
        spent = None
    if not isinstance(spent, dict) or not all(type(n) is int and n >= 0 for n in spent.values()):
        raise BadInput(f"{path} is not a ledger of queries; move it away to start again from 0.")
    return spent
