import itertools
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from app.access.rates import Rates
from lethe.contract.problems import RateLimited
from tests.app.access.test_rates import admitted, caller
from tests.faults import processes
from tests.faults.processes import wait_until

Limited = Callable[..., Rates]


@pytest.fixture
def limited() -> Iterator[Limited]:
    """Yield a function that creates a gateway's call counters. All counters are closed when the test ends."""
    made = []

    def make(calls: int = 0, *, failed: int = 0, redis_url: str | None = None) -> Rates:
        made.append(Rates(calls_per_minute=calls, failed_calls_per_minute=failed, broker_url=redis_url))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[processes.Redis]:
    started = processes.Redis(tmp_path)
    yield started
    started.kill()


@pytest.mark.redis
def test_gateways_share_their_counts(limited: Limited, server: processes.Redis, minute: Callable[[int], None]) -> None:
    """Calls at one gateway reduce a key's remaining calls at the other gateway within a second. Redis stores only ids
    and numbers."""
    minute(1000)
    one, other = limited(100, redis_url=server.url), limited(100, redis_url=server.url)
    assert admitted(one, caller(), 60) == 60
    wait_until(lambda: one._minute.reported.get("key_1") == 60)
    other.count(caller())
    wait_until(lambda: other._minute.elsewhere.get("key_1") == 60)
    assert admitted(other, caller()) == 39
    one.count(caller("key_2"))
    # The gateway reads the other gateway's counts with its own next call.
    with pytest.raises(RateLimited):
        wait_until(lambda: one.count(caller()) and time.sleep(0.1))
    with redis.Redis(port=server.port) as client:
        assert set(client.keys()) == {b"lethe:calls:1000:key_1", b"lethe:calls:1000:key_2"}
        assert 0 < client.ttl("lethe:calls:1000:key_1") <= 120


@pytest.mark.redis
def test_forged_counts_do_not_lock_out_a_key(
    limited: Limited, server: processes.Redis, minute: Callable[[int], None]
) -> None:
    """If an attacker forges a key's count in Redis, the key can still use a tenth of its quota at each gateway."""
    minute(1000)
    gateway = limited(100, redis_url=server.url)
    with redis.Redis(port=server.port) as client:
        client.set("lethe:calls:1000:key_1", 10**9)
    gateway.count(caller())
    wait_until(lambda: gateway._minute.elsewhere.get("key_1") == 10**9)
    assert admitted(gateway, caller()) == 9


@pytest.mark.soak
@pytest.mark.redis
@pytest.mark.parametrize("failure", ["killed", "silent"])
def test_a_dead_redis_does_not_slow_calls(limited: Limited, server: processes.Redis, failure: str) -> None:
    """While Redis is down or silent, each gateway counts and limits its own calls at full speed. Once Redis is back,
    the counts are shared again."""
    gateway = limited(10**9, redis_url=server.url)
    gateway.count(caller())
    wait_until(lambda: gateway._minute.reported)
    if failure == "killed":
        server.kill()
    else:
        server.process.send_signal(signal.SIGSTOP)
    slow, ends = 0, time.monotonic() + 2.5
    for calls in itertools.count(1):  # noqa: B007
        began = time.perf_counter()
        gateway.count(caller())
        slow += time.perf_counter() - began > 0.9
        if time.monotonic() > ends:
            break
        time.sleep(0.001)
    # One call may be slow because the machine is busy. A timeout of Redis would take a second per call.
    assert (calls > 50, slow <= 1) == (True, True)
    assert admitted(limited(10, redis_url=server.url), caller("key_2")) == 10
    if failure == "killed":
        server.start()
    else:
        server.process.send_signal(signal.SIGCONT)
    gateway.count(caller("key_3"))
    with redis.Redis(port=server.port) as client:
        wait_until(lambda: any(name.endswith(b":key_3") for name in client.scan_iter()), seconds=60)


@pytest.mark.redis
def test_a_gateway_closes_while_redis_is_silent(limited: Limited, server: processes.Redis) -> None:
    """A gateway shuts down within a few seconds even if Redis does not answer."""
    gateway = limited(10, redis_url=server.url)
    gateway.count(caller())
    server.process.send_signal(signal.SIGSTOP)
    time.sleep(0.7)
    began = time.monotonic()
    gateway.close()
    assert time.monotonic() - began < 60
    server.process.send_signal(signal.SIGCONT)
