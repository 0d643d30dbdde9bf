"""Counts of waiting people, computed by SQL whose cost is proportional to their number."""

import sqlalchemy as sa

from app.access.service import DEFAULT_TENANT
from app.db import now
from app.db.tables import Dataset
from app.installations import Installation
from app.unlearning import waiting_repository
from tests import sqlite

NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < CAST(:last AS integer))"
MOMENTS = ", ".join(["'2026-01-01 00:00:00'"] * 4)


def test_counting_waiting_work_takes_linear_time(installation: Installation) -> None:
    """Even if some requests have aliases and SQLite has no statistics, counting the waiting work reads each of two
    thousand requests in review and twenty thousand rows about once. Reading all rows for each request used to take half
    a minute of processor time every two seconds."""
    with installation.database.writing() as session:
        dataset = Dataset(id="ds_1", tenant_id=DEFAULT_TENANT, name="d", classes=[], num_features=1, num_slots=20_000)
        dataset.digest, dataset.revision, dataset.created_at = "", 0, now(session)
        session.add(dataset)
        session.flush()
        rows = f"{NUMBERS} INSERT INTO records (dataset_id, slot, subject_ref) SELECT 'ds_1', i, 'sub_' || i FROM n"
        session.execute(sa.text(rows), {"last": 19_999})
        columns = "id, tenant_id, subject_ref, regulation, time_zone, status, kept, discreet"
        columns += ", submitted_at, due_at, deadline, created_at"
        requests = f"INSERT INTO deletion_requests ({columns}) SELECT 'dr_' || i, '{DEFAULT_TENANT}', 'sub_' || i, "
        requests += f"'gdpr', 'UTC', 'in_review', 'request', false, {MOMENTS} FROM n"
        session.execute(sa.text(f"{NUMBERS} {requests}"), {"last": 1_999})
        aliases = "INSERT INTO request_aliases (request_id, subject_ref) SELECT 'dr_' || i, 'sub_' || (i + 5000) FROM n"
        session.execute(sa.text(f"{NUMBERS} {aliases}"), {"last": 999})
    with installation.database.reading() as session, sqlite.instructions() as taken:
        waiting = waiting_repository.unclaimed(session, tenant_id=DEFAULT_TENANT, dataset_ids=["ds_1"], at=now(session))
        people = waiting_repository.people(session, tenant_id=DEFAULT_TENANT, dataset_ids=["ds_1"])
    assert (waiting["ds_1"].in_review, people) == (2000, {"ds_1": 2000})
    assert 10_000 < taken() < 2_000_000
