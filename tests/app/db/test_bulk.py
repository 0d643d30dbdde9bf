import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from app.db import bulk, now
from app.db.tables import ApiKey, Dataset, Record
from app.installation import Installation


def test_many_rows_are_added(at: Installation) -> None:
    """Every row of an iterable that is read once arrives, with what is text, a number or nothing."""
    rows = [("ds_1", slot, None if slot % 7 == 0 else f"sub_\t\\N\n'{slot}é") for slot in range(25_000)]
    with at.database.writing() as session:
        shape = {"num_features": 1, "num_slots": 25_000, "digest": "", "revision": 0, "classes": [], "schema": None}
        session.add(Dataset(id="ds_1", name="", created_at=now(session), **shape))
        session.flush()
        bulk.insert(session, Record, columns=("dataset_id", "slot", "subject_ref"), rows=iter(rows))
    with at.database.reading() as session:
        query = sa.select(Record.dataset_id, Record.slot, Record.subject_ref).order_by(Record.slot)
        assert [tuple(row) for row in session.execute(query)] == rows


def test_they_go_with_their_transaction(at: Installation) -> None:
    """When a row breaks a rule of its table, the error is the usual one, and nothing of the block was done."""

    def fail_half_way() -> None:
        with at.database.writing() as session:
            session.add(ApiKey(id="key_1", name="", key_hash="", scopes=[], created_at=now(session)))
            session.flush()
            bulk.insert(session, Record, columns=("dataset_id", "slot", "subject_ref"), rows=[("ds_0", 0, None)])

    with pytest.raises(IntegrityError):
        fail_half_way()
    with at.database.reading() as session:
        assert session.get(ApiKey, "key_1") is None
        assert session.scalar(sa.select(sa.func.count()).select_from(Record)) == 0
