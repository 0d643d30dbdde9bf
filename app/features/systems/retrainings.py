"""Plan of retrainings: the fewest that serve everybody who waits."""

import datetime
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def fewest(
    waits: Iterable[T], *, opens: Callable[[T], datetime.datetime], closes: Callable[[T], datetime.datetime]
) -> list[tuple[datetime.datetime, list[T]]]:
    """Return the fewest times such that each wait has one between `opens` and `closes`, in order, each with the waits
    that it serves in the order of their ends. No wait closes before it opens.

    The greedy choice of the earliest end is optimal: the intervals whose ends are chosen are disjoint, so that each
    needs a time of its own.
    """
    left = sorted(waits, key=closes)
    planned = []
    while left:
        at = closes(left[0])
        planned.append((at, [wait for wait in left if opens(wait) <= at]))
        left = [wait for wait in left if opens(wait) > at]
    return planned
