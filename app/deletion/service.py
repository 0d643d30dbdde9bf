"""Deletion requests: submit, cancel, claim their rows, complete."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.db import now
from app.db.tables import Dataset, DeletionRequest, Erasure, RequestEvent, RequestModel, new_id
from app.deletion import deadlines, repository, status
from app.deletion.deadlines import Regulation
from app.deletion.repository import Claimed, LookedUp
from app.deletion.status import Status
from app.errors import (
    DatasetUnknown,
    FieldError,
    InputInvalid,
    LetheError,
    RequestUnknown,
    SubjectUnknown,
    TransitionForbidden,
)

_CLOCKS_DIFFER_BY = datetime.timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What somebody asks for. `dataset_ids`: where to forget the person; None: wherever they are held."""

    subject_ref: str
    dataset_ids: Sequence[str] | None
    regulation: Regulation
    ground: str | None
    submitted_at: datetime.datetime | None
    external_id: str | None
    metadata: dict[str, Any]
    strict: bool = False  # make no request if nothing is held


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A request as it was stored, with what it asks of datasets and of models."""

    request: DeletionRequest
    erasures: list[Erasure]
    models: list[RequestModel]
    events: list[RequestEvent]


def submit(session: Session, asked: Asked) -> Submitted:
    """Record a request. Raises what `submit_all` returns."""
    [found] = submit_all(session, [asked])
    if isinstance(found, LetheError):
        raise found
    return found


def submit_all(session: Session, asked: Sequence[Asked]) -> list[Submitted | LetheError]:
    """Record requests and accept them; one about somebody of whom nothing is held completes at once.

    A request for a person who is being forgotten follows the first. In place of a request that cannot be made there is
    the reason, and nothing of it is stored: `DatasetUnknown`, `InputInvalid`, `SubjectUnknown`.
    """
    at = now(session)
    found = repository.look_up(
        session,
        subject_refs={one.subject_ref for one in asked},
        dataset_ids={dataset_id for one in asked for dataset_id in one.dataset_ids or ()},
    )
    made = [_made(one, found, at=at) for one in asked]
    submitted = [one for one in made if isinstance(one, Submitted)]
    repository.store(session, DeletionRequest, [one.request for one in submitted])
    repository.store(session, RequestEvent, [event for one in submitted for event in one.events])
    repository.store(session, Erasure, [erasure for one in submitted for erasure in one.erasures])
    repository.store(session, RequestModel, [model for one in submitted for model in one.models])
    return made


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


def _made(asked: Asked, found: LookedUp, *, at: datetime.datetime) -> Submitted | LetheError:
    for dataset_id in asked.dataset_ids or ():
        if dataset_id not in found.datasets:
            return DatasetUnknown(f"There is no dataset {dataset_id!r}; GET /v1/datasets lists them.")
    if asked.submitted_at and asked.submitted_at > at + _CLOCKS_DIFFER_BY:
        wrong = FieldError("submitted_at", "expected a past time")
        return InputInvalid("A request cannot come from the future.", [wrong])
    request = DeletionRequest(
        id=new_id("dr"),
        subject_ref=asked.subject_ref,
        regulation=asked.regulation,
        ground=asked.ground,
        status=Status.RECEIVED,
        external_id=asked.external_id,
        request_metadata=asked.metadata,
        submitted_at=asked.submitted_at or at,
        due_at=deadlines.due_at(asked.regulation, asked.submitted_at or at),
        created_at=at,
    )
    new = Submitted(request=request, erasures=[], models=[], events=[_event(request, at=at)])

    def wanted(dataset_id: str) -> bool:
        return asked.dataset_ids is None or dataset_id in asked.dataset_ids

    for dataset_id in filter(wanted, sorted(found.holding.get(asked.subject_ref, ()))):
        _want(new, dataset_id, models=found.models.get(dataset_id, ()))
    for first in found.claimed.get(asked.subject_ref, {}).values():
        if wanted(first.dataset_id):
            _want(new, first.dataset_id, models=found.owed.get((first.request_id, first.dataset_id), ()), first=first)
    if not new.erasures and asked.strict:
        return SubjectUnknown("Nothing is held about this subject; no request was made.")
    if not new.erasures:
        _pass(new, Status.COMPLETED, at=at, outcome="nothing_held", detail="nothing is held about this subject")
        return new
    _pass(new, Status.ACCEPTED, at=at)
    if not new.models and all(erasure.nulled_at for erasure in new.erasures):
        _pass(new, Status.COMPLETED, at=at, outcome="forgotten")
    return new


def _want(new: Submitted, dataset_id: str, *, models: Sequence[str], first: Claimed | None = None) -> None:
    """Ask for one dataset's rows and of the models that may carry them; or join `first`, which has claimed the rows."""
    new.erasures.append(
        Erasure(
            id=new_id("era"),
            request_id=new.request.id,
            dataset_id=dataset_id,
            revision=first and first.revision,
            num_records=first and first.num_records,
            num_claimed=0,
            nulled_at=first and first.nulled_at,
        )
    )
    new.models.extend(
        RequestModel(request_id=new.request.id, model_id=model_id, status="pending") for model_id in models
    )


def _pass(
    new: Submitted, wanted: Status, *, at: datetime.datetime, outcome: str | None = None, detail: str | None = None
) -> None:
    status.check(new.request.status, wanted)
    new.request.status, new.request.outcome = wanted, outcome
    new.request.completed_at = at if wanted == Status.COMPLETED else None
    new.events.append(_event(new.request, at=at, detail=detail))


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
    session.add(_event(request, at=at, detail=detail))


def _event(request: DeletionRequest, *, at: datetime.datetime, detail: str | None = None) -> RequestEvent:
    return RequestEvent(request_id=request.id, status=request.status, detail=detail, at=at)
