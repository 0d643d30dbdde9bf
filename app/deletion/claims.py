"""Work of the workers on requests: claim rows, confirm that they are null, complete requests or hand them back."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from app.db import now
from app.db.tables import Dataset, DeletionRequest, Erasure, RequestModel, Run
from app.deletion import completion, history, repository
from app.deletion import service as deletion
from app.deletion.status import MAX_HAND_BACKS, OPEN
from lethe.contract.sets import EventKind, RequestModelStatus, RequestStatus


def claim_erasures(session: Session, *, dataset: Dataset, limit: int) -> None:
    """Claim the rows of up to `limit` waiting requests on `dataset`, and increment its revision if any wait. Every
    model of the dataset then owes each of these requests a version without the rows."""
    waiting = repository.pending_erasures(session, dataset_id=dataset.id, limit=limit)
    if not waiting:
        return
    dataset.revision += 1
    hand_backs = repository.count_hand_backs(session, request_ids=[request.id for _, request in waiting])
    models = repository.models_of(session, dataset_id=dataset.id)
    for erasure, request in waiting:
        erasure.revision = dataset.revision
        repository.claim_records(session, erasure=erasure, subject_refs=request.subject_refs)
        if erasure.num_records == 0:
            # Another request of this person claimed the rows first.
            _join(session, erasure, request)
            continue
        _demand(session, request, [model.id for model in models])
        if request.status != RequestStatus.RUNNING:
            history.move(session, request, RequestStatus.RUNNING, recorded=hand_backs[request.id] < MAX_HAND_BACKS)


def start_models(session: Session, *, model_id: str, revision: int, run_id: str) -> None:
    """Mark everything that a model owes at `revision` as served by a run, and the requests as running."""
    at = now(session)
    awaiting = repository.awaiting_model(session, model_id=model_id, revision=revision)
    hand_backs = repository.count_hand_backs(session, request_ids=[request.id for _, _, request in awaiting])
    for demand, _, request in awaiting:
        demand.status, demand.run_id = RequestModelStatus.RUNNING, run_id
        # A request in its grace period can still be cancelled.
        if request.status != RequestStatus.RUNNING and not completion.is_held(request, at=at):
            history.move(
                session, request, RequestStatus.RUNNING, at=at, recorded=hand_backs[request.id] < MAX_HAND_BACKS
            )


def confirm_erasures(session: Session, *, dataset: Dataset) -> bool:
    """Record that every claimed row of `dataset` is null and its old content unreadable, and delete the row owners.
    Return True if any erasure was pending."""
    at = now(session)
    erasures = repository.unconfirmed_erasures(session, dataset_id=dataset.id)
    for erasure in erasures:
        erasure.nulled_at = at
        request = deletion.get(session, erasure.request_id)
        # A request that joined another request's erasure may have been withdrawn in its grace period.
        if request.status in OPEN:
            facts = {"num_rows": erasure.num_records, "dataset_id": dataset.id}
            history.note(session, request, EventKind.ROWS_ERASED, at=at, facts=facts)
    dataset.num_rows -= repository.drop_records(session, erasure_ids=[erasure.id for erasure in erasures])
    for erasure in erasures:
        completion.complete_if_done(session, deletion.get(session, erasure.request_id))
    return bool(erasures)


def complete_model(session: Session, demand: RequestModel, *, version: int, certificate_id: str) -> None:
    """Record that a model has forgotten in this version, and complete the request if nothing else is owed."""
    demand.status, demand.version = RequestModelStatus.COMPLETED, version
    demand.certificate_id = certificate_id
    completion.complete_if_done(session, deletion.get(session, demand.request_id))


def give_up_model(
    session: Session,
    *,
    model_id: str,
    revision: int,
    because: RequestModelStatus = RequestModelStatus.NOTHING_PUBLISHED,
) -> None:
    """Stop waiting for a model that never had a version or was destroyed: requests claimed at or before `revision` wait
    no longer; `claim_erasures` adds the model to later ones if it comes back."""
    for demand, _, _ in repository.awaiting_model(session, model_id=model_id, revision=revision):
        demand.status = because
        completion.complete_if_done(session, deletion.get(session, demand.request_id))
    repository.drop_pending(session, model_id=model_id)


def hand_back(session: Session, run: Run) -> None:
    """Return everything that an unfinished run served to the queue. Requests record their first MAX_HAND_BACKS
    hand-backs, with the run's status and error code, so that a permanent failure cannot fill their histories."""
    demands = repository.request_models_of_run(session, run_id=run.id)
    for demand in demands:
        demand.status = RequestModelStatus.PENDING
    touched = {demand.request_id for demand in demands}
    touched |= {erasure.request_id for erasure in repository.unconfirmed_erasures(session, dataset_id=run.dataset_id)}
    hand_backs = repository.count_hand_backs(session, request_ids=touched)
    for request_id in sorted(touched):
        request = deletion.get(session, request_id)
        if request.status == RequestStatus.RUNNING and not repository.is_running(session, request_id=request_id):
            history.move(
                session,
                request,
                RequestStatus.ACCEPTED,
                kind=EventKind.HANDED_BACK,
                facts={"run_status": run.status, "error_code": run.error_code, "again": hand_backs[request_id] > 0},
                recorded=hand_backs[request_id] < MAX_HAND_BACKS,
            )


def _join(session: Session, erasure: Erasure, request: DeletionRequest) -> None:
    """Join the erasure that claimed the rows: wait for the models that it still waits for, if any."""
    lookup = repository.look_up(session, subject_refs=request.subject_refs)
    joined = lookup.joined(request.subject_refs).get(erasure.dataset_id)
    repository.drop_owed(session, erasure=erasure, besides=joined.models if joined else [])
    if joined is not None:
        erasure.revision, erasure.num_records, erasure.nulled_at = joined.revision, joined.num_records, joined.nulled_at
        _demand(session, request, joined.models)
        completion.complete_if_done(session, request)


def _demand(session: Session, request: DeletionRequest, model_ids: Sequence[str]) -> None:
    """Add to the request a demand on each of these models on which it has none yet."""
    demanded = {demand.model_id for demand in repository.request_models(session, request_id=request.id)}
    status, at = RequestModelStatus.PENDING, request.created_at
    session.add_all(
        RequestModel(request_id=request.id, model_id=model_id, status=status, requested_at=at)
        for model_id in model_ids
        if model_id not in demanded
    )
