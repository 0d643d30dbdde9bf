"""Retries of a call: only if making it twice is the same as making it once, and not for ever."""

import datetime
import email.utils
import random
import time
from dataclasses import dataclass, field

STATUSES = frozenset({429, 502, 503, 504})
"""Answers after which the same call may succeed."""

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_DICE = random.SystemRandom()


@dataclass(slots=True, kw_only=True)
class Patience:
    """Patience with one call: no attempt begins later than `seconds` after the first."""

    seconds: float
    _began: float = field(default_factory=time.monotonic)
    _pauses: int = 0

    def next(self, retry_after: float | None) -> float | None:
        """Seconds before another attempt; None if that would begin too late."""
        pause = pause_before(self._pauses, retry_after)
        if time.monotonic() + pause - self._began > self.seconds:
            return None
        self._pauses += 1
        return pause


def pause_before(attempt: int, retry_after: float | None) -> float:
    """Seconds to wait after so many pauses: doubling, with jitter so that callers do not come back all at once; and not
    less than the server asked for."""
    backoff = min(_FIRST_PAUSE * 2 ** min(attempt, 16), _LONGEST_PAUSE)
    return (retry_after or 0.0) + _DICE.uniform(backoff / 2, backoff)


def retry_after_in(header: str | None) -> float | None:
    """Seconds named by a `Retry-After` header (RFC 9110: seconds, or a date); None without, or if it is neither."""
    if header is None:
        return None
    if header.strip().isdecimal():
        return float(header)
    try:
        until = email.utils.parsedate_to_datetime(header)
    except (ValueError, OverflowError):  # no date, or none that there can be
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=datetime.UTC)
    return max(0.0, (until - datetime.datetime.now(datetime.UTC)).total_seconds())
