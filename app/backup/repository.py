"""All SQL of backups but the dump: what is remembered, which rows there are, what a restored one must not claim."""

import datetime
import json
from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import (
    Addition,
    AuditEntry,
    Checkpoint,
    DashboardSession,
    Dataset,
    DeletionRequest,
    InstallationIdentity,
    LedgerLink,
    Model,
    Record,
    RequestEvent,
    Run,
    Tenant,
    User,
    Version,
)
from app.deletion.restoration import REMEMBERED, Remembered
from app.deletion.retention_repository import NOBODY
from app.deletion.status import OF_THE_CLOCK, OPEN
from lethe.contract.sets import ModelStatus, RequestStatus, RunKind, VersionStatus

BACKED_UP = "installation.backed_up"
"""The deed in each tenant's audit log when a backup is finished."""
_TELLING = sa.or_(
    RequestEvent.status.in_(
        (RequestStatus.IN_REVIEW, RequestStatus.ACCEPTED, RequestStatus.CANCELLED, RequestStatus.REJECTED)
    ),
    RequestEvent.kind.in_(sorted(OF_THE_CLOCK)),
)
"""Events after which a request asks for something else, or by another time."""


def event(session: Session, number: int) -> RequestEvent | None:
    return session.get(RequestEvent, number)


def last_event(session: Session) -> int:
    """The number of the last event; 0 if there is none."""
    return session.scalar(sa.select(sa.func.max(RequestEvent.id))) or 0


def last_telling_event(session: Session) -> tuple[int, str] | None:
    """The number of the last of them, and its request."""
    query = sa.select(RequestEvent.id, RequestEvent.request_id).where(_TELLING).order_by(RequestEvent.id.desc())
    found = session.execute(query.limit(1)).one_or_none()
    return (found[0], found[1]) if found else None


def telling_events(session: Session, *, after: int, limit: int) -> list[tuple[int, datetime.datetime, Remembered]]:
    """The next of them: number, time, and the request as it stands."""
    asked = [getattr(DeletionRequest, name) for name in REMEMBERED]  # no words of people are among them
    query = sa.select(RequestEvent.id, RequestEvent.at, *asked)
    query = query.join(DeletionRequest, DeletionRequest.id == RequestEvent.request_id)
    query = query.where(RequestEvent.id > after, _TELLING).order_by(RequestEvent.id).limit(limit)
    return [
        (number, at, Remembered(**dict(zip(REMEMBERED, request, strict=True))))
        for number, at, *request in session.execute(query)
    ]


def releases(session: Session) -> list[tuple[datetime.datetime, dict[str, Any]]]:
    """Every version: when it was published, and what is remembered of it."""
    query = sa.select(Version, Run.steps_total, Model).join(Run, Run.id == Version.run_id)
    query = query.join(Model, Model.id == Version.model_id).order_by(Version.published_at, Version.id)
    told = [
        (version.published_at, _release(version.id, model, steps)) for version, steps, model in session.execute(query)
    ]
    for model in session.scalars(sa.select(Model).order_by(Model.id)):
        lost = [_release(f"lost_{model.id}_{place}", model, steps) for place, steps in enumerate(model.lost_releases)]
        told += [(model.created_at, release) for release in lost]
    for dataset in session.scalars(sa.select(Dataset).order_by(Dataset.id)):
        for model_id, found in dataset.lost_models.items():
            of = {"model_id": model_id, "dataset_id": dataset.id, "mechanism": found["mechanism"]}
            lost = [of | {"version_id": f"lost_{model_id}_{n}", "steps": s} for n, s in enumerate(found["steps"])]
            told += [(dataset.created_at, release) for release in lost]
    return told


def _release(version_id: str, model: Model, steps: int) -> dict[str, Any]:
    of = {"model_id": model.id, "dataset_id": model.dataset_id, "mechanism": model.mechanism}
    return of | {"version_id": version_id, "steps": steps}


def retired(session: Session) -> list[tuple[datetime.datetime, str]]:
    """Models and datasets that were retired, and when, in that order."""
    found = [
        (at, one)
        for table in (Model, Dataset)
        for one, at in session.execute(sa.select(table.id, table.retired_at).where(table.retired_at.is_not(None)))
        if at is not None
    ]
    return sorted(found)


def rows_of_retired(session: Session) -> set[str]:
    """The ids under which rows were stored of which none are to be."""
    retired = sa.select(Dataset.id).where(Dataset.retired_at.is_not(None))
    batches = session.scalars(sa.select(Addition.id).where(Addition.dataset_id.in_(retired)))
    return set(session.scalars(retired)) | set(batches)


def newest_checkpoints(session: Session) -> list[Checkpoint]:
    """The newest checkpoint of each chain of each tenant, in the order in which they were signed."""
    newest = sa.select(sa.func.max(Checkpoint.number)).group_by(Checkpoint.tenant_id, Checkpoint.log)
    return list(session.scalars(sa.select(Checkpoint).where(Checkpoint.number.in_(newest)).order_by(Checkpoint.number)))


def release_at(session: Session, checkpoint: Checkpoint) -> dict[str, Any] | None:
    """The version that the head of a ledger accounts for, if it is the head of one and that is what comes last."""
    link = session.get(LedgerLink, (checkpoint.tenant_id, checkpoint.sequence)) if checkpoint.log == "ledger" else None
    said = json.loads(link.body) if link else {}
    query = sa.select(Version.id, Run.steps_total, Model).join(Run, Run.id == Version.run_id)
    query = query.join(Model, Model.id == Version.model_id)
    query = query.where(Version.model_id == said.get("model_id"), Version.number == said.get("entry"))
    found = session.execute(query).one_or_none() if said.get("kind") == "entry" else None
    return _release(found[0], found[2], found[1]) if found else None


def retired_until(session: Session, checkpoint: Checkpoint, *, is_first: bool) -> list[tuple[datetime.datetime, str]]:
    """The models and datasets whose retirement the head of an audit log accounts for, and no head before it, unless it
    is the first that anybody remembers."""
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
    return [(at, one) for at, one in session.execute(query.order_by(AuditEntry.sequence))]


def last_unknown(session: Session) -> datetime.datetime | None:
    """Time of the last request of which it is not known any more whom it was about."""
    query = sa.select(sa.func.max(DeletionRequest.created_at)).where(DeletionRequest.subject_ref == NOBODY)
    return session.scalar(query)


def add_lost(
    session: Session, *, version_id: str, model_id: str, dataset_id: str, mechanism: dict[str, Any], steps: int
) -> None:
    """Count a version, if this database does not know it, among those of its model; of a model that it does not know
    either, among those of its dataset."""
    if session.get(Version, version_id) is not None:
        return
    model, dataset = session.get(Model, model_id), session.get(Dataset, dataset_id)
    if model is not None:
        model.lost_releases = [*model.lost_releases, steps]
    elif dataset is not None:
        before = dataset.lost_models.get(model_id, {"mechanism": mechanism, "steps": []})
        dataset.lost_models = dataset.lost_models | {model_id: before | {"steps": [*before["steps"], steps]}}


def add_lost_to_all(session: Session, *, steps: int, count: int) -> None:
    """Count so many versions of every model as lost."""
    for model in session.scalars(sa.select(Model)):
        model.lost_releases = [*model.lost_releases, *[steps] * count]


def datasets(session: Session) -> list[Dataset]:
    return list(session.scalars(sa.select(Dataset).order_by(Dataset.id)))


def claimed_positions(session: Session, rows_id: str) -> list[int]:
    """The rows of a dataset, or of a batch, that are claimed for erasure."""
    if session.get(Dataset, rows_id) is not None:
        claimed = sa.select(Record.slot).where(Record.dataset_id == rows_id, Record.erasure_id.is_not(None))
        return list(session.scalars(claimed.order_by(Record.slot)))
    of_batch = sa.select(Record.erasure_id).where(Record.addition_id == rows_id).order_by(Record.slot)
    return [position for position, erasure_id in enumerate(session.scalars(of_batch)) if erasure_id is not None]


def ended_requests(session: Session, request_ids: Collection[str]) -> set[str]:
    """Those that this database knows, and that are not open in it."""
    ended = DeletionRequest.status.not_in(OPEN)
    return set(session.scalars(sa.select(DeletionRequest.id).where(DeletionRequest.id.in_(request_ids), ended)))


def end_sessions(session: Session) -> None:
    """End the sessions of the dashboard: some were over by the time of the restore."""
    session.execute(sa.delete(DashboardSession))


def void_invitations(session: Session) -> None:
    """Void the invitations that were open: who was invited may have been disabled since."""
    session.execute(sa.update(User).values(invitation_hash=None, invitation_expires_at=None))


def people_by_role(session: Session) -> dict[str, int]:
    """Number of people of all tenants who are let in, with a password or by an identity provider, by role."""
    is_let_in = User.disabled_at.is_(None) & (User.password_hash.is_not(None) | User.oidc_subject.is_not(None))
    query = sa.select(User.role, sa.func.count()).where(is_let_in).group_by(User.role).order_by(User.role)
    return {role: count for role, count in session.execute(query)}  # noqa: C416  a row is no pair to mypy


def lose_weights(session: Session, *, at: datetime.datetime) -> int:
    """Note that no weights are there: every model that had a version is to learn again. Returns how many there are."""
    stored = Version.status.in_((VersionStatus.LIVE, VersionStatus.RETIRED))
    session.execute(sa.update(Version).where(stored).values(status=VersionStatus.DESTROYED, destroyed_at=at))
    models = list(session.scalars(sa.select(Model).where(Model.live_version.is_not(None))))
    for model in models:
        model.wanted, model.status = RunKind.RELEARN, ModelStatus.LIVE
        model.attempts, model.deaths, model.not_before, model.error_code = 0, 0, None, None
    return len(models)


def last_backup_at(session: Session) -> datetime.datetime | None:
    """Time at which the last backup was finished, by the audit log of the session's tenant."""
    a_backup = sa.and_(AuditEntry.object_id >= "bak_", AuditEntry.object_id < "bak_g")  # hex digits follow
    query = sa.select(sa.func.max(AuditEntry.at)).where(a_backup, AuditEntry.action == BACKED_UP)
    return session.scalar(query)


def first_start(session: Session) -> datetime.datetime | None:
    """Time at which the installation was made; None before its first start has ended."""
    return session.scalar(sa.select(InstallationIdentity.created_at))


def tenant_ids(session: Session) -> list[str]:
    return list(session.scalars(sa.select(Tenant.id).order_by(Tenant.id)))
