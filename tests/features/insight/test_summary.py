"""The summary of requests, compared with the same numbers counted one request at a time."""

import datetime
import math
import random
from collections import Counter
from collections.abc import Iterator
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa

from app.access.service import DEFAULT_TENANT
from app.db import Actor
from app.db.tables import DeletionRequest, Tenant
from app.deletion import deadlines, search_repository
from app.deletion.search_repository import Sought
from app.deletion.views import View
from app.features.insight import summary
from app.installations import Installation
from lethe.contract.deletion_requests import OpenClock
from lethe.contract.sets import ClockState, RequestStatus
from lethe.features.insight.contract import DAYS, WEEKS
from tests.app.deletion.people import OFFICER

AT = datetime.datetime(2026, 3, 25, 22, 30, tzinfo=datetime.UTC)
"""A time before a change of the clocks, at which the date differs between zones."""
DAY, NOTHING = datetime.timedelta(days=1), datetime.timedelta(0)
ZONES = ("UTC", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns")


def requests(rng: random.Random, *, number: int, tenant_id: str = DEFAULT_TENANT) -> Iterator[DeletionRequest]:
    """Create requests spread over half a year, many of them close to midnight. They cover every status; some are
    paused, and some are reported before or after they are completed."""
    for n in range(number):
        submitted = _near(rng, AT - rng.uniform(0, 180) * DAY)
        status = rng.choice([*RequestStatus, RequestStatus.COMPLETED, RequestStatus.ACCEPTED])
        done = min(_near(rng, submitted + rng.expovariate(1 / 20) * DAY), AT)
        is_done = status is RequestStatus.COMPLETED and done >= submitted
        is_reported = is_done or (status in (RequestStatus.ACCEPTED, RequestStatus.RUNNING) and rng.random() < 0.5)
        deadline = _near(rng, submitted + rng.choice([30, 45, 90, 200]) * DAY)
        is_paused = status is RequestStatus.IN_REVIEW and rng.random() < 0.5
        yield DeletionRequest(
            id=f"dr_{tenant_id}_{n}",
            tenant_id=tenant_id,
            subject_ref=f"sub_{n}",
            regulation="gdpr",
            time_zone="UTC",
            status=RequestStatus.ACCEPTED if status is RequestStatus.COMPLETED and not is_done else status,
            kept="request",
            discreet=True,
            submitted_at=submitted,
            created_at=submitted,
            due_at=deadline,
            deadline=deadline,
            paused_at=submitted if is_paused else None,
            completed_at=done if is_done else None,
            reported_at=max(submitted, _near(rng, AT + rng.gauss(0, 40) * DAY)) if is_reported else None,
        )


def _near(rng: random.Random, moment: datetime.datetime) -> datetime.datetime:
    """Return the given time, the midnight that starts its day in Berlin, or the microsecond before that midnight."""
    if rng.random() < 0.5:
        return moment
    day = moment.astimezone(ZoneInfo("Europe/Berlin")).date()
    midnight = deadlines.midnight(day, zone="Europe/Berlin").astimezone(datetime.UTC)
    return midnight - rng.choice([0, 1]) * datetime.timedelta(microseconds=1)


@pytest.fixture
def stored(installation: Installation) -> Installation:
    """Return an installation with requests from two tenants."""
    with installation.database.writing() as session:
        session.add(Tenant(id="ten_other", name="other", policy={}, created_at=AT))
        session.flush()
        session.add_all(requests(random.Random(1), number=600))
        session.add_all(requests(random.Random(2), number=50, tenant_id="ten_other"))
    return installation


@pytest.mark.parametrize("discreet", [False, True])
def test_numbers_match_the_requests(stored: Installation, discreet: bool) -> None:
    """In every time zone, the summary's numbers for due days, weeks and clocks agree with the tenant's individual
    requests. Each open request is counted once, and no other tenant's requests are counted."""
    view = View(discreet=discreet, at=AT)
    for zone in ZONES:
        with stored.database.reading(by=OFFICER) as session:
            found = summary.of_requests(session, view=view, zone=zone)
        with stored.database.reading() as session:
            mine = sa.select(DeletionRequest).where(DeletionRequest.tenant_id == DEFAULT_TENANT)
            every = list(session.scalars(mine))
        today = AT.astimezone(ZoneInfo(zone)).date()

        def day(moment: datetime.datetime, zone: str = zone) -> datetime.date:
            return moment.astimezone(ZoneInfo(zone)).date()

        clocks = {one: view.clock(one, horizon=NOTHING).state for one in every if view.is_open(one)}
        waiting = [one for one, state in clocks.items() if state in (ClockState.ON_TIME, ClockState.AT_RISK)]
        due = Counter(day(one.deadline) for one in waiting)
        assert found.due == {today + n * DAY: due[today + n * DAY] for n in range(DAYS)}
        assert found.later == sum(day(one.deadline) >= today + DAYS * DAY for one in waiting)
        assert found.overdue == sum(state is ClockState.OVERDUE for state in clocks.values())
        assert found.paused == sum(state is ClockState.PAUSED for state in clocks.values())
        assert found.overdue + found.paused + sum(found.due.values()) + found.later == len(clocks)
        monday = today - today.weekday() * DAY
        weeks = [monday - 7 * n * DAY for n in reversed(range(WEEKS))]
        received = Counter(_week(day(one.submitted_at)) for one in every)
        ended = [(one, at) for one in every if (at := view.completed_at(one)) and day(at) >= weeks[0]]
        completed = Counter(_week(day(at)) for _, at in ended)
        assert [(one.starts, one.received, one.completed) for one in found.weeks] == [
            (week, received[week], completed[week]) for week in weeks
        ]
        took = sorted(_days(one.submitted_at, at) for one, at in ended)
        assert found.took == Counter(took)
        assert found.in_time == sum(at < one.deadline for one, at in ended)
        for percent in (50, 90):
            assert found.days_of(percent) == took[math.ceil(len(took) * percent / 100) - 1]
        assert min(found.overdue, found.paused, found.later, found.in_time, sum(found.due.values())) > 0
        assert found.weeks[-1].received > 0


def _week(day: datetime.date) -> datetime.date:
    return day - day.weekday() * DAY


def _days(start: datetime.datetime, end: datetime.datetime) -> int:
    """Return the number of whole days between two times, each rounded to the millisecond and then cut to whole seconds.
    Clocks may differ, so `end` can be before `start`."""
    begun, ended = (math.floor(round(moment.timestamp(), 3)) for moment in (start, end))
    return int((ended - begun) / 86400)


@pytest.mark.parametrize("discreet", [False, True])
def test_every_number_matches_a_list(stored: Installation, discreet: bool) -> None:
    """For each number in the summary, a list with the corresponding filters contains exactly that many requests."""
    view, zone = View(discreet=discreet, at=AT), "Europe/Berlin"
    with stored.database.reading(by=OFFICER) as session:
        found = summary.of_requests(session, view=view, zone=zone)

        def listed(*, clock: OpenClock | None = None, **bounds: datetime.date) -> int:
            sought = Sought(clock=clock, **{name: deadlines.midnight(day, zone=zone) for name, day in bounds.items()})
            return search_repository.count(session, sought, view=view, at_most=1000)

        for day, number in found.due.items():
            assert listed(clock="running", due_from=day, due_before=day + DAY) == number
        assert listed(clock="running", due_from=max(found.due) + DAY) == found.later
        assert (listed(clock="overdue"), listed(clock="paused")) == (found.overdue, found.paused)
        for week in found.weeks:
            after = week.starts + 7 * DAY
            assert listed(received_from=week.starts, received_before=after) == week.received
            assert listed(completed_from=week.starts, completed_before=after) == week.completed


def test_a_discreet_summary_does_not_change_with_completions(stored: Installation) -> None:
    """For a caller who must not learn whether data is held, the summary does not change when requests complete before
    their report time."""
    view = View(discreet=True, at=AT)
    done = sa.update(DeletionRequest).where(DeletionRequest.status.in_(("accepted", "running")))
    with stored.database.reading(by=OFFICER) as session:
        before = summary.of_requests(session, view=view, zone="UTC")
    with stored.database.writing() as session:
        session.execute(
            done.where(DeletionRequest.reported_at.is_not(None)).values(status="completed", completed_at=AT)
        )
    with stored.database.reading(by=OFFICER) as session:
        assert summary.of_requests(session, view=view, zone="UTC") == before


def test_a_limited_key_counts_only_its_own_requests(stored: Installation) -> None:
    """For a key that sees only its own requests, the summary counts no other requests."""
    app = Actor(tenant_id=DEFAULT_TENANT, name="app", maker="line_1")
    with stored.database.writing() as session:
        some = sa.update(DeletionRequest).where(DeletionRequest.id.in_([f"dr_{DEFAULT_TENANT}_{n}" for n in range(60)]))
        session.execute(some.values(maker="line_1", submitted_at=AT - DAY))
    with stored.database.reading(by=app) as session:
        found = summary.of_requests(session, view=View(discreet=True, at=AT), zone="UTC")
    assert [one.received for one in found.weeks] == [0] * (WEEKS - 1) + [60]


def test_a_summary_without_completions_has_no_percentiles(installation: Installation) -> None:
    """If no request was completed, the summary contains no completion times and all of its counts are 0."""
    with installation.database.reading(by=OFFICER) as session:
        found = summary.of_requests(session, view=View(discreet=False, at=AT), zone="UTC")
    assert (found.completed, found.days_of(50), found.days_of(90)) == (0, None, None)
    assert (set(found.due.values()), found.later, found.overdue, found.paused) == ({0}, 0, 0, 0)
