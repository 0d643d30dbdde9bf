"""Pauses between attempts at a repeatable call, and between polls of a long operation."""

import datetime
import email.utils
import random
import time
from dataclasses import dataclass, field
from typing import Protocol

from lethe.errors import WaitTimedOut

STATUSES = frozenset({429, 502, 503, 504})
"""Status codes after which the same call may succeed later."""

_FIRST_PAUSE_SECONDS = 0.1
_MAX_RETRY_PAUSE_SECONDS = 5.0
_DICE = random.SystemRandom()


@dataclass(slots=True, kw_only=True)
class Patience:
    """Time limit for repeating one call: no attempt begins later than `seconds` after the first."""

    seconds: float
    _began: float = field(default_factory=time.monotonic)
    _pauses: int = 0

    def next(self, retry_after: float | None) -> float | None:
        """Return the seconds before another attempt; None if it would begin too late."""
        pause = pause_before(self._pauses, retry_after)
        if time.monotonic() + pause - self._began > self.seconds:
            return None
        self._pauses += 1
        return pause


def pause_before(attempt: int, retry_after: float | None) -> float:
    """Return the seconds to wait after `attempt` pauses. The pauses double up to a limit, with jitter to spread the
    callers, and are no shorter than the server requested."""
    backoff = min(_FIRST_PAUSE_SECONDS * 2 ** min(attempt, 16), _MAX_RETRY_PAUSE_SECONDS)
    return (retry_after or 0.0) + _DICE.uniform(backoff / 2, backoff)


def retry_after_in(header: str | None) -> float | None:
    """Return the seconds in a `Retry-After` header (RFC 9110: number or date); None if it is absent or malformed."""
    if header is None:
        return None
    if header.strip().isdecimal():
        return float(header)
    try:
        until = email.utils.parsedate_to_datetime(header)
    # The header is not a date, or its date is out of range.
    except (ValueError, OverflowError):
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=datetime.UTC)
    return max(0.0, (until - datetime.datetime.now(datetime.UTC)).total_seconds())


_MIN_PAUSE_SECONDS = 0.05
_MAX_POLL_PAUSE_SECONDS = 2.0
_MIN_POLL_SECONDS = 5.0


class Progress(Protocol):
    """Callback that receives the status and steps at each poll; `steps_total` is None if unknown."""

    def __call__(self, status: str, steps_done: int, steps_total: int | None, /) -> object: ...


class Steps(Protocol):
    """Steps of a run in progress."""

    @property
    def steps_done(self) -> int: ...
    @property
    def steps_total(self) -> int: ...


def report(progress: Progress | None, status: str, steps: Steps | None) -> None:
    """Report the status, and the steps of a run in progress, to `progress` unless it is None."""
    if progress is not None:
        progress(status, steps.steps_done if steps else 0, steps.steps_total if steps else None)


@dataclass(slots=True, kw_only=True)
class Watch:
    """Pauses between polls. They grow to a quarter of the time waited so far, so that short and long waits alike end
    with a small relative delay."""

    subject: str
    timeout_seconds: float | None
    _began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float | None:
        """Maximum number of seconds for the next poll; None without a timeout."""
        if self.timeout_seconds is None:
            return None
        return max(_MIN_POLL_SECONDS, self._began + self.timeout_seconds - time.monotonic())

    def pause(self, *, status: str) -> float:
        """Return the seconds until the next poll. Raises `WaitTimedOut` after the timeout."""
        waited = time.monotonic() - self._began
        pause = min(max(waited / 4, _MIN_PAUSE_SECONDS), _MAX_POLL_PAUSE_SECONDS)
        if self.timeout_seconds is not None:
            if waited >= self.timeout_seconds:
                raise WaitTimedOut(f"{self.subject} is {status} after {self.timeout_seconds:g} seconds.")
            pause = min(pause, self.timeout_seconds - waited)
        return pause
