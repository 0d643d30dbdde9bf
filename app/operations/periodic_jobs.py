"""Periodic jobs, which the service does without being asked, in short transactions of their own.

No transaction is open while a store is asked for anything: a job reads what is to be done, does it, and then says so.
Each may be done twice, by several hosts at once, and after dying anywhere.
"""

import datetime
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Self

from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app import installations, telemetry
from app.access import repository as access_repository
from app.access import saved_views, sessions, users
from app.audit import checkpoints
from app.backup import tombstones, verification
from app.catalogue import repository as catalogue_repository
from app.catalogue import service as catalogue
from app.config import Settings
from app.db import now
from app.deletion import identity, retention, review, settling
from app.deletion import repository as deletion_repository
from app.installations import Installation
from app.operations import retirement
from app.periodic import Periodic
from app.rows import damage, records
from app.rows import repository as rows_repository
from app.rows.manifest import BLOCK_ROWS
from app.webhooks import repository as webhooks_repository
from app.webhooks import service as webhooks
from lethe.contract.problems import DatasetDamaged, Unavailable

_UNCLAIMED_FOR = datetime.timedelta(hours=1)
_AT_ONCE = 500
"""The most lines of something that one transaction changes."""
_MOST_BATCHES = 100
"""Transactions after which a periodic job lets the others go on."""
_PORTIONS = 360
"""Number of parts into which the blocks of a dataset are divided; one part is opened at a time: each about once an
hour."""
_LEAST_BETWEEN = 20.0
"""Share of the time that a periodic job takes at most: a long one comes less often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicJob:
    """`seconds`: from the end of one time to the next; `urgent`: however long it takes."""

    name: str
    seconds: float
    do: Callable[[Installation], None]
    urgent: bool = False


def destroy_retired(installation: Installation) -> None:
    """Destroy superseded weights, and say so of those that are gone."""
    with installation.database.reading() as session:
        retired = catalogue_repository.retired_version_ids(session)
    if gone := catalogue.destroy(installation.weights, retired):
        with installation.database.writing() as session:
            catalogue_repository.mark_destroyed(session, version_ids=gone, at=now(session))


def destroy_orphans(installation: Installation) -> None:
    """Destroy weights that dead runs left: stored, but neither in service nor about to be."""
    try:
        stored = (
            installation.weights.version_ids()
        )  # before what is needed: a run that begins after this is not among them
    except OSError as error:
        telemetry.logger().error("registry.weights_not_listed", error=type(error).__name__)
        return
    with installation.database.reading() as session:
        needed = catalogue_repository.needed_version_ids(session)
    catalogue.destroy(installation.weights, stored - needed)


def sweep_rows(installation: Installation, *, unclaimed_for: datetime.timedelta = _UNCLAIMED_FOR) -> None:
    """Destroy what no root on record names: what a crash, or somebody who put back files, has left of rows that are
    there, what a run was about to write when its dataset was retired, and rows that nothing has claimed for that
    long."""
    stored = installation.rows.stored()  # before what is claimed: what is uploaded after this is not among them
    with installation.database.reading() as session:
        claimed, at_most = rows_repository.row_roots(session), now(session) - unclaimed_for
        gone = rows_repository.destroyed_dataset_ids(session)
    for rows_id, written_at in stored.items():
        with suppress(BlockingIOError):  # somebody is writing them
            if rows_id in claimed:
                _settle(installation, rows_id)
            elif rows_id in gone or written_at <= at_most:
                installation.rows.delete(rows_id, wait=False)


def _settle(installation: Installation, rows_id: str) -> None:
    """Destroy what the root on record does not name; a manifest that cannot be read destroys nothing."""
    with installation.rows.alone(rows_id, wait=False):
        with installation.database.reading() as session:  # a run that is claimed after this waits until we are done
            busy = rows_repository.is_any_run_on(session, dataset_id=rows_id)
            root = None if busy else rows_repository.root(session, rows_id)
        try:
            if root is not None:
                installation.rows.settle(rows_id, root)
        except DatasetDamaged as error:
            with installation.database.writing() as session:
                damage.record(session, error)


def verify_rows(installation: Installation) -> None:
    """Open some blocks of every dataset, drawn at random, so that damage to what no run reads is noticed too."""
    with installation.database.reading() as session:
        sound = rows_repository.sound_datasets(session)
    portion = secrets.randbelow(_PORTIONS)
    for rows_id, num_slots in sound.items():
        num_blocks = -(-num_slots // BLOCK_ROWS)
        numbers = range(num_blocks * portion // _PORTIONS, num_blocks * (portion + 1) // _PORTIONS)
        if numbers:
            with suppress(BlockingIOError):  # somebody is writing them
                _verify(installation, rows_id, numbers)


def _verify(installation: Installation, rows_id: str, numbers: range) -> None:
    with installation.rows.alone(rows_id, wait=False):
        with installation.database.reading() as session:
            root = rows_repository.root(session, rows_id)
        try:
            if root is not None:
                installation.rows.check(rows_id, root, numbers=[numbers])
        except DatasetDamaged as error:
            with installation.database.writing() as session:
                damage.record(session, error)


def forget_answers(installation: Installation) -> None:
    """Forget what callers were answered so long ago that they do not repeat the call any more."""
    lifetime = datetime.timedelta(days=installation.settings.idempotency_days)

    def older(session: Session) -> bool:
        return access_repository.is_any_answer_older(session, than=now(session) - lifetime)

    def drop(session: Session) -> int:
        return access_repository.drop_answers(session, before=now(session) - lifetime, limit=_AT_ONCE)

    _in_batches(installation, older, drop)


def forget_statements(installation: Installation) -> None:
    """Forget used statements of identity that have expired."""
    _in_batches(installation, identity.is_anything_to_purge, lambda session: identity.purge(session, limit=_AT_ONCE))


def forget_sessions(installation: Installation) -> None:
    """Forget sessions of the dashboard that are over, expired invitations to it, and saved views of expired keys."""

    def over(session: Session) -> bool:
        return sessions.is_anything_to_purge(session, settings=installation.settings)

    _in_batches(
        installation, over, lambda session: sessions.purge(session, settings=installation.settings, limit=_AT_ONCE)
    )
    _in_batches(installation, users.is_anything_to_purge, lambda session: users.purge(session, limit=_AT_ONCE))
    _in_batches(
        installation, saved_views.is_anything_to_purge, lambda session: saved_views.purge(session, limit=_AT_ONCE)
    )


def purge_deliveries(installation: Installation) -> None:
    """Drop what receivers were told so long ago that nobody sends it again."""
    keep = datetime.timedelta(days=installation.settings.webhook_keep_days)
    for _ in range(_MOST_BATCHES):
        with installation.database.reading() as session:
            old = webhooks.old(session, keep=keep, limit=_AT_ONCE)
        if not old:
            return
        installation.vault.destroy(delivery.letter.key for delivery in old if delivery.letter.key)
        with installation.database.writing() as session:
            webhooks_repository.drop(session, delivery_ids=[delivery.id for delivery in old])


def purge_requests(installation: Installation) -> None:
    """Keep no more of requests that have ended than the policies of their tenants say."""
    for _ in range(_MOST_BATCHES):
        with installation.database.reading() as session:
            due = retention.due(session, limit=_AT_ONCE)
        if not due:
            return
        installation.vault.destroy(key for one in due for key in one.keys)
        with installation.database.writing() as session:
            retention.forget(session, due)


def settle(installation: Installation) -> None:
    """Complete requests that waited for the end of their grace time, or for damaged records, and for nothing else."""

    def ended(session: Session) -> bool:
        return bool(deletion_repository.settled(session, at=now(session), limit=1))

    _in_batches(installation, ended, lambda session: settling.settle(session, limit=_AT_ONCE))


def alert(installation: Installation) -> None:
    """Tell of requests whose deadline is near or has passed."""
    horizon = datetime.timedelta(days=installation.settings.risk_days)

    def untold(session: Session) -> bool:
        return bool(deletion_repository.to_alert(session, at=now(session), horizon=horizon, limit=1))

    _in_batches(installation, untold, lambda session: review.alert(session, horizon, limit=_AT_ONCE))


def _in_batches(installation: Installation, any_there: Callable[[Session], bool], do: Callable[[Session], int]) -> None:
    """`do` as long as it finds as much as it takes, in a transaction each; the write lock is not taken where nothing
    is."""
    with installation.database.reading() as session:
        if not any_there(session):
            return
    for _ in range(_MOST_BATCHES):
        with installation.database.writing() as session:
            if do(session) < _AT_ONCE:
                return


def scrub_database(installation: Installation) -> None:
    """Take what was deleted or updated out of the database's files too."""
    installation.database.scrub()


def check_database(installation: Installation) -> None:
    """Read the whole database, so that a damaged page is noticed before somebody is told what it says."""
    installation.database.check()


def verify_records(installation: Installation) -> None:
    """Verify some records, so that a damaged one is noticed before somebody is told that nothing is held of them."""
    with installation.database.reading() as session:
        verified = records.verify_portion(session)
    if verified:
        with installation.database.writing() as session:
            records.note(session, verified)


def sign_heads(installation: Installation) -> None:
    """Sign the heads of the tenants' audit logs and ledgers; they are recomputed before, without the write lock."""
    tombstones.require_same_database(installation)
    with installation.database.reading() as session:
        heads = checkpoints.due(session, every_seconds=installation.settings.audit_checkpoint_seconds)
    if heads:
        with installation.database.writing() as session:
            checkpoints.checkpoint(session, installation.keys, heads)


PERIODIC_JOBS = (
    PeriodicJob(name="settle", seconds=1, do=settle),
    PeriodicJob(name="destroy_retired", seconds=10, do=destroy_retired),
    PeriodicJob(name="destroy_of_retired", seconds=10, do=retirement.destroy),
    PeriodicJob(name="scrub_database", seconds=10, do=scrub_database),
    PeriodicJob(name="alert", seconds=30, do=alert),
    PeriodicJob(name="sign_heads", seconds=30, do=sign_heads),
    PeriodicJob(name="purge_requests", seconds=30, do=purge_requests),
    PeriodicJob(name="verify_rows", seconds=10, do=verify_rows),
    PeriodicJob(name="sweep_rows", seconds=60, do=sweep_rows),
    PeriodicJob(name="destroy_orphans", seconds=300, do=destroy_orphans),
    PeriodicJob(name="forget_statements", seconds=600, do=forget_statements),
    PeriodicJob(name="forget_answers", seconds=600, do=forget_answers),
    PeriodicJob(name="forget_sessions", seconds=600, do=forget_sessions),
    PeriodicJob(name="purge_deliveries", seconds=600, do=purge_deliveries),
    PeriodicJob(name="drop_tombstones", seconds=6 * 3600, do=tombstones.drop_old),
    PeriodicJob(name="check_database", seconds=3600, do=check_database),
)
"""The jobs of workers."""

OF_GATEWAYS = (
    PeriodicJob(name="record_tombstones", seconds=1, do=tombstones.record, urgent=True),
    PeriodicJob(name="verify_records", seconds=10, do=verify_records),
    PeriodicJob(name="verify_tombstones", seconds=60, do=verification.verify_on_schedule),
    PeriodicJob(name="check_database", seconds=3600, do=check_database),
)
"""The jobs of every process in which requests come in, though all workers be dead."""


class PeriodicJobs(Periodic):
    """Does the periodic jobs, in a thread of its own, for as long as the block lasts or the process lives.

    They go on while a run takes hours. What fails, or cannot reach the database, is tried again the next time; the
    others are done.
    """

    def __init__(
        self, settings: Settings, periodic_jobs: Sequence[PeriodicJob] = PERIODIC_JOBS, *, seconds: float = 1.0
    ) -> None:
        self._settings = settings
        self._jobs = periodic_jobs
        self._next = dict.fromkeys((job.name for job in periodic_jobs), 0.0)
        super().__init__("periodic_jobs", self._work, seconds=seconds)
        self._opened = ExitStack()
        self._installation: Installation | None = None

    def start(self) -> Self:
        self.wake()  # some are due at once
        return super().start()

    def stop(self) -> None:
        """Let the job in progress end, and do no more."""
        super().stop()
        self._opened.close()

    def do_due(self, installation: Installation) -> None:
        """Do those whose time has come; never raises."""
        for job in self._jobs:
            if time.monotonic() < self._next[job.name] or self.is_stopping:
                continue
            began = time.monotonic()
            try:
                job.do(installation)
            except Exception as error:  # noqa: BLE001  one that fails must not stop the others
                lost = isinstance(error, OperationalError | Unavailable)
                log = telemetry.logger().warning if lost else telemetry.logger().error
                log("operations.periodic_job_failed", job=job.name, error=type(error).__name__)
            ended = time.monotonic()
            least = 0.0 if job.urgent else _LEAST_BETWEEN * (ended - began)
            self._next[job.name] = ended + max(job.seconds, least)

    def _work(self) -> None:
        if self._installation is None:  # where nothing was set up yet this fails, and is tried again
            self._installation = self._opened.enter_context(installations.opened(self._settings, again=True))
        self.do_due(self._installation)
