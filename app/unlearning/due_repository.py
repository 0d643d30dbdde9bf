"""SQL queries for the queue: the datasets and models that a worker claims next, and the rules that make them due."""

import datetime
import functools
from collections.abc import Iterable, Iterator

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import functions, now, rows
from app.db.tables import OWED, Addition, Dataset, Erasure, Model, RequestModel, Run, Tenant, Version
from app.unlearning import kinds, turns
from lethe.contract.sets import QueueRule, RunStatus

LEARNING_MAY_WAIT = datetime.timedelta(days=30)


def datasets_due(session: Session, *, at: datetime.datetime, deletions_only: bool = False) -> list[turns.DueDataset]:
    """Return datasets that have work but no run in progress, in the order of `turns.in_turn`; with `deletions_only`,
    only datasets with waiting deletion requests.

    Rows are erased as soon as one model of the dataset runs, or immediately if no model has to run.
    """
    return ordered(session, due(session, at=at, deletions_only=deletions_only), at=at)


def ordered(session: Session, dues: Iterable[turns.DueDataset], *, at: datetime.datetime) -> list[turns.DueDataset]:
    """Return each dataset once, merging the rules that make it due, in the order of `turns.in_turn`."""
    by_id: dict[str, turns.DueDataset] = {}
    for due_dataset in dues:
        merged = by_id.get(due_dataset.dataset_id, due_dataset)
        by_id[due_dataset.dataset_id] = turns.DueDataset(
            dataset_id=due_dataset.dataset_id,
            tenant_id=due_dataset.tenant_id,
            deadline=_earlier(due_dataset.deadline, merged.deadline),
            learning=_earlier(due_dataset.learning, merged.learning),
            test=due_dataset.test and merged.test,
        )
    tenant_ids = {due_dataset.tenant_id for due_dataset in by_id.values()}
    standings = _tenant_shares(session, tenant_ids=tenant_ids) if len(tenant_ids) > 1 else {}
    return turns.in_turn(by_id.values(), standings, at=at)


def anything_to_do(session: Session, *, deletions_only: bool = False, at: datetime.datetime | None = None) -> bool:
    """Return True if `queue.claim` would find work at `at`, by default now. A read session suffices, so idle workers do
    not take the write lock."""
    at = at or now(session)
    ((is_any_expired, is_any_batching, *applies),) = rows(session, _any_dataset(deletions_only), {"at": at})
    if is_any_expired or not is_any_batching or not any(applies):
        return is_any_expired or any(applies)
    return next(due(session, at=at, deletions_only=deletions_only, limit=1), None) is not None


def _earlier(first: datetime.datetime | None, second: datetime.datetime | None) -> datetime.datetime | None:
    return min((moment for moment in (first, second) if moment), default=None)


def due(
    session: Session,
    *,
    at: datetime.datetime,
    deletions_only: bool = False,
    tenant_id: str | None = None,
    limit: int | None = None,
) -> Iterator[turns.DueDataset]:
    """Yield due datasets, once per rule and at most `limit` per rule; with `tenant_id`, only that tenant's datasets.
    Queries run lazily as the iterator advances; one statement finds the rules under which any dataset is due."""
    rules = _rules(deletions_only)
    ((_, is_any_batching, *applies),) = rows(session, _any_dataset(deletions_only), {"at": at})
    queries = {rule: query for (rule, query), any_dataset in zip(rules, applies, strict=True) if any_dataset}
    may_wait = is_any_batching and queries.keys() & {QueueRule.REQUESTED, QueueRule.BEHIND}
    waiting = patient_models(session, at=at) if may_wait else {}
    if waiting and QueueRule.REQUESTED in queries:
        queries[QueueRule.REQUESTED] = _REQUESTED.where(Dataset.id.not_in(patient_datasets(session, waiting)))
    if waiting and QueueRule.BEHIND in queries:
        queries[QueueRule.BEHIND] = _BEHIND.where(Model.id.not_in(waiting))
    tests = {rule for rule, _ in _tests()}
    for rule, query in queries.items():
        forgets = rule in _FORGETTING
        owned = query if tenant_id is None else query.where(Dataset.tenant_id == tenant_id)
        for dataset_id, owner_id, moment in session.execute(owned.limit(limit), {"at": at}):
            yield turns.DueDataset(
                dataset_id=dataset_id,
                tenant_id=owner_id,
                deadline=moment if forgets else None,
                learning=None if forgets else moment + LEARNING_MAY_WAIT,
                test=rule in tests,
                rule=rule,
            )


_AT = sa.bindparam("at", type_=Run.started_at.type)
_UNCLAIMED = sa.and_(Erasure.revision.is_(None), Erasure.ready_at.is_not(None))
_READY = Erasure.ready_at <= _AT
_FREE = sa.and_(
    Dataset.damaged_at.is_(None),
    sa.or_(Dataset.not_before.is_(None), Dataset.not_before <= _AT),
    ~sa.exists().where(Run.dataset_id == Dataset.id, Run.status == RunStatus.RUNNING),
)
MAY_RUN = sa.or_(Model.not_before.is_(None), Model.not_before <= _AT)


def _requested() -> sa.Select[str, str, datetime.datetime]:
    """Return the query for datasets with accepted erasures that no run has claimed."""
    of_it = sa.select(Erasure.deadline).where(Erasure.dataset_id == Dataset.id, _UNCLAIMED)
    first = of_it.where(functions.usually(_READY)).order_by(Erasure.deadline).limit(1).scalar_subquery()
    return sa.select(Dataset.id, Dataset.tenant_id, first).where(_FREE, of_it.where(_READY).exists())


def _unconfirmed() -> sa.Select[str, str, datetime.datetime]:
    """Return the query for datasets with claimed rows that are not confirmed to be null."""
    query = sa.select(Dataset.id, Dataset.tenant_id, sa.func.min(Erasure.deadline))
    query = query.join(Erasure, Erasure.dataset_id == Dataset.id)
    query = query.where(_FREE, Erasure.num_records.is_not(None), Erasure.nulled_at.is_(None))
    return query.group_by(Dataset.id, Dataset.tenant_id)


def _behind() -> sa.Select[str, str, datetime.datetime]:
    """Return the query for datasets with a live model that still has to forget people whose rows are now null."""
    since = sa.and_(Erasure.dataset_id == Dataset.id, Erasure.revision > Version.revision)
    first = sa.select(sa.func.min(Erasure.deadline)).where(since).scalar_subquery()
    return (
        sa.select(Dataset.id, Dataset.tenant_id, first)
        .join(Model, Model.dataset_id == Dataset.id)
        .join(Version, sa.and_(Version.model_id == Model.id, Version.number == Model.live_version))
        .where(_FREE, MAY_RUN, Version.revision < Dataset.revision, sa.exists().where(since))
    )


def _to_learn() -> sa.Select[str, str, datetime.datetime]:
    query = sa.select(Dataset.id, Dataset.tenant_id, Model.created_at).join(Model, Model.dataset_id == Dataset.id)
    return query.where(_FREE, MAY_RUN, Model.wanted.is_not(None))


def _to_add() -> sa.Select[str, str, datetime.datetime]:
    """Return the query for datasets with staged batches (not yet in their slots, or with a copy still staged)."""
    query = sa.select(Dataset.id, Dataset.tenant_id, Addition.created_at)
    return query.join(Addition, Addition.dataset_id == Dataset.id).where(_FREE, Addition.staged)


def _to_learn_again() -> sa.Select[str, str, datetime.datetime]:
    """Return the query for datasets with rows that were added after a live model's version was trained."""
    return (
        sa.select(Dataset.id, Dataset.tenant_id, Addition.created_at)
        .join(Addition, Addition.dataset_id == Dataset.id)
        .join(Model, Model.dataset_id == Dataset.id)
        .join(Version, sa.and_(Version.model_id == Model.id, Version.number == Model.live_version))
        .where(_FREE, MAY_RUN, Version.revision < Dataset.revision, Version.revision < Addition.revision)
    )


def _batching_models() -> sa.Select[
    Model, int, datetime.datetime, datetime.datetime, datetime.datetime, datetime.datetime
]:
    """Return the query for live models that batch requests, with the number of claimed requests, the earliest
    `ready_at` of ready unclaimed and of claimed requests, and the earliest deadline of the former and of the latter."""
    is_claimed = sa.and_(Erasure.dataset_id == Model.dataset_id, Erasure.revision > Version.revision)
    added = sa.and_(Addition.dataset_id == Model.dataset_id, Addition.revision > Version.revision)
    unclaimed = sa.select(Erasure.ready_at).where(Erasure.dataset_id == Model.dataset_id, _UNCLAIMED)
    longest = unclaimed.where(_READY).order_by(Erasure.ready_at)
    first = unclaimed.where(functions.usually(_READY)).with_only_columns(Erasure.deadline).order_by(Erasure.deadline)
    return (
        sa.select(
            Model,
            sa.select(sa.func.count()).where(is_claimed).scalar_subquery(),
            longest.limit(1).scalar_subquery(),
            sa.select(sa.func.min(Erasure.ready_at)).where(is_claimed).scalar_subquery(),
            first.limit(1).scalar_subquery(),
            sa.select(sa.func.min(Erasure.deadline)).where(is_claimed).scalar_subquery(),
        )
        .join(Version, sa.and_(Version.model_id == Model.id, Version.number == Model.live_version))
        .where(Model.max_wait_seconds > 0, Model.wanted.is_(None), ~sa.select(Addition.id).where(added).exists())
    )


def _of_models() -> sa.Select[str, str]:
    """Return the query for the dataset and tenant of each model whose dataset is free (`_FREE`)."""
    return sa.select(Dataset.id, Dataset.tenant_id).join(Model, Model.dataset_id == Dataset.id).where(_FREE)


_REQUESTED, _UNCONFIRMED, _BEHIND = _requested(), _unconfirmed(), _behind()
_FORGETTING = {QueueRule.REQUESTED: _REQUESTED, QueueRule.UNCONFIRMED: _UNCONFIRMED, QueueRule.BEHIND: _BEHIND}
_LEARNING = ((QueueRule.LEARN, _to_learn()), (QueueRule.ADD, _to_add()), (QueueRule.LEARN_ADDED, _to_learn_again()))
_BATCHING_MODELS = _batching_models()
"""Statement built once at import, like those above, because building it takes longer than running it."""


@functools.cache
def _tests() -> tuple[tuple[QueueRule, sa.Select[str, str, datetime.datetime]], ...]:
    """Return, for each kind of test, its rule and the query for datasets with a requested test."""
    return tuple((test.rule, test.due(_of_models())) for test in kinds.asked_kinds().values())


@functools.cache
def _rules(deletions_only: bool) -> tuple[tuple[QueueRule, sa.Select[str, str, datetime.datetime]], ...]:
    """Return each rule with its query, assuming that no model batches its requests."""
    return tuple(_FORGETTING.items()) if deletions_only else (*_FORGETTING.items(), *_LEARNING, *_tests())


@functools.cache
def _any_dataset(deletions_only: bool) -> sa.Select[*tuple[bool, ...]]:
    """Return the query that tells whether any lease has expired, whether any model batches requests, and, in one column
    per rule, whether any dataset is due."""
    expired = sa.exists().where(Run.status == RunStatus.RUNNING, Run.lease_expires_at < _AT)
    batching = sa.exists().where(Model.max_wait_seconds > 0, Model.live_version.is_not(None))
    return sa.select(expired, batching, *[query.exists() for _, query in _rules(deletions_only)])


def patient_models(session: Session, *, at: datetime.datetime, dataset_id: str | None = None) -> dict[str, str]:
    """Map each model whose batch of requests can still wait (it is not full, old or due soon) to its dataset."""
    query = _BATCHING_MODELS
    if dataset_id is not None:
        query = query.where(Model.dataset_id == dataset_id)
    patient = {}
    for model, num_claimed, *moments in session.execute(query, {"at": at}):
        oldest, deadline = _earlier(*moments[:2]), _earlier(*moments[2:])
        if (
            oldest
            and deadline
            and at < turns.batch_ends(model.max_wait_seconds, oldest_at=oldest, first_due_at=deadline)
            and not _is_batch_full(session, model, num_claimed, at=at)
        ):
            patient[model.id] = model.dataset_id
    return patient


def _is_batch_full(session: Session, model: Model, num_claimed: int, *, at: datetime.datetime) -> bool:
    """Return True if at least `max_requests` requests are waiting for the model. Counting stops at this number."""
    if model.max_requests is None:
        return False
    if num_claimed >= model.max_requests:
        return True
    unclaimed = sa.select(Erasure.id).where(Erasure.dataset_id == model.dataset_id, _UNCLAIMED, _READY)
    nth = unclaimed.order_by(Erasure.ready_at).offset(model.max_requests - num_claimed - 1).limit(1)
    return session.scalar(nth, {"at": at}) is not None


def patient_datasets(session: Session, waiting: dict[str, str]) -> set[str]:
    """Return datasets whose models are all in `waiting`, ignoring models without a live version or a wanted run."""
    carries = sa.or_(Model.live_version.is_not(None), Model.wanted.is_not(None))
    query = sa.select(Model.id, Model.dataset_id).where(carries, Model.dataset_id.in_(set(waiting.values())))
    impatient = {dataset_id for model_id, dataset_id in session.execute(query) if model_id not in waiting}
    return set(waiting.values()) - impatient


def _tenant_shares(session: Session, *, tenant_ids: Iterable[str]) -> dict[str, turns.TenantShare]:
    query = sa.select(Run.tenant_id, sa.func.count()).where(Run.status == RunStatus.RUNNING).group_by(Run.tenant_id)
    running = dict(iter(session.execute(query)))
    last = sa.select(sa.func.max(Run.started_at)).where(Run.tenant_id == Tenant.id).scalar_subquery()
    began = session.execute(sa.select(Tenant.id, last).where(Tenant.id.in_(list(tenant_ids)), last.is_not(None)))
    return {
        tenant_id: turns.TenantShare(running=running.get(tenant_id, 0), last_began_at=last_began_at)
        for tenant_id, last_began_at in began
    }


_FORGETS = sa.or_(
    sa.exists().where(RequestModel.model_id == Model.id, RequestModel.status.in_(OWED)),
    sa.exists().where(Erasure.dataset_id == Model.dataset_id, Erasure.revision > Version.revision),
)
"""Condition on models with their live versions: a deletion request waits for the model."""
_MODELS_DUE = (
    sa.select(Model, Version)
    .outerjoin(Version, sa.and_(Version.model_id == Model.id, Version.number == Model.live_version))
    .where(Model.dataset_id == sa.bindparam("dataset_id"), MAY_RUN)
    .where(sa.or_(Model.wanted.is_not(None), Version.revision < sa.bindparam("revision")))
    .order_by(_FORGETS.desc(), sa.func.coalesce(Version.revision, -1), Model.created_at, Model.id)
)


def models_due(
    session: Session, *, dataset: Dataset, at: datetime.datetime, deletions_only: bool = False
) -> list[tuple[Model, Version | None]]:
    """Return a dataset's models that must run now, each with its live version. Models that have to forget come before
    models that only train, and each group starts with the oldest data revision. No model starves: a model that only
    trains has to forget once another request arrives."""
    query = _MODELS_DUE.where(_FORGETS) if deletions_only else _MODELS_DUE
    values = {"dataset_id": dataset.id, "revision": dataset.revision, "at": at}
    models: list[tuple[Model, Version | None]] = [(model, live) for model, live in session.execute(query, values)]
    is_any_batching = any(model.max_wait_seconds for model, _ in models)
    patient = patient_models(session, at=at, dataset_id=dataset.id) if is_any_batching else {}
    return [(model, version) for model, version in models if model.id not in patient]
