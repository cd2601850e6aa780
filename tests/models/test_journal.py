"""A journal gives answers back in their order, survives half-written entries, and forgets what is stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from antiadv.models import journal as module
from antiadv.models.journal import Journal, key_of

A, B, C = (key_of(np.full((3, 2, 2), v, np.float32)) for v in (0.1, 0.2, 0.3))


def row(*values: float) -> np.ndarray:
    return np.array([values], np.float32)


def filled(path: Path) -> None:
    made = Journal(path, "cell")
    made.add([A, B], np.array([[1, 2], [3, 4]], np.float32))
    made.add([A], row(5, 6))
    made.close()


def test_answers_come_back_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "cell" / "answers"
    filled(path)
    again = Journal(path, "cell")
    assert [None if a is None else a.tolist() for a in (again.take(k) for k in (A, B, A, A, C))] == [
        [1, 2],
        [3, 4],
        [5, 6],
        None,
        None,
    ]
    again.close()
    assert path.exists(), "the run did not end, so the next one may need them"


def test_answers_of_this_run_are_not_given_back_to_it(tmp_path: Path) -> None:
    made = Journal(tmp_path / "answers", "cell")
    made.add([A], row(1, 2))
    assert made.take(A) is None, "an image that is sent twice is asked twice"
    made.close()


def test_what_is_stored_is_forgotten_and_the_rest_stays(tmp_path: Path) -> None:
    path = tmp_path / "answers"
    filled(path)
    made = Journal(path, "cell")
    assert made.take(B) is not None
    assert made.take(A) is not None
    made.add([C], row(7, 8))
    made.settle()
    left = Journal(path, "cell")
    assert left.take(C) is None
    assert left.take(B) is None
    (last,) = (left.take(A),)
    assert last is not None
    assert last.tolist() == [5, 6]
    left.settle()
    assert not path.exists()


@pytest.mark.parametrize("cut", range(1, 30))
def test_half_an_entry_is_cut_off(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "answers"
    filled(path)
    path.write_bytes(path.read_bytes()[:-cut])
    made = Journal(path, "cell")
    assert [made.take(A) is not None for _ in range(2)] == [True, False]
    made.add([A], row(9, 9))
    made.close()
    again = Journal(path, "cell")
    answers = [again.take(A), again.take(A)]
    assert [a.tolist() for a in answers if a is not None] == [[1, 2], [9, 9]]
    again.close()


@pytest.mark.parametrize("place", [-1, -12, -30, 40])
def test_a_damaged_entry_ends_the_journal(tmp_path: Path, place: int) -> None:
    path = tmp_path / "answers"
    filled(path)
    content = bytearray(path.read_bytes())
    content[place] ^= 0xFF
    path.write_bytes(bytes(content))
    made = Journal(path, "cell")
    assert made.take(A) is None or made.take(A) is None
    made.close()


@pytest.mark.parametrize("content", [b"", b"something else", b"antiadv answers 1 other\n" + b"x" * 99])
def test_a_file_of_another_kind_begins_anew(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "answers"
    path.write_bytes(content)
    made = Journal(path, "cell")
    assert made.take(A) is None
    made.close()
    assert not path.exists(), "nothing was kept in it"


def test_a_second_process_works_without(tmp_path: Path) -> None:
    path = tmp_path / "answers"
    first, second = Journal(path, "cell"), Journal(path, "cell")
    second.add([A], row(1, 2))
    second.settle()
    first.add([B], row(3, 4))
    first.close()
    again = Journal(path, "cell")
    assert again.take(A) is None
    assert again.take(B) is not None
    again.close()


def test_it_does_not_grow_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "answers"
    monkeypatch.setattr(module, "LARGEST", 100)
    made = Journal(path, "cell")
    made.add([A], row(1, 2))
    with pytest.warns(UserWarning, match="--shard"):
        made.add([A, B, C], np.zeros((3, 2), np.float32))
    made.add([A], row(1, 2))  # and warns once
    made.close()
    assert path.stat().st_size <= 100
