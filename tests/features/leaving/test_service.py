"""Counters of reasons for leaving."""

import datetime
import threading
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from app.access import service as access, tenants
from app.db import Actor, now
from app.features.leaving import service as leaving
from app.features.leaving.tables import LeavingCount
from app.installations import Installation
from lethe.contract.tenants import Policy
from lethe.features.leaving.randomised import LeavingReason
from tests.tables import each

Count = Callable[..., datetime.date]


@pytest.fixture
def count(installation: Installation, by: Actor) -> Count:
    """Return a function that counts an answer in its own transaction."""

    def once(answer: LeavingReason = LeavingReason.COST, odds: int = 3, by: Actor = by) -> datetime.date:
        with installation.database.writing(by=by) as session:
            return leaving.count(session, answer=answer, odds=odds)

    return once


def sent(found: leaving.Survey) -> dict[str, int]:
    return {reason: one.sent for reason, one in found.reasons.items() if one.sent}


def test_only_a_counter_is_stored(installation: Installation, by: Actor, count: Count) -> None:
    """Identical answers within a week are stored as one row with the tenant, the week's Monday, the odds, the answer
    and a count."""
    weeks = {count() for _ in range(3)}
    with installation.database.reading() as session:
        [row] = session.execute(sa.select(LeavingCount.__table__)).mappings()
        monday = leaving.week_of(now(session))
    assert weeks == {monday.date()}
    assert dict(row) == {"tenant_id": by.tenant_id, "week": monday, "odds": 3, "answer": "cost", "num_sent": 3}


def test_surveys_are_separated_by_odds(installation: Installation, by: Actor, count: Count) -> None:
    """Answers with different odds form separate surveys, each covering all reasons. Without answers there is no
    survey."""
    with installation.database.reading(by=by) as session:
        assert leaving.surveys(session) == []
    for answer, odds in (
        (LeavingReason.COST, 10),
        (LeavingReason.COST, 3),
        (LeavingReason.OTHER, 3),
        (LeavingReason.COST, 3),
    ):
        count(answer, odds)
    with installation.database.reading(by=by) as session:
        few, many = leaving.surveys(session)
    assert (few.response.odds, few.num_answers, sent(few)) == (3, 3, {"cost": 2, "other": 1})
    assert (many.response.odds, many.num_answers, sent(many)) == (10, 1, {"cost": 1})
    assert list(few.reasons) == list(LeavingReason)


def test_weeks_are_chosen_by_their_monday(installation: Installation, by: Actor, count: Count) -> None:
    """A week is selected if its Monday lies in [since, until)."""
    monday = count()
    long_ago = datetime.datetime(2026, 1, 5, tzinfo=datetime.UTC)
    with installation.database.writing(by=by) as session:
        old = {"week": long_ago, "odds": 3, "answer": "other", "num_sent": 7}
        session.add(LeavingCount(tenant_id=by.tenant_id, **old))
    day = datetime.timedelta(days=1)
    with installation.database.reading(by=by) as session:
        [everything] = leaving.surveys(session)
        [lately] = leaving.surveys(session, since=monday)
        [then] = leaving.surveys(session, since=long_ago.date(), until=monday)
        assert leaving.surveys(session, since=long_ago.date() + day, until=monday) == []
        assert leaving.surveys(session, since=monday + day) == []
    assert (everything.num_answers, sent(lately), sent(then)) == (8, {"cost": 1}, {"other": 7})


def test_tenants_are_counted_separately(installation: Installation, by: Actor, count: Count) -> None:
    """An answer sent to a tenant changes only that tenant's counters and estimates."""
    with installation.database.writing(by=by) as session:
        made = tenants.create(session, name="shop", policy=Policy(), admin_key=access.new_key())
    other = Actor(tenant_id=made.id, name="test")
    count()
    count(by=other)
    count(by=other)
    for actor, expected in ((by, 1), (other, 2)):
        with installation.database.reading(by=actor) as session:
            [found] = leaving.surveys(session)
        assert found.num_answers == expected


def test_concurrent_answers_are_all_counted(installation: Installation, by: Actor, count: Count) -> None:
    """Every answer is counted, even if several arrive concurrently."""
    callers = [threading.Thread(target=lambda: [count() for _ in range(5)]) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    with installation.database.reading(by=by) as session:
        [found] = leaving.surveys(session)
    assert found.num_answers == 20


@each(
    ("at_", "week"),
    [
        ("2026-11-16T00:00:00+00:00", "2026-11-16"),
        ("2026-11-22T23:59:59+00:00", "2026-11-16"),
        ("2026-11-16T00:30:00+01:00", "2026-11-09"),
        ("2027-01-01T12:00:00+00:00", "2026-12-28"),
    ],
)
def test_a_week_begins_on_monday(at_: str, week: str) -> None:
    """Weeks begin on Monday in UTC, whatever time zone the given time is in, even across the end of a year."""
    found = leaving.week_of(datetime.datetime.fromisoformat(at_))
    assert found == datetime.datetime.fromisoformat(f"{week}T00:00:00+00:00")
