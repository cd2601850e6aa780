"""Shared by the fuzzers: seeded random numbers, damage to files and values, and the state that no case may change.

Each fuzzer runs CASES cases; `ANTIADV_FUZZ=10000 pytest tests/system` runs 10,000 of each. A failure names the seed of
its case.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from antiadv.core.errors import AntiadvError

CASES = int(os.environ.get("ANTIADV_FUZZ", "200"))
SECONDS = 600.0  # after this time a case counts as hanging; a normal one takes hundredths of a second

VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2**31,
    2**63,
    2**64,
    -(2**63),
    10**400,
    0.0,
    -0.5,
    1e308,
    float("inf"),
]
VALUES += [
    float("nan"),
    "",
    "x",
    "\x00",
    "\x1b[31m",
    "é\u202e",
    "[" * 50,
    "none",
    "file:/etc/passwd",
    [],
    [[]],
    [0],
    ["x"],
]
VALUES += [{}, {"a": 1}, [None], list(range(50)), "0" * 300, "../../x"]


def seeds(share: float = 1.0) -> Iterator[tuple[int, random.Random]]:
    for seed in range(round(share * CASES)):
        yield seed, random.Random(seed)


def damaged(content: bytes, dice: random.Random) -> bytes:
    """The content with some bytes flipped, removed, repeated or inserted."""
    out = bytearray(content)
    for _ in range(dice.choice([1, 1, 2, 5, 20])):
        at = dice.randrange(len(out) + 1)
        how = dice.randrange(6)
        if how == 0:
            out[at : at + 1] = bytes([dice.randrange(256)])
        elif how == 1:
            out = out[:at] if dice.random() < 0.3 else out[:at] + out[at + dice.randrange(1, 50) :]
        elif how == 2:
            out[at:at] = dice.randbytes(dice.randrange(1, 20))
        elif how == 3:
            out[at : at + 4] = dice.choice([b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f", b"\0\0\0\x80"])
        elif how == 4:
            piece = out[at : at + dice.randrange(1, 100)]
            there = dice.randrange(len(out) + 1)
            out[there:there] = piece
        elif len(out) > 8:  # in the header, which holds sizes
            out[dice.randrange(min(len(out), 128))] ^= 1 << dice.randrange(8)
    return bytes(out)


def altered(value: Any, dice: random.Random) -> Any:
    """A json value with one part changed, removed or added."""
    if isinstance(value, dict) and value and dice.random() < 0.85:
        key = dice.choice(list(value))
        if dice.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        if dice.random() < 0.05:
            return {**value, "more": dice.choice(VALUES)}
        return {**value, key: altered(value[key], dice)}
    if isinstance(value, list) and value and dice.random() < 0.7:
        at = dice.randrange(len(value))
        return [*value[:at], altered(value[at], dice), *value[at + 1 :]]
    return dice.choice(VALUES)


def state() -> tuple[Any, ...]:
    """The global state of the process."""
    numbers = np.random.get_state(legacy=False)  # noqa: NPY002  to see whether the old generator was used
    return (
        torch.default_generator.get_state().tolist(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        (numbers["state"]["key"].tolist(), numbers["state"]["pos"]),
        np.geterr(),
        os.getcwd(),  # noqa: PTH109
        len(warnings.filters),
        signal.getsignal(signal.SIGTERM),
    )


def files(root: Path) -> set[Path]:
    return set(root.rglob("*"))


@contextlib.contextmanager
def harmless(
    case: object,
    apart_from: type[BaseException] | tuple[type[BaseException], ...] = AntiadvError,
    seconds: float = SECONDS,
) -> Iterator[None]:
    """The code in this block must end in time, normally or with an AntiadvError, and change no global state."""

    def late(*_: object) -> None:
        raise AssertionError(f"{case} hangs")

    before, old = state(), signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except apart_from as error:
        if not 0 < len(str(error)) < 20_000:
            raise AssertionError(f"{case} is refused in {len(str(error))} letters") from error
    except Exception as error:
        raise AssertionError(f"{case!r} raised {type(error).__name__}: {error}"[:2000]) from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert state() == before, f"{case} changed global state"
