"""SQL queries about runs, and about retired models and datasets."""

import datetime
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from app.db.bulk import Page, page
from app.db.tables import CUT_OFF, Addition, Dataset, Model, RequestModel, Run, Version
from app.unlearning import kinds
from lethe.contract.sets import RunOrder, RunStatus, VersionStatus

_WITH_OWNERS = (
    sa.select(Run, Dataset, Model)
    .join(Dataset, Dataset.id == Run.dataset_id)
    .outerjoin(Model, Model.id == Run.model_id)
    .where(Run.id == sa.bindparam("run_id"))
)
# PostgreSQL cannot lock an outer-joined row. What the session read before it waited may be stale.
_LOCKED_WITH_OWNERS = _WITH_OWNERS.with_for_update(of=Run).execution_options(populate_existing=True)


def run(session: Session, run_id: str) -> Run | None:
    return session.get(Run, run_id)


def run_with_owners(session: Session, run_id: str, *, lock: bool) -> tuple[Run, Dataset, Model | None] | None:
    """Return a run, locked if `lock` is True, with its dataset and model."""
    query = _LOCKED_WITH_OWNERS if lock else _WITH_OWNERS
    return session.execute(query, {"run_id": run_id}).one_or_none()


def runs(
    session: Session,
    *,
    model_id: str | None,
    status: str | None,
    unresolved: bool,
    order: RunOrder = RunOrder.NEWEST,
    limit: int,
    cursor: str | None,
) -> Page[Run]:
    query = sa.select(Run)
    if unresolved:
        query = query.where(_is_unresolved())
    if status is not None:
        query = query.where(Run.status == status)
    if model_id is not None:
        query = query.where(Run.model_id == model_id)
    is_ascending = order is RunOrder.OLDEST
    return page(session, query, Run.started_at, Run.id, limit=limit, cursor=cursor, ascending=is_ascending)


def unresolved_runs(session: Session) -> list[tuple[str | None, str | None, int]]:
    """Count the failed or abandoned runs without a later success, by model (None for runs without one) and error
    code."""
    query = sa.select(Run.model_id, Run.error_code, sa.func.count()).where(_is_unresolved())
    return [
        (model_id, code, count)
        for model_id, code, count in session.execute(query.group_by(Run.model_id, Run.error_code))
    ]


def last_canary_tests_failed(session: Session) -> dict[str, bool]:
    """Map each tested model in service to whether its last canary test refuted its run."""
    run = aliased(Run)
    last = (
        sa.select(run.id)
        .where(run.model_id == Model.id, run.audit.is_not(None))
        .order_by(run.started_at.desc(), run.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    query = sa.select(Run.model_id, Run.audit).join(Model, Model.id == Run.model_id)
    query = query.where(Model.retired_at.is_(None), Run.id == last)
    return {model_id: bool(audit["findings"]) for model_id, audit in session.execute(query)}


def _is_unresolved() -> sa.ColumnElement[bool]:
    """Return the condition that a run failed or was abandoned, and no later run of its model, or of its dataset if it
    has no model, succeeded. Only a test of the same kind resolves a failed test. Retired models and datasets need no
    run, so their runs count as resolved."""
    tests = tuple(kinds.asked_kinds())
    later, model, dataset = aliased(Run), aliased(Model), aliased(Dataset)
    made_good = sa.and_(
        later.status == RunStatus.PUBLISHED,
        later.started_at > Run.started_at,
        sa.or_(later.kind == Run.kind, sa.and_(*(run.kind.not_in(tests) for run in (later, Run)))),
    )
    return sa.and_(
        Run.status.in_((RunStatus.FAILED, RunStatus.ABANDONED)),
        ~sa.exists().where(later.model_id == Run.model_id, made_good),
        sa.or_(Run.model_id.is_not(None), ~sa.exists().where(later.dataset_id == Run.dataset_id, made_good)),
        ~sa.exists().where(model.id == Run.model_id, model.retired_at.is_not(None)),
        ~sa.exists().where(dataset.id == Run.dataset_id, dataset.retired_at.is_not(None)),
    )


def expired_runs(session: Session, *, at: datetime.datetime) -> list[Run]:
    return list(session.scalars(sa.select(Run).where(Run.status == RunStatus.RUNNING, Run.lease_expires_at < at)))


def runs_to_stop(session: Session, *, model_id: str | None, dataset_id: str | None) -> list[Run]:
    """Return the runs in progress for a model or, without a model, for a dataset."""
    owner = Run.model_id == model_id if model_id is not None else Run.dataset_id == dataset_id
    return list(session.scalars(sa.select(Run).where(Run.status == RunStatus.RUNNING, owner)))


def is_any_cut_off(session: Session, *, dataset_id: str, since: datetime.datetime) -> bool:
    """Return True if a run on a dataset ended without completing at `since` or later."""
    query = sa.select(Run.id).where(Run.dataset_id == dataset_id, Run.finished_at >= since, CUT_OFF)
    return session.scalars(query.limit(1)).first() is not None


def ended_before(session: Session, run: Run, *, limit: int) -> list[Run]:
    """Return up to `limit` earlier, ended runs of a run's model (or dataset, if it has no model), newest first."""
    same = sa.and_(Run.dataset_id == run.dataset_id, Run.model_id.is_not_distinct_from(run.model_id), Run.id != run.id)
    query = sa.select(Run).where(same, Run.status != RunStatus.RUNNING, Run.started_at <= run.started_at)
    return list(session.scalars(query.order_by(Run.started_at.desc(), Run.id.desc()).limit(limit)))


def drop_run(session: Session, run: Run, *, in_favour_of: Run) -> None:
    """Delete a run, and redirect all references to it to the run `in_favour_of`."""
    served = sa.update(RequestModel).where(RequestModel.run_id == run.id)
    session.execute(served.values(run_id=in_favour_of.id))
    session.delete(run)
    session.flush()


@dataclass(frozen=True, slots=True, kw_only=True)
class Retired:
    """Retired model or dataset, and the versions and row sets that may remain in the stores."""

    id: str
    at: datetime.datetime | None
    version_ids: tuple[str, ...] = ()
    rows_ids: tuple[str, ...] = ()


def retired(session: Session) -> list[Retired]:
    """Return the retired models and datasets whose destruction has not been confirmed."""
    unconfirmed: list[Retired] = []
    pending = sa.and_(Model.retired_at.is_not(None), Model.destroyed_at.is_(None))
    for model_id, at in session.execute(sa.select(Model.id, Model.retired_at).where(pending)):
        versions = sa.select(Version.id).where(Version.model_id == model_id, Version.status != VersionStatus.DESTROYED)
        unconfirmed.append(Retired(id=model_id, at=at, version_ids=tuple(session.scalars(versions))))
    pending = sa.and_(Dataset.retired_at.is_not(None), Dataset.destroyed_at.is_(None))
    for dataset_id, at in session.execute(sa.select(Dataset.id, Dataset.retired_at).where(pending)):
        batches = session.scalars(sa.select(Addition.id).where(Addition.dataset_id == dataset_id))
        unconfirmed.append(Retired(id=dataset_id, at=at, rows_ids=(dataset_id, *batches)))
    return unconfirmed


def mark_gone(session: Session, retired_id: str, *, at: datetime.datetime) -> None:
    """Record that nothing remains of a retired model or dataset."""
    for table in (Model, Dataset):
        session.execute(sa.update(table).where(table.id == retired_id).values(destroyed_at=at))


def running_runs(session: Session, *, worker: str | None = None) -> list[Run]:
    """Return all runs in progress, or only those of one worker."""
    query = sa.select(Run).where(Run.status == RunStatus.RUNNING)
    return list(session.scalars(query if worker is None else query.where(Run.worker == worker)))
