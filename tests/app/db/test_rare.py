"""Rare conditions, all of which are queried in one statement."""

import sqlalchemy as sa

from app.db import now, rare
from app.db.tables import Tenant
from app.installations import Installation

_ANY_NAMED = rare.Rare(Tenant.name == "a rare tenant")
_QUERY = sa.select(sa.bindparam("number", type_=sa.Integer))


def test_a_rare_condition_is_possible_until_queried(installation: Installation) -> None:
    """Until `ask` has queried the database, a rare condition counts as possibly true, so the feature that registered it
    has to query the database itself."""
    with installation.database.reading() as session:
        assert _ANY_NAMED.may_hold(session)
        assert rare.ask(session, _QUERY, {"number": 7}) == [(7,)]
        assert not _ANY_NAMED.may_hold(session)


def test_each_session_queries_conditions_again(installation: Installation) -> None:
    """If a session commits a row that meets a rare condition, the next session finds that the condition holds."""
    with installation.database.writing() as session:
        assert rare.ask(session, _QUERY, {"number": 7}) == [(7,)]
        session.add(Tenant(id="ten_rare", name="a rare tenant", policy={}, created_at=now(session)))
    with installation.database.reading() as session:
        assert rare.ask(session, _QUERY, {"number": 7}) == [(7,)]
        assert _ANY_NAMED.may_hold(session)


def test_all_conditions_are_queried_in_one_statement(installation: Installation) -> None:
    """The conditions of all features are queried in the single statement of another query, whose rows are returned."""
    statements: list[str] = []
    with installation.database.reading() as session:
        sa.event.listen(session.get_bind(), "before_cursor_execute", lambda *given: statements.append(given[2]))
        assert rare.ask(session, _QUERY, {"number": 7}) == [(7,)]
    assert len(statements) == 1
