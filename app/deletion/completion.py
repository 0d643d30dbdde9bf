"""Completion of requests, and the time at which it is reported to callers who may not learn whether anything was
held."""

import datetime
from collections.abc import Mapping

from sqlalchemy.orm import Session

from app.access import service as access
from app.audit import service as audit
from app.db import now
from app.db.tables import OWED, DeletionRequest
from app.deletion import lookup, repository, status
from app.deletion.history import Change, tell
from app.rows import repository as rows_repository
from lethe.contract.policy import Policy
from lethe.contract.sets import EventKind, Outcome, RequestStatus


def complete_if_done(session: Session, request: DeletionRequest) -> None:
    """Complete a request that no dataset and no model owes anything. One in its grace time, or about somebody who may
    be held where nobody found them, `settling` completes."""
    at = now(session)
    if request.status not in (RequestStatus.ACCEPTED, RequestStatus.RUNNING) or is_held(request, at=at):
        return
    erasures = repository.erasures(session, request_id=request.id)
    owed = repository.request_models(session, request_id=request.id)
    if all(erasure.nulled_at for erasure in erasures) and not any(m.status in OWED for m in owed):
        if request.doubted_at is not None or is_in_doubt(request, rows_repository.doubtful(session)):
            request.doubted_at = request.doubted_at or at
            return
        policy = access.policy_of(session, request.tenant_id)
        outcome = outcome_of_erased(request, widened=lookup.widened(session, request_ids=[request.id]))
        tell(session, [complete(request, policy=policy, at=at, outcome=outcome, verb="completed")])


def outcome_of_erased(request: DeletionRequest, *, widened: set[tuple[str, str]]) -> Outcome:
    """The outcome of a request whose rows were erased. `widened`: requests, each with a dataset whose model had a weak
    target."""
    is_weak = any(request_id == request.id for request_id, _ in widened)
    return Outcome.TARGET_WIDENED if is_weak else Outcome.FORGOTTEN


def complete(
    request: DeletionRequest, *, policy: Policy, at: datetime.datetime, outcome: Outcome, verb: str | None = None
) -> Change:
    """Complete a request, whose change is still to be told. It is the service that completes, for every caller: an
    event with another actor would say that nothing was held. Raises `TransitionForbidden`."""
    status.check(request.status, RequestStatus.COMPLETED)
    request.status, request.outcome = RequestStatus.COMPLETED, outcome
    request.completed_at = at
    if request.reported_at is None:
        request.reported_at = _reported_anew(request, policy=policy, at=at)
    request.ended_at = request.reported_at
    kind = EventKind.NOTHING_HELD if outcome is Outcome.NOTHING_HELD else EventKind.COMPLETED
    ended = RequestStatus.COMPLETED
    return Change(request=request, kind=kind, status=ended, actor=audit.SERVICE, at=at, verb=verb)


def report_at(request: DeletionRequest, *, policy: Policy) -> datetime.datetime | None:
    """Time at which callers who may not know see that a request is completed: fixed as soon as it is accepted, by when
    work could begin and nothing else. None where the policy hides nothing from them."""
    if not policy.report_seconds:
        return None
    began = request.held_until or request.created_at
    return began + datetime.timedelta(seconds=policy.report_seconds)


def _reported_anew(request: DeletionRequest, *, policy: Policy, at: datetime.datetime) -> datetime.datetime:
    """The time of reporting for a request for which none was fixed: at once where nothing is hidden; else, for one that
    was accepted by an earlier release, at its deadline."""
    return max(at, request.deadline) if policy.report_seconds else at


def is_held(request: DeletionRequest, *, at: datetime.datetime) -> bool:
    """Return True during the request's grace time."""
    return request.held_until is not None and request.held_until > at


def is_in_doubt(request: DeletionRequest, doubtful: Mapping[str, str]) -> bool:
    """Return True if one of the datasets with damaged records, each with its tenant, is among those that the request is
    about: then nobody can say that it holds nothing of the person, or nothing more."""
    return any(
        tenant_id == request.tenant_id and asks_for(request, dataset_id) for dataset_id, tenant_id in doubtful.items()
    )


def asks_for(request: DeletionRequest, dataset_id: str) -> bool:
    """Return True if a dataset of its tenant is among those that the request is about."""
    return request.dataset_ids is None or dataset_id in request.dataset_ids
