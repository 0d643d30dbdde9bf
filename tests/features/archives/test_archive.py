"""Archives open completely with their own key or not at all, and contain rows of the shape that they state."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from app.errors import BackupDamaged, BackupRefused
from app.features.archives.archive import Piece, Reader, Writer
from app.features.archives.restoring import Restored
from app.features.archives.service import Backup
from app.keys import KeyEncryptionFile

CHUNK = 2**20 + 16
HEAD = len(b"lethe-backup/1\n") + 76


@pytest.fixture
def key(tmp_path: Path) -> KeyEncryptionFile:
    made = KeyEncryptionFile(tmp_path / "key")
    made.create()
    return made


def written(key: KeyEncryptionFile, *pieces: tuple[str, bytes]) -> bytes:
    file = io.BytesIO()
    writer = Writer(file, key)
    for thing, content in pieces:
        writer.write(thing, content)
    writer.close()
    return file.getvalue()


def read(key: KeyEncryptionFile, content: bytes) -> list[Piece]:
    return list(Reader(io.BytesIO(content), key))


LARGE = [("tables/a", bytes(range(256)) * 9000), ("rows/b", b"\1" * 2**20), ("empty", b""), ("tables/a", b"x")]


@given(sizes=st.lists(st.integers(0, 5000), max_size=20))
def test_pieces_round_trip(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]) -> None:
    """Pieces of any number and size are read back in order, and their counts and hashes match."""
    key = KeyEncryptionFile(tmp_path_factory.getbasetemp() / "key")
    key.create()
    pieces = [(f"t/{number % 3}", bytes([number]) * size) for number, size in enumerate(sizes)]
    assert [(piece.thing, piece.content) for piece in read(key, written(key, *pieces))] == pieces


@pytest.mark.parametrize("size", [2**20 - 20, 2**20 - 19, 2**20, 2**21 - 30, 3 * 2**20])
def test_pieces_may_end_near_the_end_of_a_chunk(key: KeyEncryptionFile, size: int) -> None:
    """A piece that ends near the end of a chunk is read back whole."""
    assert [piece.content for piece in read(key, written(key, ("a", b"7" * size)))] == [b"7" * size]


def test_tallies_of_reading_and_writing_agree(key: KeyEncryptionFile) -> None:
    """After an archive is read, the counts and hashes equal those from writing it."""
    file = io.BytesIO()
    writer = Writer(file, key)
    for thing, content in LARGE:
        writer.write(thing, content)
    stated = writer.tallies()
    writer.close()
    reader = Reader(io.BytesIO(file.getvalue()), key)
    assert len(list(reader)) == 4
    assert reader.tallies() == stated
    assert stated["tables/a"]["pieces"] == 2


@pytest.mark.parametrize("cut", [1, 17, CHUNK, 2 * CHUNK, 3 * CHUNK - 5])
def test_a_truncated_archive_is_refused(key: KeyEncryptionFile, cut: int) -> None:
    """An archive that ends early is refused, even if exactly one chunk is missing."""
    with pytest.raises(BackupDamaged):
        read(key, written(key, *LARGE)[:-cut])


def test_reordered_chunks_cannot_be_decrypted(key: KeyEncryptionFile) -> None:
    """Each chunk can be decrypted only at its own position."""
    whole = written(key, *LARGE)
    head, first, second, rest = (
        whole[:HEAD],
        whole[HEAD:][:CHUNK],
        whole[HEAD + CHUNK :][:CHUNK],
        whole[HEAD + 2 * CHUNK :],
    )
    for changed in (head + second + first + rest, head + second + rest, head + first + first + rest, whole + first):
        with pytest.raises(BackupDamaged):
            read(key, changed)


@pytest.mark.parametrize("place", [5, 20, 40, HEAD + 3, -1])
def test_a_flipped_bit_is_refused(key: KeyEncryptionFile, place: int) -> None:
    """An archive is refused if any bit of it is flipped."""
    changed = bytearray(written(key, *LARGE))
    changed[place] ^= 1
    with pytest.raises((BackupDamaged, BackupRefused)):
        read(key, bytes(changed))


def test_a_wrong_key_file_is_refused(key: KeyEncryptionFile, tmp_path: Path) -> None:
    """With a wrong key file, an archive is refused before any of its contents are read."""
    other = KeyEncryptionFile(tmp_path / "other")
    other.create()
    with pytest.raises(BackupRefused, match="key file is not the one"):
        Reader(io.BytesIO(written(key, *LARGE)), other)


def test_an_archive_is_encrypted(key: KeyEncryptionFile) -> None:
    """An archive contains neither names nor contents in plain text."""
    sealed = written(key, ("tables/people", b"an unmistakable line of text" * 100))
    assert b"people" not in sealed
    assert b"unmistakable" not in sealed


Make = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(
    ("of_rows", "said"),
    [
        (lambda shape, _: [shape], "fewer rows than it states"),
        (lambda shape, block: [json.dumps(json.loads(shape) | {"num_labels": 1}).encode(), block], "the shape of rows"),
        (lambda _, block: [b"{", block], "the shape of rows"),
    ],
)
def test_rows_of_another_shape_are_refused(
    new_dataset: Make,
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
    archive: Path,
    key_file: Path,
    of_rows: Callable[[bytes, bytes], list[bytes]],
    said: str,
) -> None:
    """An archive that lacks a block of rows, or whose description of the rows' shape is not recognised, is reported as
    damaged."""
    name = f"rows/{new_dataset()['id']}"
    back_up()
    key = KeyEncryptionFile(key_file)
    with archive.open("rb") as file:
        pieces = list(Reader(file, key))
    shape, block = (piece.content for piece in pieces if piece.thing == name)
    changed = iter(of_rows(shape, block))
    with archive.open("wb") as file:
        writer = Writer(file, key)
        for piece in pieces:
            content = next(changed, None) if piece.thing == name else piece.content
            if content is not None:
                writer.write(piece.thing, content)
        writer.close()
    with pytest.raises(BackupDamaged, match=said):
        restore()
