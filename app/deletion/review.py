"""Decisions of a privacy officer about a request: approve it, reject it, extend its deadline, stop its clock.

What was decided before is not decided again: to approve an accepted request, to reject a rejected one on the same
ground, to pause a paused clock or to let a running one run changes nothing and is no error. A second extension is one.
"""

import datetime

from sqlalchemy.orm import Session

from app.audit import service as audit
from app.db import now
from app.db.tables import DeletionRequest
from app.deletion import acceptance, deadlines, history, lookup, repository, retention, status
from app.deletion import service as deletion
from app.deletion.acceptance import Submitted
from app.deletion.history import Change
from app.deletion.views import View
from lethe.contract.policy import Policy
from lethe.contract.problems import (
    AlreadyExtended,
    ClockRunsOn,
    ExtensionNotProvided,
    ExtensionTooLate,
    TransitionForbidden,
)
from lethe.contract.sets import ClockState, EventKind, RejectionGround, RequestStatus


def approve(session: Session, request: DeletionRequest, *, policy: Policy) -> None:
    """Accept a request that is in review; what is held of the person by now is what it asks for.

    Raises `TransitionForbidden` for one that was rejected or cancelled.
    """
    if request.status in (RequestStatus.ACCEPTED, RequestStatus.RUNNING, RequestStatus.COMPLETED):
        return
    status.check(request.status, RequestStatus.ACCEPTED)
    at, by = now(session), audit.actor_of(session)
    new = Submitted(actor=by, request=request, erasures=[], models=[], changes=[])
    if request.paused_at is not None:
        deletion.run_on(request, at=at)
        new.changes.append(Change(request=request, kind=EventKind.RESUMED, status=request.status, actor=by, at=at))
    found = lookup.look_up(session, subject_refs=request.subject_refs)
    acceptance.accept(new, found, policy=policy, at=at, verb="approved")
    acceptance.store(session, [new], at=at)


def reject(session: Session, request: DeletionRequest, *, ground: RejectionGround, explanation: str) -> None:
    """Refuse to forget, on a ground that the law knows. Raises `TransitionForbidden` once a worker claimed the rows; of
    a request by somebody who may not know what is held, once its grace time is over."""
    if request.status == RequestStatus.REJECTED and request.rejection_ground == ground:
        return
    request.rejection_ground = ground
    retention.add(request, rejection_explanation=explanation)
    deletion.withdraw(session, request, RequestStatus.REJECTED, verb="rejected", discreet=request.discreet)


def extend(session: Session, request: DeletionRequest, *, policy: Policy, reason: str) -> None:
    """Extend the deadline, once and while it has not passed; `reason` is what the person is told. Of a request by
    somebody who may not know what is held, as long as it seems open to them.

    Raises `TransitionForbidden`, `AlreadyExtended`, `ExtensionTooLate`, `ExtensionNotProvided`.
    """
    at = now(session)
    if not View(discreet=request.discreet, at=at).is_open(request):
        raise TransitionForbidden(f"A request that is {request.status} has no clock any more.")
    if request.extended_due_at is not None:
        raise AlreadyExtended("A deadline can be extended once.")
    if (request.paused_at or at) >= request.due_at:
        raise ExtensionTooLate("A deadline can be extended only before it has passed.")
    limit = deadlines.limits(policy).get(request.regulation)
    extended = deadlines.extended(limit, request.due_at, zone=policy.time_zone) if limit else request.due_at
    if extended <= request.due_at:
        raise ExtensionNotProvided("The regulation of this request provides for no extension.")
    request.extended_due_at = request.deadline = extended
    request.alerted = None
    retention.add(request, extension_reason=reason)
    history.note(session, request, EventKind.EXTENDED, at=at, verb="extended")


def pause(session: Session, request: DeletionRequest, *, policy: Policy) -> None:
    """Stop the clock while the person's identity is being established: in review, where the regulation lets it stop.

    Raises `TransitionForbidden`, `ClockRunsOn`.
    """
    at = now(session)
    _check_in_review(request)
    if request.paused_at is not None:
        return
    limit = deadlines.limits(policy).get(request.regulation)
    if limit is None or not limit.may_pause:
        raise ClockRunsOn("Under the regulation of this request the time runs however long verifying takes.")
    request.paused_at = at
    history.note(session, request, EventKind.PAUSED, at=at, verb="paused")


def resume(session: Session, request: DeletionRequest) -> None:
    """Let the clock run again: the deadline moves by the time it stood still. Raises `TransitionForbidden`."""
    at = now(session)
    _check_in_review(request)
    if request.paused_at is None:
        return
    deletion.run_on(request, at=at)
    history.note(session, request, EventKind.RESUMED, at=at, verb="resumed")


def alert(session: Session, horizon: datetime.timedelta, *, limit: int = 500) -> int:
    """Tell of open requests that are due within `horizon`, and of those that are overdue, each once; a paused clock is
    neither. Returns how many (`limit` at most, those that are due first)."""
    at = now(session)
    found = repository.to_alert(session, at=at, horizon=horizon, limit=limit)
    changes = []
    for request in found:
        is_overdue = request.deadline <= at
        request.alerted = ClockState.OVERDUE if is_overdue else ClockState.AT_RISK
        kind = EventKind.OVERDUE if is_overdue else EventKind.AT_RISK
        by = audit.actor_of(session)
        changes.append(Change(request=request, kind=kind, status=request.status, actor=by, at=at))
    history.tell(session, changes)
    return len(changes)


def _check_in_review(request: DeletionRequest) -> None:
    if request.status != RequestStatus.IN_REVIEW:
        raise TransitionForbidden(
            f"The clock can be stopped while a request is in review; this one is {request.status}."
        )
