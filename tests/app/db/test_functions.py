"""`usually` marks conditions that almost all rows meet, so that the planner does not search by them."""

from typing import Any

import sqlalchemy as sa

from app.db import Actor
from app.db.functions import usually
from app.db.tables import DeletionRequest
from app.installations import Installation


def plan(installation: Installation, query: sa.Select[DeletionRequest]) -> str:
    """Return SQLite's query plan for a tenant's query."""
    run: list[tuple[str, Any]] = []

    def listener(*call: Any) -> None:
        run.append(call[2:4])

    sa.event.listen(installation.database.engine, "before_cursor_execute", listener)
    with installation.database.reading(by=Actor(tenant_id="tn_1", name="key")) as session:
        session.scalars(query).all()
        sa.event.remove(installation.database.engine, "before_cursor_execute", listener)
        sql, parameters = run[-1]
        return str(session.connection().exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", parameters).all())


def test_requests_are_looked_up_through_an_index(installation: Installation) -> None:
    """Requests are looked up by id and by person through an index, without reading all of the tenant's rows."""
    newest = sa.select(DeletionRequest).order_by(DeletionRequest.created_at.desc(), DeletionRequest.id.desc()).limit(50)
    assert "(id=?)" in plan(installation, newest.where(DeletionRequest.id.in_(["dr_1", "dr_2", "dr_3"])))
    assert "(subject_ref=?)" in plan(installation, newest.where(DeletionRequest.subject_ref == "sub_1"))


def test_lists_are_read_in_index_order(installation: Installation) -> None:
    """Lists of requests are read in index order, so that the database does not have to sort them."""
    newest = sa.select(DeletionRequest).order_by(DeletionRequest.created_at.desc(), DeletionRequest.id.desc()).limit(50)
    by_column = {"status": DeletionRequest.status, "regulation": DeletionRequest.regulation}
    lists = {"": newest} | {f"_{name}": newest.where(column == "any") for name, column in by_column.items()}
    for name, query in lists.items():
        found = plan(installation, query)
        assert f"ix_deletion_requests_tenant_id{name}_created_at_id" in found
        assert "TEMP B-TREE" not in found


def test_usually_does_not_change_a_condition(installation: Installation) -> None:
    """Wrapping a condition in `usually` does not change its result."""
    with installation.database.reading() as session:
        for condition in (sa.literal(1) == 1, sa.literal(1) == 2, sa.null() == 1):
            assert session.scalar(sa.select(usually(condition))) == session.scalar(sa.select(condition))
