from collections.abc import Callable, Iterator

import pytest

from app.access.rates import Rates
from app.access.service import Caller
from lethe.contract.problems import RateLimited
from lethe.contract.tenants import Policy

Limited = Callable[..., Rates]


@pytest.fixture
def limited() -> Iterator[Limited]:
    """Return a function that creates a gateway's call counters, which are closed when the test ends."""
    made = []

    def make(calls: int = 0, *, failed: int = 0) -> Rates:
        made.append(Rates(calls_per_minute=calls, failed_calls_per_minute=failed))
        return made[-1]

    yield make
    for one in made:
        one.close()


def caller(key_id: str = "key_1", calls: int | None = None) -> Caller:
    return Caller(id=key_id, tenant_id="ten_1", scopes=frozenset(), policy=Policy(), calls_per_minute=calls)


def admitted(gateway: Rates, who: Caller, most: int = 1000) -> int:
    for number in range(most):
        try:
            gateway.count(who)
        except RateLimited:
            return number
    return most


def test_a_key_has_a_limit_per_minute(limited: Limited, minute: Callable[[int], None]) -> None:
    """A key can make a limited number of calls per minute. Each response states how many calls are left, and the count
    is reset every minute."""
    gateway = limited(3)
    left = [gateway.count(caller()) for _ in range(3)]
    assert [(one.quota, one.remaining, one.seconds) for one in left if one] == [(3, 2, 50), (3, 1, 50), (3, 0, 50)]
    with pytest.raises(RateLimited) as refusal:
        gateway.count(caller())
    assert refusal.value.retry_after == 50
    assert admitted(gateway, caller("key_2")) == 3
    minute(1001)
    assert admitted(gateway, caller()) == 3


@pytest.mark.usefixtures("minute")
@pytest.mark.parametrize(("all_keys", "this_key", "allowed"), [(0, None, 1000), (0, 2, 2), (5, 2, 2), (2, 5, 2)])
def test_a_key_can_lower_the_limit(limited: Limited, all_keys: int, this_key: int | None, allowed: int) -> None:
    """A key's own limit can be lower than the general limit but not higher; 0 means no limit."""
    assert admitted(limited(all_keys), caller(calls=this_key)) == allowed


def test_wrong_keys_are_limited_by_address(limited: Limited, minute: Callable[[int], None]) -> None:
    """After sending too many wrong keys, an address is blocked for the rest of the minute; other addresses are not."""
    gateway = limited(failed=3)
    for _ in range(3):
        gateway.admit("192.0.2.1")
        gateway.failed("192.0.2.1")
    with pytest.raises(RateLimited):
        gateway.admit("192.0.2.1")
    gateway.admit("192.0.2.2")
    minute(1001)
    gateway.admit("192.0.2.1")


@pytest.mark.usefixtures("minute")
def test_an_ipv6_network_counts_as_one_address(limited: Limited) -> None:
    """All 2^64 addresses in a host's IPv6 network count as one address; addresses in other networks are counted
    separately."""
    gateway = limited(failed=3)
    for host in ("1", "2", "ffff:1"):
        gateway.failed(f"2001:db8::{host}")
    with pytest.raises(RateLimited):
        gateway.admit("2001:db8::3")
    gateway.admit("2001:db8:0:1::3")


@pytest.mark.usefixtures("minute")
def test_counting_addresses_takes_bounded_memory(limited: Limited) -> None:
    """At most ten thousand addresses that sent wrong keys are counted individually; all further addresses share one
    counter."""
    gateway = limited(failed=3)
    for number in range(20_000):
        gateway.failed(f"10.0.{number // 256}.{number % 256}")
    assert len(gateway._minute.failed) == 10_001
    with pytest.raises(RateLimited):
        gateway.admit("192.0.2.1")
    gateway.admit("10.0.0.0")


@pytest.mark.usefixtures("minute")
def test_one_address_cannot_lock_an_account(limited: Limited) -> None:
    """Ten wrong passwords for an account block the address that sent them from that account. A hundred wrong passwords,
    from any number of addresses, block all addresses from it."""
    gateway = limited(failed=60)
    for host in range(10):
        gateway.admit("192.0.2.99", "maria")
        for _ in range(10):
            gateway.admit(f"192.0.2.{host}", "maria")
            gateway.failed(f"192.0.2.{host}", "maria")
        with pytest.raises(RateLimited):
            gateway.admit(f"192.0.2.{host}", "maria")
        gateway.admit(f"192.0.2.{host}", "ann")
    with pytest.raises(RateLimited):
        gateway.admit("192.0.2.99", "maria")
    gateway.admit("192.0.2.99", "ann")


@pytest.mark.usefixtures("minute")
def test_provider_logins_are_limited(limited: Limited) -> None:
    """An address can start a limited number of provider logins per minute, and these do not count as wrong keys."""
    gateway = limited(failed=3)
    for _ in range(3):
        gateway.count_login("192.0.2.1")
    with pytest.raises(RateLimited):
        gateway.count_login("192.0.2.1")
    gateway.admit("192.0.2.1")
    gateway.count_login("192.0.2.2")
    limited(failed=0).count_login("192.0.2.1")
