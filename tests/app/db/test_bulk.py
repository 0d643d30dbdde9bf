import datetime
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from app.access.service import DEFAULT_TENANT
from app.db import Actor, bulk, now
from app.db.sealed import Particulars
from app.db.tables import ApiKey, Dataset, DeletionRequest, Record, RequestEvent, Suppression
from app.installations import Installation

AT = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def test_many_rows_are_added(installation: Installation, by: Actor) -> None:
    """All rows from an iterator are stored, including their texts, numbers and nulls."""
    rows = [("ds_1", slot, None if slot % 7 == 0 else f"sub_\t\\N\n'{slot}é") for slot in range(25_000)]
    with installation.database.writing() as session:
        shape = {"num_features": 1, "num_slots": 25_000, "digest": "", "revision": 0, "classes": [], "schema": None}
        session.add(Dataset(id="ds_1", tenant_id=by.tenant_id, name="", created_at=now(session), **shape))
        session.flush()
        bulk.insert(session, Record, columns=("dataset_id", "slot", "subject_ref"), rows=iter(rows))
    with installation.database.reading() as session:
        query = sa.select(Record.dataset_id, Record.slot, Record.subject_ref).order_by(Record.slot)
        assert [tuple(row) for row in session.execute(query)] == rows


def test_existing_rows_are_unchanged(installation: Installation) -> None:
    """If some rows of a batch already exist or occur more than once, only the new rows are added, and no existing row
    changes."""
    columns = ("id", "subject_ref", "dataset_id", "request_id", "tenant_id")
    with installation.database.writing() as session:
        for batch in (["a", "b"], [], ["b", "c", "c"]):
            rows = [
                dict(zip(columns, (f"sup_{batch[0]}", who, "*", "dr_1", DEFAULT_TENANT), strict=True))
                | {"created_at": now(session)}
                for who in batch
            ]
            bulk.store(session, Suppression, rows, unless_there=True)
    with installation.database.reading() as session:
        found = session.execute(sa.select(Suppression.subject_ref, Suppression.id).order_by(Suppression.subject_ref))
        assert [tuple(row) for row in found] == [("a", "sup_a"), ("b", "sup_a"), ("c", "sup_b")]


def test_a_constraint_violation_rolls_back_the_block(installation: Installation, by: Actor) -> None:
    """A row that violates a constraint raises the usual error, and no row added in the same `with` block is stored."""

    def fail_half_way() -> None:
        with installation.database.writing() as session:
            key = {"tenant_id": by.tenant_id, "name": "", "key_hash": "", "scopes": []}
            session.add(ApiKey(id="key_1", created_at=now(session), **key))
            session.flush()
            bulk.insert(session, Record, columns=("dataset_id", "slot", "subject_ref"), rows=[("ds_0", 0, None)])

    with pytest.raises(IntegrityError):
        fail_half_way()
    with installation.database.reading() as session:
        assert session.get(ApiKey, "key_1") is None
        assert session.scalar(sa.select(sa.func.count()).select_from(Record)) == 0


def _suppressions(*people: str) -> list[dict[str, Any]]:
    row = {"dataset_id": "*", "request_id": "dr_1", "tenant_id": DEFAULT_TENANT, "created_at": AT}
    return [row | {"id": f"sup_{place}", "subject_ref": who} for place, who in enumerate(people)]


def test_rows_are_visible_after_the_block(installation: Installation, forget: Callable[[str], Any]) -> None:
    """Rows become visible at the end of the `with` block, in the order in which they were added."""
    request_id = forget("somebody")["id"]
    event = {"request_id": request_id, "facts": None, "detail": None, "actor": "a", "at": AT}
    people = sa.select(Suppression.subject_ref).where(Suppression.request_id == "dr_1").order_by(Suppression.id)
    events = sa.select(RequestEvent.status).where(RequestEvent.actor == "a").order_by(RequestEvent.id)
    with installation.database.writing() as session:
        with bulk.together(session):
            bulk.store(session, Suppression, _suppressions("a"))
            bulk.store(session, Suppression, _suppressions("a", "b", "c"), unless_there=True)
            for status in ("running", "completed"):
                bulk.store(session, RequestEvent, [event | {"kind": status, "status": status}])
            assert session.scalars(people).all() == []
        assert session.scalars(people).all() == ["a", "b", "c"]
        assert session.scalars(events).all() == ["running", "completed"]


def test_large_batches_are_stored_like_small_ones(installation: Installation) -> None:
    """A large batch of objects or mappings is stored with all its texts, lists, booleans and times. A missing column
    becomes NULL, and sealed columns are sealed separately for each row. A row that violates a constraint raises the
    usual error."""
    written = Particulars(external_id="\t\\N\n'é")
    times = {"submitted_at": AT, "due_at": AT + datetime.timedelta(days=30), "deadline": AT, "created_at": AT}
    shape = {"tenant_id": DEFAULT_TENANT, "regulation": "gdpr", "time_zone": "UTC"}
    shape |= {"status": "received", "kept": "details"}

    def requests(number: int) -> list[DeletionRequest]:
        given = shape | times | {"particulars": written, "discreet": False}
        named = [{"id": f"dr_{place:03}", "subject_ref": f"sub_{place}\t\\N"} for place in range(number)]
        return [bulk.new(DeletionRequest, **given, **one, dataset_ids=["ds_1", "é"]) for one in named]

    with installation.database.writing() as session, bulk.together(session):
        bulk.store(session, DeletionRequest, requests(150))
        bulk.store(session, Suppression, _suppressions("a", "a", "b"), unless_there=True)
    with installation.database.reading() as session:
        found = session.scalars(sa.select(DeletionRequest).order_by(DeletionRequest.id)).all()
        assert [one.subject_ref for one in found] == [f"sub_{place}\t\\N" for place in range(150)]
        assert {name: getattr(found[7], name) for name in times} == times
        assert (found[7].dataset_ids, found[7].discreet, found[7].particulars) == (["ds_1", "é"], False, written)
        assert (found[7].ground, found[7].held_until) == (None, None)
        assert len({one.particulars.key for one in found}) == 150
        assert session.scalar(sa.select(sa.func.count()).select_from(Suppression)) == 2
    with pytest.raises(IntegrityError), installation.database.writing() as session:
        bulk.store(session, DeletionRequest, requests(150))


def test_a_failed_block_stores_no_rows(installation: Installation) -> None:
    """A row that violates a constraint raises the usual error at the end of the `with` block. If the block itself
    raises an error, no row is stored."""

    def twice() -> None:
        with installation.database.writing() as session, bulk.together(session):
            bulk.store(session, Suppression, _suppressions("a"))
            bulk.store(session, Suppression, _suppressions("a"))
            bulk.store(session, Suppression, _suppressions("b"))

    def not_at_all() -> None:
        with installation.database.writing() as session:
            try:
                with bulk.together(session):
                    bulk.store(session, Suppression, _suppressions("a"))
                    raise KeyError
            finally:
                bulk.store(session, Suppression, _suppressions("b"))

    for fail, error in ((twice, IntegrityError), (not_at_all, KeyError)):
        with pytest.raises(error):
            fail()
    with installation.database.reading() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(Suppression)) == 0
