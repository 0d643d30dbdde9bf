"""SQL of backups and restorations except the dump: rows to back up, and corrections after a restoration."""

import datetime
from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import Addition, Dataset, DeletionRequest, Erasure, Model, Record, RequestEvent, Tenant, Version
from app.deletion.status import OPEN
from app.journal.repository import TELLING
from app.rows.repository import dataset_of_rows
from app.unlearning import repository as unlearning_repository
from app.unlearning import service as unlearning
from lethe import sockets
from lethe.contract.sets import DamageKind, ModelStatus, RunKind, VersionStatus


def rows_of_retired(session: Session) -> set[str]:
    """Return the ids of stored row sets that belong to retired datasets and must not exist any more."""
    retired = sa.select(Dataset.id).where(Dataset.retired_at.is_not(None))
    batches = session.scalars(sa.select(Addition.id).where(Addition.dataset_id.in_(retired)))
    return set(session.scalars(retired)) | set(batches)


def add_lost(
    session: Session, *, version_id: str, model_id: str, dataset_id: str, mechanism: dict[str, Any], steps: int
) -> None:
    """Count a version that is missing in this database as lost, with its model or, if that is missing too, with its
    dataset."""
    if session.get(Version, version_id) is not None:
        return
    model, dataset = session.get(Model, model_id), session.get(Dataset, dataset_id)
    if model is not None:
        model.lost_releases = [*model.lost_releases, steps]
    elif dataset is not None:
        before = dataset.lost_models.get(model_id, {"mechanism": mechanism, "steps": []})
        dataset.lost_models = dataset.lost_models | {model_id: before | {"steps": [*before["steps"], steps]}}


def add_lost_to_all(session: Session, *, steps: int, count: int) -> None:
    """Count `count` versions by runs of `steps` as lost, for every model."""
    for model in session.scalars(sa.select(Model)):
        model.lost_releases = [*model.lost_releases, *[steps] * count]


def datasets(session: Session) -> list[Dataset]:
    return list(session.scalars(sa.select(Dataset).order_by(Dataset.id)))


def claimed_positions(session: Session, rows_id: str) -> list[int]:
    """Return the positions of the rows of a dataset or a batch that are claimed for erasure."""
    if session.get(Dataset, rows_id) is not None:
        query = sa.select(Record.slot).where(Record.dataset_id == rows_id, Record.erasure_id.is_not(None))
        return list(session.scalars(query.order_by(Record.slot)))
    of_batch = sa.select(Record.erasure_id).where(Record.addition_id == rows_id).order_by(Record.slot)
    return [position for position, erasure_id in enumerate(session.scalars(of_batch)) if erasure_id is not None]


def ended_requests(session: Session, request_ids: Collection[str]) -> set[str]:
    """Return those of `request_ids` whose requests have ended in this database."""
    ended = DeletionRequest.status.not_in(OPEN)
    return set(session.scalars(sa.select(DeletionRequest.id).where(DeletionRequest.id.in_(request_ids), ended)))


def lose_weights(session: Session, *, at: datetime.datetime) -> int:
    """Mark all weights as destroyed, and let every model with a version relearn. Return the number of these models."""
    stored = Version.status.in_((VersionStatus.LIVE, VersionStatus.RETIRED))
    session.execute(sa.update(Version).where(stored).values(status=VersionStatus.DESTROYED, destroyed_at=at))
    models = list(session.scalars(sa.select(Model).where(Model.live_version.is_not(None))))
    for model in models:
        model.wanted, model.status = RunKind.RELEARN, ModelStatus.LIVE
        model.attempts, model.deaths, model.not_before, model.error_code = 0, 0, None, None
    return len(models)


def tenant_ids(session: Session) -> list[str]:
    return list(session.scalars(sa.select(Tenant.id).order_by(Tenant.id)))


def last_telling_event(session: Session) -> tuple[int, str] | None:
    """Return the number of the last event for the journal, and the id of its request; None without such events."""
    query = sa.select(RequestEvent.id, RequestEvent.request_id).where(TELLING).order_by(RequestEvent.id.desc())
    event = session.execute(query.limit(1)).one_or_none()
    return (event[0], event[1]) if event else None


def end_logins(session: Session) -> None:
    """End the logins, invitations and artefacts of a restored database, which may have ended since the backup."""
    for end in sockets.plugs("app.features", "hooks", "RESTORED"):
        end(session)


def people_by_role(session: Session) -> dict[str, int]:
    """Return the number of people of all tenants who can log in, by role."""
    counts: dict[str, int] = {}
    for count in sockets.plugs("app.features", "hooks", "PEOPLE_BY_ROLE"):
        counts |= count(session)
    return counts


def set_root(session: Session, rows_id: str, root: str) -> None:
    """Record the root of rows that were rewritten with the same content, which repairs damage other than of records."""
    dataset = dataset_of_rows(session, rows_id)
    assert dataset is not None
    if dataset.damage and dataset.damage["rows"] == rows_id and dataset.damage["kind"] != DamageKind.RECORD:
        dataset.damaged_at, dataset.damage = None, None
    if dataset.id == rows_id:
        dataset.digest = root
    else:
        session.get_one(Addition, rows_id).digest = root


def take_back_all(session: Session) -> int:
    """Hand back all runs of a restored database, which has no workers left, and return their number."""
    runs = unlearning_repository.running_runs(session)
    for run in runs:
        unlearning.abandon(session, run, error_code="restored")
    return len(runs)


def drop_unclaimed(session: Session, *, dataset_id: str) -> None:
    """Delete the unclaimed erasures of a dataset."""
    unclaimed = sa.and_(Erasure.dataset_id == dataset_id, Erasure.revision.is_(None))
    session.execute(sa.delete(Erasure).where(unclaimed))
