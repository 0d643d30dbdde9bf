import datetime

from hypothesis import given, strategies as st

from app.db import now
from app.db.tables import DeletionRequest
from app.deletion import completion, service as deletion
from app.installations import Installation
from app.unlearning import queue, service as unlearning
from lethe.contract.tenants import Policy
from tests.app.deletion import people
from tests.app.deletion.people import OFFICER

BEGAN = datetime.datetime(2026, 5, 1, tzinfo=datetime.UTC)
PASSED = st.timedeltas(min_value=datetime.timedelta(0), max_value=datetime.timedelta(days=400))


@given(every=st.integers(1, 30 * 86400), held=st.none() | PASSED)
def test_the_report_time_does_not_depend_on_the_outcome(every: int, held: datetime.timedelta | None) -> None:
    """Whatever its outcome, a request is reported as completed `report_seconds` after it was made or, if it has a grace
    period, after that period has ended."""
    began = BEGAN + (held or datetime.timedelta(0))
    request = DeletionRequest(created_at=BEGAN, held_until=None if held is None else began)
    reported = completion.report_at(request, policy=Policy(report_seconds=every))
    assert reported == began + datetime.timedelta(seconds=every)


def test_there_is_no_report_time_if_report_seconds_is_zero() -> None:
    """A request has no report time if `report_seconds` is 0."""
    assert completion.report_at(DeletionRequest(created_at=BEGAN), policy=Policy(report_seconds=0)) is None


def test_the_report_time_is_known_when_a_request_is_accepted(installation: Installation) -> None:
    """A request's report time is set when the request is accepted. It does not depend on whether rows are held, and
    later work does not change it."""
    policy = Policy(report_seconds=3600)
    with installation.database.writing() as session:
        people.obey(session, policy)
        people.hold(session, ["sub_a"])
        held, stranger = (people.ask(session, who, policy).request for who in ("sub_a", "sub_b"))
        assert (held.status, stranger.status) == ("accepted", "completed")
        for request in (held, stranger):
            assert request.reported_at == request.created_at + datetime.timedelta(hours=1)
        run = queue.claim(session, worker="test", lease_seconds=60, max_requests=9)
        assert run
        people.later(session, datetime.timedelta(hours=5))
    with installation.database.writing() as session:
        unlearning.confirm_edited(session, run_id=run.run_id)
        unlearning.finish(session, run_id=run.run_id)
        late, stranger = (deletion.get(session, one.id) for one in (held, stranger))
        assert late.status == "completed"
        for request in (late, stranger):
            assert request.reported_at == request.ended_at == request.created_at + datetime.timedelta(hours=1)


def test_a_grace_period_outlasts_an_erasure_for_another_request(installation: Installation) -> None:
    """If the rows are erased for another request during the grace period, the request still waits for its grace period
    to end and can be cancelled until then."""
    with installation.database.writing() as session:
        people.hold(session, ["sub_a"])
        people.ask(session, "sub_a", Policy())
        run = queue.claim(session, worker="test", lease_seconds=60, max_requests=9)
        assert run
        patient = Policy(grace_seconds=3600)
        people.obey(session, patient)
        follower, cancelled = (people.ask(session, "sub_a", patient).request.id for _ in range(2))
    with installation.database.writing(by=OFFICER) as session:
        deletion.cancel(session, deletion.get(session, cancelled), discreet=True)
    with installation.database.writing() as session:
        unlearning.confirm_edited(session, run_id=run.run_id)
        unlearning.finish(session, run_id=run.run_id)
        assert deletion.get(session, follower).status == "accepted"
        assert deletion.get(session, cancelled).status == "cancelled"
        assert completion.settle(session) == 0
        people.later(session, datetime.timedelta(hours=1))
    with installation.database.writing() as session:
        assert completion.settle(session) == 1
        done = deletion.get(session, follower)
        assert (done.status, done.outcome, done.erased_by) == ("completed", "forgotten", None)


def test_a_grace_period_ends_a_week_before_the_deadline(installation: Installation) -> None:
    """The grace period ends at the latest a week before the deadline. For a request that is already late, it ends at
    once."""
    patient = Policy(grace_seconds=30 * 86400)
    with installation.database.writing() as session:
        people.hold(session, ["sub_a"])
        moment = now(session)
        due = moment - datetime.timedelta(days=20)
        soon = people.ask(session, "sub_a", patient, submitted_at=due).request
        late = people.ask(session, "sub_a", patient, submitted_at=due - datetime.timedelta(days=90)).request
        assert soon.held_until == soon.deadline - datetime.timedelta(days=7)
        assert late.held_until == late.created_at


def test_a_request_waits_for_every_dataset_and_model(installation: Installation) -> None:
    """A request completes only when all its rows are null and no model owes it a version."""
    with installation.database.writing() as session:
        people.hold(session, ["sub_a"])
        people.hold(session, ["sub_a"], dataset_id="ds_2")
        new = people.ask(session, "sub_a", Policy())
        request = deletion.get(session, new.request.id)
        for _ in ("ds_1", "ds_2"):
            completion.complete_done(session, [request])
            assert request.status != "completed"
            run = queue.claim(session, worker="test", lease_seconds=60, max_requests=9)
            assert run
            unlearning.confirm_edited(session, run_id=run.run_id)
            unlearning.finish(session, run_id=run.run_id)
        assert request.status == "completed"
        assert request.completed_at is not None
        assert request.completed_at <= now(session)
