"""The role of the accounting service on PostgreSQL: it may read what the accountant reads, and nothing else.

An administrator makes the role (`CREATE ROLE lethe_reader LOGIN PASSWORD '...'`); `grant` is what
`lethe migrate --grant-reader lethe_reader` runs, again after every migration.
"""

import sqlalchemy as sa

from app.db import tables
from app.db.session import Database
from lethe.contract.problems import InputInvalid

TABLES = (
    tables.Addition.__tablename__,
    tables.ApiKey.__tablename__,
    tables.Certificate.__tablename__,
    tables.Checkpoint.__tablename__,
    tables.Dataset.__tablename__,
    tables.DeletionRequest.__tablename__,
    tables.Erasure.__tablename__,
    tables.Export.__tablename__,
    tables.InstallationIdentity.__tablename__,
    tables.LedgerEntry.__tablename__,
    tables.LedgerLink.__tablename__,
    tables.Model.__tablename__,
    tables.Record.__tablename__,
    tables.RequestAlias.__tablename__,
    tables.RequestModel.__tablename__,
    tables.Run.__tablename__,
    tables.Tenant.__tablename__,
    tables.Version.__tablename__,
    "alembic_version",
)
"""The tables that `lethe serve-accounting` reads: neither remembered answers nor the events of requests."""


def grant(database: Database, role: str) -> None:
    """Let `role` read `TABLES`, and take from it whatever else it may do in Lethe's schema.

    Raises `InputInvalid` if there is no such role, or if the database has none (SQLite: the accounting service opens
    the file read-only).
    """
    dialect = database.engine.dialect
    if dialect.name != "postgresql":
        raise InputInvalid("SQLite has no roles; 'lethe serve-accounting' opens its file read-only.")
    quote = dialect.identifier_preparer.quote
    with database.writing() as session:
        if not session.scalar(sa.text("SELECT count(*) FROM pg_roles WHERE rolname = :role"), {"role": role}):
            raise InputInvalid(
                f"There is no role {role!r}; make it first: CREATE ROLE {quote(role)} LOGIN PASSWORD ..."
            )
        schema = quote(session.scalars(sa.text("SELECT current_schema()")).one())
        for statement in (
            f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {quote(role)}",
            f"REVOKE ALL ON ALL SEQUENCES IN SCHEMA {schema} FROM {quote(role)}",
            f"REVOKE ALL ON SCHEMA {schema} FROM {quote(role)}",
            f"GRANT USAGE ON SCHEMA {schema} TO {quote(role)}",
            f"GRANT SELECT ON {', '.join(f'{schema}.{name}' for name in TABLES)} TO {quote(role)}",
        ):
            session.execute(sa.text(statement))
