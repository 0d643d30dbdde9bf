"""Order of the tests of a run with several processes.

xdist's `worksteal` gives each process a contiguous share of the list. A process that has finished its share takes tests
from the end of another's."""

import itertools
from collections.abc import Sequence

import pytest


def shared_out(items: Sequence[pytest.Item], *, processes: int) -> list[pytest.Item]:
    """Return the tests in an order in which each process begins with its share of the long tests, and short tests run
    last. The long tests of a file stay together. Tests that take minutes share nothing and come first."""
    minutes = [[item] for item in items if _takes_minutes(item)]
    long = [item for item in items if item.get_closest_marker("soak") and not _takes_minutes(item)]
    groups = minutes + [list(tests) for _, tests in itertools.groupby(long, key=lambda item: item.path)]
    begun = set(itertools.chain(*groups))
    short = [item for item in items if item not in begun]
    order: list[pytest.Item] = []
    for number in range(processes):
        begins = list(itertools.chain(*groups[number::processes]))
        size = (len(items) - len(order)) // (processes - number)
        rest = max(0, size - len(begins))
        order += begins + short[:rest]
        del short[:rest]
    return order + short


def _takes_minutes(item: pytest.Item) -> bool:
    """Return True for a test with its own timeout."""
    return item.get_closest_marker("timeout") is not None
