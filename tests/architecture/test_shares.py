"""The order of tests in a run with several processes."""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from tests.shares import shared_out


@dataclass(frozen=True)
class Item:
    """Stub of a test with the attributes that its order depends on."""

    name: str
    path: Path
    markers: frozenset[str] = field(default_factory=frozenset)

    def get_closest_marker(self, name: str) -> Any:
        return name if name in self.markers else None


def made(name: str, *markers: str, count: int) -> list[Any]:
    return [Item(f"{name}{number}", Path(name), frozenset(markers)) for number in range(count)]


def order_of(items: list[Any], processes: int) -> list[Item]:
    return cast("list[Item]", shared_out(cast("list[pytest.Item]", items), processes=processes))


def test_every_process_begins_with_long_tests() -> None:
    """Each of three processes starts with its share of the tests that take minutes and then runs whole files of other
    long tests. Short tests come at the end of each share, in their original order."""
    life, stories, kills = (
        made("life", "soak", "timeout", count=4),
        made("a", "soak", count=2),
        made("b", "soak", count=3),
    )
    short = made("short", count=21)
    order = order_of([*short[:9], *kills, *life, *short[9:], *stories], 3)
    shares = [order[:10], order[10:20], order[20:]]
    assert [share[0] for share in shares] == life[:3]
    assert [shares[0][1:2], shares[1][1:4], shares[2][1:3]] == [life[3:], kills, stories]
    assert [item for item in order if not item.markers] == short


@pytest.mark.parametrize("processes", [1, 2, 3, 8])
def test_every_test_is_run_once(processes: int) -> None:
    """Every test is run exactly once, for any number of processes and long tests."""
    chance = random.Random(processes)
    for _ in range(100):
        kinds = [(), ("soak",), ("soak", "timeout"), ("timeout",)]
        items = [
            item
            for n in range(chance.randrange(6))
            for item in made(f"{n}", *chance.choice(kinds), count=chance.randrange(1, 9))
        ]
        assert sorted(item.name for item in order_of(items, processes)) == sorted(item.name for item in items)
