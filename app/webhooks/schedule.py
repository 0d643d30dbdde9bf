"""The schedule of retries of a delivery that failed, and its end."""

import datetime
from random import Random

_PAUSES = tuple(
    datetime.timedelta(seconds=seconds)
    for seconds in (5, 300, 1800, 2 * 3600, 5 * 3600, 10 * 3600, 14 * 3600, 20 * 3600, 24 * 3600)
)
"""The schedule that Standard Webhooks gives as its example: ten attempts in about three days."""

LONGEST_PAUSE = 2 * _PAUSES[-1]


def next_attempt(
    attempts: int, random: Random, *, retry_after: datetime.timedelta | None = None
) -> datetime.timedelta | None:
    """The wait after `attempts` attempts, the last of which failed; None: that was the last.

    The pause is drawn evenly from zero to twice the scheduled one (full jitter), so that what failed together does not
    come back together and the schedule holds on average. It is at least `retry_after`, which the receiver asked for.
    """
    if attempts < 1:
        raise ValueError(f"Expected attempts={attempts} >= 1")
    if attempts > len(_PAUSES):
        return None
    pause = random.uniform(0, 2) * _PAUSES[attempts - 1]
    return pause if retry_after is None else min(max(pause, retry_after), LONGEST_PAUSE)
