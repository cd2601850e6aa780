"""A file is complete or absent, also after a failure in the middle of a write."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiadv.core.files import atomic_write


def test_a_file_appears_when_it_is_whole_and_not_before(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file.json"
    with atomic_write(path) as part, part.open("w") as file:
        file.write("half")
        assert not path.exists()
        file.write(" and half")
    assert path.read_text() == "half and half"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("failure", [OSError, KeyboardInterrupt])
def test_where_writing_fails_the_old_file_stays_and_nothing_else(tmp_path: Path, failure: type[BaseException]) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail() -> None:
        with atomic_write(path) as part:
            part.write_text("new")
            raise failure

    with pytest.raises(failure):
        fail()
    with pytest.raises(FileNotFoundError), atomic_write(path):
        pass  # nothing was written that could be renamed
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "file") as one, atomic_write(tmp_path / "file") as other:
        assert one != other
        one.write_text("1")
        other.write_text("2")
    assert (tmp_path / "file").read_text() == "1", "whoever ends last"
