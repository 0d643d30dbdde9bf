"""The tombstones file, tested line by line."""

import datetime
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.journal.journal import Journal, JournalLine
from app.keys import Keys

LINE = JournalLine(kind="retired", number=0, at=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), retired="mdl_1")


@contextmanager
def room(num_bytes: int) -> Iterator[None]:
    """Limit the size of the files that this process can write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_partly_written_line_is_repeated(tmp_path: Path) -> None:
    """Writing only part of a line raises an error, and the next attempt writes the whole line."""
    (tmp_path / "subject.key").write_text("0" * 64)
    journal = Journal(tmp_path / "tombstones", Keys(tmp_path))
    assert journal.append(lambda _last: [LINE]) == 1
    with room(journal.path.stat().st_size + 10), pytest.raises(OSError, match="File too large"):
        journal.append(lambda _last: [LINE])
    assert len(list(journal.lines())) == 1
    assert journal.append(lambda _last: [LINE]) == 1
    assert len(list(journal.lines())) == 2
