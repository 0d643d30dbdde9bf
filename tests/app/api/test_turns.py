"""Whose turn it is: fair to tenants and to keys, whatever the machine."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from app.api.turns import Turns, Who
from lethe.contract.problems import Busy
from tests.threads import apart

BUSY, QUIET = Who("ten_busy", "key_1"), Who("ten_quiet", "key_2")


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def in_time() -> None:
        await asyncio.wait_for(story(), 60)

    apart(asyncio.run, in_time())


def test_a_quiet_tenant_does_not_wait_for_a_busy_one() -> None:
    """Beside a tenant with 195 clients all five calls of another are done within the next two rounds."""

    async def story() -> None:
        turns = Turns(at_once=16, of_one=16, places=200)
        done: list[str] = []

        async def call(who: Who) -> None:
            await turns.enter(who)
            done.append(who.tenant)
            await asyncio.sleep(0)
            turns.leave(who)

        crowd = [asyncio.create_task(call(BUSY)) for _ in range(195)]
        await asyncio.sleep(0)  # sixteen are at work, 179 wait
        few = [asyncio.create_task(call(QUIET)) for _ in range(5)]
        await asyncio.gather(*crowd, *few)
        assert max(index for index, tenant in enumerate(done) if tenant == QUIET.tenant) < 3 * 16

    run(story)


def test_a_tenant_leaves_room_for_others() -> None:
    """However much one tenant asks for, a call of another is at work at once."""

    async def story() -> None:
        turns = Turns(at_once=4, of_one=3, places=100)
        crowd = [asyncio.create_task(turns.enter(BUSY)) for _ in range(50)]
        await _settled()
        assert sum(task.done() for task in crowd) == 3
        await asyncio.wait_for(turns.enter(QUIET), 1)
        for task in crowd:
            task.cancel()

    run(story)


def test_keys_of_a_tenant_share_its_turns() -> None:
    """Among the calls of one tenant those of the key with fewest at work come first."""

    async def story() -> None:
        turns = Turns(at_once=4, of_one=4, places=100)
        other = Who(BUSY.tenant, "key_9")
        crowd = [asyncio.create_task(turns.enter(BUSY)) for _ in range(20)]
        await _settled()
        late = asyncio.create_task(turns.enter(other))
        await _settled()
        assert not late.done()
        turns.leave(BUSY)
        await _settled()
        assert late.done()
        for task in crowd:
            task.cancel()

    run(story)


def test_who_has_most_is_refused_first() -> None:
    """Where there is no place, the last that waits of whoever has most makes room for whoever has fewer."""

    async def story() -> None:
        turns = Turns(at_once=2, of_one=2, places=10)
        crowd = [asyncio.create_task(turns.enter(BUSY)) for _ in range(10)]
        await _settled()
        assert turns.is_full
        with pytest.raises(Busy):
            await turns.enter(BUSY)
        few = [asyncio.create_task(turns.enter(QUIET)) for _ in range(4)]
        await _settled()
        assert [task.done() and isinstance(task.exception(), Busy) for task in crowd] == [False] * 6 + [True] * 4
        assert not any(task.done() for task in few)
        for task in (*crowd, *few):
            task.cancel()

    run(story)


def test_who_goes_leaves_nothing_behind() -> None:
    """A caller who goes while they wait, or just when it is their turn, keeps no turn from others."""

    async def story() -> None:
        turns = Turns(at_once=1, of_one=1, places=10)
        await turns.enter(BUSY)
        waits, next_one = (asyncio.create_task(turns.enter(QUIET)) for _ in range(2))
        await _settled()
        waits.cancel()
        turns.leave(BUSY)  # the turn is given to the second, who goes before they know
        next_one.cancel()
        await asyncio.gather(waits, next_one, return_exceptions=True)
        await asyncio.wait_for(turns.enter(BUSY), 1)
        turns.leave(BUSY)
        assert Counter(vars(turns)["_working"]) == Counter()
        assert not turns.is_full

    run(story)
