"""One run from claim to published version: the entry point of the embedded loop and of the Celery task."""

import functools
import time

from sqlalchemy.exc import OperationalError

from app import errors, installations, telemetry, tracing
from app.db import EVER
from app.journal import tombstones, verification
from app.operations import periodic_jobs
from app.unlearning import due_repository, queue, repository, service as unlearning
from lethe.contract import problems, sets
from worker import edits, handlers, isolated
from worker.lease import Lease, PreemptibleLease


def run_next(installation: installations.Installation, *, worker: str, deletions_only: bool = False) -> bool:
    """Carry out the next run that is due, or return False if there is none. A run that fails is handed back; its error
    is not raised. With `deletions_only`, consider only runs that a deletion request is waiting for.

    No run is due while the database is unreachable or was created with different keys. If this happens during a run,
    the run's lease expires.
    """
    try:
        return _run_next(installation, worker=worker, deletions_only=deletions_only)
    except problems.Unavailable as error:
        telemetry.logger().error("worker.unavailable", error=error.code)
        return False
    except OperationalError as error:
        telemetry.logger().warning("worker.database_lost", error=type(error.orig).__name__)
        return False


def _run_next(installation: installations.Installation, *, worker: str, deletions_only: bool) -> bool:
    if installation.database.is_ruled_out(due_repository.anything_to_do, deletions_only=deletions_only, at=EVER):
        return False
    with installation.database.reading() as session:
        if not due_repository.anything_to_do(session, deletions_only=deletions_only):
            return False
    lease_seconds, max_requests = installation.settings.lease_seconds, installation.settings.max_requests_per_run
    with tracing.span("run") as span:
        with tracing.span("claim"), installation.database.writing() as session:
            run = queue.claim(
                session,
                worker=worker,
                lease_seconds=lease_seconds,
                max_requests=max_requests,
                deletions_only=deletions_only,
            )
        if run is None:
            return False
        _name(span, run)
        _do(installation, run, span, worker=worker)
    periodic_jobs.destroy_orphans(installation)
    return True


def _do(
    installation: installations.Installation, run: queue.ClaimedRun, span: tracing.TraceSpan, *, worker: str
) -> None:
    log = functools.partial(telemetry.logger().info, run_id=run.run_id, model_id=run.model_id)
    log("unlearning.run_claimed", kind=run.kind, steps=run.steps, rows=len(run.slots_to_null))
    started = time.monotonic()
    try:
        with Lease(installation, run) as lease:
            deletions = functools.partial(run_next, installation, worker=worker, deletions_only=True)
            _work(installation, run, PreemptibleLease(lease, run_deletion=deletions) if run.gives_way else lease)
    except errors.LeaseLost:
        _log_lost(installation, run)
    # Any failed run is handed back, regardless of the error.
    except Exception as error:  # noqa: BLE001
        code = error.code if isinstance(error, problems.Problem | isolated.ChainFailed) else type(error).__name__
        observed = error.observed if isinstance(error, errors.AuditFailed) else None
        if code == errors.AuditFailed.code:
            handlers.alarm(run, observed)
        with installation.database.writing() as session:
            if isinstance(error, problems.DatasetDamaged):
                unlearning.note_damage(session, run_id=run.run_id, error=error)
            is_held = unlearning.fail(session, run_id=run.run_id, error_code=code, observed=observed)
        span.set_attribute("error.type", code)
        if is_held:
            telemetry.logger().error("unlearning.run_failed", run_id=run.run_id, error=code)
        else:
            _log_lost(installation, run)
    else:
        log("unlearning.run_ended", kind=run.kind, seconds=round(time.monotonic() - started, 3))


def _log_lost(installation: installations.Installation, claimed_run: queue.ClaimedRun) -> None:
    """Log that the run was taken from this worker, and why."""
    with installation.database.reading() as session:
        run = repository.run(session, claimed_run.run_id)
        reason = run.error_code or run.status if run else "missing"
    telemetry.logger().info(
        "unlearning.run_lost", run_id=claimed_run.run_id, model_id=claimed_run.model_id, reason=reason
    )


def _name(span: tracing.TraceSpan, run: queue.ClaimedRun) -> None:
    """Label the span with the run's attributes. The run's id links logs and the API to this trace."""
    span.set_attribute("lethe.run_id", run.run_id)
    span.set_attribute("lethe.kind", run.kind)
    span.set_attribute("lethe.dataset_id", run.dataset_id)
    span.set_attribute("lethe.model_id", run.model_id or "")
    span.set_attribute("lethe.steps", run.steps)
    span.set_attribute("lethe.records", len(run.slots_to_null))


def _work(installation: installations.Installation, run: queue.ClaimedRun, holder: handlers.Holder) -> None:
    handler = handlers.handler_of(run.kind)
    verification.require_whole(installation)
    # Record requests before their rows are erased, so that rows that a backup brings back are erased again.
    tombstones.record(installation)
    handler(installation, run, edits.edited(installation, run), holder)


def _finish(
    installation: installations.Installation, run: queue.ClaimedRun, root: str, holder: handlers.Holder
) -> None:
    """End a run that has only edited rows."""
    with installation.database.writing() as session:
        unlearning.finish(session, run_id=run.run_id)


handlers.register(_finish, sets.RunKind.ERASE, sets.RunKind.ADD)
