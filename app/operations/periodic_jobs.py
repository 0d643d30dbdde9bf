"""The service's periodic jobs, each in its own short transactions.

No transaction is open while a store is accessed: a job reads what to do, does it, and then records it. Every job is
idempotent, and tolerates concurrent hosts and a crash at any point.
"""

import datetime
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from app import config, installations, periodic, telemetry
from app.access import repository as access_repository
from app.accounting import certificates
from app.audit import checkpoints
from app.catalogue import repository as catalogue_repository, service as catalogue
from app.db import EVER, now, sealed, tables
from app.deletion import completion, repository as deletion_repository, retention, service
from app.journal import tombstones, verification
from app.operations.service import known_damage
from app.rows import blocks, records, repository as rows_repository
from app.unlearning import retirement
from lethe import sockets
from lethe.contract.problems import DatabasePutBack, DatasetDamaged, Problem, Unavailable

_UNCLAIMED_FOR = datetime.timedelta(hours=1)
AT_ONCE = 500
"""Maximum number of rows changed by one transaction."""
MAX_BATCHES = 100
"""Maximum number of transactions before a periodic job yields to the others."""
_PORTIONS = 360
"""Number of portions into which a dataset's blocks are divided. Each run of the job opens one random portion, so that
each portion is opened about once an hour."""
_TEXTS_AT_ONCE = 20
"""Maximum number of sealed texts, including attachments, in memory at a time."""
_MIN_INTERVAL_FACTOR = 20.0
"""Minimum interval between two runs of a job, as a multiple of its duration, so that long jobs run less often."""
_AFTER_START = 2.0
"""Seconds from the start to the first run of jobs that are not due every second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicJob:
    """Job that runs again `seconds` after it has finished, or later after a long run unless it is `urgent`."""

    name: str
    seconds: float
    do: Callable[[installations.Installation], object]
    urgent: bool = False


def destroy_retired(installation: installations.Installation, *, stored: Collection[str] = ()) -> None:
    """Destroy superseded weights, and those of the `stored` weights that are neither in service nor needed by a run in
    progress. Record which superseded weights were destroyed."""
    with installation.database.reading() as session:
        needed, retired = catalogue_repository.needed_and_retired(session)
    if superseded := catalogue.destroy(installation.weights, retired):
        with installation.database.writing() as session:
            catalogue_repository.mark_destroyed(session, version_ids=superseded, at=now(session))
    catalogue.destroy(installation.weights, set(stored) - needed - retired)


def destroy_orphans(installation: installations.Installation) -> None:
    """Destroy superseded weights, and weights left by dead runs."""
    stored: set[str] = set()
    try:
        # List these before the needed versions, so that a run that begins in between cannot lose its weights.
        stored = installation.weights.version_ids()
    except OSError as error:
        telemetry.logger().error("registry.weights_not_listed", error=type(error).__name__)
    destroy_retired(installation, stored=stored)


def destroy_of_retired(installation: installations.Installation) -> None:
    """Record retirements in the tombstone journal, destroy the retired weights and rows, and confirm their destruction.
    The call is idempotent; if a store fails to destroy anything, the next call retries it.

    Raises `TombstonesDamaged`, `DatabasePutBack` or `OSError`.
    """
    with installation.database.reading() as session:
        pending = retirement.pending(session)
    if pending:
        tombstones.record(installation)
    for retired in pending:
        for rows_id in retired.rows_ids:
            installation.rows.delete(rows_id)
        if set(catalogue.destroy(installation.weights, retired.version_ids)) == set(retired.version_ids):
            with installation.database.writing() as session:
                retirement.confirm(session, retired)


def destroy_now(installation: installations.Installation) -> None:
    """Call `destroy_of_retired` before a response is sent. Failures are logged, not raised; a worker retries later."""
    try:
        destroy_of_retired(installation)
    except (Problem, OSError, SQLAlchemyError) as error:
        telemetry.logger().error("retirement.put_off", error=type(error).__name__)


def sweep_rows(installation: installations.Installation, *, unclaimed_for: datetime.timedelta = _UNCLAIMED_FOR) -> None:
    """Destroy rows that no recorded root names: remnants of a crash or of restored files, rows that a run was writing
    when its dataset was retired, and uploads unclaimed for `unclaimed_for`."""
    # List these before the claimed rows, so that an upload in between is not taken for unclaimed.
    stored = installation.rows.stored()
    with installation.database.reading() as session:
        recorded, at_most = rows_repository.row_roots(session), now(session) - unclaimed_for
        destroyed = rows_repository.destroyed_dataset_ids(session)
    for rows_id, written_at in stored.items():
        if rows_id in recorded:
            # Destroy everything that the recorded root does not name, unless a run may be writing a new root.
            _with_root(installation, rows_id, partial(installation.rows.settle, rows_id), unless_running=True)
        elif rows_id in destroyed or written_at <= at_most:
            # Skip rows that another process is writing.
            with suppress(BlockingIOError):
                installation.rows.delete(rows_id, wait=False)


def _with_root(
    installation: installations.Installation, rows_id: str, do: Callable[[str], None], *, unless_running: bool = False
) -> None:
    """Call `do` with the rows' recorded root while holding exclusive access, and record any damage that `do` finds.
    Skip rows that have no root or that another process is writing."""
    with suppress(BlockingIOError), installation.rows.alone(rows_id, wait=False):
        # A run claimed from here on waits for the exclusive access to end.
        with installation.database.reading() as session:
            is_skipped = unless_running and rows_repository.is_any_run_on(session, dataset_id=rows_id)
            root = None if is_skipped else rows_repository.root(session, rows_id)
        try:
            if root is not None:
                do(root)
        except DatasetDamaged as error:
            with installation.database.writing() as session:
                records.record(session, error)


def verify_rows(installation: installations.Installation) -> None:
    """Open a random portion of each dataset's blocks, to detect damage to rows that no run reads."""
    with installation.database.reading() as session:
        sound = rows_repository.sound_datasets(session)
    portion = secrets.randbelow(_PORTIONS)
    for rows_id, num_slots in sound.items():
        num_blocks = -(-num_slots // blocks.BLOCK_ROWS)
        numbers = range(num_blocks * portion // _PORTIONS, num_blocks * (portion + 1) // _PORTIONS)
        if numbers:
            _with_root(installation, rows_id, partial(installation.rows.check, rows_id, numbers=[numbers]))


def forget_answers(installation: installations.Installation) -> None:
    """Delete stored responses to idempotent calls once they are older than `idempotency_days`."""
    lifetime = datetime.timedelta(days=installation.settings.idempotency_days)
    in_batches(
        installation,
        lambda session: access_repository.is_any_answer_older(session, than=now(session) - lifetime),
        lambda session: access_repository.drop_answers(session, before=now(session) - lifetime, limit=AT_ONCE),
    )


def purge_requests(installation: installations.Installation) -> None:
    """Reduce ended requests to the data that their tenants' policies retain."""
    for _ in range(MAX_BATCHES):
        with installation.database.reading() as session:
            batches = retention.due(session, limit=AT_ONCE)
        if not batches:
            return
        installation.vault.destroy(key for batch in batches for key in batch.keys)
        with installation.database.writing() as session:
            retention.forget(session, batches)


def settle(installation: installations.Installation) -> None:
    """Complete requests that were held up only by their grace period or by damaged records."""
    if installation.database.is_ruled_out(deletion_repository.settled, at=EVER, limit=1):
        return
    in_batches(
        installation,
        lambda session: deletion_repository.settled(session, at=now(session), limit=1),
        lambda session: completion.settle(session, limit=AT_ONCE),
    )


def alert(installation: installations.Installation) -> None:
    """Raise an alert for each request whose deadline is near or has passed."""
    horizon = datetime.timedelta(days=installation.settings.risk_days)
    in_batches(
        installation,
        lambda session: deletion_repository.to_alert(session, at=now(session), horizon=horizon, limit=1),
        lambda session: service.alert(session, horizon, limit=AT_ONCE),
    )


def in_batches(
    installation: installations.Installation, any_there: Callable[[Session], object], do: Callable[[Session], int]
) -> None:
    """Call `do`, each time in a new transaction, until it handles less than a full batch, but at most MAX_BATCHES
    times. The write lock is not taken if `any_there` finds no work."""
    with installation.database.reading() as session:
        if not any_there(session):
            return
    for _ in range(MAX_BATCHES):
        with installation.database.writing() as session:
            if do(session) < AT_ONCE:
                return


def verify_records(installation: installations.Installation) -> None:
    """Verify a portion of the records, to detect damage before it hides a person's rows from a request."""
    with installation.database.reading() as session:
        verified = records.verify_portion(session)
    if verified:
        with installation.database.writing() as session:
            records.note(session, verified)


def verify_texts(installation: installations.Installation) -> None:
    """Open every sealed text, and verify every certificate, to detect damage before its content is needed. The log
    names the damaged tables, and the vault pages that hold the keys of the damaged texts."""
    damaged: Counter[tuple[str, str | None]] = Counter()
    for table in tables.Table.metadata.sorted_tables:
        for column in (column for column in table.c if isinstance(column.type, sealed.Sealed)):
            for row in _rows(installation, table, column):
                if row[1].is_damaged:
                    damaged[table.name, f"{row[1].key[:16]}.page"] += 1
    stored = _rows(installation, tables.Certificate.__table__, tables.Certificate.__table__.c.jws)
    damaged[tables.Certificate.__tablename__, None] = len(certificates.damaged(installation.keys, stored))
    for (name, page), count in (+damaged).items():
        telemetry.logger().error("vault.texts_damaged", table=name, page=page, count=count)
    known_damage[installation.settings.data_dir] = damaged.total()


def _rows(
    installation: installations.Installation, table: sa.FromClause, column: sa.ColumnElement[Any]
) -> Iterator[Any]:
    """Yield each row's id and its value in `column`, skipping rows without a value."""
    query = sa.select(table.c.id, column).where(column.is_not(None)).order_by(table.c.id).limit(_TEXTS_AT_ONCE)
    last: str | None = ""
    while last is not None:
        with installation.database.reading() as session, sealed.opening(session):
            rows = session.connection().execute(query.where(table.c.id > last)).all()
        yield from rows
        last = rows[-1].id if rows else None


def sign_heads(installation: installations.Installation) -> None:
    """Sign the heads of tenants' audit logs and ledgers, after recomputing them without holding the write lock."""
    tombstones.require_same_database(installation)
    with installation.database.reading() as session:
        heads = checkpoints.due(session, every_seconds=installation.settings.audit_checkpoint_seconds)
    if heads:
        with installation.database.writing() as session:
            checkpoints.checkpoint(session, installation.keys, heads)


def record_tombstones(
    installation: installations.Installation, do: Callable[[installations.Installation], None] = tombstones.record
) -> None:
    """Call `do`, which by default appends to the tombstone journal. Refuse callers while the database is older than the
    journal: such a database's models were trained on people since forgotten, and a restore would miss new requests."""
    try:
        do(installation)
    except DatabasePutBack as error:
        installation.database.refuse_callers(error)
        raise
    installation.database.refuse_callers(None)


PERIODIC_JOBS = (
    PeriodicJob(name="settle", seconds=1, do=settle),
    PeriodicJob(name="destroy_retired", seconds=10, do=destroy_retired),
    PeriodicJob(name="destroy_of_retired", seconds=10, do=destroy_of_retired),
    PeriodicJob(name="scrub_database", seconds=10, do=lambda installation: installation.database.scrub()),
    PeriodicJob(name="alert", seconds=30, do=alert),
    PeriodicJob(name="sign_heads", seconds=30, do=sign_heads),
    PeriodicJob(name="purge_requests", seconds=30, do=purge_requests),
    PeriodicJob(name="verify_rows", seconds=10, do=verify_rows),
    PeriodicJob(name="sweep_rows", seconds=60, do=sweep_rows),
    PeriodicJob(name="destroy_orphans", seconds=300, do=destroy_orphans),
    PeriodicJob(name="forget_answers", seconds=600, do=forget_answers),
    PeriodicJob(name="drop_tombstones", seconds=6 * 3600, do=tombstones.drop_old),
    PeriodicJob(name="check_database", seconds=3600, do=lambda installation: installation.database.check()),
)
"""Periodic jobs of workers, excluding those of features."""

OF_GATEWAYS = (
    PeriodicJob(name="record_tombstones", seconds=1, do=record_tombstones, urgent=True),
    PeriodicJob(name="verify_records", seconds=10, do=verify_records),
    PeriodicJob(name="verify_texts", seconds=3600, do=verify_texts),
    PeriodicJob(name="verify_tombstones", seconds=60, do=partial(verification.verify, full=False)),
    PeriodicJob(name="check_database", seconds=3600, do=lambda installation: installation.database.check()),
)
"""Periodic jobs of every process that accepts requests; they run even if all workers are dead."""


def of_workers() -> tuple[PeriodicJob, ...]:
    """Return the workers' periodic jobs: first the core's, then the features' `WORKER_JOBS`."""
    return PERIODIC_JOBS + sockets.plugs("app.features", "jobs", "WORKER_JOBS")


def of_gateways() -> tuple[PeriodicJob, ...]:
    """Return the gateways' periodic jobs: first the core's, then the features' `GATEWAY_JOBS`."""
    return OF_GATEWAYS + sockets.plugs("app.features", "jobs", "GATEWAY_JOBS")


class PeriodicJobs(periodic.Periodic):
    """Thread that runs the periodic jobs until its `with` block or the process ends, even while a run takes hours.

    Jobs that are due every second first run at once, all others two seconds after the start. A failed job is retried at
    its next scheduled time and does not stop the other jobs.
    """

    def __init__(
        self, settings: config.Settings, periodic_jobs: Sequence[PeriodicJob] | None = None, *, seconds: float = 1.0
    ) -> None:
        self._settings = settings
        self._jobs = of_workers() if periodic_jobs is None else periodic_jobs
        self._next = dict.fromkeys((job.name for job in self._jobs), 0.0)
        super().__init__("periodic_jobs", self._work, seconds=seconds)
        self._opened = ExitStack()
        self._installation: installations.Installation | None = None

    def start(self) -> Self:
        # Rare jobs leave the processor to the first calls and runs.
        later = time.monotonic() + _AFTER_START
        self._next |= {job.name: later for job in self._jobs if job.seconds > 1}
        self.wake()
        return super().start()

    def stop(self) -> None:
        """Stop after the job in progress."""
        super().stop()
        self._opened.close()

    def do_due(self, installation: installations.Installation) -> None:
        """Run the jobs that are due. Failures are logged, never raised."""
        for job in self._jobs:
            if time.monotonic() < self._next[job.name] or self.is_stopping:
                continue
            began = time.monotonic()
            try:
                job.do(installation)
            except Exception as error:  # noqa: BLE001  a failing job must not stop the others
                lost = isinstance(error, OperationalError | Unavailable)
                log = telemetry.logger().warning if lost else telemetry.logger().error
                log("operations.periodic_job_failed", job=job.name, error=type(error).__name__)
            ended = time.monotonic()
            min_interval = 0.0 if job.urgent else _MIN_INTERVAL_FACTOR * (ended - began)
            self._next[job.name] = ended + max(job.seconds, min_interval)

    def _work(self) -> None:
        if self._installation is None:
            # This fails until the installation is set up, and is retried.
            self._installation = self._opened.enter_context(installations.opened(self._settings, again=True))
        self.do_due(self._installation)
