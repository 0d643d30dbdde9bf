"""Fair queueing of calls when more is asked than can be done at once: the caller with the fewest calls at work goes
first.

So a tenant that asks for much waits for itself, and one that asks for little hardly waits; among the keys of a tenant
the same holds.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from lethe.contract.problems import Busy

T = TypeVar("T")


class Who(NamedTuple):
    """The caller: a tenant and its key, or nobody known (`""`) and their address."""

    tenant: str
    key: str


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    who: Who
    turn: asyncio.Future[None]


class Turns:
    """`at_once` calls at work, `of_one` of them of one tenant and `of_key` of one key; `places`: with those who wait.

    Its methods are called in one event loop.
    """

    def __init__(self, *, at_once: int, of_one: int, places: int, of_key: int | None = None) -> None:
        self._at_once = at_once
        self._of_one = of_one
        self._of_key = of_key or of_one
        self._places = places
        self._working: Counter[Who] = Counter()
        self._of_tenant: Counter[str] = Counter()
        self._waiting: list[_Waiter] = []

    @property
    def is_full(self) -> bool:
        """Return True if the next call of the caller who has most would be refused."""
        return self._working.total() + len(self._waiting) >= self._places

    async def enter(self, who: Who) -> None:
        """Wait for a turn, which lasts until `leave`. Raises `Busy` when there is no place, or it is given to somebody
        who has fewer."""
        if self.is_full:
            self._make_room(who)
        waiter = _Waiter(who, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        self._let_in()
        try:
            await waiter.turn
        except BaseException:  # it was refused, or its caller has gone
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif waiter.turn.done() and not waiter.turn.cancelled() and waiter.turn.exception() is None:
                self.leave(who)
            raise

    def leave(self, who: Who) -> None:
        """A call of `who` is done."""
        _take(self._working, who)
        _take(self._of_tenant, who.tenant)
        self._let_in()

    def _let_in(self) -> None:
        while self._working.total() < self._at_once:
            may = [waiter for waiter in self._waiting if self._may(waiter.who)]
            if not may:
                return
            first = min(may, key=lambda waiter: (self._of_tenant[waiter.who.tenant], self._working[waiter.who]))
            self._waiting.remove(first)
            if first.turn.cancelled():
                continue
            self._working[first.who] += 1
            self._of_tenant[first.who.tenant] += 1
            first.turn.set_result(None)

    def _may(self, who: Who) -> bool:
        return self._of_tenant[who.tenant] < self._of_one and self._working[who] < self._of_key

    def _make_room(self, who: Who) -> None:
        """Refuse the last that waits of the caller who has most places. Raises `Busy` where that is the tenant of
        `who`."""
        of_tenant, of_key = self._of_tenant.copy(), self._working.copy()
        for waiter in self._waiting:
            of_tenant[waiter.who.tenant] += 1
            of_key[waiter.who] += 1

        def had(one: Who) -> tuple[int, int]:
            return of_tenant[one.tenant], of_key[one]

        last = max(reversed(self._waiting), key=lambda waiter: had(waiter.who), default=None)
        of_tenant[who.tenant] += 1
        of_key[who] += 1
        if last is None or had(last.who) <= had(who):
            raise busy()
        self._waiting.remove(last)
        last.turn.set_exception(busy())


def _take(counter: Counter[T], one: T) -> None:
    counter[one] -= 1
    if not counter[one]:
        del counter[one]


def busy() -> Busy:
    return Busy("Nothing was done. Repeat the call in a second, with its Idempotency-Key if it has one.")
