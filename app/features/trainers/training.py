"""Training by a worker: erase rows from tables, perform due training runs (`execution.py`), and publish artefacts.

Every step is idempotent and fenced: a training run whose row is no longer `running` publishes nothing. No transaction
is open while a trainer runs.
"""

import datetime
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import installations, telemetry
from app.db import now, tables
from app.features.trainers import planner, sandbox, service
from app.features.trainers.tables import Artefact, RetiredKey, TableBlock, Trainer, Training, TrainingTable
from lethe.contract.problems import DatasetDamaged, Problem
from lethe.features.trainers.contract import TrainingStatus

if TYPE_CHECKING:
    from app.features.trainers.execution import Result

_FIRST_RETRY, _LAST_RETRY = datetime.timedelta(seconds=10), datetime.timedelta(hours=1)


class TrainingLost(Exception):
    """Error that stops a worker whose training run was abandoned or whose trainer was retired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedTraining:
    """Training run claimed by this worker."""

    training_id: str
    trainer_id: str
    tenant_id: str
    table_id: str
    specification: Mapping[str, Any]


def run_next(installation: installations.Installation) -> bool:
    """Carry out the next due training run. Return False if none is due."""
    with installation.database.reading() as session:
        if not _due(session):
            return False
    with installation.database.writing() as session:
        claimed = claim(session, lease_seconds=installation.settings.lease_seconds)
    if claimed is None:
        return False
    log = telemetry.logger()
    # Imported here: a worker that trains nothing needs no Arrow.
    from app.features.trainers import execution

    try:
        publish(installation, claimed, execution.train(installation, claimed, look=_renewing(installation, claimed)))
        log.info("trainers.published", training_id=claimed.training_id, trainer_id=claimed.trainer_id)
    except TrainingLost:
        log.info("trainers.training_lost", training_id=claimed.training_id)
    # Any failed training run is handed back, regardless of the error.
    except Exception as error:  # noqa: BLE001
        code = error.code if isinstance(error, sandbox.TrainerRefused | Problem) else type(error).__name__
        log.error("trainers.training_failed", training_id=claimed.training_id, error=code)
        findings = error.findings if isinstance(error, sandbox.TrainerRefused) else {}
        with installation.database.writing() as session:
            fail(session, claimed, code=code, findings=findings)
    destroy_retired_keys(installation)
    return True


def is_anything_kept(installation: installations.Installation) -> bool:
    """Return True if there is a training table, or a key of a former block or artefact. An idle worker checks this
    every second, and most installations have neither."""
    if installation.database.is_ruled_out(_is_anything_kept):
        return False
    with installation.database.reading() as session:
        return _is_anything_kept(session)


def _is_anything_kept(session: Session) -> bool:
    return bool(session.scalar(sa.select(sa.exists(TrainingTable.id) | sa.exists(RetiredKey.key))))


def settle_tables(installation: installations.Installation) -> None:
    """Rewrite the blocks of tables from which people were erased, destroy the keys of the replaced blocks, and record
    the revision reached."""
    with installation.database.reading() as session:
        behind = [
            (table.id, dataset.id, dataset.digest, dataset.revision, dataset.retired_at is not None)
            for table, dataset in session.execute(_behind())
            if dataset.retired_at is not None or _is_nulled(session, dataset)
        ]
    for table_id, dataset_id, root, revision, is_retired in behind:
        if is_retired:
            with installation.database.writing() as session:
                service.drop_table(session, session.get_one(TrainingTable, table_id))
            continue
        try:
            from app.features.trainers import columns

            kept = columns.present(installation.rows.read(dataset_id, root))
            is_rewritten = _rewrite(installation, table_id, kept)
        except (DatasetDamaged, sandbox.TrainerRefused) as error:
            # Either a newer run has replaced the rows, or something is damaged and the next call fails.
            telemetry.logger().warning("trainers.table_put_off", table_id=table_id, error=error.code)
            continue
        if is_rewritten:
            destroy_retired_keys(installation)
            _record_settled(installation, table_id, revision)


def _behind() -> sa.Select[TrainingTable, tables.Dataset]:
    query = sa.select(TrainingTable, tables.Dataset).join(tables.Dataset, tables.Dataset.id == TrainingTable.dataset_id)
    is_behind = sa.or_(TrainingTable.revision < tables.Dataset.revision, tables.Dataset.retired_at.is_not(None))
    return query.where(TrainingTable.retired_at.is_(None), is_behind)


def _is_nulled(session: Session, dataset: tables.Dataset) -> bool:
    """Return True if the rows of everyone erased up to the dataset's revision have been set to null."""
    pending = sa.select(tables.Erasure.id).where(
        tables.Erasure.dataset_id == dataset.id,
        tables.Erasure.revision.is_not(None),
        tables.Erasure.nulled_at.is_(None),
    )
    return session.scalars(pending.limit(1)).first() is None


def _rewrite(installation: installations.Installation, table_id: str, kept: set[bytes]) -> bool:
    """Replace each block that has a row whose token is not in `kept`. Return False if another worker did so first."""
    from app.features.trainers import columns

    vault = installation.vault
    with installation.database.reading() as session:
        blocks = list(session.scalars(sa.select(TableBlock).where(TableBlock.table_id == table_id)))
    for old in blocks:
        content = service.opened(vault, old.content)
        if content is None:
            raise sandbox.TrainerRefused("training_table_damaged")
        rows = columns.from_bytes(content)
        left = columns.only(rows, kept)
        if left.num_rows == rows.num_rows:
            continue
        new = service.sealed_block(vault, old.number, left)
        with installation.database.writing() as session:
            present = session.get_one(TableBlock, (table_id, old.number))
            if present.key != old.key:
                return False
            session.add(RetiredKey(key=old.key, tenant_id=old.tenant_id, table_id=table_id))
            present.num_rows, present.key, present.content = new.num_rows, new.key, new.content
    return True


def _record_settled(installation: installations.Installation, table_id: str, revision: int) -> None:
    with installation.database.writing() as session:
        table = session.get_one(TrainingTable, table_id)
        left = sa.select(RetiredKey.key).where(RetiredKey.table_id == table_id)
        if session.scalars(left.limit(1)).first() is not None:
            return
        table.revision = max(table.revision, revision)
        session.flush()
        service.complete(session, table)


def destroy_retired_keys(installation: installations.Installation) -> None:
    """Destroy the keys of replaced blocks and artefacts."""
    with installation.database.reading() as session:
        keys = list(session.scalars(sa.select(RetiredKey.key)))
    if keys:
        installation.vault.destroy(keys)
        with installation.database.writing() as session:
            session.execute(sa.delete(RetiredKey).where(RetiredKey.key.in_(keys)))


def _due(session: Session) -> list[Trainer]:
    """Return the trainers that may start a training run now, beginning with those that requests are waiting for."""
    at = now(session)
    running = sa.select(Training).where(Training.status == TrainingStatus.RUNNING)
    held = {training.trainer_id for training in session.scalars(running) if training.leased_until > at}
    query = (
        sa.select(Trainer, TrainingTable, tables.Dataset)
        .join(TrainingTable, TrainingTable.id == Trainer.table_id)
        .join(tables.Dataset, tables.Dataset.id == TrainingTable.dataset_id)
        .where(
            Trainer.retired_at.is_(None),
            TrainingTable.retired_at.is_(None),
            TrainingTable.revision == tables.Dataset.revision,
            sa.or_(Trainer.live_revision.is_(None), Trainer.live_revision < TrainingTable.revision),
            sa.or_(Trainer.retry_at.is_(None), Trainer.retry_at <= at),
        )
    )
    due = []
    for trainer, _table, dataset in session.execute(query):
        if trainer.id in held or not _is_nulled(session, dataset):
            continue
        planned = plan_of(session, trainer, at=at)
        if trainer.live_id is None or not planned or planned[0].start_by <= at:
            due.append((planned[0].due_at if planned else datetime.datetime.max.replace(tzinfo=datetime.UTC), trainer))
    return [trainer for _, trainer in sorted(due, key=lambda pair: (pair[0], pair[1].id))]


def plan_of(session: Session, trainer: Trainer, *, at: datetime.datetime) -> list[planner.Retraining]:
    """Return the fewest retrainings, from `at` on, that meet the due dates of the requests waiting for a trainer."""
    waits = [
        planner.RetrainingWait(
            request_id=request.id,
            ready_at=erasure.nulled_at or max(at, request.held_until or at),
            due_at=request.deadline,
        )
        for request, erasure in service.waiting(session, trainer)
    ]
    return planner.plan(
        waits,
        at=at,
        expected_seconds=service.last_seconds(session, trainer),
        max_wait_seconds=trainer.specification["max_wait_seconds"],
    )


def claim(session: Session, *, lease_seconds: float) -> ClaimedTraining | None:
    """Start the training run that is due first, after abandoning a dead worker's run. Return None if none is due."""
    for trainer in _due(session):
        if _is_lost(session, trainer):
            # The trainer's back-off may have begun.
            continue
        table = session.get_one(TrainingTable, trainer.table_id)
        at = now(session)
        training = Training(
            id=tables.new_id("trg"),
            tenant_id=trainer.tenant_id,
            trainer_id=trainer.id,
            status=TrainingStatus.RUNNING,
            revision=table.revision,
            started_at=at,
            leased_until=at + datetime.timedelta(seconds=lease_seconds),
            repeated=False,
            held=False,
            metrics={},
            findings={},
        )
        session.add(training)
        return ClaimedTraining(
            training_id=training.id,
            trainer_id=trainer.id,
            tenant_id=trainer.tenant_id,
            table_id=table.id,
            specification=trainer.specification,
        )
    return None


def _is_lost(session: Session, trainer: Trainer) -> bool:
    """Abandon a training run whose worker has died. Return True if the trainer must pause after repeated losses."""
    running = sa.select(Training).where(Training.trainer_id == trainer.id, Training.status == TrainingStatus.RUNNING)
    lost = session.scalars(running).first()
    if lost is None:
        return False
    lost.status, lost.ended_at, lost.error_code = TrainingStatus.ABANDONED, now(session), "trainer_worker_lost"
    # The first loss is retried at once.
    _note_failure(session, trainer, code=lost.error_code, rests=trainer.failures > 0)
    session.flush()
    return trainer.retry_at is not None


def _note_failure(session: Session, trainer: Trainer, *, code: str, rests: bool) -> None:
    delay = min(_FIRST_RETRY * 2 ** min(trainer.failures, 20), _LAST_RETRY)
    trainer.failures += 1
    trainer.error_code, trainer.retry_at = code, now(session) + delay if rests else None


def fail(session: Session, claimed: ClaimedTraining, *, code: str, findings: Mapping[str, Any]) -> None:
    """End a training run without artefacts, and pause its trainer. A run that has already ended is left unchanged."""
    training = session.get_one(Training, claimed.training_id)
    if training.status != TrainingStatus.RUNNING:
        return
    training.status, training.ended_at, training.error_code = TrainingStatus.FAILED, now(session), code
    training.findings = dict(findings)
    _note_failure(session, session.get_one(Trainer, claimed.trainer_id), code=code, rests=True)


def publish(installation: installations.Installation, claimed: ClaimedTraining, result: "Result") -> None:
    """Replace the previous artefacts with those of a training run, in one transaction. Raises `TrainingLost`."""
    vault, gate = installation.vault, claimed.specification["metric"]
    sealed = {name: vault.seal(content) for name, content in result.artefacts.items()}
    with installation.database.writing() as session:
        training, trainer = _held(session, claimed)
        service.drop_artefacts(session, trainer)
        for name, content in result.artefacts.items():
            session.add(
                Artefact(
                    training_id=training.id,
                    tenant_id=training.tenant_id,
                    name=name,
                    sha256=hashlib.sha256(content).hexdigest(),
                    size=len(content),
                    key=vault.key_of(sealed[name]),
                    content=sealed[name],
                )
            )
        training.status, training.ended_at = TrainingStatus.PUBLISHED, now(session)
        training.metrics, training.findings = dict(result.metrics), dict(result.findings)
        training.repeated = result.repeated
        training.held = gate is not None and not result.metrics[gate] >= claimed.specification["min_metric"]
        trainer.live_id, trainer.live_revision = training.id, training.revision
        trainer.failures, trainer.error_code, trainer.retry_at = 0, None, None
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in result.artefacts.items()}
        service.record(session, "trainer.published", trainer, training_id=training.id, artefacts=digests)
        session.flush()
        service.complete(session, session.get_one(TrainingTable, trainer.table_id))


def _held(session: Session, claimed: ClaimedTraining) -> tuple[Training, Trainer]:
    """Return a training run that its worker still holds, and its trainer. Raises `TrainingLost`."""
    training = session.get_one(Training, claimed.training_id)
    if training.status != TrainingStatus.RUNNING:
        raise TrainingLost
    return training, session.get_one(Trainer, claimed.trainer_id)


def _renewing(installation: installations.Installation, claimed: ClaimedTraining) -> Callable[[], None]:
    """Return a function that renews a run's lease once a third of it has elapsed, or raises `TrainingLost`."""
    lease = datetime.timedelta(seconds=installation.settings.lease_seconds)
    renewed_at = time.monotonic()

    def renew() -> None:
        nonlocal renewed_at
        if time.monotonic() - renewed_at < lease.total_seconds() / 3:
            return
        with installation.database.writing() as session:
            training, _ = _held(session, claimed)
            training.leased_until = now(session) + lease
        renewed_at = time.monotonic()

    return renew
