"""The workers' part in requests: claim their rows, confirm that they are null, complete them or hand them back."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from app.db import now
from app.db.tables import Dataset, DeletionRequest, Erasure, RequestModel, Run
from app.deletion import completion, history, lookup, repository
from app.deletion import service as deletion
from app.deletion.status import MOST_HAND_BACKS, OPEN
from lethe.contract.sets import EventKind, RequestModelStatus, RequestStatus


def claim_erasures(session: Session, *, dataset: Dataset, limit: int) -> None:
    """Claim the rows of all waiting requests on `dataset`; its revision grows by one if there are any.

    Every model of the dataset owes each of these requests a version without the rows from here on.
    """
    waiting = repository.pending_erasures(session, dataset_id=dataset.id, limit=limit)
    if not waiting:
        return
    dataset.revision += 1
    told = repository.count_hand_backs(session, request_ids=[request.id for _, request in waiting])
    models = lookup.models_of(session, dataset_id=dataset.id)
    for erasure, request in waiting:
        erasure.revision = dataset.revision
        repository.claim_records(session, erasure=erasure, subject_refs=request.subject_refs)
        if erasure.num_records == 0:  # another request of this person took the rows
            _follow(session, erasure, request)
            continue
        owed = {m.model_id for m in repository.request_models(session, request_id=request.id)}
        _owe(session, request, [model.id for model in models if model.id not in owed])
        if request.status != RequestStatus.RUNNING:
            history.move(session, request, RequestStatus.RUNNING, told=told[request.id] < MOST_HAND_BACKS)


def start_models(session: Session, *, model_id: str, revision: int, run_id: str) -> None:
    """Note that a run serves everything its model owes at `revision`."""
    at = now(session)
    awaiting = repository.awaiting_model(session, model_id=model_id, revision=revision)
    told = repository.count_hand_backs(session, request_ids=[request.id for _, _, request in awaiting])
    for owed, _, request in awaiting:
        owed.status, owed.run_id = RequestModelStatus.RUNNING, run_id
        if request.status != RequestStatus.RUNNING and not completion.is_held(
            request, at=at
        ):  # it may still be cancelled
            history.move(session, request, RequestStatus.RUNNING, at=at, told=told[request.id] < MOST_HAND_BACKS)


def confirm_erasures(session: Session, *, dataset: Dataset) -> bool:
    """Note that every claimed row of `dataset` is null, and nobody can open what it was; forget whose they were.
    Whether there were any."""
    at = now(session)
    erasures = repository.unconfirmed_erasures(session, dataset_id=dataset.id)
    for erasure in erasures:
        erasure.nulled_at = at
        request = deletion.get(session, erasure.request_id)
        if request.status in OPEN:  # else it was withdrawn in its grace time, while it followed another request
            facts = {"num_rows": erasure.num_records, "dataset_id": dataset.id}
            history.note(session, request, EventKind.ROWS_ERASED, at=at, facts=facts)
    dataset.num_rows -= repository.drop_records(session, erasure_ids=[erasure.id for erasure in erasures])
    for erasure in erasures:
        completion.complete_if_done(session, deletion.get(session, erasure.request_id))
    return bool(erasures)


def complete_model(session: Session, owed: RequestModel, *, version: int, certificate_id: str) -> None:
    """Note that a model has forgotten, in this version."""
    owed.status, owed.version, owed.certificate_id = RequestModelStatus.COMPLETED, version, certificate_id
    completion.complete_if_done(session, deletion.get(session, owed.request_id))


def give_up_model(
    session: Session,
    *,
    model_id: str,
    revision: int,
    because: RequestModelStatus = RequestModelStatus.NOTHING_PUBLISHED,
) -> None:
    """Expect nothing more of a model that never had a version, or of which nothing is left: requests whose rows are
    null by `revision` have nothing to wait for, the others are asked again if it comes back (`claim_erasures`)."""
    for owed, _, _ in repository.awaiting_model(session, model_id=model_id, revision=revision):
        owed.status = because
        completion.complete_if_done(session, deletion.get(session, owed.request_id))
    repository.drop_pending(session, model_id=model_id)


def hand_back(session: Session, run: Run) -> None:
    """Put everything that a run served which ended before its time back in the queue. Requests are told twice, with
    how it ended: what fails for ever would fill their histories."""
    owed_by_run = repository.request_models_of_run(session, run_id=run.id)
    for owed in owed_by_run:
        owed.status = RequestModelStatus.PENDING
    touched = {owed.request_id for owed in owed_by_run}
    touched |= {erasure.request_id for erasure in repository.unconfirmed_erasures(session, dataset_id=run.dataset_id)}
    told = repository.count_hand_backs(session, request_ids=touched)
    for request_id in sorted(touched):
        request = deletion.get(session, request_id)
        if request.status == RequestStatus.RUNNING and not repository.is_running(session, request_id=request_id):
            history.move(
                session,
                request,
                RequestStatus.ACCEPTED,
                kind=EventKind.HANDED_BACK,
                facts={"run_status": run.status, "error_code": run.error_code, "again": told[request_id] > 0},
                told=told[request_id] < MOST_HAND_BACKS,
            )


def _follow(session: Session, erasure: Erasure, request: DeletionRequest) -> None:
    """Ask of models what the request that took the rows still waits for; nothing where that was served."""
    found = lookup.look_up(session, subject_refs=request.subject_refs)
    first = found.followed(request.subject_refs).get(erasure.dataset_id)
    wanted = first.models if first else []
    repository.drop_owed(session, erasure=erasure, besides=wanted)
    if first is None:
        return
    erasure.revision, erasure.num_records, erasure.nulled_at = first.revision, first.num_records, first.nulled_at
    owed = {m.model_id for m in repository.request_models(session, request_id=request.id)}
    _owe(session, request, [model_id for model_id in wanted if model_id not in owed])
    completion.complete_if_done(session, request)


def _owe(session: Session, request: DeletionRequest, model_ids: Sequence[str]) -> None:
    session.add_all(
        RequestModel(
            request_id=request.id, model_id=model_id, status=RequestModelStatus.PENDING, requested_at=request.created_at
        )
        for model_id in model_ids
    )
