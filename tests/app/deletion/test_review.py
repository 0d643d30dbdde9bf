import datetime

import pytest

from app.db.tables import AuditEntry, DeletionRequest, Erasure, RequestEvent
from app.deletion import completion, repository, service as deletion
from app.installations import Installation
from lethe.contract.problems import (
    AlreadyExtended,
    ClockRunsOn,
    ExtensionNotProvided,
    ExtensionTooLate,
    InputInvalid,
    Problem,
    TransitionForbidden,
)
from lethe.contract.sets import EventKind, RejectionGround, RequestStatus
from lethe.contract.tenants import Policy, TimeLimit
from tests.app.deletion import people
from tests.app.deletion.people import OFFICER

REVIEWED = Policy(auto_accept=False)
A_DAY = datetime.timedelta(days=1)


def events_of(installation: Installation, request_id: str) -> list[RequestEvent]:
    with installation.database.reading() as session:
        return repository.events(session, request_id=request_id)


def actions_of(installation: Installation, request_id: str) -> list[tuple[str, str]]:
    with installation.database.reading(by=OFFICER) as session:
        found = session.query(AuditEntry).filter_by(object_id=request_id).order_by(AuditEntry.sequence)
        return [(entry.action.removeprefix("deletion_request."), entry.actor) for entry in found]


def test_a_request_in_review_claims_nothing(installation: Installation) -> None:
    """A request in review claims no rows. Once approved, it covers all rows held at that time, including rows added
    during the review, and names the officer as its actor."""
    with installation.database.writing() as session:
        people.hold(session, ["sub_a"])
        request_id = people.ask(session, "sub_a", REVIEWED).request.id
        people.hold(session, ["sub_a"], dataset_id="ds_2")
        assert repository.by_request(session, Erasure, [request_id]) == {}
        assert repository.pending_erasures(session, dataset_id="ds_1", limit=9) == []
    for _ in range(2):  # repeating it changes nothing
        with installation.database.writing(by=OFFICER) as session:
            deletion.approve(session, deletion.get(session, request_id), policy=REVIEWED)
    with installation.database.reading() as session:
        erasures = repository.by_request(session, Erasure, [request_id])[request_id]
        assert {erasure.dataset_id for erasure in erasures} == {"ds_1", "ds_2"}
        assert len(repository.pending_erasures(session, dataset_id="ds_2", limit=9)) == 1
    told = [(event.status, event.actor) for event in events_of(installation, request_id)]
    assert told == [("received", "officer"), ("in_review", "officer"), ("accepted", "officer")]
    assert actions_of(installation, request_id) == [("created", "officer"), ("approved", "officer")]


def test_a_rejection_has_a_ground(installation: Installation) -> None:
    """A request can be rejected on a legal ground, both in review and after acceptance. Repeating the rejection with
    the same ground is a no-op; another ground or an approval is then refused."""
    with installation.database.writing() as session:
        people.hold(session, ["sub_a"])
        ids = [people.ask(session, "sub_a", policy).request.id for policy in (REVIEWED, Policy())]
    ground = RejectionGround.PUBLIC_HEALTH
    for request_id in ids:
        for _ in range(2):
            with installation.database.writing(by=OFFICER) as session:
                deletion.reject(session, deletion.get(session, request_id), ground=ground, explanation="an epidemic")
        with installation.database.writing(by=OFFICER) as session:
            request = deletion.get(session, request_id)
            assert (request.status, request.rejection_ground, request.particulars.rejection_explanation) == (
                "rejected",
                "public_health",
                "an epidemic",
            )
            with pytest.raises(TransitionForbidden):
                deletion.reject(session, request, ground=RejectionGround.LEGAL_CLAIMS, explanation="other")
            with pytest.raises(TransitionForbidden):
                deletion.approve(session, request, policy=REVIEWED)
        assert actions_of(installation, request_id)[1:] == [("rejected", "officer")]


@pytest.mark.parametrize(("regulation", "days"), [("gdpr", 59), ("ccpa", 45), ("other", 30)])
def test_a_deadline_is_extended_once(installation: Installation, regulation: str, days: int) -> None:
    """A deadline can be extended only once and only with a reason; `due_at` keeps the original deadline."""
    asked_at = datetime.datetime(2026, 1, 10, 12, tzinfo=datetime.UTC)
    with installation.database.writing(by=OFFICER) as session:
        request = deletion.get(
            session, people.ask(session, "sub_a", REVIEWED, regulation=regulation, submitted_at=asked_at).request.id
        )
        due_at = request.due_at
        people.later(session, -400 * A_DAY)  # so that the request is not late yet
        deletion.extend(session, request, policy=REVIEWED, reason="so many")
        assert (request.due_at, request.particulars.extension_reason) == (due_at + 400 * A_DAY, "so many")
        assert request.extended_due_at == request.deadline
        assert abs(request.deadline - request.due_at - days * A_DAY) <= 3 * A_DAY
        with pytest.raises(AlreadyExtended):
            deletion.extend(session, request, policy=REVIEWED, reason="again")
    assert actions_of(installation, request.id)[1:] == [("extended", "officer")]


def test_a_late_extension_is_refused(installation: Installation) -> None:
    """An extension is refused after the original deadline, after the request has ended, and under a regulation without
    extensions."""
    own = Policy(auto_accept=False, regulations={"strict": TimeLimit(days=3)})
    refused: list[type[Problem]] = []
    with installation.database.writing(by=OFFICER) as session:
        late, strict, ended = (
            deletion.get(session, people.ask(session, "sub_a", own, regulation=name).request.id)
            for name in ("gdpr", "strict", "gdpr")
        )
        deletion.cancel(session, ended, discreet=False)
        for request, passed in ((strict, 0), (ended, 0), (late, 32)):
            people.later(session, passed * A_DAY)
            with pytest.raises(Problem) as error:
                deletion.extend(session, request, policy=own, reason="late")
            refused.append(type(error.value))
    assert refused == [ExtensionNotProvided, TransitionForbidden, ExtensionTooLate]


def test_the_clock_is_paused_while_the_sender_is_unverified(installation: Installation) -> None:
    """If the sender of a request could not be identified as the subject, the request waits in review with its clock
    paused. Any action that resumes the clock moves both the original and the extended deadline by the duration of the
    pause."""
    with installation.database.writing(by=OFFICER) as session:
        ids = [people.ask(session, "sub_a", Policy(), identity_verified=False).request.id for _ in range(3)]
        one, other, third = (deletion.get(session, request_id) for request_id in ids)
        assert {request.status for request in (one, other, third)} == {RequestStatus.IN_REVIEW}
        deletion.extend(session, one, policy=Policy(), reason="so many")
        given = one.due_at - one.created_at, one.deadline - one.created_at
        people.later(session, 50 * A_DAY)  # paused: no deadline has passed
        assert deletion.alert(session, 7 * A_DAY) == 0
        for _ in range(2):  # repeating it changes nothing
            deletion.resume(session, one)
        deletion.approve(session, other, policy=Policy())
        deletion.reject(session, third, ground=RejectionGround.IDENTITY_NOT_ESTABLISHED, explanation="no answer")
        moved = one.due_at - one.created_at - given[0], one.deadline - one.created_at - given[1]
        assert moved[0] == moved[1]
        assert 50 * A_DAY <= moved[0] < 51 * A_DAY
        for request in (one, other, third):
            assert request.paused_at is None
            assert request.due_at - request.created_at >= 28 * A_DAY + 50 * A_DAY
    assert actions_of(installation, ids[0])[1:] == [("extended", "officer"), ("resumed", "officer")]
    assert [event.kind for event in events_of(installation, ids[1])] == [
        EventKind.RECEIVED,
        EventKind.IN_REVIEW,
        EventKind.PAUSED,
        EventKind.RESUMED,
        EventKind.ACCEPTED,
        EventKind.NOTHING_HELD,
    ]


def test_the_clock_is_not_paused_under_the_ccpa_or_after_acceptance(installation: Installation) -> None:
    """An unverified sender does not pause the clock under the CCPA, and no action pauses it once a request has been
    accepted."""
    with installation.database.writing(by=OFFICER) as session:
        people.hold(session, ["sub_a"])
        ccpa = deletion.get(
            session, people.ask(session, "sub_a", Policy(), regulation="ccpa", identity_verified=False).request.id
        )
        assert (ccpa.status, ccpa.paused_at) == ("in_review", None)
        with pytest.raises(ClockRunsOn):
            deletion.pause(session, ccpa, policy=Policy())
        accepted = deletion.get(session, people.ask(session, "sub_a", Policy()).request.id)
        for act in (
            lambda: deletion.pause(session, accepted, policy=Policy()),
            lambda: deletion.resume(session, accepted),
        ):
            with pytest.raises(TransitionForbidden):
                act()


def test_a_regulation_must_be_known(installation: Installation) -> None:
    """A request must name either a built-in regulation or one added by the tenant's policy."""
    with installation.database.writing() as session:
        own = Policy(regulations={"lgpd": TimeLimit(days=15)})
        assert people.ask(session, "sub_a", own, regulation="lgpd").request.regulation == "lgpd"
        with pytest.raises(InputInvalid) as error:
            people.ask(session, "sub_a", Policy(), regulation="lgpd")
    assert [fault.path for fault in error.value.errors] == ["regulation"]


def test_a_deadline_raises_alerts_once(installation: Installation) -> None:
    """An open request raises one alert when its deadline is near and another when it has passed. If the deadline is
    extended in between, both are raised again."""
    with installation.database.writing() as session:
        request = deletion.get(session, people.ask(session, "sub_a", REVIEWED).request.id)
        counts = []
        for days in (1, 26, 0, 6, 0):
            people.later(session, days * A_DAY)
            counts.append(deletion.alert(session, 7 * A_DAY))
        assert counts == [0, 1, 0, 1, 0]
        assert request.alerted == "overdue"
    assert [event.kind for event in events_of(installation, request.id)][2:] == [EventKind.AT_RISK, EventKind.OVERDUE]
    with installation.database.writing() as session:
        extended = deletion.get(session, people.ask(session, "sub_b", REVIEWED).request.id)
        people.later(session, 27 * A_DAY)
        assert deletion.alert(session, 7 * A_DAY) == 1
        deletion.extend(session, extended, policy=REVIEWED, reason="so many")
        assert deletion.alert(session, 7 * A_DAY) == 0
        people.later(session, 60 * A_DAY)
        assert deletion.alert(session, 7 * A_DAY) == 1


def test_no_request_is_claimed_during_its_grace_period(installation: Installation) -> None:
    """During the grace period, no worker claims a request, any caller can cancel it, and a request about an unknown
    person stays open. The request completes after the grace period."""
    policy = Policy(grace_seconds=3600)
    with installation.database.writing() as session:
        people.obey(session, policy)
        people.hold(session, ["sub_a", "sub_b"])
        held, cancelled, unknown = (
            people.ask(session, person, policy).request.id for person in ("sub_a", "sub_b", "sub_c")
        )
        assert repository.pending_erasures(session, dataset_id="ds_1", limit=9) == []
        deletion.cancel(session, deletion.get(session, cancelled), discreet=True)
        assert completion.settle(session) == 0
        assert session.get_one(DeletionRequest, unknown).status == "accepted"
        people.later(session, datetime.timedelta(hours=1))
    with installation.database.writing() as session:
        assert completion.settle(session) == 1
        assert completion.settle(session) == 0
        done = session.get_one(DeletionRequest, unknown)
        assert (done.status, done.outcome) == ("completed", "nothing_held")
        assert [found.id for _, found in repository.pending_erasures(session, dataset_id="ds_1", limit=9)] == [held]
        with pytest.raises(TransitionForbidden):
            deletion.cancel(session, deletion.get(session, held), discreet=True)
        deletion.cancel(session, deletion.get(session, held), discreet=False)
