"""Deletion requests: submit, cancel, claim their rows, complete."""

import datetime
from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from app.db import now
from app.db.tables import Dataset, DeletionRequest, Erasure, RequestEvent, RequestModel, new_id
from app.deletion import deadlines, repository, status
from app.deletion.deadlines import Regulation
from app.deletion.status import Status
from app.errors import DatasetUnknown, FieldError, InputInvalid, RequestUnknown, TransitionForbidden

_CLOCKS_DIFFER_BY = datetime.timedelta(minutes=5)


def submit(
    session: Session,
    *,
    subject_ref: str,
    dataset_ids: Sequence[str] | None,
    regulation: Regulation,
    ground: str | None,
    submitted_at: datetime.datetime | None,
    external_id: str | None,
    metadata: dict[str, Any],
) -> DeletionRequest:
    """Record a request and accept it; one about somebody of whom nothing is held completes at once.

    `dataset_ids`: where to forget the person; default: wherever they are held. A second request for a person who is
    being forgotten follows the first. Raises `DatasetUnknown`, `InputInvalid`.
    """
    for dataset_id in dataset_ids or ():
        if not repository.dataset_exists(session, dataset_id):
            raise DatasetUnknown(f"There is no dataset {dataset_id!r}; GET /v1/datasets lists them.")
    at = now(session)
    if submitted_at and submitted_at > at + _CLOCKS_DIFFER_BY:
        raise InputInvalid(
            "A request cannot come from the future.", [FieldError("submitted_at", "expected a past time")]
        )
    request = DeletionRequest(
        id=new_id("dr"),
        subject_ref=subject_ref,
        regulation=regulation,
        ground=ground,
        status=Status.RECEIVED,
        external_id=external_id,
        request_metadata=metadata,
        submitted_at=submitted_at or at,
        due_at=deadlines.due_at(regulation, submitted_at or at),
        created_at=at,
    )
    session.add(request)
    session.flush()  # erasures and events refer to it
    _note(session, request, at=at)

    def wanted(dataset_id: str) -> bool:
        return dataset_ids is None or dataset_id in dataset_ids

    for dataset_id in filter(wanted, repository.datasets_holding(session, subject_ref=subject_ref)):
        _want(session, request, Erasure(id=new_id("era"), request_id=request.id, dataset_id=dataset_id))
    for first in repository.claimed_elsewhere(session, subject_ref=subject_ref):
        if wanted(first.dataset_id):
            _follow(session, request, first)
    if not repository.erasures(session, request_id=request.id):
        request.outcome = "nothing_held"
        _move(session, request, Status.COMPLETED, detail="nothing is held about this subject")
        request.completed_at = at
        return request
    _move(session, request, Status.ACCEPTED)
    _complete_if_done(session, request)
    return request


def get(session: Session, request_id: str) -> DeletionRequest:
    """Raises `RequestUnknown`."""
    request = repository.request(session, request_id)
    if request is None:
        raise RequestUnknown(f"There is no deletion request {request_id!r}.")
    return request


def cancel(session: Session, request: DeletionRequest) -> None:
    """Withdraw a request. Raises `TransitionForbidden` once any of its rows are claimed: erasing has no way back."""
    if any(erasure.revision is not None for erasure in repository.erasures(session, request_id=request.id)):
        raise TransitionForbidden("The person's rows are being erased or are gone: it is too late to cancel.")
    _move(session, request, Status.CANCELLED)
    for owed in repository.request_models(session, request_id=request.id):
        owed.status = "cancelled"


def claim_erasures(session: Session, *, dataset: Dataset, limit: int) -> None:
    """Claim the rows of all waiting requests on `dataset`; its revision grows by one if there are any.

    Every model of the dataset owes each of these requests a version without the rows from here on.
    """
    waiting = repository.pending_erasures(session, dataset_id=dataset.id, limit=limit)
    if not waiting:
        return
    dataset.revision += 1
    for erasure, request in waiting:
        erasure.revision = dataset.revision
        repository.claim_records(session, erasure=erasure, subject_ref=request.subject_ref)
        if erasure.num_records == 0:  # another request of this person took the rows, and was served
            repository.drop_owed(session, erasure=erasure)
            continue
        owed = {m.model_id for m in repository.request_models(session, request_id=request.id)}
        models = repository.models_of(session, dataset_id=dataset.id)
        _owe(session, request, [model.id for model in models if model.id not in owed])
        if request.status != Status.RUNNING:
            _move(session, request, Status.RUNNING)


def start_models(session: Session, *, model_id: str, revision: int, run_id: str) -> None:
    """Note that a run serves everything its model owes at `revision`."""
    for owed, _, request in repository.awaiting_model(session, model_id=model_id, revision=revision):
        owed.status, owed.run_id = "running", run_id
        if request.status != Status.RUNNING:
            _move(session, request, Status.RUNNING)


def confirm_erasures(session: Session, *, dataset: Dataset, digest: str) -> None:
    """Note that every claimed row of `dataset` is null on disk, and forget whose they were."""
    at = now(session)
    erasures = repository.unconfirmed_erasures(session, dataset_id=dataset.id)
    for erasure in erasures:
        erasure.nulled_at = at
        request = get(session, erasure.request_id)
        _note(session, request, at=at, detail=f"{erasure.num_records} rows erased from dataset {dataset.id}")
    repository.drop_records(session, erasure_ids=[erasure.id for erasure in erasures])
    dataset.digest = digest
    for erasure in erasures:
        _complete_if_done(session, get(session, erasure.request_id))


def complete_model(session: Session, owed: RequestModel, *, version: int, certificate_id: str) -> None:
    """Note that a model has forgotten, in this version."""
    owed.status, owed.version, owed.certificate_id = "completed", version, certificate_id
    _complete_if_done(session, get(session, owed.request_id))


def give_up_model(session: Session, *, model_id: str, revision: int) -> None:
    """Expect nothing more of a model that never had a version: requests whose rows are null by `revision` have nothing
    to wait for, the others are asked again if the model comes back (`claim_erasures`)."""
    for owed, _, _ in repository.awaiting_model(session, model_id=model_id, revision=revision):
        owed.status = "nothing_published"
        _complete_if_done(session, get(session, owed.request_id))
    repository.drop_pending(session, model_id=model_id)


def hand_back(session: Session, *, run_id: str, dataset_id: str) -> None:
    """Put everything that a dead run served back in the queue."""
    owed_by_run = repository.request_models_of_run(session, run_id=run_id)
    for owed in owed_by_run:
        owed.status = "pending"
    touched = {owed.request_id for owed in owed_by_run}
    touched |= {erasure.request_id for erasure in repository.unconfirmed_erasures(session, dataset_id=dataset_id)}
    for request_id in sorted(touched):
        request = get(session, request_id)
        if request.status == Status.RUNNING and not repository.is_running(session, request_id=request_id):
            _move(session, request, Status.ACCEPTED, detail="its worker stopped; it will be tried again")


def _want(session: Session, request: DeletionRequest, erasure: Erasure) -> None:
    """Ask for one dataset's rows, and for every model that may carry them."""
    session.add(erasure)
    _owe(session, request, [model.id for model in repository.models_of(session, dataset_id=erasure.dataset_id)])


def _follow(session: Session, request: DeletionRequest, first: Erasure) -> None:
    """Join an erasure that is under way: the same rows, and the models that still carry them."""
    erasure = Erasure(
        id=new_id("era"),
        request_id=request.id,
        dataset_id=first.dataset_id,
        revision=first.revision,
        num_records=first.num_records,
        nulled_at=first.nulled_at,
    )
    session.add(erasure)
    models = {model.id for model in repository.models_of(session, dataset_id=first.dataset_id)}
    owed = repository.request_models(session, request_id=first.request_id)
    _owe(session, request, [m.model_id for m in owed if m.model_id in models and m.status in ("pending", "running")])


def _owe(session: Session, request: DeletionRequest, model_ids: Sequence[str]) -> None:
    session.add_all(RequestModel(request_id=request.id, model_id=model_id, status="pending") for model_id in model_ids)


def _complete_if_done(session: Session, request: DeletionRequest) -> None:
    erasures = repository.erasures(session, request_id=request.id)
    owed = repository.request_models(session, request_id=request.id)
    if any(erasure.nulled_at is None for erasure in erasures) or any(m.status in ("pending", "running") for m in owed):
        return
    request.outcome = "forgotten"
    request.completed_at = now(session)
    _move(session, request, Status.COMPLETED)


def _move(session: Session, request: DeletionRequest, wanted: Status, *, detail: str | None = None) -> None:
    status.check(request.status, wanted)
    request.status = wanted
    _note(session, request, at=now(session), detail=detail)


def _note(session: Session, request: DeletionRequest, *, at: datetime.datetime, detail: str | None = None) -> None:
    session.add(RequestEvent(request_id=request.id, status=request.status, detail=detail, at=at))
