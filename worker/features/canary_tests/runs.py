"""Runs of canary tests, whose results are statistics."""

from app import errors, installations, tracing
from app.features.canary_tests import service
from app.unlearning.queue import ClaimedRun
from lethe.contract.sets import RunKind
from lethe.proof.canary_test import Observed
from worker import handlers


def run_test(
    installation: installations.Installation, claimed_run: ClaimedRun, root: str, holder: handlers.Holder
) -> None:
    """Run a canary test and end the run with the test's statistics. A failed test is not repeated."""
    assert claimed_run.mechanism is not None
    assert claimed_run.audit is not None
    observed: Observed | None = None
    error_code: str | None = None
    try:
        with tracing.span("steps"):
            # A worker without such a run needs no torch.
            from worker.features.canary_tests import chain_of_canaries

            observed = chain_of_canaries.run(claimed_run.mechanism, claimed_run.audit, on_progress=holder.progressed)
        handlers.examine(installation, claimed_run, records=0, observed=observed)
    except errors.AuditFailed as error:
        error_code = error.code
        handlers.alarm(claimed_run, observed)
    with installation.database.writing() as session:
        service.end(session, run_id=claimed_run.run_id, observed=observed, error_code=error_code)


HANDLERS: tuple[handlers.HandledKind, ...] = ((RunKind.AUDIT, run_test),)
