"""All SQL about what is due: datasets and models that a worker takes next, by which rule."""

import datetime
from collections.abc import Collection, Iterable, Iterator

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.likely import usually
from app.db.tables import (
    OWED,
    Addition,
    Dataset,
    Erasure,
    Model,
    Rehearsal,
    RequestModel,
    Run,
    Tenant,
    Version,
)
from app.unlearning import turns
from app.unlearning.turns import Due, TenantShare
from lethe.contract.sets import QueueRule, RehearsalStatus, RunStatus

LEARNING_MAY_WAIT = datetime.timedelta(days=30)


def datasets_due(session: Session, *, at: datetime.datetime, deletions_only: bool = False) -> list[Due]:
    """Datasets with something to do and nothing running, in the order of `turns.in_turn`; with `deletions_only`, those
    that somebody waits for who asked to be forgotten.

    Rows are erased as soon as one model of the dataset runs, or none is there to wait for.
    """
    return ordered(session, _due(session, at=at, deletions_only=deletions_only), at=at)


def rules_due(session: Session, *, tenant_id: str, at: datetime.datetime, limit: int) -> list[Due]:
    """The parts that `datasets_due` gathers, of one tenant, by each rule for itself: at most so many by each."""
    return list(_due(session, at=at, tenant_id=tenant_id, limit=limit))


def ordered(session: Session, dues: Iterable[Due], *, at: datetime.datetime) -> list[Due]:
    """Each dataset once, in the order of `turns.in_turn`."""
    found: dict[str, Due] = {}
    for due in dues:
        known = found.get(due.dataset_id, due)
        found[due.dataset_id] = Due(
            dataset_id=due.dataset_id,
            tenant_id=due.tenant_id,
            deadline=_earlier(due.deadline, known.deadline),
            learning=_earlier(due.learning, known.learning),
            test=due.test and known.test,
        )
    standings = _standings(session, tenant_ids={due.tenant_id for due in found.values()})
    return turns.in_turn(found.values(), standings, at=at)


def anything_due(session: Session, *, at: datetime.datetime, deletions_only: bool = False) -> bool:
    """Return True if `datasets_due` would find any: it reads no further than the first."""
    return next(_due(session, at=at, deletions_only=deletions_only, limit=1), None) is not None


def _earlier(one: datetime.datetime | None, other: datetime.datetime | None) -> datetime.datetime | None:
    return min((moment for moment in (one, other) if moment), default=None)


def _due(
    session: Session,
    *,
    at: datetime.datetime,
    deletions_only: bool = False,
    tenant_id: str | None = None,
    limit: int | None = None,
) -> Iterator[Due]:
    """The datasets that are due, once for each reason; `tenant_id`: of this tenant alone; `limit`: at most so many for
    each. It reads only as far as it is asked."""
    waiting = _patient_models(session, at=at)
    requested, behind = _REQUESTED, _BEHIND
    if waiting:
        requested = requested.where(Dataset.id.not_in(_patient_datasets(session, waiting)))
        behind = behind.where(Model.id.not_in(waiting))
    deletions = (
        (QueueRule.REQUESTED, requested),
        (QueueRule.UNCONFIRMED, _UNCONFIRMED),
        (QueueRule.BEHIND, behind),
    )
    for rule, query in deletions:
        for dataset_id, owner_id, deadline in session.execute(_some(query, tenant_id, limit), {"at": at}):
            yield Due(dataset_id=dataset_id, tenant_id=owner_id, deadline=deadline, rule=rule)
    for rule, to_learn in () if deletions_only else _LEARNING:
        for dataset_id, owner_id, asked_at in session.execute(_some(to_learn, tenant_id, limit), {"at": at}):
            yield Due(
                dataset_id=dataset_id,
                tenant_id=owner_id,
                deadline=None,
                learning=asked_at + LEARNING_MAY_WAIT,
                test=rule in (QueueRule.AUDIT, QueueRule.REHEARSAL),
                rule=rule,
            )


def _some(
    query: sa.Select[str, str, datetime.datetime], tenant_id: str | None, limit: int | None
) -> sa.Select[str, str, datetime.datetime]:
    return (query if tenant_id is None else query.where(Dataset.tenant_id == tenant_id)).limit(limit)


_AT = sa.bindparam("at", type_=Run.started_at.type)
_UNCLAIMED = sa.and_(Erasure.revision.is_(None), Erasure.ready_at.is_not(None))
_READY = Erasure.ready_at <= _AT
_FREE = sa.and_(
    Dataset.damaged_at.is_(None),
    sa.or_(Dataset.not_before.is_(None), Dataset.not_before <= _AT),
    ~sa.exists().where(Run.dataset_id == Dataset.id, Run.status == RunStatus.RUNNING),
)
_MAY_RUN = sa.or_(Model.not_before.is_(None), Model.not_before <= _AT)


def _requested() -> sa.Select[str, str, datetime.datetime]:
    """Datasets with rows to erase that were asked for and not claimed."""
    of_it = sa.select(Erasure.deadline).where(Erasure.dataset_id == Dataset.id, _UNCLAIMED)
    first = of_it.where(usually(_READY)).order_by(Erasure.deadline).limit(1).scalar_subquery()
    return sa.select(Dataset.id, Dataset.tenant_id, first).where(_FREE, of_it.where(_READY).exists())


def _unconfirmed() -> sa.Select[str, str, datetime.datetime]:
    """Datasets with rows that were claimed and are not known to be null."""
    query = sa.select(Dataset.id, Dataset.tenant_id, sa.func.min(Erasure.deadline))
    query = query.join(Erasure, Erasure.dataset_id == Dataset.id)
    query = query.where(_FREE, Erasure.num_records.is_not(None), Erasure.nulled_at.is_(None))
    return query.group_by(Dataset.id, Dataset.tenant_id)


def _behind() -> sa.Select[str, str, datetime.datetime]:
    """Datasets with a live model that carries people whose rows are null."""
    since = sa.and_(Erasure.dataset_id == Dataset.id, Erasure.revision > Version.revision)
    first = sa.select(sa.func.min(Erasure.deadline)).where(since).scalar_subquery()
    return (
        sa.select(Dataset.id, Dataset.tenant_id, first)
        .join(Model, Model.dataset_id == Dataset.id)
        .join(Version, sa.and_(Version.model_id == Model.id, Version.number == Model.live_version))
        .where(_FREE, _MAY_RUN, Version.revision < Dataset.revision, sa.exists().where(since))
    )


def _to_learn() -> sa.Select[str, str, datetime.datetime]:
    query = sa.select(Dataset.id, Dataset.tenant_id, Model.created_at).join(Model, Model.dataset_id == Dataset.id)
    return query.where(_FREE, _MAY_RUN, Model.wanted.is_not(None))


def _to_add() -> sa.Select[str, str, datetime.datetime]:
    """Datasets with batches of rows that are not in their slots, or still beside them."""
    query = sa.select(Dataset.id, Dataset.tenant_id, Addition.created_at)
    return query.join(Addition, Addition.dataset_id == Dataset.id).where(_FREE, Addition.staged)


def _to_learn_again() -> sa.Select[str, str, datetime.datetime]:
    """Datasets with a live model that lacks rows which came after it."""
    return (
        sa.select(Dataset.id, Dataset.tenant_id, Addition.created_at)
        .join(Addition, Addition.dataset_id == Dataset.id)
        .join(Model, Model.dataset_id == Dataset.id)
        .join(Version, sa.and_(Version.model_id == Model.id, Version.number == Model.live_version))
        .where(_FREE, _MAY_RUN, Version.revision < Dataset.revision, Version.revision < Addition.revision)
    )


def _letting_wait() -> sa.Select[
    Model, int, datetime.datetime, datetime.datetime, datetime.datetime, datetime.datetime
]:
    """Live models that let requests wait for each other: how many rows of theirs are null, and of those and of people
    who may be taken, who waits longest and who is due first."""
    claimed = sa.and_(Erasure.dataset_id == Model.dataset_id, Erasure.revision > Version.revision)
    added = sa.and_(Addition.dataset_id == Model.dataset_id, Addition.revision > Version.revision)
    unclaimed = sa.select(Erasure.ready_at).where(Erasure.dataset_id == Model.dataset_id, _UNCLAIMED)
    longest = unclaimed.where(_READY).order_by(Erasure.ready_at)
    first = unclaimed.where(usually(_READY)).with_only_columns(Erasure.deadline).order_by(Erasure.deadline)
    return (
        sa.select(
            Model,
            sa.select(sa.func.count()).where(claimed).scalar_subquery(),
            longest.limit(1).scalar_subquery(),
            sa.select(sa.func.min(Erasure.ready_at)).where(claimed).scalar_subquery(),
            first.limit(1).scalar_subquery(),
            sa.select(sa.func.min(Erasure.deadline)).where(claimed).scalar_subquery(),
        )
        .join(Version, sa.and_(Version.model_id == Model.id, Version.number == Model.live_version))
        .where(Model.max_wait_seconds > 0, Model.wanted.is_(None), ~sa.exists().where(added))
    )


def _to_test() -> tuple[sa.Select[str, str, datetime.datetime], sa.Select[str, str, datetime.datetime]]:
    """Datasets of models whose audit, and whose rehearsal, was asked for."""
    audit = sa.type_coerce(Model.audit_asked_at, Run.started_at.type)
    of_models = sa.select(Dataset.id, Dataset.tenant_id).join(Model, Model.dataset_id == Dataset.id).where(_FREE)
    rehearsals = of_models.add_columns(Rehearsal.asked_at).join(Rehearsal, Rehearsal.model_id == Model.id)
    waiting = Rehearsal.status == RehearsalStatus.WAITING
    return of_models.add_columns(audit).where(audit.is_not(None)), rehearsals.where(waiting)


_REQUESTED, _UNCONFIRMED, _BEHIND = _requested(), _unconfirmed(), _behind()
_TO_LEARN, _TO_ADD, _TO_LEARN_AGAIN, (_TO_AUDIT, _TO_REHEARSE) = _to_learn(), _to_add(), _to_learn_again(), _to_test()
_LEARNING = (
    (QueueRule.LEARN, _TO_LEARN),
    (QueueRule.ADD, _TO_ADD),
    (QueueRule.LEARN_ADDED, _TO_LEARN_AGAIN),
    (QueueRule.AUDIT, _TO_AUDIT),
    (QueueRule.REHEARSAL, _TO_REHEARSE),
)
_LETTING_WAIT = _letting_wait()
"""Made once: making a statement anew takes longer than running it."""


def _patient_models(session: Session, *, at: datetime.datetime, dataset_id: str | None = None) -> dict[str, str]:
    """Models that let requests wait for each other, and whose requests are neither many, nor old, nor due soon; and
    the dataset of each."""
    query = _LETTING_WAIT
    if dataset_id is not None:
        query = query.where(Model.dataset_id == dataset_id)
    found = {}
    for model, num_claimed, *moments in session.execute(query, {"at": at}):
        oldest, deadline = _earlier(*moments[:2]), _earlier(*moments[2:])
        if (
            oldest
            and deadline
            and at < turns.batch_ends(model.max_wait_seconds, oldest_at=oldest, first_due_at=deadline)
            and not _enough(session, model, num_claimed, at=at)
        ):
            found[model.id] = model.dataset_id
    return found


def _enough(session: Session, model: Model, num_claimed: int, *, at: datetime.datetime) -> bool:
    """Return True if as many requests wait for the model as it lets wait; counts no further than that."""
    if model.max_requests is None:
        return False
    if num_claimed >= model.max_requests:
        return True
    unclaimed = sa.select(Erasure.id).where(Erasure.dataset_id == model.dataset_id, _UNCLAIMED, _READY)
    nth = unclaimed.order_by(Erasure.ready_at).offset(model.max_requests - num_claimed - 1).limit(1)
    return session.scalar(nth, {"at": at}) is not None


def _patient_datasets(session: Session, waiting: dict[str, str]) -> set[str]:
    """Datasets all of whose models that carry or will carry people are `waiting`."""
    carries = sa.or_(Model.live_version.is_not(None), Model.wanted.is_not(None))
    query = sa.select(Model.id, Model.dataset_id).where(carries, Model.dataset_id.in_(set(waiting.values())))
    impatient = {dataset_id for model_id, dataset_id in session.execute(query) if model_id not in waiting}
    return set(waiting.values()) - impatient


def _standings(session: Session, *, tenant_ids: Iterable[str]) -> dict[str, TenantShare]:
    counted = sa.select(Run.tenant_id, sa.func.count()).where(Run.status == RunStatus.RUNNING).group_by(Run.tenant_id)
    running = dict(iter(session.execute(counted)))
    last = sa.select(sa.func.max(Run.started_at)).where(Run.tenant_id == Tenant.id).scalar_subquery()
    began = session.execute(sa.select(Tenant.id, last).where(Tenant.id.in_(list(tenant_ids)), last.is_not(None)))
    return {
        tenant_id: TenantShare(running=running.get(tenant_id, 0), last_began_at=last_began_at)
        for tenant_id, last_began_at in began
    }


def first_deadline_owed(session: Session, model: Model) -> datetime.datetime | None:
    """The earliest deadline of the accepted requests about people whom the live version of a model carries."""
    mine = sa.select(Erasure.deadline).where(Erasure.dataset_id == model.dataset_id, Erasure.ready_at.is_not(None))
    revision = sa.select(Version.revision).where(Version.model_id == model.id, Version.number == model.live_version)
    claimed = mine.where(Erasure.revision > revision.scalar_subquery(), Erasure.num_records > 0)
    waiting = mine.where(Erasure.revision.is_(None)).order_by(Erasure.deadline).limit(1)
    return _earlier(
        session.scalar(sa.select(sa.func.min(claimed.subquery().c.deadline))),
        session.scalar(waiting),
    )


_FORGETS = sa.or_(
    sa.exists().where(RequestModel.model_id == Model.id, RequestModel.status.in_(OWED)),
    sa.exists().where(Erasure.dataset_id == Model.dataset_id, Erasure.revision > Version.revision),
)
"""A condition on models and their live versions: somebody waits for it who asked to be forgotten."""


def models_due(
    session: Session, *, dataset: Dataset, at: datetime.datetime, deletions_only: bool = False
) -> list[tuple[Model, Version | None]]:
    """Models of a dataset that must run now: those that have somebody to forget before those that are only to learn,
    among each the one that is furthest behind first. None waits for ever: what is to learn has somebody to forget once
    somebody more has asked."""
    query = (
        sa.select(Model, Version)
        .outerjoin(Version, sa.and_(Version.model_id == Model.id, Version.number == Model.live_version))
        .where(
            Model.dataset_id == dataset.id,
            _MAY_RUN,
            Model.id.not_in(_patient_models(session, at=at, dataset_id=dataset.id)),
            sa.or_(Model.wanted.is_not(None), Version.revision < dataset.revision),
        )
        .order_by(_FORGETS.desc(), sa.func.coalesce(Version.revision, -1), Model.created_at, Model.id)
    )
    if deletions_only:
        query = query.where(_FORGETS)
    return [(model, version) for model, version in session.execute(query, {"at": at})]


def models_to_serve(session: Session, *, dataset_id: str, at: datetime.datetime, limit: int) -> list[str]:
    """Models of a dataset that a run of requests nobody has taken up yet is for: all that carry or will carry people,
    but for those that let requests wait."""
    carries = sa.or_(Model.live_version.is_not(None), Model.wanted.is_not(None))
    patient = _patient_models(session, at=at, dataset_id=dataset_id)
    query = sa.select(Model.id).where(Model.dataset_id == dataset_id, carries, _MAY_RUN, Model.id.not_in(patient))
    query = query.where(Model.retired_at.is_(None)).order_by(Model.created_at, Model.id).limit(limit)
    return list(session.scalars(query, {"at": at}))


def oldest_ready(
    session: Session, *, dataset_ids: Collection[str], at: datetime.datetime
) -> dict[str, datetime.datetime]:
    """The time from which the first request that no run has taken up may be taken, by dataset."""
    query = sa.select(Erasure.dataset_id, sa.func.min(Erasure.ready_at))
    query = query.where(Erasure.dataset_id.in_(list(dataset_ids)), _UNCLAIMED, _READY).group_by(Erasure.dataset_id)
    return {dataset_id: ready_at for dataset_id, ready_at in session.execute(query, {"at": at}) if ready_at}
