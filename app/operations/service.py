"""Monitoring: the queue and its deadlines, the workers, and the totals of all runs, for Prometheus.

Everything comes from the database (and from signs of life in the data folder): it is the same in every gateway, and
says what workers on all hosts did.
"""

import datetime
import errno
import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app import heartbeat, telemetry
from app.backup import verification
from app.backup.verification import Found
from app.catalogue import repository as catalogue_repository
from app.config import Settings
from app.db import now
from app.db.tables import Run
from app.deletion.status import OPEN
from app.installations import Installation
from app.operations import repository
from app.operations.repository import Waiting
from app.rows import repository as rows_repository
from lethe.contract.problems import Unavailable
from lethe.contract.sets import Regulation, RequestStatus, RunStatus, WorkerState

_FRESH_SECONDS = 5.0
"""However often it is scraped, the database is asked once in so many seconds."""
_FAILURES = 3
"""So many runs in a row that did not publish, the last of them lately, are no accident."""
_LATELY = datetime.timedelta(minutes=15)
_LONGEST_TRANSACTION = datetime.timedelta(minutes=5)
"""A run that is committed now may have begun or ended so much earlier by its own account."""
_ROOM = 2**20
_MOST_TENANTS = 100
_MOST_REGULATIONS = 30
"""So many values a label has at most; what is not named is counted under `_THE_OTHERS`."""
_THE_OTHERS = "(others)"
_BUCKETS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState:
    """The state of the service at the time `at`."""

    at: datetime.datetime
    waiting: list[Waiting]
    running: int
    seen_at: datetime.datetime | None  # the last sign of life of any worker
    workers: WorkerState
    tombstones: Found

    @property
    def queue_age_seconds(self) -> float:
        """Seconds that the oldest request has waited for a worker; 0 if none does. In review, or in its grace time, it
        does not."""
        begun = [some.oldest for some in self.waiting if some.oldest and some.status != RequestStatus.IN_REVIEW]
        return max(((self.at - oldest).total_seconds() for oldest in begun), default=0.0)

    @property
    def overdue(self) -> int:
        return sum(some.overdue for some in self.waiting)

    @property
    def at_risk(self) -> int:
        return sum(some.at_risk for some in self.waiting)


def state(session: Session, installation: Installation) -> ServiceState:
    """Measure waiting work, late work, and the life of workers."""
    moment = now(session)
    horizon = datetime.timedelta(days=installation.settings.risk_days)
    running = repository.running(session)
    latest = repository.latest(session, limit=_FAILURES)
    lease = datetime.timedelta(seconds=installation.settings.lease_seconds)
    signs = [heartbeat.last_seen(installation.settings.data_dir), *(run.lease_expires_at - lease for run in running)]
    signs += [run.finished_at for run in latest if run.status != RunStatus.ABANDONED]
    seen_at = max((sign for sign in signs if sign), default=None)
    return ServiceState(
        at=moment,
        waiting=repository.waiting(session, at=moment, horizon=horizon),
        running=len(running),
        seen_at=seen_at,
        workers=_life(moment, seen_at, latest),
        tombstones=_tombstones(installation),
    )


def _life(moment: datetime.datetime, seen_at: datetime.datetime | None, latest: list[Run]) -> WorkerState:
    if seen_at is None or moment - seen_at > heartbeat.SILENT_AFTER:
        return WorkerState.SILENT
    ended = [run.finished_at for run in latest if run.status != RunStatus.PUBLISHED and run.finished_at]
    if len(ended) == _FAILURES and moment - max(ended) < _LATELY:
        return WorkerState.FAILING
    return WorkerState.ALIVE


def _tombstones(installation: Installation) -> Found:
    verdict = verification.last_verdict(installation.settings)
    return verdict.found if verdict else Found.UNVERIFIED


def _grouped(
    waiting: Sequence[Waiting], name: str, *, at_most: int, known: Sequence[str] = ()
) -> dict[str, list[Waiting]]:
    """Group by that name: the `known` ones, and those with most that is overdue, at risk, waiting; the rest in one."""
    found: dict[str, list[Waiting]] = {one: [] for one in known}
    for some in waiting:
        found.setdefault(getattr(some, name), []).append(some)

    def worst(one: str) -> tuple[bool, int, int, int]:
        of_it = found[one]
        late, soon = sum(some.overdue for some in of_it), sum(some.at_risk for some in of_it)
        return one in known, late, soon, sum(some.count for some in of_it)

    for one in sorted(found, key=worst, reverse=True)[at_most:]:
        found.setdefault(_THE_OTHERS, []).extend(found.pop(one))
    return found


def _result(status: str) -> str:
    """The result of the audit of a run that ended so."""
    return "passed" if status == RunStatus.PUBLISHED else "failed"


def is_any_room(settings: Settings) -> bool:
    """Return True if a mebibyte can be stored wherever calls store something. It is tried: quotas count as full disks
    do."""
    wanted = [settings.data_dir, settings.resolved_tombstones().parent]
    if not settings.in_bucket:
        wanted.append(settings.store_folder())
    url = sa.make_url(settings.resolved_database_url())
    if url.get_backend_name() == "sqlite" and url.database:
        wanted.append(Path(url.database).parent)
    of_each = {folder.stat().st_dev: folder for folder in wanted if folder.exists()}
    return all(_fits(folder) for folder in of_each.values())


def _fits(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(probe.fileno(), 0, _ROOM)
    except OSError as error:
        return error.errno not in (errno.ENOSPC, errno.EDQUOT)
    return True


def _free_bytes(folder: Path) -> float:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return math.nan


class Metrics:
    """The metrics of one installation for Prometheus, beside the calls and complaints of this process."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._lock = threading.Lock()
        self._asked_at = -math.inf
        self._counted_from: datetime.datetime | None = None
        self._ended_by: datetime.datetime | None = None
        self._counted: set[str] = set()
        registry = self._registry = CollectorRegistry()
        self._up = Gauge("lethe_database_up", "Whether the database answered (0 or 1)", registry=registry)
        self._requests = Gauge(
            "lethe_requests_open", "Deletion requests that are not done", ["status", "regulation"], registry=registry
        )
        self._oldest = Gauge(
            "lethe_queue_age_seconds", "How long the oldest request has waited for a worker", registry=registry
        )
        self._at_risk = Gauge(
            "lethe_requests_at_risk", "Open requests due within LETHE_RISK_DAYS", ["regulation"], registry=registry
        )
        self._overdue = Gauge(
            "lethe_requests_overdue", "Open requests past their deadline", ["regulation"], registry=registry
        )
        self._of_tenants = {
            "count": Gauge("lethe_tenant_requests_open", "Requests not done", ["tenant"], registry=registry),
            "at_risk": Gauge(
                "lethe_tenant_requests_at_risk", "Due within LETHE_RISK_DAYS", ["tenant"], registry=registry
            ),
            "overdue": Gauge("lethe_tenant_requests_overdue", "Past their deadline", ["tenant"], registry=registry),
        }
        self._reported = Gauge(
            "lethe_requests_reported_open", "Shown to apps as completed, and not done", registry=registry
        )
        self._running = Gauge("lethe_runs_running", "Runs under way", registry=registry)
        self._silence = Gauge(
            "lethe_worker_silence_seconds", "Since any worker's last sign of life; +Inf if never", registry=registry
        )
        self._failing = Gauge(
            "lethe_workers_failing", f"Whether the last {_FAILURES} runs all came to nothing, lately", registry=registry
        )
        self._tombstones_damaged = Gauge(
            "lethe_tombstones_damaged", "Whether they are not what was written; NaN: not verified", registry=registry
        )
        self._damaged = Gauge(
            "lethe_datasets_damaged", "Datasets that no run touches until they are put right", registry=registry
        )
        self._degraded = Gauge(
            "lethe_models_degraded", "Models whose live version misses its quality gate", ["served"], registry=registry
        )
        self._free = Gauge("lethe_data_free_bytes", "Free on the data folder's file system", registry=registry)
        self._runs = Counter("lethe_runs", "Runs that ended, ever", ["kind", "status"], registry=registry)
        self._steps = Counter("lethe_run_steps", "Steps of published runs, ever", ["kind"], registry=registry)
        self._audits = Counter("lethe_audits", "Runs that were audited, ever", ["result"], registry=registry)
        for result in ("passed", "failed"):
            self._audits.labels(result)  # from the first scrape on, so that the first that fails is seen as a rise
        self._seconds = Histogram(
            "lethe_run_seconds",
            "Seconds of published runs since this process began",
            ["kind"],
            buckets=_BUCKETS,
            registry=registry,
        )

    def exposition(self) -> bytes:
        """In Prometheus's text format; without a database, that it is down and what this process knows by itself."""
        with self._lock:
            if time.monotonic() - self._asked_at > _FRESH_SECONDS:
                self._ask()
                self._asked_at = time.monotonic()
            return generate_latest(self._registry)

    def _ask(self) -> None:
        self._free.set(_free_bytes(self._installation.settings.data_dir))
        damaged = {Found.DAMAGED: 1.0, Found.WHOLE: 0.0, Found.UNVERIFIED: math.nan}
        self._tombstones_damaged.set(damaged[_tombstones(self._installation)])
        try:
            with self._installation.database.reading() as session:
                self._set(state(session, self._installation))
                self._reported.set(repository.reported_open(session, at=now(session)))
                self._count_runs(session)
                self._damaged.set(rows_repository.count_damaged(session))
                held = [*catalogue_repository.degraded_versions(session).values()]
                self._degraded.labels("no").set(sum(held))
                self._degraded.labels("yes").set(len(held) - sum(held))
        except (SQLAlchemyError, Unavailable) as error:
            telemetry.logger().error("operations.database_unavailable", error=type(error).__name__)
            self._up.set(0)
            self._clear()
            for gauge in (
                self._oldest,
                self._reported,
                self._running,
                self._silence,
                self._failing,
                self._damaged,
            ):
                gauge.set(math.nan)
        else:
            self._up.set(1)

    def _set(self, found: ServiceState) -> None:
        self._oldest.set(found.queue_age_seconds)
        self._running.set(found.running)
        self._silence.set((found.at - found.seen_at).total_seconds() if found.seen_at else math.inf)
        self._failing.set(found.workers is WorkerState.FAILING)
        self._clear()  # who has nothing any more is not told about
        by_regulation = _grouped(found.waiting, "regulation", known=list(Regulation), at_most=_MOST_REGULATIONS)
        for regulation, of_it in by_regulation.items():
            self._at_risk.labels(regulation).set(sum(some.at_risk for some in of_it))
            self._overdue.labels(regulation).set(sum(some.overdue for some in of_it))
            for status in sorted(OPEN):
                count = sum(some.count for some in of_it if some.status == status)
                self._requests.labels(status, regulation).set(count)
        for tenant_id, of_it in _grouped(found.waiting, "tenant_id", at_most=_MOST_TENANTS).items():
            for what, gauge in self._of_tenants.items():
                gauge.labels(tenant_id).set(sum(getattr(some, what) for some in of_it))

    def _clear(self) -> None:
        for gauge in (self._degraded, self._requests, self._at_risk, self._overdue, *self._of_tenants.values()):
            gauge.clear()

    def _count_runs(self, session: Session) -> None:
        """Count what has ended and was not counted: everything once, from then on only what is new.

        All that began before the oldest run that is still under way has ended, and an ended run never changes.
        """
        moment = now(session)
        settled = min((run.started_at for run in repository.running(session)), default=moment) - _LONGEST_TRANSACTION
        is_first = self._counted_from is None
        if self._counted_from is None or self._ended_by is None:
            for kind, status, count, steps, audited in repository.totals(session, before=settled):
                self._runs.labels(kind, status).inc(count)
                self._audits.labels(_result(status)).inc(audited)
                if status == RunStatus.PUBLISHED:
                    self._steps.labels(kind).inc(steps)
            self._counted_from, self._ended_by = settled, settled
        fresh = repository.ended(session, began_from=self._counted_from, ended_after=self._ended_by)
        for run, audited in fresh:
            if run.id not in self._counted and run.finished_at:
                self._runs.labels(run.kind, run.status).inc(1 + run.repeated if is_first else 1)
                self._audits.labels(_result(run.status)).inc(audited)
                if run.status == RunStatus.PUBLISHED:
                    self._steps.labels(run.kind).inc(run.steps_done)
                    self._seconds.labels(run.kind).observe((run.finished_at - run.started_at).total_seconds())
        self._counted_from, self._ended_by = settled, moment - _LONGEST_TRANSACTION
        self._counted = {run.id for run, _ in fresh}
