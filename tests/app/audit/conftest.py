"""Fixtures: logs with entries, and tampering that the triggers would prevent."""

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from app.access import tenants
from app.audit import service as audit
from app.db import Actor
from app.installations import Installation
from lethe.contract.tenants import Policy

Record = Callable[..., None]


@pytest.fixture
def record(installation: Installation, by: Actor) -> Record:
    """Return a function that adds the given number of entries to a tenant's log."""

    def add(number: int, *, actor: Actor = by) -> None:
        with installation.database.writing(by=actor) as session:
            for count in range(number):
                audit.record(session, "thing.done", f"thing_{count}", count=count)

    return add


@pytest.fixture
def other(installation: Installation, by: Actor) -> Actor:
    """Create another tenant, whose log has two entries."""
    with installation.database.writing(by=by) as session:
        tenant = tenants.create(session, name="other", policy=Policy(), admin_key="other")
    return Actor(tenant_id=tenant.id, name="other")


@pytest.fixture
def tamper(installation: Installation) -> Callable[..., None]:
    """Execute SQL with the triggers disabled, as an attacker with the database owner's password could."""

    def execute(*statements: str) -> None:
        with installation.database.engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sa.text("SET LOCAL session_replication_role = replica"))
            else:
                named = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND sql LIKE '%append-only%'"
                for name in connection.scalars(sa.text(named)).all():
                    connection.execute(sa.text(f"DROP TRIGGER {name}"))
            for statement in statements:
                connection.execute(sa.text(statement))

    return execute
