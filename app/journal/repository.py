"""SQL queries for the tombstone journal: the events, versions, retirements and signed heads that it records."""

import datetime
import json
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import rows
from app.db.tables import (
    AuditEntry,
    Checkpoint,
    Dataset,
    DeletionRequest,
    LedgerLink,
    Model,
    RequestEvent,
    Run,
    Version,
)
from app.deletion import remembered, search_repository, status
from lethe.contract.sets import RequestStatus

OnRestored = Callable[[Session], None]
"""`RESTORED` hook: in a restored database, end everything that may have ended since the backup."""
CountPeople = Callable[[Session], dict[str, int]]
"""`PEOPLE_BY_ROLE` hook: return the number of people who can log in, by role."""
BACKED_UP = "installation.backed_up"
"""Action recorded in each tenant's audit log when a backup is complete."""
TELLING = sa.or_(
    RequestEvent.status.in_(
        (RequestStatus.IN_REVIEW, RequestStatus.ACCEPTED, RequestStatus.CANCELLED, RequestStatus.REJECTED)
    ),
    RequestEvent.kind.in_(sorted(status.OF_THE_CLOCK)),
)
"""Condition for events that change a request's scope or deadline; the journal records no others."""
_EVENT, _SIGNED = sa.bindparam("event", type_=sa.Integer), sa.bindparam("signed", type_=sa.Integer)
_HAS_EVENT = sa.exists().where(RequestEvent.id == _EVENT, RequestEvent.request_id == sa.bindparam("of"))
_LATER = sa.exists().where(RequestEvent.id > _EVENT, TELLING), sa.exists().where(Checkpoint.number > _SIGNED)
_PROGRESS = sa.select(_HAS_EVENT, sa.exists().where(Checkpoint.number == _SIGNED), *_LATER)


def progress(session: Session, event: int, of: str | None, signed: int) -> tuple[bool, bool]:
    """Return whether the database has event number `event` of request `of` and checkpoint number `signed` (0 always
    counts as present), and whether it has later events or checkpoints that belong in the journal."""
    ((has_event, has_signed, *later),) = rows(session, _PROGRESS, {"event": event, "of": of, "signed": signed})
    return (has_event or event == 0) and (has_signed or signed == 0), any(later)


def telling_events(
    session: Session, *, after: int, limit: int
) -> list[tuple[int, datetime.datetime, remembered.Remembered]]:
    """Return up to `limit` journal events after number `after`, each as (number, time, the request's current state)."""
    # The columns contain no texts of callers or officers.
    columns = [getattr(DeletionRequest, name) for name in remembered.REMEMBERED]
    query = sa.select(RequestEvent.id, RequestEvent.at, *columns)
    query = query.join(DeletionRequest, DeletionRequest.id == RequestEvent.request_id)
    query = query.where(RequestEvent.id > after, TELLING).order_by(RequestEvent.id).limit(limit)
    return [
        (number, at, remembered.Remembered(**dict(zip(remembered.REMEMBERED, request, strict=True))))
        for number, at, *request in session.execute(query)
    ]


def releases(session: Session) -> list[tuple[datetime.datetime, dict[str, Any]]]:
    """Return (publication time, fields of the journal line) for each version, including versions lost in a restore."""
    query = sa.select(Version, Run.steps_total, Model).join(Run, Run.id == Version.run_id)
    query = query.join(Model, Model.id == Version.model_id).order_by(Version.published_at, Version.id)
    dated = [
        (version.published_at, _release(version.id, model, steps)) for version, steps, model in session.execute(query)
    ]
    for model in session.scalars(sa.select(Model).order_by(Model.id)):
        lost = [_release(f"lost_{model.id}_{place}", model, steps) for place, steps in enumerate(model.lost_releases)]
        dated += [(model.created_at, release) for release in lost]
    for dataset in session.scalars(sa.select(Dataset).order_by(Dataset.id)):
        for model_id, lost_model in dataset.lost_models.items():
            of = {"model_id": model_id, "dataset_id": dataset.id, "mechanism": lost_model["mechanism"]}
            lost = [of | {"version_id": f"lost_{model_id}_{n}", "steps": s} for n, s in enumerate(lost_model["steps"])]
            dated += [(dataset.created_at, release) for release in lost]
    return dated


def _release(version_id: str, model: Model, steps: int) -> dict[str, Any]:
    of = {"model_id": model.id, "dataset_id": model.dataset_id, "mechanism": model.mechanism}
    return of | {"version_id": version_id, "steps": steps}


def retired(session: Session) -> list[tuple[datetime.datetime, str]]:
    """Return the retirement time and id of each retired model and dataset, in chronological order."""
    dated = [
        (at, retired_id)
        for table in (Model, Dataset)
        for retired_id, at in session.execute(
            sa.select(table.id, table.retired_at).where(table.retired_at.is_not(None))
        )
        if at is not None
    ]
    return sorted(dated)


def newest_checkpoints(session: Session) -> list[Checkpoint]:
    """Return each tenant's newest checkpoint per chain, in signing order."""
    newest = sa.select(sa.func.max(Checkpoint.number)).group_by(Checkpoint.tenant_id, Checkpoint.log)
    return list(session.scalars(sa.select(Checkpoint).where(Checkpoint.number.in_(newest)).order_by(Checkpoint.number)))


def release_at(session: Session, checkpoint: Checkpoint) -> dict[str, Any] | None:
    """Return the version recorded in the last ledger link that `checkpoint` signs; None for any other log or link."""
    link = session.get(LedgerLink, (checkpoint.tenant_id, checkpoint.sequence)) if checkpoint.log == "ledger" else None
    body = json.loads(link.body) if link else {}
    query = sa.select(Version.id, Run.steps_total, Model).join(Run, Run.id == Version.run_id)
    query = query.join(Model, Model.id == Version.model_id)
    query = query.where(Version.model_id == body.get("model_id"), Version.number == body.get("entry"))
    version = session.execute(query).one_or_none() if body.get("kind") == "entry" else None
    return _release(version[0], version[2], version[1]) if version else None


def retired_until(session: Session, checkpoint: Checkpoint, *, is_first: bool) -> list[tuple[datetime.datetime, str]]:
    """Return the retirements (time, id) that an audit log gained between its previous checkpoint and `checkpoint`, or,
    if `is_first`, all retirements up to `checkpoint`."""
    if checkpoint.log != "audit":
        return []
    of_log = sa.and_(Checkpoint.tenant_id == checkpoint.tenant_id, Checkpoint.log == checkpoint.log)
    before = sa.select(sa.func.max(Checkpoint.sequence)).where(of_log, Checkpoint.number < checkpoint.number)
    after = 0 if is_first else session.scalar(before) or 0
    query = sa.select(AuditEntry.at, AuditEntry.object_id).where(
        AuditEntry.tenant_id == checkpoint.tenant_id,
        AuditEntry.sequence > after,
        AuditEntry.sequence <= checkpoint.sequence,
        AuditEntry.action.in_(("model.retired", "dataset.retired")),
    )
    return [(at, retired_id) for at, retired_id in session.execute(query.order_by(AuditEntry.sequence))]


def last_unknown(session: Session) -> datetime.datetime | None:
    """Return the creation time of the newest request whose subject has been erased, if any."""
    query = sa.select(sa.func.max(DeletionRequest.created_at)).where(
        DeletionRequest.subject_ref == search_repository.UNKNOWN_SUBJECT
    )
    return session.scalar(query)
