"""Archives whose rows are not of the shape that they state."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.backup.archive import Reader, Writer
from app.backup.restoring import Restored
from app.backup.service import Backup
from app.errors import BackupDamaged
from app.keys import KeyEncryptionFile

Make = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(
    ("of_rows", "said"),
    [
        (lambda shape, _: [shape], "fewer rows than it states"),
        (lambda shape, block: [json.dumps(json.loads(shape) | {"num_labels": 1}).encode(), block], "the shape of rows"),
        (lambda _, block: [b"{", block], "the shape of rows"),
    ],
)
def test_rows_that_are_not_of_their_shape_are_refused(
    new_dataset: Make,
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
    archive: Path,
    key_file: Path,
    of_rows: Callable[[bytes, bytes], list[bytes]],
    said: str,
) -> None:
    """An archive that lacks a block of rows, or states their shape otherwise than this release does, is damaged."""
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
