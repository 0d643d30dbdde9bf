"""Acceptance and completion of requests.

Accepting a request determines its erasures and models from the rows held at that moment. Discreet callers, who may not
find out whether rows were held, see the request complete at a fixed time. If a request was waiting only for its grace
period to end or for damaged records to be repaired, its subject is looked up again before it completes, because a
record that was damaged at submission may have been repaired.
"""

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from app.audit import service as audit
from app.db import bulk, now, tables
from app.deletion import deadlines, history, repository, search_repository, status, suppression
from app.rows import repository as rows_repository
from lethe.contract.sets import EventKind, Outcome, RequestModelStatus, RequestStatus
from lethe.contract.tenants import Policy

_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """Request with its new erasures and models, and the changes that are not yet recorded."""

    actor: str
    request: tables.DeletionRequest
    erasures: list[tables.Erasure] = field(default_factory=list)
    models: list[tables.RequestModel] = field(default_factory=list)
    changes: list[history.Change] = field(default_factory=list)


def is_anything_held(request: tables.DeletionRequest, lookup: repository.Lookup) -> bool:
    """Return True if the request's datasets hold rows of the subject, including rows that are being erased."""
    dataset_ids = [*lookup.held(request.subject_refs), *lookup.joined(request.subject_refs)]
    return any(asks_for(request, dataset_id) for dataset_id in dataset_ids)


def accept(
    new: Submitted, lookup: repository.Lookup, *, policy: Policy, at: datetime.datetime, verb: str | None = None
) -> None:
    """Accept a request at `at`, and add its erasures and models, which become due when the grace period ends.

    Without a grace period, the request completes immediately if no rows are held or all are already erased. It stays
    open while damaged records or an unknown identity leave this uncertain. A `verb` marks the outcome of a review.
    """
    request = new.request
    # After a review, work can begin at the time of acceptance rather than of creation.
    if policy.grace_seconds or verb:
        # A grace period must not delay the erasure past the statutory deadline.
        latest = max(at, request.deadline - deadlines.BEFORE_THE_DEADLINE)
        request.held_until = min(at + datetime.timedelta(seconds=policy.grace_seconds), latest)
    request.reported_at = report_at(request, policy=policy)
    _ask(new, lookup)
    change(new, RequestStatus.ACCEPTED, at=at, verb=verb)
    # For all callers: response times must not reveal who is held.
    is_awaited = lookup.is_awaited(request)
    if request.unknown_at is not None or is_in_doubt(request, lookup.doubtful):
        request.doubted_at = at
    elif not deadlines.is_held(request, at=at) and (outcome := _outcome(new, lookup)) is not None:
        if is_awaited:
            # `settle` completes the request when the work of features has ended.
            request.held_until = at
        else:
            new.changes.append(complete(request, policy=policy, at=at, outcome=outcome))


def _ask(new: Submitted, lookup: repository.Lookup, *, besides: Collection[str] = ()) -> None:
    """Add to `new` erasures in the request's datasets except `besides`, and models that used or may use the rows."""
    request = new.request
    holding = sorted(lookup.held(request.subject_refs) - set(besides))
    for dataset_id in holding:
        if asks_for(request, dataset_id):
            _add_erasure(new, dataset_id, models=lookup.models.get(dataset_id, ()))
    for dataset_id, joined in lookup.joined(request.subject_refs).items():
        if asks_for(request, dataset_id) and dataset_id not in {*holding, *besides}:
            _add_erasure(new, dataset_id, models=joined.models, joined=joined)


def _add_erasure(
    new: Submitted, dataset_id: str, *, models: Sequence[str], joined: repository.JoinedErasure | None = None
) -> None:
    """Add the erasure of one dataset's rows, and its models. With `joined`, join the erasure that claimed the rows."""
    new.erasures.append(
        bulk.new(
            tables.Erasure,
            id=tables.new_id("era"),
            request_id=new.request.id,
            dataset_id=dataset_id,
            revision=joined and joined.revision,
            num_records=joined and joined.num_records,
            num_claimed=0,
            nulled_at=joined and joined.nulled_at,
        )
    )
    new.models.extend(
        bulk.new(
            tables.RequestModel,
            request_id=new.request.id,
            model_id=model_id,
            status=RequestModelStatus.PENDING,
            requested_at=new.request.created_at,
        )
        for model_id in models
    )


def _outcome(new: Submitted, lookup: repository.Lookup) -> Outcome | None:
    """Return the outcome of a request that has no pending erasures or models; None if any are pending."""
    if not new.erasures:
        new.request.erased_by = lookup.erased_by(new.request)
        return Outcome.ERASED_ALREADY if new.request.erased_by else Outcome.NOTHING_HELD
    if new.models or not all(erasure.nulled_at for erasure in new.erasures):
        return None
    joined = lookup.joined(new.request.subject_refs)
    is_widened = any(joined[erasure.dataset_id].widened for erasure in new.erasures)
    has_erased = any(erasure.num_records for erasure in new.erasures)
    return _outcome_of_erased(new.request, has_erased=has_erased, is_widened=is_widened)


def _outcome_of_erased(request: tables.DeletionRequest, *, has_erased: bool, is_widened: bool) -> Outcome:
    """Return the outcome of a request whose erasures are all done. `is_widened` is True if a model's target exceeds the
    default bounds. A request that `has_erased` rows itself, or joined their erasure, gets no `erased_by`."""
    if has_erased:
        request.erased_by = None
    if request.erased_by is not None:
        return Outcome.ERASED_ALREADY
    return Outcome.TARGET_WIDENED if is_widened else Outcome.FORGOTTEN


def change(new: Submitted, wanted: RequestStatus, *, at: datetime.datetime, verb: str | None = None) -> None:
    """Change the status of a request, or raise `TransitionForbidden`. `store` records and announces the change."""
    status.check(new.request.status, wanted)
    new.request.status = wanted
    kind = status.entered(wanted)
    new.changes.append(history.Change(request=new.request, kind=kind, status=wanted, actor=new.actor, at=at, verb=verb))


def store(session: Session, submitted: Sequence[Submitted], *, at: datetime.datetime, new: bool = False) -> None:
    """Store erasures, models and changes, and announce the changes. With `new`, also store the requests."""
    requests = [item.request for item in submitted]
    changes = [change for item in submitted for change in item.changes]
    with bulk.together(session):
        if new:
            bulk.store(session, tables.DeletionRequest, requests)
            aliases = [(request.id, ref) for request in requests for ref in request.subject_refs[1:]]
            bulk.store(session, tables.RequestAlias, [{"request_id": id_, "subject_ref": ref} for id_, ref in aliases])
        history.write(session, changes)
        _store_erasures(session, submitted)
        accepted = [request for request in requests if request.status != RequestStatus.IN_REVIEW]
        suppression.add(session, accepted, at=at)
    history.announce(session, changes)


def _store_erasures(session: Session, submitted: Sequence[Submitted]) -> None:
    """Store the erasures and models of requests that are already stored."""
    for item in submitted:
        repository.line_up(item.request, item.erasures)
    bulk.store(session, tables.Erasure, [erasure for item in submitted for erasure in item.erasures])
    bulk.store(session, tables.RequestModel, [model for item in submitted for model in item.models])


def complete_done(session: Session, requests: Collection[tables.DeletionRequest]) -> None:
    """Complete each request whose erasures and models are all done and for which no feature has open work. Requests in
    their grace period, or whose person may be in damaged records, are left to `settle`."""
    at = now(session)
    in_hand = (RequestStatus.ACCEPTED, RequestStatus.RUNNING)
    in_question = [
        request for request in requests if request.status in in_hand and not deadlines.is_held(request, at=at)
    ]
    done = repository.done(session, request_ids=[request.id for request in in_question])
    if not done:
        return
    doubtful = rows_repository.doubtful(session)
    changes: list[history.Change] = []
    for request in [request for request in in_question if request.id in done]:
        if request.doubted_at is not None or is_in_doubt(request, doubtful):
            request.doubted_at = request.doubted_at or at
            continue
        has_erased, is_widened, is_awaited, policy = done[request.id]
        if is_awaited:
            # This lets `settle` complete the request when the work of features has ended.
            request.held_until = request.held_until or at
            continue
        outcome = _outcome_of_erased(request, has_erased=has_erased, is_widened=is_widened)
        changes.append(complete(request, policy=Policy.stored(policy), at=at, outcome=outcome, verb="completed"))
    history.record(session, changes)


def complete(
    request: tables.DeletionRequest, *, policy: Policy, at: datetime.datetime, outcome: Outcome, verb: str | None = None
) -> history.Change:
    """Complete a request and return the unrecorded change, or raise `TransitionForbidden`. The actor is always the
    service: another actor in the event would reveal that nothing was held."""
    status.check(request.status, RequestStatus.COMPLETED)
    request.status, request.outcome = RequestStatus.COMPLETED, outcome
    request.completed_at = at
    if request.reported_at is None:
        # The deadline hides the time of completion if the policy began to hide it after the acceptance.
        request.reported_at = max(at, request.deadline) if policy.report_seconds else at
    request.ended_at = request.reported_at
    kind = EventKind.NOTHING_HELD if outcome is Outcome.NOTHING_HELD else EventKind.COMPLETED
    return history.Change(request=request, kind=kind, status=request.status, actor=audit.SERVICE, at=at, verb=verb)


def report_at(request: tables.DeletionRequest, *, policy: Policy) -> datetime.datetime | None:
    """Return the time at which discreet callers see a request as completed; None if the policy hides nothing. It is
    fixed at acceptance and depends only on the earliest time at which work can begin."""
    if not policy.report_seconds:
        return None
    began = request.held_until or request.created_at
    return began + datetime.timedelta(seconds=policy.report_seconds)


def is_in_doubt(request: tables.DeletionRequest, doubtful: Mapping[str, str]) -> bool:
    """Return True if the request covers a dataset with damaged records, which may hold undetected rows of the person.
    `doubtful` maps each such dataset to its tenant."""
    return any(
        tenant_id == request.tenant_id and asks_for(request, dataset_id) for dataset_id, tenant_id in doubtful.items()
    )


def asks_for(request: tables.DeletionRequest, dataset_id: str) -> bool:
    """Return True if the request covers this dataset of its tenant."""
    return request.dataset_ids is None or dataset_id in request.dataset_ids


def settle(session: Session, *, limit: int = _AT_ONCE) -> int:
    """Complete up to `limit` requests that can stop waiting, or add erasures for rows found only now; return how many.

    Requests whose subject may be in damaged records continue to wait. A request without rows waits for its grace period
    like any other, so that callers cannot tell the difference.
    """
    at = now(session)
    settled = repository.settled(session, at=at, limit=limit)
    done = repository.done(session, request_ids=[request.id for request, _ in settled])
    refs = {ref for request, _ in settled for ref in request.subject_refs}
    since = min((request.submitted_at for request, _ in settled), default=at)
    lookup = repository.look_up(session, subject_refs=refs, since=since)
    having = [request.id for request, has_erasures in settled if has_erasures]
    by_request = repository.by_request(session, tables.Erasure, having)
    updates: list[Submitted] = []
    for request, _ in settled:
        new = Submitted(actor=audit.SERVICE, request=request)
        erasures = by_request.get(request.id, [])
        has_erased, is_widened, _, policy = done[request.id]
        _ask(new, lookup, besides=_done_with(session, request, lookup, erasures))
        outcome = _outcome(new, lookup)
        if outcome is not None:
            if erasures and outcome is not Outcome.TARGET_WIDENED:
                outcome = _outcome_of_erased(request, has_erased=has_erased, is_widened=is_widened)
            done_now = complete(request, policy=Policy.stored(policy), at=at, outcome=outcome, verb="completed")
            new.changes.append(done_now)
        updates.append(new)
    _store_erasures(session, updates)
    history.record(session, [change for new in updates for change in new.changes])
    return len(settled)


def _done_with(
    session: Session, request: tables.DeletionRequest, lookup: repository.Lookup, erasures: Iterable[tables.Erasure]
) -> set[str]:
    """Return the datasets that `erasures` cover, and those that hold the person's rows under a later consent."""
    own, refs = {erasure.dataset_id for erasure in erasures}, request.subject_refs
    return own | {
        other for other in lookup.held(refs) - own if not search_repository.suppressed_people(session, other, refs)
    }
