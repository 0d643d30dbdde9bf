"""Fair sharing among tenants of work that only a few threads may do at a time."""

import threading
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager


class NoTurn(TimeoutError):
    """Error for a turn that did not begin in time."""


class Turns:
    """Turns for threads and coroutines: at most `at_once` at a time, and at most `of_one` per tenant.

    Waiting tenants are served round-robin, however many turns each is waiting for: between two turns of a tenant, every
    other waiting tenant gets one. A tenant's own turns begin in the order in which they were requested.

    A thread that holds a turn cannot wait for another turn of the same instance, because the second might never begin.
    """

    def __init__(self, at_once: int = 1, *, of_one: int = 1) -> None:
        self._at_once = at_once
        self._of_one = of_one
        self._lock = threading.Lock()
        # The order of the keys is the order in which tenants are served.
        self._waiting: dict[str, deque[Future[None]]] = {}
        self._taken: Counter[str] = Counter()
        self._holding = threading.local()

    @contextmanager
    def taken(self, tenant: str, *, seconds: float | None = None) -> Iterator[None]:
        """Wait for a turn, and hold it during the block. Raises `NoTurn` if it does not begin within `seconds`, and
        `RuntimeError` if this thread already holds one."""
        if getattr(self._holding, "turn", None):
            raise RuntimeError("This thread holds a turn already; end it before the next.")
        turn = self.ask(tenant)
        try:
            if not (turn.done() or wait([turn], seconds).done):
                raise NoTurn
            self._holding.turn = turn
            yield
        finally:
            self._holding.turn = None
            self.end(tenant, turn)

    def ask(self, tenant: str) -> Future[None]:
        """Return a future that is done when the turn begins. The caller must `end` it, whether or not it has begun."""
        turn: Future[None] = Future()
        with self._lock:
            self._waiting.setdefault(tenant, deque()).append(turn)
            self._begin_next()
        return turn

    def end(self, tenant: str, turn: Future[None]) -> None:
        """End a turn, or stop waiting for it."""
        with self._lock:
            if turn.cancel():
                # Abandoned turns would accumulate until a turn of their tenant begins.
                waiting = self._waiting.get(tenant)
                if waiting and turn in waiting:
                    waiting.remove(turn)
                    if not waiting:
                        del self._waiting[tenant]
            else:
                # Tenants that asked during this turn come before the next turn of its tenant.
                if waiting := self._waiting.pop(tenant, None):
                    self._waiting[tenant] = waiting
                # Counts of zero would accumulate, one for each tenant.
                self._taken[tenant] -= 1
                if not self._taken[tenant]:
                    del self._taken[tenant]
            self._begin_next()

    def _begin_next(self) -> None:
        while self._taken.total() < self._at_once:
            tenant = next((name for name in self._waiting if self._taken[name] < self._of_one), None)
            if tenant is None:
                return
            turns = self._waiting.pop(tenant)
            turn = turns.popleft()
            if turns:
                self._waiting[tenant] = turns
            if turn.set_running_or_notify_cancel():
                self._taken[tenant] += 1
                turn.set_result(None)
