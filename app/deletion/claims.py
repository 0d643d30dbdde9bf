"""Workers' steps on requests: claim rows, confirm that they are null, and complete requests or hand them back."""

import datetime
from collections.abc import Sequence

from sqlalchemy.orm import Session

from app.db import now, tables
from app.deletion import completion, deadlines, history, repository, status
from lethe.contract.sets import EventKind, RequestModelStatus, RequestStatus


def claim_erasures(session: Session, *, dataset: tables.Dataset, limit: int) -> None:
    """Claim the rows of up to `limit` waiting requests on `dataset`, and increment its revision if there are any. Every
    model of the dataset then owes each of these requests a version without the rows."""
    waiting = repository.pending_erasures(session, dataset_id=dataset.id, limit=limit)
    if not waiting:
        return
    dataset.revision += 1
    for erasure, _ in waiting:
        erasure.revision = dataset.revision
    # The claimed numbers are stored together with the revision.
    with session.no_autoflush:
        repository.claim_records(session, dataset_id=dataset.id, claiming=waiting)
    models = repository.models_of(session, dataset_id=dataset.id)
    claimed = [request for erasure, request in waiting if erasure.num_records]
    _demand(session, [(request, models) for request in claimed])
    starting = [request for request in claimed if request.status != RequestStatus.RUNNING]
    _move(session, starting, RequestStatus.RUNNING, at=now(session))
    # Another request of these people claimed the rows first.
    _join(session, dataset, [(erasure, request) for erasure, request in waiting if erasure.num_records == 0])


def start_models(session: Session, *, model_id: str, revision: int, run_id: str) -> None:
    """Mark demands on a model for rows claimed at or before `revision` as served by a run; set requests to running."""
    at = now(session)
    starting = []
    for demand, _, request in repository.awaiting_model(session, model_id=model_id, revision=revision):
        demand.status, demand.run_id = RequestModelStatus.RUNNING, run_id
        # A request in its grace period can still be cancelled.
        if request.status != RequestStatus.RUNNING and not deadlines.is_held(request, at=at):
            starting.append(request)
    _move(session, starting, RequestStatus.RUNNING, at=at)


def confirm_erasures(session: Session, *, dataset: tables.Dataset) -> bool:
    """Record that every claimed row of `dataset` is null and its old content unreadable, and delete the records that
    say whose rows they were. Return True if any erasure was pending."""
    at = now(session)
    erasures = repository.unconfirmed_with_requests(session, dataset_id=dataset.id)
    changes: list[history.Change] = []
    for erasure, request, _ in erasures:
        erasure.nulled_at = at
        # A request that joined another request's erasure may have been withdrawn in its grace period.
        if request.status in status.OPEN:
            facts = {"num_rows": erasure.num_records, "dataset_id": dataset.id}
            changes.append(history.changed(session, request, EventKind.ROWS_ERASED, at=at, facts=facts))
    history.record(session, changes)
    dataset.num_rows -= repository.drop_records(session, erasure_ids=[erasure.id for erasure, *_ in erasures])
    completion.complete_done(session, [request for _, request, is_owed in erasures if not is_owed])
    return bool(erasures)


def complete_model(
    session: Session, served: Sequence[tuple[tables.RequestModel, tables.DeletionRequest, str]], *, version: int
) -> None:
    """Record that a model's version `version` has forgotten the rows, and complete requests that wait for nothing else.
    `served` lists the model's demands with their requests and the ids of their certificates."""
    for demand, _, certificate_id in served:
        demand.status, demand.version, demand.certificate_id = RequestModelStatus.COMPLETED, version, certificate_id
    completion.complete_done(session, [request for _, request, _ in served])


def give_up_model(
    session: Session,
    *,
    model_id: str,
    revision: int,
    because: RequestModelStatus = RequestModelStatus.NOTHING_PUBLISHED,
) -> None:
    """Stop waiting for a model that never had a version or was destroyed: requests claimed at or before `revision` no
    longer wait for it. `claim_erasures` adds the model to later requests if it may be trained again."""
    awaiting = repository.awaiting_model(session, model_id=model_id, revision=revision)
    for demand, _, _ in awaiting:
        demand.status = because
    completion.complete_done(session, [request for _, _, request in awaiting])
    repository.drop_pending(session, model_id=model_id)


def hand_back(session: Session, run: tables.Run) -> None:
    """Requeue everything that an unfinished run was serving. Only a request's first MAX_HAND_BACKS hand-backs are
    recorded, with the run's status and error code, so that a permanent failure cannot fill the request's history."""
    demands = repository.request_models_of_run(session, run_id=run.id)
    for demand in demands:
        demand.status = RequestModelStatus.PENDING
    touched = {demand.request_id for demand in demands}
    touched |= {erasure.request_id for erasure in repository.unconfirmed_erasures(session, dataset_id=run.dataset_id)}
    served = repository.served(session, request_ids=touched)
    requests = repository.requests_by_id(session, touched - served)
    waiting = [requests[id_] for id_ in sorted(requests) if requests[id_].status == RequestStatus.RUNNING]
    _move(session, waiting, RequestStatus.ACCEPTED, at=now(session), by=run)


def _move(
    session: Session,
    requests: Sequence[tables.DeletionRequest],
    wanted: RequestStatus,
    *,
    at: datetime.datetime,
    by: tables.Run | None = None,
) -> None:
    """Change the status of requests because a run has started, or because the run `by` hands them back. Only a
    request's first MAX_HAND_BACKS hand-backs and the changes that follow them are recorded."""
    hand_backs = repository.count_hand_backs(session, request_ids=[request.id for request in requests])
    changes: list[history.Change] = []
    for request in requests:
        status.check(request.status, wanted)
        request.status = wanted
        kind, facts = status.entered(wanted), None
        if by is not None:
            again = hand_backs[request.id] > 0
            kind, facts = EventKind.HANDED_BACK, {"run_status": by.status, "error_code": by.error_code, "again": again}
        if hand_backs[request.id] < status.MAX_HAND_BACKS:
            changes.append(history.changed(session, request, kind, at=at, facts=facts))
    history.record(session, changes)


def _join(
    session: Session, dataset: tables.Dataset, joining: Sequence[tuple[tables.Erasure, tables.DeletionRequest]]
) -> None:
    """Join each request in `joining` to the erasures that claimed its rows in `dataset`, so that it waits for the same
    models. If the requests that erased the rows are completed, the last of them is recorded in `erased_by`."""
    if not joining:
        return
    # People are looked up once: a person may have any number of requests.
    refs = {ref for _, request in joining for ref in request.subject_refs}
    since = min(request.submitted_at for _, request in joining)
    lookup = repository.look_up(session, subject_refs=refs, since=since)
    joined = {request.id: lookup.joined(request.subject_refs).get(dataset.id) for _, request in joining}
    models = {request_id: other.models if other else [] for request_id, other in joined.items()}
    repository.drop_owed(session, dataset_id=dataset.id, besides=models)
    _demand(session, [(request, models[request.id]) for _, request in joining])
    erasures = repository.by_request(session, tables.Erasure, joined)
    for erasure, request in joining:
        if other := joined[request.id]:
            erasure.revision, erasure.num_records = other.revision, other.num_records
            erasure.nulled_at = other.nulled_at
        elif len(erasures[request.id]) == 1:
            request.erased_by = lookup.erased_by(request)
            erasure.nulled_at = now(session) if request.erased_by else None
    completion.complete_done(session, [request for _, request in joining])


def _demand(session: Session, demanding: Sequence[tuple[tables.DeletionRequest, Sequence[str]]]) -> None:
    """Add each request's missing demands on models."""
    by_request = repository.by_request(session, tables.RequestModel, [request.id for request, _ in demanding])
    for request, model_ids in demanding:
        demanded = {demand.model_id for demand in by_request.get(request.id, ())}
        pending, at = RequestModelStatus.PENDING, request.created_at
        session.add_all(
            tables.RequestModel(request_id=request.id, model_id=model_id, status=pending, requested_at=at)
            for model_id in model_ids
            if model_id not in demanded
        )
