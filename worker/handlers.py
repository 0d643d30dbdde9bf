"""Run handlers by kind. Each completes a run whose rows have been edited, and ends it in the database."""

import functools
import importlib
from typing import Protocol, TypeAlias

from app import errors, installations, telemetry, tracing
from app.catalogue import datasets
from app.unlearning import queue, service as unlearning
from lethe import sockets
from lethe.contract.sets import RunKind
from lethe.proof.canary_test import Observed
from lethe.proof.mechanism import Mechanism

_MODULE = "worker.learning"
"""Module of the core that registers its handlers when it is imported."""


class Holder(Protocol):
    """Holder of a run's lease. Both methods raise `LeaseLost` if the run was taken from this worker."""

    def progressed(self, steps_done: int) -> None:
        """Report the number of steps done. The run pauses until this returns."""

    def opened(self) -> None:
        """Report that a block of rows was opened."""


class RunHandler(Protocol):
    """Function that completes a claimed run on the edited rows under `root` and ends it in the database. If a handler
    raises an error, the run is handed back with the error's code."""

    def __call__(
        self, installation: installations.Installation, run: queue.ClaimedRun, root: str, holder: Holder, /
    ) -> None: ...


HandledKind: TypeAlias = tuple[RunKind, RunHandler]
"""A kind of run and its handler. A feature lists such pairs as `HANDLERS` in its `runs` module."""

_HANDLERS: dict[RunKind, RunHandler] = {}


def register(handler: RunHandler, *kinds: RunKind) -> None:
    """Register `handler` for runs of these kinds."""
    for kind in kinds:
        assert _HANDLERS.setdefault(kind, handler) is handler, f"{kind} has two handlers"


def handler_of(kind: str) -> RunHandler:
    """Return the handler for a kind of run. Raises `RunKindUnsupported` if neither the core nor a feature has one."""
    _register_all()
    try:
        return _HANDLERS[RunKind(kind)]
    except (KeyError, ValueError):
        raise errors.RunKindUnsupported(f"This worker has no handler for runs of kind {kind}.") from None


@functools.cache
def _register_all() -> None:
    importlib.import_module(_MODULE)
    for kind, handler in sockets.plugs("worker.features", "runs", "HANDLERS"):
        register(handler, kind)


def examine(
    installation: installations.Installation, run: queue.ClaimedRun, *, records: int, observed: Observed | None
) -> None:
    """Check a run against its plan and lanes. Raises `AuditFailed` if the lanes refute what would be certified."""
    with tracing.span("examine"), installation.database.reading() as session:
        findings = unlearning.examine(session, run_id=run.run_id, records=records, observed=observed)
    if findings:
        raise errors.AuditFailed(f"The lanes of run {run.run_id} refuted it.", observed=observed)


def alarm(run: queue.ClaimedRun, observed: Observed | None) -> None:
    """Log the findings of a failed canary test."""
    findings = observed.findings(run.mechanism) if observed and run.mechanism else ()
    telemetry.logger().error("audit.failed", run_id=run.run_id, findings=findings)


def network_of(installation: installations.Installation, mechanism: Mechanism) -> bytes | None:
    """Return the file of the network whose weights a tangent model trains, or None for any other model. Raises
    `DatabaseDamaged`."""
    if mechanism.network is None or not mechanism.is_tangent:
        return None
    with installation.database.reading() as session:
        return datasets.network_keeper().content(session, mechanism.network.sha256)
