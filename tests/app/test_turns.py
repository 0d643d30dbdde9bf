"""The order in which waiting calls begin, and how tenants share the available places."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from app.turns import NoTurn, Turns
from tests.threads import num_waiting


def begun(turns: dict[str, Future[None]]) -> list[str]:
    return [name for name, turn in turns.items() if turn.done()]


def test_tenants_are_served_round_robin() -> None:
    """If a tenant has many waiting calls, they are served in order, and at most one of them is served between
    two calls of another tenant."""
    turns = Turns()
    asked = {name: turns.ask(name[0]) for name in ("a1", "a2", "a3", "a4", "b1", "c1", "b2")}
    order = []
    for _ in asked:
        [name] = [name for name in begun(asked) if name not in order]
        order.append(name)
        turns.end(name[0], asked[name])
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]


def test_a_new_caller_is_served_before_the_current_tenants_next_call() -> None:
    """A caller that arrives while a tenant is being served goes before that tenant's next call."""
    turns = Turns()
    first, second = turns.ask("a"), turns.ask("a")
    other = turns.ask("b")
    turns.end("a", first)
    assert (second.done(), other.done()) == (False, True)


def test_a_tenant_leaves_places_for_others() -> None:
    """When a tenant occupies as many places as it is allowed, the remaining places are left to other tenants, whose
    calls begin at once."""
    turns = Turns(3, of_one=2)
    asked = {name: turns.ask(name[0]) for name in ("a1", "a2", "a3", "b1", "b2")}
    assert begun(asked) == ["a1", "a2", "b1"]
    turns.end("a", asked["a1"])
    assert begun(asked) == ["a1", "a2", "b1", "b2"]
    turns.end("b", asked["b1"])
    assert begun(asked) == ["a1", "a2", "a3", "b1", "b2"]


def test_a_caller_that_gives_up_is_skipped() -> None:
    """A caller that gives up or waits too long leaves the queue without delaying the others, and a timeout is
    reported."""
    turns = Turns()
    first, second, third = (turns.ask("a") for _ in range(3))
    with pytest.raises(NoTurn), turns.taken("b", seconds=0.0):
        pass
    turns.end("a", second)
    assert num_waiting(turns) == 1
    turns.end("a", first)
    assert third.done()
    turns.end("a", third)
    with turns.taken("b", seconds=0.0):
        assert num_waiting(turns) == 0


def test_callers_that_give_up_leave_no_state() -> None:
    """Tenants that immediately give up waiting while all places are taken leave no state behind."""
    turns = Turns()
    with turns.taken("a"):
        for number in range(10):
            asked = turns.ask(f"b{number}")
            turns.end(f"b{number}", asked)
        assert num_waiting(turns) == 0


def test_a_thread_cannot_hold_one_place_and_wait_for_another() -> None:
    """A thread that holds a place and requests another is immediately refused the second place, and keeps the first
    until it ends."""
    turns = Turns()
    with turns.taken("a"):
        with pytest.raises(RuntimeError, match="holds a turn"), turns.taken("b", seconds=30.0):
            pass
        with pytest.raises(RuntimeError, match="holds a turn"), turns.taken("b", seconds=30.0):
            pass
        other = turns.ask("c")
        assert not other.done()
        turns.end("c", other)
    with turns.taken("a", seconds=1.0):
        pass


def test_limits_on_concurrent_threads_are_kept() -> None:
    """No more threads than allowed hold a place at the same time, no tenant exceeds its share, and every thread is
    eventually served."""
    turns, lock = Turns(2, of_one=1), threading.Lock()
    at_work: list[str] = []
    most: list[int] = []

    def work(number: int) -> None:
        tenant = "abc"[number % 3]
        with turns.taken(tenant):
            with lock:
                at_work.append(tenant)
                most.append(len(at_work))
                assert at_work.count(tenant) == 1
            with lock:
                at_work.remove(tenant)

    with ThreadPoolExecutor(12) as threads:
        list(threads.map(work, range(300)))
    assert len(most) == 300
    assert max(most) <= 2
    assert num_waiting(turns) == 0
