"""Training tables and trainers, and which requests are waiting for them.

No table lists the requests waiting for a trainer: as with models, they follow from revisions. A training run, or the
blocks, at revision v of the table's dataset lack the rows claimed for erasure at revision r if r <= v.
"""

import datetime
import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.audit import service as audit
from app.catalogue import datasets
from app.db import actor, bulk, now, rare
from app.db.tables import Dataset, DeletionRequest, Erasure, new_id
from app.deletion import completion
from app.deletion.status import OPEN
from app.features.trainers.tables import Artefact, RetiredKey, TableBlock, Trainer, Training, TrainingTable
from app.keys import Keys
from app.unlearning import retirement
from app.vault.pieces import Vault
from lethe.contract import problems, sets
from lethe.features.trainers.contract import TrainerIn, TrainingStatus


def register_table(
    session: Session, *, name: str, dataset: Dataset, subject_column: str, schema: Any, blocks: Iterable[TableBlock]
) -> TrainingTable:
    """Register a table with its sealed blocks; its dataset was registered in the same transaction."""
    row = TrainingTable(
        id=new_id("tbl"),
        tenant_id=dataset.tenant_id,
        name=name,
        dataset_id=dataset.id,
        subject_column=subject_column,
        columns=[{"name": field.name, "type": str(field.type)} for field in schema],
        revision=dataset.revision,
        created_at=now(session),
    )
    session.add(row)
    session.flush()
    for block in blocks:
        block.table_id, block.tenant_id = row.id, row.tenant_id
        session.add(block)
    audit.record(session, "training_table.created", row.id, dataset_id=dataset.id)
    return row


def sealed_block(vault: Vault, number: int, rows: Any) -> TableBlock:
    """Return a block of rows, sealed under a new key; it belongs to no table yet."""
    # Imported here: a process that stores no table needs no Arrow.
    from app.features.trainers import columns

    content = vault.seal(columns.to_bytes(rows))
    return TableBlock(number=number, num_rows=rows.num_rows, key=vault.key_of(content), content=content)


def get_table(session: Session, table_id: str) -> TrainingTable:
    """Return a table. Raises `NotFound`."""
    row = session.get(TrainingTable, table_id)
    if row is None:
        raise problems.NotFound(
            "There is no training table {table_id!r}; GET /v1/training-tables lists them.", table_id=table_id
        )
    return row


def tables(session: Session, *, limit: int, cursor: str | None) -> bulk.Page[TrainingTable]:
    query = sa.select(TrainingTable)
    return bulk.page(session, query, TrainingTable.created_at, TrainingTable.id, limit=limit, cursor=cursor)


def count_rows(session: Session, table_id: str) -> int:
    """Return the number of rows in a table."""
    total = sa.select(sa.func.coalesce(sa.func.sum(TableBlock.num_rows), 0)).where(TableBlock.table_id == table_id)
    return int(session.scalars(total).one())


def retire_table(session: Session, keys: Keys, row: TrainingTable) -> None:
    """Retire a table and its dataset; a periodic job then destroys its sealed rows. Repeating the call is a no-op.

    Raises `DatasetInUse`.
    """
    if row.retired_at is not None:
        return
    users = sa.select(Trainer.id).where(Trainer.table_id == row.id, Trainer.retired_at.is_(None))
    for trainer_id in session.scalars(users.limit(1)):
        raise problems.DatasetInUse(
            "Trainer {trainer_id} learns from table {table_id}; retire the trainer first.",
            trainer_id=trainer_id,
            table_id=row.id,
        )
    retirement.retire_dataset(session, keys, datasets.get(session, row.dataset_id))
    drop_table(session, row)


def drop_table(session: Session, row: TrainingTable) -> None:
    """Retire a table whose dataset is retired, and its trainers, because they could no longer forget people."""
    row.retired_at = now(session)
    record(session, "training_table.retired", row)
    for trainer in session.scalars(sa.select(Trainer).where(Trainer.table_id == row.id)):
        retire(session, trainer)
    for block in session.scalars(sa.select(TableBlock).where(TableBlock.table_id == row.id)):
        session.add(RetiredKey(key=block.key, tenant_id=row.tenant_id, table_id=row.id))
        session.delete(block)


def register(session: Session, body: TrainerIn) -> Trainer:
    """Register a trainer, which is due immediately. Raises `NotFound`."""
    table = get_table(session, body.table_id)
    if table.retired_at is not None:
        raise problems.NotFound("Training table {table_id} is retired; upload another.", table_id=table.id)
    specification = body.model_dump(exclude={"name", "table_id"})
    program = {name: specification[name] for name in ("command", "score_command", "files", "lock")}
    row = Trainer(
        id=new_id("trn"),
        tenant_id=actor(session).tenant_id,
        name=body.name,
        table_id=table.id,
        specification=specification,
        sha256=hashlib.sha256(json.dumps(program, sort_keys=True).encode()).hexdigest(),
        lock_sha256=hashlib.sha256(body.lock.encode()).hexdigest(),
        failures=0,
        created_at=now(session),
    )
    session.add(row)
    audit.record(session, "trainer.created", row.id, table_id=table.id, sha256=row.sha256)
    return row


def get(session: Session, trainer_id: str) -> Trainer:
    """Return a trainer. Raises `NotFound`."""
    row = session.get(Trainer, trainer_id)
    if row is None:
        raise problems.NotFound(
            "There is no trainer {trainer_id!r}; GET /v1/trainers lists them.", trainer_id=trainer_id
        )
    return row


def trainers(session: Session, *, limit: int, cursor: str | None) -> bulk.Page[Trainer]:
    return bulk.page(session, sa.select(Trainer), Trainer.created_at, Trainer.id, limit=limit, cursor=cursor)


def trainings(session: Session, *, trainer_id: str, limit: int, cursor: str | None) -> bulk.Page[Training]:
    query = sa.select(Training).where(Training.trainer_id == trainer_id)
    return bulk.page(session, query, Training.started_at, Training.id, limit=limit, cursor=cursor)


def artefacts(session: Session, training_id: str | None) -> list[Artefact]:
    """Return a training run's artefacts, ordered by name and without their content."""
    query = sa.select(Artefact).where(Artefact.training_id == training_id).order_by(Artefact.name)
    return list(session.scalars(query.options(sa.orm.defer(Artefact.content))))


def artefact(session: Session, vault: Vault, row: Trainer, name: str) -> bytes:
    """Return the content of a live artefact. Raises `NotFound`, `ModelHeld`, `WeightsDestroyed`."""
    artefact = session.get(Artefact, (row.live_id, name)) if row.live_id else None
    if artefact is None:
        raise problems.NotFound("Trainer {trainer_id} has no live artefact {name!r}.", trainer_id=row.id, name=name)
    if session.get_one(Training, artefact.training_id).held:
        raise problems.ModelHeld(
            "The live artefacts of trainer {trainer_id} are held back: they miss its minimum of the metric, or a later "
            "training raised an alarm; release them (POST /v1/trainers/{trainer_id}/release), or register a better "
            "trainer.",
            trainer_id=row.id,
        )
    content = opened(vault, artefact.content)
    if content is None or hashlib.sha256(content).hexdigest() != artefact.sha256:
        raise problems.WeightsDestroyed("Artefact {name} does not open; restore the pages of the vault.", name=name)
    return content


def opened(vault: Vault, content: bytes | None) -> bytes | None:
    """Return the content of a sealed block or artefact; None if the content or its key is destroyed or damaged."""
    try:
        return None if content is None else vault.open(content)
    except (ValueError, FileNotFoundError):
        return None


def release(session: Session, row: Trainer) -> None:
    """Release live artefacts that are held back. Repeating the call is a no-op."""
    live = session.get(Training, row.live_id) if row.live_id else None
    if live is not None and live.held:
        live.held = False
        audit.record(session, "trainer.released", row.id, training_id=live.id)


def retire(session: Session, row: Trainer) -> None:
    """Retire a trainer and mark its artefacts' keys for destruction. Repeating the call is a no-op."""
    if row.retired_at is not None:
        return
    row.retired_at = now(session)
    stop(session, row.id, TrainingStatus.ABANDONED)
    drop_artefacts(session, row)
    row.live_id = row.retry_at = row.error_code = None
    record(session, "trainer.retired", row)
    session.flush()
    complete(session, session.get_one(TrainingTable, row.table_id))


def complete(session: Session, table: TrainingTable) -> None:
    """Complete a table's running requests that are waiting for nothing else. `settle` completes those not running."""
    query = sa.select(DeletionRequest).join(Erasure, Erasure.request_id == DeletionRequest.id)
    query = query.where(DeletionRequest.status == sets.RequestStatus.RUNNING, Erasure.dataset_id == table.dataset_id)
    completion.complete_done(session, list(session.scalars(query)))


def record(session: Session, action: str, row: TrainingTable | Trainer, **detail: Any) -> None:
    """Record an action of the session's actor, or of the service, in the audit log."""
    actor_name = audit.actor_of(session)
    deed = audit.Deed(tenant_id=row.tenant_id, actor=actor_name, action=action, object_id=row.id, detail=detail)
    audit.record_all(session, [deed])


def stop(session: Session, trainer_id: str, status: TrainingStatus) -> None:
    """End a trainer's current training run. The worker notices when it next renews its lease."""
    running = sa.select(Training).where(Training.trainer_id == trainer_id, Training.status == TrainingStatus.RUNNING)
    for training in session.scalars(running):
        training.status, training.ended_at = status, now(session)


def drop_artefacts(session: Session, row: Trainer) -> None:
    """Delete the content of a trainer's live artefacts, and mark their keys for destruction."""
    for old in artefacts(session, row.live_id):
        if old.key is not None:
            session.add(RetiredKey(key=old.key, tenant_id=row.tenant_id))
        old.key = old.content = None


def lose_artefacts(session: Session) -> None:
    """Drop all artefacts in a restored database, because they may have been trained on people forgotten since the
    backup. Every trainer then has to run again."""
    for row in session.scalars(sa.select(Trainer).where(Trainer.live_id.is_not(None))):
        drop_artefacts(session, row)
        row.live_id = row.live_revision = None


_LAGS: sa.ColumnElement[bool] = sa.or_(
    Erasure.revision.is_(None),
    Erasure.nulled_at.is_(None),
    TrainingTable.revision < Erasure.revision,
    sa.exists().where(
        Trainer.table_id == TrainingTable.id,
        Trainer.retired_at.is_(None),
        sa.or_(Trainer.live_revision.is_(None), Trainer.live_revision < Erasure.revision),
    ),
)
"""Condition that an erasure in the dataset of a table waits for its blocks or for a trainer."""
_OF_TABLES = sa.and_(TrainingTable.dataset_id == Erasure.dataset_id, TrainingTable.retired_at.is_(None))
_ANY_TABLE = rare.Rare(TrainingTable.retired_at.is_(None))


def is_open(request: type[DeletionRequest]) -> sa.ColumnElement[bool]:
    """Return the SQL condition that `request`, or the request that erased its rows, awaits a table or a trainer."""
    mine = sa.or_(Erasure.request_id == request.id, Erasure.request_id == request.erased_by)
    return sa.exists(sa.select(1).select_from(Erasure).join(TrainingTable, _OF_TABLES).where(mine, _LAGS))


def opening(session: Session) -> Callable[[DeletionRequest], bool]:
    """Return a predicate that tests whether a table or trainer of a request's tenant lags behind its dataset, for any
    person: timing must not reveal whose data was held. Requests without open work complete a second later."""
    if not _ANY_TABLE.may_hold(session):
        return lambda _request: False
    behind = sa.exists().where(
        Trainer.table_id == TrainingTable.id,
        Trainer.retired_at.is_(None),
        sa.or_(Trainer.live_revision.is_(None), Trainer.live_revision < Dataset.revision),
    )
    query = sa.select(TrainingTable).join(Dataset, Dataset.id == TrainingTable.dataset_id)
    query = query.where(TrainingTable.retired_at.is_(None), sa.or_(TrainingTable.revision < Dataset.revision, behind))
    lagging = {table.tenant_id for table in session.scalars(query)}
    return lambda request: request.tenant_id in lagging


def waiting(session: Session, row: Trainer) -> list[tuple[DeletionRequest, Erasure]]:
    """Return the open requests that are waiting for a trainer, ordered by due date."""
    table = session.get_one(TrainingTable, row.table_id)
    query = (
        sa.select(DeletionRequest, Erasure)
        .join(Erasure, Erasure.request_id == DeletionRequest.id)
        .where(
            DeletionRequest.status.in_(sorted(OPEN)),
            Erasure.dataset_id == table.dataset_id,
            sa.or_(
                Erasure.revision.is_(None), Erasure.revision > (-1 if row.live_revision is None else row.live_revision)
            ),
        )
        .order_by(DeletionRequest.deadline, DeletionRequest.id)
    )
    return [] if row.retired_at else [(request, erasure) for request, erasure in session.execute(query)]


def last_seconds(session: Session, row: Trainer) -> float:
    """Return the last published training run's duration in seconds, or the time limit if none has been published."""
    query = sa.select(Training).where(Training.trainer_id == row.id, Training.status == TrainingStatus.PUBLISHED)
    last = session.scalars(query.order_by(Training.started_at.desc()).limit(1)).first()
    if last is None or last.ended_at is None:
        return float(row.specification["seconds"])
    return max(1.0, (last.ended_at - last.started_at) / datetime.timedelta(seconds=1))
