"""Run leases: a heartbeat that renews them, and runs that yield to deletions."""

import contextlib
import math
import time
from collections.abc import Callable

from app import errors, installations, periodic, telemetry
from app.unlearning import queue, service as unlearning


class Lease(periodic.Periodic):
    """Lease of a run. A heartbeat renews it at least every third of its duration and reports progress.

    A run that has neither taken a step nor opened a block for `stall_seconds` is abandoned: this worker's disk or GPU
    may be hanging while another worker's is not."""

    def __init__(self, installation: installations.Installation, run: queue.ClaimedRun) -> None:
        self._installation = installation
        self.poll_seconds = installation.settings.poll_seconds
        self._run_id = run.run_id
        self._steps_done = 0
        # Infinite before the first step, when there is no progress to wait for.
        self._moved_at = math.inf
        self._lost = False
        super().__init__("lease", self._beat, seconds=min(installation.settings.lease_seconds / 3, 0.5))

    def progressed(self, steps_done: int) -> None:
        """Report the number of steps done; called many times a second. If the run was taken from this worker, raises
        `LeaseLost`, which kills the run's processes."""
        if steps_done != self._steps_done or self._moved_at == math.inf:
            self._steps_done, self._moved_at = steps_done, time.monotonic()
        if self._lost:
            raise errors.LeaseLost(f"Run {self._run_id} was taken from this worker.")

    def opened(self) -> None:
        """Report that a block of rows was opened, which counts as progress. Raises the same errors as `progressed`."""
        self._moved_at = time.monotonic()
        if self._lost:
            raise errors.LeaseLost(f"Run {self._run_id} was taken from this worker.")

    def renew(self) -> bool:
        """Renew the lease, or return False if the database does not respond. Raises `LeaseLost`."""
        seconds = self._installation.settings.lease_seconds
        try:
            with self._installation.database.writing(exclusive=False) as session:
                unlearning.renew(session, run_id=self._run_id, steps_done=self._steps_done, lease_seconds=seconds)
        except errors.LeaseLost:
            self._lost = True
            raise
        # The database may be back before the lease ends.
        except Exception as error:  # noqa: BLE001
            telemetry.logger().warning("unlearning.heartbeat_missed", error=type(error).__name__)
            return False
        return True

    def stand_still(self) -> None:
        """Suspend stall detection until progress is next reported."""
        self._moved_at = math.inf

    def _beat(self) -> None:
        if time.monotonic() - self._moved_at > self._installation.settings.stall_seconds:
            telemetry.logger().error("unlearning.run_stalled", run_id=self._run_id)
            self._lost = True
        with contextlib.suppress(errors.LeaseLost):
            if not self._lost:
                self.renew()
        if self._lost:
            self.stop()


class PreemptibleLease:
    """Lease of a run that serves no deletion request. Between steps, the run waits while its worker processes deletions
    due for other datasets, and then continues from its own process's memory.

    `run_deletion` carries out one deletion run, or returns False if none is due. It is called before the first step and
    every `poll_seconds`. After each deletion, the run takes steps for at least a tenth of the time that the deletion
    took, so that learning finishes however many deletions are requested."""

    _SHARE = 0.1

    def __init__(self, lease: Lease, *, run_deletion: Callable[[], bool]) -> None:
        self._lease = lease
        self._run_deletion = run_deletion
        self._next_check_at = 0.0

    def opened(self) -> None:
        """Report that a block of rows was opened. Raises the same errors as `Lease.progressed`."""
        self._lease.opened()

    def progressed(self, steps_done: int) -> None:
        """Report the number of steps and process any deletions due. Raises the same errors as `Lease.progressed`."""
        self._lease.progressed(steps_done)
        if (began := time.monotonic()) < self._next_check_at:
            return
        self._lease.stand_still()
        # Renew first: a claim reclaims runs that seem abandoned, including this one.
        is_held = self._lease.renew()
        if is_held and self._run_deletion():
            ended = time.monotonic()
            self._next_check_at = ended + self._SHARE * (ended - began)
        else:
            self._next_check_at = time.monotonic() + self._lease.poll_seconds
        self._lease.progressed(steps_done)
