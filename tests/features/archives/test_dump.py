"""Dumps of all tables load into SQLite and PostgreSQL, in either direction."""

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import Database, bulk, migrate
from app.db.tables import RequestEvent
from app.features.archives import archive
from app.installations import Installation

Make = Callable[..., dict[str, Any]]


def dumped(session: Session) -> dict[str, list[bytes]]:
    """Return the sorted lines of all tables; dumps guarantee no order."""
    return {
        name: sorted(line for piece in archive.pieces(session, table) for line in piece.splitlines())
        for name, table in archive.TABLES.items()
    }


def test_a_dump_loads_into_both_databases(
    installation: Installation,
    postgres: Any,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
    tmp_path: Any,
) -> None:
    """Each value is restored as it was stored, sealed values remain sealed, and the databases' sequences continue where
    they stopped."""
    new_model(new_dataset()["id"])
    work()
    forget("p1", metadata={"case": "ä\u2028 7"}, external_id="case-7")
    work()
    with installation.database.reading() as session:
        before = dumped(session)
        pieces = [(table, list(archive.pieces(session, table))) for table in archive.TABLES.values()]
        last = session.scalar(sa.select(sa.func.max(RequestEvent.id))) or 0
    with postgres.database() as name:
        for url in (postgres.url(name), f"sqlite:///{tmp_path / 'copy.db'}"):
            database = Database(url, vault=installation.vault)
            migrate.upgrade(database.engine)
            with database.writing() as session:
                for table, of_table in pieces:
                    for piece in of_table:
                        archive.load(session, table, piece)
                bulk.count_on(session)
            with database.writing() as session:
                assert dumped(session) == before
                session.add(RequestEvent(**_event_like(session, last)))
                session.flush()
                assert session.scalar(sa.select(sa.func.max(RequestEvent.id))) == last + 1
            database.close()


def _event_like(session: Session, number: int) -> dict[str, Any]:
    found = session.get_one(RequestEvent, number)
    return {name: getattr(found, name) for name in ("request_id", "kind", "status", "facts", "actor", "at")}
