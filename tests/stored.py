"""The rows that the database names, decrypted so that tests can inspect them."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.access.service import DEFAULT_TENANT
from app.db.tables import Record, Version
from app.installations import Installation
from app.rows import repository
from app.rows.blocks import BLOCK_ROWS, Block, Features, Labels, Shape
from app.rows.row_store import OpenedRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    features: npt.NDArray[np.float32]  # (num_slots, num_columns)
    labels: npt.NDArray[np.int32]  # (num_slots,)
    num_slots: int


def root_of(installation: Installation, rows_id: str) -> str:
    with installation.database.reading() as session:
        root = repository.root(session, rows_id)
    assert root is not None
    return root


def versions_in(session: Session) -> Iterator[Version]:
    """Yield the versions of all models, in order."""
    yield from session.scalars(sa.select(Version).order_by(Version.model_id, Version.number))


def rows_of(installation: Installation, rows_id: str) -> Seen:
    """Return the rows of a dataset or of a waiting addition."""
    with installation.rows.open(rows_id, root_of(installation, rows_id)) as rows:
        rows.show([range(rows.shape.num_blocks)])
        return Seen(features=rows.features.copy(), labels=rows.labels.copy(), num_slots=rows.shape.num_slots)


def slots_of(installation: Installation, dataset_id: str, *subject_ids: str) -> list[int]:
    """Return the recorded slots of these people of the default tenant, person by person, leaving out erased people."""
    mine = sa.select(Record.slot).where(Record.dataset_id == dataset_id).order_by(Record.slot)
    refs = [installation.keys.subject_ref(DEFAULT_TENANT, subject_id) for subject_id in subject_ids]
    with installation.database.reading() as session:
        return [slot for ref in refs for slot in session.scalars(mine.where(Record.subject_ref == ref))]


def flipped(content: bytes, place: int) -> bytes:
    """Return the content with one bit flipped at byte `place`, or at the last byte if the content is shorter."""
    place = min(place, len(content) - 1)
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def line_of(installation: Installation, key: str | None) -> tuple[Path, int]:
    """Return the vault page that contains this key, and the offset of the key."""
    assert key is not None
    return installation.settings.data_dir / "vault" / f"{key[:16]}.page", 76 * int(key[16:], 16)


@contextmanager
def held_in_memory(features: Features, labels: Labels) -> Iterator[OpenedRows]:  # (n, columns), (n,) or (n, 2)
    """Yield rows from arrays in the same form as `RowStore.open`."""
    shape = Shape(num_slots=features.shape[0], num_columns=features.shape[1], has_weights=labels.ndim == 2)

    def blocks(numbers: Collection[int]) -> Iterator[Block]:
        for number in numbers:
            first = number * BLOCK_ROWS
            place = slice(first, first + shape.rows_in(number))
            yield Block(number=number, first=first, features=features[place], labels=labels[place])

    records = int(features.any(axis=1).sum())
    with OpenedRows.empty(shape, records=records, most_bytes=shape.num_bytes, blocks=blocks) as rows:
        yield rows
