"""Rate limits: the calls that a key makes in a minute of the clock, and the wrong keys that come from an address.

Every gateway counts for itself, which costs microseconds, and where there is a Redis a thread tells it what was counted
and hears what the other gateways did, twice a second: no call ever waits for Redis, and while that is away each gateway
limits by what it counts alone.
"""

import contextlib
import ipaddress
import time
from dataclasses import dataclass, field

import redis

from app import telemetry
from app.access.service import Caller
from app.periodic import Periodic
from lethe.contract.problems import RateLimited

_SHARED_EVERY_SECONDS = 0.5
_REDIS_SECONDS = 1.0
_MOST_PASSWORDS = 10
"""Wrong ones for an account in a minute, from one address: nobody keeps somebody out who comes from another."""
_MOST_OF_ACCOUNT = 100
"""Wrong ones for an account in a minute, from whatever addresses."""
_MOST_ADDRESSES = 10_000
"""Those that come later in the same minute are counted as one: memory has a bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The rest of a minute: a key may make `remaining` of its `quota` calls in the next `seconds`."""

    quota: int
    remaining: int
    seconds: int


@dataclass(slots=True)
class _Minute:
    """The counts of one minute. The event loop counts `here` and the thread keeps the others, each by operations that
    nothing can come between: no call waits for a lock that a waiting thread holds."""

    number: int
    here: dict[str, int] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)
    elsewhere: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)


class Rates:
    """The counts of one process, whose methods are called in its event loop. A limit of 0 is none.

    `redis_url`: where gateways tell each other what they counted.
    """

    def __init__(self, *, calls_per_minute: int, failed_calls_per_minute: int, redis_url: str | None = None) -> None:
        self._quota = calls_per_minute
        self._most_failed = failed_calls_per_minute
        self._minute = _Minute(_present())
        self._is_redis_away = False
        self._sharing: Periodic | None = None
        if redis_url is not None and redis_url.startswith(("redis://", "rediss://")):
            self._redis = redis.Redis.from_url(
                redis_url, socket_timeout=_REDIS_SECONDS, socket_connect_timeout=_REDIS_SECONDS
            )
            self._sharing = Periodic("call-rates", self._share, seconds=_SHARED_EVERY_SECONDS).start()

    def count(self, caller: Caller) -> Window | None:
        """Count a call; None if its key has no limit. Raises `RateLimited`."""
        quota = min(filter(None, (caller.calls_per_minute, self._quota)), default=0)
        if not quota:
            return None
        minute = self._this_minute()
        calls = minute.here[caller.id] = minute.here.get(caller.id, 0) + 1
        remaining = quota - calls - minute.elsewhere.get(caller.id, 0)
        if remaining < 0:
            raise _limited(f"This key may make {quota} calls in a minute.")
        return Window(quota=quota, remaining=remaining, seconds=_seconds_left())

    def admit(self, address: str, account: str | None = None) -> None:
        """Require that a key that is not known may be tried from `address`, or a password for `account`. Raises
        `RateLimited`."""
        failed, network = self._this_minute().failed, _network(address)
        if not self._most_failed:
            return
        if failed.get(_place(failed, network), 0) >= self._most_failed:
            raise _limited("Too many calls with wrong keys came from this address.")
        if account is None:
            return
        most = min(self._most_failed, _MOST_PASSWORDS)
        is_over = failed.get(_place(failed, f"{account} {network}"), 0) >= most
        if is_over or failed.get(_place(failed, account), 0) >= _MOST_OF_ACCOUNT:
            raise _limited("Too many wrong passwords came for this account.")

    def count_login(self, address: str) -> None:
        """Count a login that begins at an identity provider, which may have to be asked. Raises `RateLimited`."""
        failed = self._this_minute().failed
        place = _place(failed, f"begun {_network(address)}")
        if self._most_failed and failed.get(place, 0) >= self._most_failed:
            raise _limited("Too many logins were begun from this address.")
        failed[place] = failed.get(place, 0) + 1

    def failed(self, address: str, account: str | None = None) -> None:
        """A wrong key came from `address`, or a wrong password for `account`."""
        failed, network = self._this_minute().failed, _network(address)
        names = [network] if account is None else [network, account, f"{account} {network}"]
        for place in [_place(failed, name) for name in names]:
            failed[place] = failed.get(place, 0) + 1

    def close(self) -> None:
        if self._sharing is not None:
            self._sharing.stop()
            self._redis.close()

    def _this_minute(self) -> _Minute:
        if self._minute.number != _present():
            self._minute = _Minute(_present())
        return self._minute

    def _share(self) -> None:
        try:
            told = _tell(self._redis, self._minute)
        except Exception as error:  # noqa: BLE001  whatever Redis or its client does, calls are limited here
            if not self._is_redis_away:
                telemetry.logger().warning("access.rates_not_shared", error=type(error).__name__)
            self._is_redis_away = True
        else:
            self._is_redis_away = self._is_redis_away and not told


def _tell(client: redis.Redis, minute: _Minute) -> bool:
    """Add to Redis what is new here, and keep what the others added; whether there was anything new."""
    news = {key_id: calls - minute.told.get(key_id, 0) for key_id, calls in minute.here.copy().items()}
    news = {key_id: calls for key_id, calls in news.items() if calls}
    if not news:
        return False
    with client.pipeline(transaction=False) as pipeline:
        for key_id, calls in news.items():
            name = f"lethe:calls:{minute.number}:{key_id}"
            pipeline.incrby(name, calls)
            pipeline.expire(name, 120)
        totals = pipeline.execute()[::2]
    for (key_id, calls), total in zip(news.items(), totals, strict=True):
        minute.told[key_id] = minute.told.get(key_id, 0) + calls
        minute.elsewhere[key_id] = max(0, total - minute.told[key_id])  # a Redis that came back empty knows less
    return True


def _network(address: str) -> str:
    """The network that an address is counted as: a holder of one of IPv6 has 2^64 of them."""
    if ":" in address:
        with contextlib.suppress(ValueError):
            return str(ipaddress.ip_network((address, 64), strict=False))
    return address


def _place(failed: dict[str, int], name: str) -> str:
    """The name that something is counted under; memory has a bound."""
    return name if name in failed or len(failed) < _MOST_ADDRESSES else "others"


def _limited(detail: str) -> RateLimited:
    seconds = _seconds_left()
    return RateLimited(f"{detail} Repeat the call in {seconds} s.", retry_after=seconds)


def _present() -> int:
    return int(time.time()) // 60


def _seconds_left() -> int:
    return 60 - int(time.time()) % 60
