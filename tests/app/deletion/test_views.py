import datetime

import pytest

from app.db.tables import DeletionRequest, RequestEvent
from app.deletion import status as statuses
from app.deletion.views import View
from lethe.contract.sets import EventKind, RequestStatus

NOW = datetime.datetime(2026, 5, 1, tzinfo=datetime.UTC)
A_MINUTE = datetime.timedelta(minutes=1)
APP, OFFICER = (View(discreet=discreet, at=NOW) for discreet in (True, False))


def request(status: RequestStatus, *, reported_in: datetime.timedelta = A_MINUTE) -> DeletionRequest:
    done = NOW - A_MINUTE if status == RequestStatus.COMPLETED else None
    return DeletionRequest(
        status=status,
        outcome="forgotten" if done else None,
        created_at=NOW - 9 * A_MINUTE,
        completed_at=done,
        reported_at=NOW + reported_in if done else None,
        deadline=NOW + 9 * A_MINUTE,
    )


@pytest.mark.parametrize("status", RequestStatus)
def test_an_officer_sees_the_true_status(status: RequestStatus) -> None:
    """A caller who is allowed to know what is held sees the true status of a request."""
    assert OFFICER.status(request(status)) == status
    assert OFFICER.completed_at(request(status)) == request(status).completed_at


@pytest.mark.parametrize("status", RequestStatus)
def test_an_app_does_not_see_work_in_progress(status: RequestStatus) -> None:
    """An app sees a request as accepted while it is running and until its completion is reported; all other statuses
    are shown unchanged."""
    hidden = status in (RequestStatus.RUNNING, RequestStatus.COMPLETED)
    seen = request(status)
    assert APP.status(seen) == ("accepted" if hidden else status)
    assert APP.completed_at(seen) is None
    assert APP.is_open(seen) == (hidden or seen.status in ("received", "in_review", "accepted"))
    assert (APP.clock(seen, horizon=A_MINUTE).state == "ended") != APP.is_open(seen)


def test_a_completion_is_shown_once_reported() -> None:
    """A completion is shown only from the request's report time on, and the report time is shown as the time of
    completion."""
    done = request(RequestStatus.COMPLETED, reported_in=datetime.timedelta(0))
    assert (APP.status(done), APP.completed_at(done)) == ("completed", NOW)


def event(status: RequestStatus, kind: EventKind | None = None, actor: str = "lethe") -> RequestEvent:
    kind = kind or statuses.entered(status)
    return RequestEvent(status=status, kind=kind, actor=actor, at=NOW - A_MINUTE)


def test_an_app_sees_only_events_independent_of_held_data() -> None:
    """An app sees only events that do not depend on what is held: a single acceptance, decisions about the clock, and
    the reported completion. Events about runs, rows and alerts are hidden."""
    events = [
        event(RequestStatus.RECEIVED, actor="key_1"),
        event(RequestStatus.ACCEPTED, actor="key_1"),
        event(RequestStatus.RUNNING),
        event(RequestStatus.RUNNING, EventKind.ROWS_ERASED),
        event(RequestStatus.RUNNING, EventKind.EXTENDED, actor="key_2"),
        event(RequestStatus.RUNNING, EventKind.AT_RISK),
        event(RequestStatus.ACCEPTED, EventKind.HANDED_BACK),
        event(RequestStatus.RUNNING),
        event(RequestStatus.COMPLETED),
    ]
    assert len(OFFICER.events(request(RequestStatus.COMPLETED), events)) == len(events)
    unreported = APP.events(request(RequestStatus.COMPLETED), events)
    assert [(one.status, one.kind, one.actor) for one in unreported] == [
        ("received", EventKind.RECEIVED, "key_1"),
        ("accepted", EventKind.ACCEPTED, "key_1"),
        ("accepted", EventKind.EXTENDED, "key_2"),
    ]
    [*others, last] = APP.events(request(RequestStatus.COMPLETED, reported_in=-A_MINUTE), events)
    assert others == unreported
    assert (last.status, last.kind) == ("completed", EventKind.COMPLETED)
    assert (last.actor, last.at) == ("lethe", NOW - A_MINUTE)


@pytest.mark.parametrize("happened", EventKind)
def test_unlisted_events_are_hidden_from_an_app(happened: EventKind) -> None:
    """An app sees no event about runs, rows, alerts or the actual completion."""
    shown = APP.events(request(RequestStatus.RUNNING), [event(RequestStatus.RUNNING, happened)])
    seen = {"received", "in_review", "accepted", "rejected", "cancelled", "extended", "paused", "resumed"}
    assert [one.kind for one in shown] == [happened] * (happened in seen)
