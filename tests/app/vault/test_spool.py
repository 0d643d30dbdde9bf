"""A file that only the process that created it can read; to every other reader, its content is noise."""

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from app.vault import store
from app.vault.store import Spool


@pytest.fixture
def spooled(tmp_path: Path) -> Iterator[Spool]:
    with store.create(tmp_path) as file:
        yield file


def on_disk(file: Spool) -> bytes:
    """Return the bytes that the spool has written to disk."""
    return os.pread(file._file.fileno(), 2**24, 0)


@given(
    pieces=st.lists(st.binary(max_size=100), max_size=20),
    spans=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 200))),
)
def test_any_span_of_spooled_content_can_be_read(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], spans: list[tuple[int, int]]
) -> None:
    """Any span of the content is read back as it was written, however the writes were split, and reading beyond
    the end returns nothing."""
    whole = b"".join(pieces)
    with store.create(tmp_path_factory.getbasetemp()) as file:
        assert [file.write(piece) for piece in pieces] == [len(piece) for piece in pieces]
        for start, length in spans:
            file.seek(start)
            assert file.read(length) == whole[start : start + length]
        file.seek(0)
        assert file.read() == whole
        assert file.tell() == file.seek(0, io.SEEK_END) == len(whole)
        assert io.BufferedReader(file).detach().seek(-len(whole), io.SEEK_CUR) == 0


def test_spooled_content_is_encrypted_and_unnamed(spooled: Spool, tmp_path: Path) -> None:
    """The content on disk appears to be noise and does not even reveal whether two spools or two blocks are equal. The
    spool's file is unnamed."""
    with store.create(tmp_path) as other:
        for file in (spooled, other):
            for _ in range(100):
                file.write(b"ann-7319,secret-" * 64)
            found = on_disk(file)
            assert len(found) == file.tell()
            assert b"ann-7319" not in found
            assert len({found[start : start + 16] for start in range(0, len(found), 16)}) == len(found) // 16
        assert on_disk(spooled) != on_disk(other)
        assert list(tmp_path.iterdir()) == []


def test_spooled_content_is_never_overwritten(spooled: Spool) -> None:
    """A spool refuses to overwrite its content or to write beyond its end."""
    spooled.write(b"once")
    for place in (0, 3, 5):
        spooled.seek(place)
        with pytest.raises(io.UnsupportedOperation):
            spooled.write(b"twice")
    spooled.seek(0)
    assert spooled.read() == b"once"


def test_a_closed_spool_is_gone(tmp_path: Path) -> None:
    """A closed spool has neither a key nor a file. Closing it again is a no-op, and seeking to a negative
    position is refused."""
    file = store.create(tmp_path)
    file.write(b"gone")
    with pytest.raises(ValueError, match="position=-1"):
        file.seek(-1)
    key = file._key
    assert len(key) == 32
    file.close()
    file.close()
    assert file._key == b""
    assert file._file.closed
