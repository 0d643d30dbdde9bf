"""Metrics: the queue and its deadlines, the workers, and the totals of all runs.

The data comes from the database and from heartbeats in the data folder, so every gateway reports the same numbers,
covering the workers of all hosts.
"""

import datetime
import math
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import sqlalchemy as sa
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app import db, errors, installations, telemetry
from app.catalogue import repository as catalogue_repository
from app.db.tables import Dataset, DeletionRequest, Run
from app.deletion.repository import these
from app.deletion.status import OPEN
from app.journal.verification import BackupState
from app.operations import repository, service
from lethe.contract import problems, sets

_TESTED = sa.or_(
    sa.and_(Run.status == sets.RunStatus.PUBLISHED, Run.audit.is_not(None)), Run.error_code == errors.AuditFailed.code
)
"""Condition for runs that had a canary test and either published a version or failed because of the test."""
_FRESH_SECONDS = 5.0
"""Minimum number of seconds between two database queries, regardless of the scrape interval."""
_MAX_TRANSACTION_DURATION = datetime.timedelta(minutes=5)
"""Maximum time between the start or end recorded for a run and the commit of this record."""
_MAX_TENANTS = 100
_MAX_REGULATIONS = 30
"""Maximum number of values of each label; all other values are counted under `_THE_OTHERS`."""
_THE_OTHERS = "(others)"
_BUCKETS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)


def reported_open(session: Session, *, at: datetime.datetime) -> int:
    """Return the number of open requests that discreet callers already see as completed."""
    late = sa.and_(DeletionRequest.status.in_(these(OPEN)), DeletionRequest.discreet, DeletionRequest.reported_at <= at)
    return session.scalars(sa.select(sa.func.count()).select_from(DeletionRequest).where(late)).one()


def totals(session: Session, *, before: datetime.datetime) -> list[tuple[str, str, int, int, int]]:
    """Return (kind, status, runs, steps, tested runs) for each kind and status of ended runs begun before `before`."""
    tested = sa.func.count().filter(_TESTED)
    query = (
        sa.select(Run.kind, Run.status, sa.func.sum(1 + Run.repeated), sa.func.sum(Run.steps_done), tested)
        .where(Run.status != sets.RunStatus.RUNNING, Run.started_at < before)
        .group_by(Run.kind, Run.status)
    )
    return [(kind, status, count, steps, tests) for kind, status, count, steps, tests in session.execute(query)]


def ended(session: Session, *, began_from: datetime.datetime, ended_after: datetime.datetime) -> list[tuple[Run, bool]]:
    """Return the runs that began at or after `began_from` and ended at or after `ended_after`, each with a flag that is
    True if the run had a canary test."""
    query = sa.select(Run, _TESTED)
    query = query.where(
        Run.started_at >= began_from, Run.status != sets.RunStatus.RUNNING, Run.finished_at >= ended_after
    )
    return [(run, bool(tested)) for run, tested in session.execute(query)]


def count_damaged(session: Session) -> int:
    damaged = Dataset.damaged_at.is_not(None), Dataset.retired_at.is_(None)
    return session.scalars(sa.select(sa.func.count()).where(*damaged)).one()


def _grouped(
    waiting: Sequence[repository.WaitingCount], name: str, *, at_most: int, preferred: Sequence[str] = ()
) -> dict[str, list[repository.WaitingCount]]:
    """Group counts by the attribute `name`. Keep `at_most` values: first the `preferred` ones, then those with the most
    overdue, at-risk and waiting requests. All other values form the group `_THE_OTHERS`."""
    groups: dict[str, list[repository.WaitingCount]] = {value: [] for value in preferred}
    for count in waiting:
        groups.setdefault(getattr(count, name), []).append(count)

    def priority(value: str) -> tuple[bool, int, int, int]:
        group = groups[value]
        late, soon = sum(count.overdue for count in group), sum(count.at_risk for count in group)
        return value in preferred, late, soon, sum(count.count for count in group)

    for value in sorted(groups, key=priority, reverse=True)[at_most:]:
        groups.setdefault(_THE_OTHERS, []).extend(groups.pop(value))
    return groups


def _result(status: str) -> str:
    """Return the label for the canary test result of a run that ended in `status`."""
    return "passed" if status == sets.RunStatus.PUBLISHED else "failed"


def _free_bytes(folder: Path) -> float:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return math.nan


class Metrics:
    """Prometheus metrics of one installation; the calls and errors of this process are counted elsewhere."""

    def __init__(self, installation: installations.Installation) -> None:
        self._installation = installation
        self._lock = threading.Lock()
        self._updated_at = -math.inf
        self._counted_from: datetime.datetime | None = None
        self._ended_by: datetime.datetime | None = None
        self._counted: set[str] = set()
        registry = self._registry = CollectorRegistry()

        def gauge(name: str, documentation: str, *labels: str) -> Gauge:
            return Gauge(name, documentation, labels, registry=registry)

        self._up = gauge("lethe_database_up", "Whether the database answered and is served (0 or 1)")
        self._put_back = gauge("lethe_database_put_back", "Whether the database is older than the tombstones (0 or 1)")
        self._requests = gauge("lethe_requests_open", "Deletion requests that are not done", "status", "regulation")
        self._oldest = gauge("lethe_queue_age_seconds", "How long the oldest request has waited for a worker")
        self._at_risk = gauge("lethe_requests_at_risk", "Open requests due within LETHE_RISK_DAYS", "regulation")
        self._overdue = gauge("lethe_requests_overdue", "Open requests past their deadline", "regulation")
        self._of_tenants = {
            "count": gauge("lethe_tenant_requests_open", "Requests not done", "tenant"),
            "at_risk": gauge("lethe_tenant_requests_at_risk", "Due within LETHE_RISK_DAYS", "tenant"),
            "overdue": gauge("lethe_tenant_requests_overdue", "Past their deadline", "tenant"),
        }
        self._reported = gauge("lethe_requests_reported_open", "Shown to apps as completed, and not done")
        self._running = gauge("lethe_runs_running", "Runs under way")
        self._silence = gauge("lethe_worker_silence_seconds", "Since any worker's last sign of life; +Inf if never")
        self._failing = gauge(
            "lethe_workers_failing", f"Whether the last {service.FAILURES} runs all came to nothing, lately"
        )
        self._tombstones_damaged = gauge(
            "lethe_tombstones_damaged", "Whether they are not what was written; NaN: not verified"
        )
        self._damaged = gauge("lethe_datasets_damaged", "Datasets that no run touches until they are put right")
        self._texts_damaged = gauge("lethe_texts_damaged", "Stored texts and certificates that cannot be read")
        self._degraded = gauge("lethe_models_degraded", "Models whose live version misses its quality gate", "served")
        self._free = gauge("lethe_data_free_bytes", "Free on the data folder's file system")
        self._runs = Counter("lethe_runs", "Runs that ended, ever", ["kind", "status"], registry=registry)
        self._steps = Counter("lethe_run_steps", "Steps of published runs, ever", ["kind"], registry=registry)
        self._canary_tests = Counter("lethe_audits", "Runs with a canary test, ever", ["result"], registry=registry)
        # Exported from the first scrape on, so that the first failure appears as an increase.
        for result in ("passed", "failed"):
            self._canary_tests.labels(result)
        self._seconds = Histogram(
            "lethe_run_seconds",
            "Seconds of published runs since this process began",
            ["kind"],
            buckets=_BUCKETS,
            registry=registry,
        )

    def exposition(self) -> bytes:
        """Return the metrics in the Prometheus text format. If the database is down, they contain only that fact and
        the values known to this process."""
        with self._lock:
            if time.monotonic() - self._updated_at > _FRESH_SECONDS:
                self._update()
                self._updated_at = time.monotonic()
            return generate_latest(self._registry)

    def _update(self) -> None:
        self._free.set(_free_bytes(self._installation.settings.data_dir))
        self._texts_damaged.set(service.known_damage.get(self._installation.settings.data_dir, 0))
        damaged = {BackupState.DAMAGED: 1.0, BackupState.WHOLE: 0.0, BackupState.UNVERIFIED: math.nan}
        self._tombstones_damaged.set(damaged[service.tombstones_state(self._installation)])
        try:
            self._installation.database.require_served()
            with self._installation.database.reading() as session:
                self._set(service.state(session, self._installation))
                self._reported.set(reported_open(session, at=db.now(session)))
                self._count_runs(session)
                self._damaged.set(count_damaged(session))
                degraded = catalogue_repository.degraded_versions(session).values()
                self._degraded.labels("no").set(sum(degraded))
                self._degraded.labels("yes").set(len(degraded) - sum(degraded))
        except (SQLAlchemyError, problems.Unavailable) as error:
            telemetry.logger().error("operations.database_unavailable", error=type(error).__name__)
            self._up.set(0)
            self._put_back.set(isinstance(error, problems.DatabasePutBack))
            self._clear()
            for gauge in (self._oldest, self._reported, self._running, self._silence, self._failing, self._damaged):
                gauge.set(math.nan)
        else:
            self._up.set(1)
            self._put_back.set(0)

    def _set(self, state: service.ServiceState) -> None:
        self._oldest.set(state.queue_age_seconds)
        self._running.set(state.running)
        self._silence.set((state.at - state.seen_at).total_seconds() if state.seen_at else math.inf)
        self._failing.set(state.workers is sets.WorkerState.FAILING)
        # Drop the labels of tenants and regulations without open requests.
        self._clear()
        by_regulation = _grouped(state.waiting, "regulation", preferred=list(sets.Regulation), at_most=_MAX_REGULATIONS)
        for regulation, group in by_regulation.items():
            self._at_risk.labels(regulation).set(sum(counts.at_risk for counts in group))
            self._overdue.labels(regulation).set(sum(counts.overdue for counts in group))
            for status in sorted(OPEN):
                count = sum(counts.count for counts in group if counts.status == status)
                self._requests.labels(status, regulation).set(count)
        for tenant_id, group in _grouped(state.waiting, "tenant_id", at_most=_MAX_TENANTS).items():
            for name, gauge in self._of_tenants.items():
                gauge.labels(tenant_id).set(sum(getattr(counts, name) for counts in group))

    def _clear(self) -> None:
        for gauge in (self._degraded, self._requests, self._at_risk, self._overdue, *self._of_tenants.values()):
            gauge.clear()

    def _count_runs(self, session: Session) -> None:
        """Count the ended runs that have not been counted yet: all of them the first time, then only new ones.

        Every run that began before the oldest run still in progress has ended, and ended runs never change.
        """
        moment = db.now(session)
        settled = (
            min((run.started_at for run in repository.running(session)), default=moment) - _MAX_TRANSACTION_DURATION
        )
        is_first = self._counted_from is None
        if self._counted_from is None or self._ended_by is None:
            for kind, status, count, steps, tested in totals(session, before=settled):
                self._runs.labels(kind, status).inc(count)
                self._canary_tests.labels(_result(status)).inc(tested)
                if status == sets.RunStatus.PUBLISHED:
                    self._steps.labels(kind).inc(steps)
            self._counted_from, self._ended_by = settled, settled
        fresh = ended(session, began_from=self._counted_from, ended_after=self._ended_by)
        for run, tested in fresh:
            if run.id not in self._counted and run.finished_at:
                self._runs.labels(run.kind, run.status).inc(1 + run.repeated if is_first else 1)
                self._canary_tests.labels(_result(run.status)).inc(tested)
                if run.status == sets.RunStatus.PUBLISHED:
                    self._steps.labels(run.kind).inc(run.steps_done)
                    self._seconds.labels(run.kind).observe((run.finished_at - run.started_at).total_seconds())
        self._counted_from, self._ended_by = settled, moment - _MAX_TRANSACTION_DURATION
        self._counted = {run.id for run, _ in fresh}
