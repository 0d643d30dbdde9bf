"""The lease of a run, kept while a worker works on it."""

import contextlib
import math
import time

from app import telemetry
from app.errors import LeaseLost
from app.installations import Installation
from app.periodic import Periodic
from app.unlearning import service as unlearning
from app.unlearning.queue import ClaimedRun


class Lease(Periodic):
    """Keeps a run while a worker works on it: a heartbeat, at least every third of the lease, that reports progress.

    A run that for `stall_seconds` has taken no step, nor opened a block for one, is let go: a disk or a GPU hangs,
    another worker may not.
    """

    def __init__(self, installation: Installation, claimed: ClaimedRun) -> None:
        self._installation = installation
        self._run_id = claimed.run_id
        self._steps_done = 0
        self._moved_at = math.inf  # before the first step there is no progress to miss
        self._lost = False
        super().__init__("lease", self._beat, seconds=min(installation.settings.lease_seconds / 3, 0.5))

    def progressed(self, steps_done: int) -> None:
        """Called many times a second. Raises `LeaseLost`, which kills the processes of a run that was taken away."""
        if steps_done != self._steps_done or self._moved_at == math.inf:
            self._steps_done, self._moved_at = steps_done, time.monotonic()
        if self._lost:
            raise LeaseLost(f"Run {self._run_id} was taken from this worker.")

    def opened(self) -> None:
        """Called for each block of rows that was opened: the run has not stood still. Raises as `progressed`."""
        self._moved_at = time.monotonic()
        if self._lost:
            raise LeaseLost(f"Run {self._run_id} was taken from this worker.")

    def renew(self) -> bool:
        """Keep the run for another lease; False while the database does not answer. Raises `LeaseLost`."""
        seconds = self._installation.settings.lease_seconds
        try:
            with self._installation.database.writing(exclusive=False) as session:
                unlearning.renew(session, run_id=self._run_id, steps_done=self._steps_done, lease_seconds=seconds)
        except LeaseLost:
            self._lost = True
            raise
        except Exception as error:  # noqa: BLE001  the database may be back before the lease is over
            telemetry.logger().warning("unlearning.heartbeat_missed", error=type(error).__name__)
            return False
        return True

    def stand_still(self) -> None:
        """Miss no progress until there is some again."""
        self._moved_at = math.inf

    def _beat(self) -> None:
        if time.monotonic() - self._moved_at > self._installation.settings.stall_seconds:
            telemetry.logger().error("unlearning.run_stalled", run_id=self._run_id)
            self._lost = True
        with contextlib.suppress(LeaseLost):
            if not self._lost:
                self.renew()
        if self._lost:
            self.stop()
