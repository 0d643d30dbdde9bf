"""State of the service: the queue and its deadlines, the workers, and each model's state.

The data comes from the database and from heartbeats in the data folder, so every gateway reports the same numbers,
covering the workers of all hosts.
"""

import collections
import datetime
import errno
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import config, db, heartbeat, installations
from app.accounting import ledger, repository as accounting_repository
from app.catalogue import repository as catalogue_repository
from app.db.tables import Model, Run
from app.deletion import repository as deletion_repository
from app.journal import verification
from app.operations import repository
from app.unlearning import repository as unlearning_repository, waiting
from lethe.contract.sets import ModelStatus, RequestStatus, RunStatus, WorkerState

FAILURES = 3
"""Number of consecutive recent runs without a publication after which workers are considered to be failing."""
_LATELY = datetime.timedelta(minutes=15)
_ROOM = 2**20
known_damage: dict[Path, int] = {}
"""Number of texts and certificates that this process found damaged at its last verification, by data folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState:
    """State of the service at `at`. `seen_at` is the time of any worker's last sign of life, or None."""

    at: datetime.datetime
    waiting: list[repository.WaitingCount]
    running: int
    seen_at: datetime.datetime | None
    workers: WorkerState
    tombstones: verification.BackupState

    @property
    def queue_age_seconds(self) -> float:
        """Seconds that the oldest request has been waiting for a worker; 0 if none is waiting. Requests in review, in
        their grace period or in a batch that is still filling up are not waiting for a worker."""
        ready = [group.oldest for group in self.waiting if group.oldest and group.status != RequestStatus.IN_REVIEW]
        return max(((self.at - oldest).total_seconds() for oldest in ready), default=0.0)

    @property
    def overdue(self) -> int:
        return sum(group.overdue for group in self.waiting)

    @property
    def at_risk(self) -> int:
        return sum(group.at_risk for group in self.waiting)


def state(session: Session, installation: installations.Installation) -> ServiceState:
    """Return the current state: waiting and late requests, runs, workers and the tombstone journal."""
    moment = db.now(session)
    horizon = datetime.timedelta(days=installation.settings.risk_days)
    running = repository.running(session)
    latest = repository.latest(session, limit=FAILURES)
    lease = datetime.timedelta(seconds=installation.settings.lease_seconds)
    signs = [heartbeat.last_seen(installation.settings.data_dir), *(run.lease_expires_at - lease for run in running)]
    signs += [run.finished_at for run in latest if run.status != RunStatus.ABANDONED]
    seen_at = max((sign for sign in signs if sign), default=None)
    return ServiceState(
        at=moment,
        waiting=repository.waiting(session, at=moment, horizon=horizon),
        running=len(running),
        seen_at=seen_at,
        workers=_worker_state(moment, seen_at, latest),
        tombstones=tombstones_state(installation),
    )


def _worker_state(moment: datetime.datetime, seen_at: datetime.datetime | None, latest: list[Run]) -> WorkerState:
    if seen_at is None or moment - seen_at > heartbeat.SILENT_AFTER:
        return WorkerState.SILENT
    ended = [run.finished_at for run in latest if run.status != RunStatus.PUBLISHED and run.finished_at]
    if len(ended) == FAILURES and moment - max(ended) < _LATELY:
        return WorkerState.FAILING
    return WorkerState.ALIVE


def tombstones_state(installation: installations.Installation) -> verification.BackupState:
    verdict = verification.last_verdict(installation.settings)
    return verdict.found if verdict else verification.BackupState.UNVERIFIED


def is_any_room(settings: config.Settings) -> bool:
    """Return True if every folder that API calls write to has room for a mebibyte. A trial allocation also detects an
    exhausted quota."""
    folders = [settings.data_dir, settings.resolved_tombstones().parent]
    if not settings.in_bucket:
        folders.append(settings.store_folder())
    url = sa.make_url(settings.resolved_database_url())
    if url.get_backend_name() == "sqlite" and url.database:
        folders.append(Path(url.database).parent)
    by_device = {folder.stat().st_dev: folder for folder in folders if folder.exists()}
    return all(_has_room(folder) for folder in by_device.values())


def _has_room(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(probe.fileno(), 0, _ROOM)
    except OSError as error:
        return error.errno not in (errno.ENOSPC, errno.EDQUOT)
    return True


_NEVER = datetime.datetime.max.replace(tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStanding:
    """Standing of a model. `first_due_at` is the earliest deadline of unclaimed requests about people the live version
    was trained on, `due_at` the earliest of all requests waiting for the model; None if there are none. `load` is the
    live version's `unlearning` epsilon at publication, as a multiple of its target. `failed_runs` counts failures
    without a later success. `refused` is True if the last canary test failed, None if none was run. `degraded` means
    that the live version misses its quality gate; `held`, that it is not served for this reason."""

    model: Model
    first_due_at: datetime.datetime | None
    due_at: datetime.datetime | None
    load: float
    failed_runs: int
    refused: bool | None
    degraded: bool
    held: bool

    @property
    def has_failed(self) -> bool:
        return self.model.status == ModelStatus.FAILED

    @property
    def rank(self) -> tuple[bool, datetime.datetime, float, int, str]:
        return not self.held, self.due_at or _NEVER, -self.load, -self.failed_runs, self.model.id


def standings(session: Session) -> list[ModelStanding]:
    """Return the standings of all models that the session's tenant has in service, highest risk first."""
    models = catalogue_repository.models_in_service(session)
    waits = waiting.first_due(session, models)
    deadlines = deletion_repository.first_deadlines(session)
    epsilons = {
        model_id: ledger.epsilon_of(entry) for model_id, entry in accounting_repository.last_entries(session).items()
    }
    refused = unlearning_repository.last_canary_tests_failed(session)
    judged = catalogue_repository.degraded_versions(session)
    failed: collections.Counter[str | None] = collections.Counter()
    for model_id, _, count in unlearning_repository.unresolved_runs(session):
        failed[model_id] += count
    unsorted = []
    for model in models:
        first_due_at = waits.get(model.id)
        due_times = [at for at in (first_due_at, deadlines.get(model.id)) if at is not None]
        unsorted.append(
            ModelStanding(
                model=model,
                first_due_at=first_due_at,
                due_at=min(due_times, default=None),
                load=epsilons.get(model.id, 0.0) / model.epsilon,
                failed_runs=failed[model.id],
                refused=refused.get(model.id),
                degraded=model.id in judged,
                held=judged.get(model.id, False),
            )
        )
    return sorted(unsorted, key=lambda standing: standing.rank)
