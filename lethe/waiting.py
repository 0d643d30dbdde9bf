"""Waiting for something to happen at the gateway, by looking now and then."""

import time
from dataclasses import dataclass, field
from typing import Protocol

from lethe.errors import WaitTimedOut

_SHORTEST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_LAST_LOOK_SECONDS = 5.0


class Progress(Protocol):
    """Told each time what was found; `steps_total` is None while it is not known."""

    def __call__(self, status: str, steps_done: int, steps_total: int | None, /) -> object: ...


@dataclass(slots=True, kw_only=True)
class Watch:
    """Pauses that grow with the time waited so far, to a quarter of it, so that neither long nor short waits are late
    by much."""

    what: str
    timeout_seconds: float | None
    _began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float | None:
        """Seconds that a look may take; None if there is no end."""
        if self.timeout_seconds is None:
            return None
        return max(_LAST_LOOK_SECONDS, self._began + self.timeout_seconds - time.monotonic())

    def pause(self, *, status: str) -> float:
        """Seconds until the next look. Raises `WaitTimedOut` when the time is over."""
        waited = time.monotonic() - self._began
        pause = min(max(waited / 4, _SHORTEST_PAUSE), _LONGEST_PAUSE)
        if self.timeout_seconds is not None:
            if waited >= self.timeout_seconds:
                raise WaitTimedOut(f"{self.what} is {status} after {self.timeout_seconds:g} seconds.")
            pause = min(pause, self.timeout_seconds - waited)
        return pause
