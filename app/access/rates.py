"""Rate limits: calls per API key and clock minute, and wrong keys per network address.

Each gateway counts in memory, which takes microseconds. With a broker, a feature exchanges the gateways' counts (the
`SHARED_RATES` socket). No call waits for the exchange. Until counts are exchanged, each gateway uses its own.
"""

import contextlib
import ipaddress
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from app.access.service import Caller
from lethe import sockets
from lethe.contract.problems import RateLimited, Sentence

_MAX_WRONG_PASSWORDS = 10
"""Maximum number of wrong passwords per minute for one account from one address. Other addresses are not locked out."""
_MAX_WRONG_PASSWORDS_OF_ACCOUNT = 100
"""Maximum number of wrong passwords per minute for one account from all addresses together."""
_OWN_SHARE = 10
"""Each gateway admits at least 1/`_OWN_SHARE` of a quota, so that a wrong shared count cannot lock a key out."""
_MAX_ADDRESSES = 10_000
"""Maximum number of addresses and accounts counted separately per minute. The rest share one count, to bound memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateWindow:
    """Calls that a key may still make: `remaining` out of its `quota`, within the `seconds` left in the minute."""

    quota: int
    remaining: int
    seconds: int


@dataclass(slots=True)
class Minute:
    """Counts for one minute, keyed by API key or by `_place`. The event loop updates `own` and `failed`; the exchange
    updates `reported` (own calls that the broker knows of) and `elsewhere` (calls at other gateways). Each update is
    atomic, so that no lock is needed and no call ever waits for one."""

    number: int
    own: dict[str, int] = field(default_factory=dict)
    reported: dict[str, int] = field(default_factory=dict)
    elsewhere: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)


class Exchange(Protocol):
    """Running exchange of call counts between this gateway and the others. `close` ends it."""

    def close(self) -> None: ...


ShareRates: TypeAlias = Callable[[str, Callable[[], Minute]], Exchange | None]
"""Start exchanging the current minute's counts through a broker, given its URL; return None if it stores no counts."""


class Rates:
    """Call counts of one process, used only from its event loop. A limit of 0 means no limit. Gateways exchange their
    counts through the broker at `broker_url`."""

    def __init__(self, *, calls_per_minute: int, failed_calls_per_minute: int, broker_url: str | None = None) -> None:
        self._quota = calls_per_minute
        self._most_failed = failed_calls_per_minute
        self._minute = Minute(_present())
        shares: tuple[ShareRates, ...] = sockets.plugs("app.features", "hooks", "SHARED_RATES") if broker_url else ()
        begun = [share(broker_url or "", lambda: self._minute) for share in shares]
        self._exchanges = [exchange for exchange in begun if exchange is not None]

    def count(self, caller: Caller) -> RateWindow | None:
        """Count a call and return its key's rate window, or None if the key has no limit. Raises `RateLimited`."""
        quota = min(filter(None, (caller.calls_per_minute, self._quota)), default=0)
        if not quota:
            return None
        minute = self._this_minute()
        calls = minute.own[caller.id] = minute.own.get(caller.id, 0) + 1
        # A tenth of the quota is left to this gateway, regardless of the counts of others.
        elsewhere = min(minute.elsewhere.get(caller.id, 0), quota - -(-quota // _OWN_SHARE))
        remaining = quota - calls - elsewhere
        if remaining < 0:
            raise _limited(Sentence("This key may make {quota} calls in a minute.", quota=quota))
        return RateWindow(quota=quota, remaining=remaining, seconds=_seconds_left())

    def admit(self, address: str, account: str | None = None) -> None:
        """Check that `address` may try an unknown key, or a password for `account`. Raises `RateLimited`."""
        failed, network = self._this_minute().failed, _network(address)
        if not self._most_failed:
            return
        if failed.get(_place(failed, network), 0) >= self._most_failed:
            raise _limited(Sentence("Too many calls with wrong keys came from this address."))
        if account is None:
            return
        most = min(self._most_failed, _MAX_WRONG_PASSWORDS)
        is_over = failed.get(_place(failed, f"{account} {network}"), 0) >= most
        if is_over or failed.get(_place(failed, account), 0) >= _MAX_WRONG_PASSWORDS_OF_ACCOUNT:
            raise _limited(Sentence("Too many wrong passwords came for this account."))

    def count_login(self, address: str) -> None:
        """Count the start of a login, because it may cause a request to the identity provider. Raises `RateLimited`."""
        failed = self._this_minute().failed
        place = _place(failed, f"begun {_network(address)}")
        if self._most_failed and failed.get(place, 0) >= self._most_failed:
            raise _limited(Sentence("Too many logins were begun from this address."))
        failed[place] = failed.get(place, 0) + 1

    def failed(self, address: str, account: str | None = None) -> None:
        """Count a wrong key from `address`, or a wrong password for `account`."""
        failed, network = self._this_minute().failed, _network(address)
        names = [network] if account is None else [network, account, f"{account} {network}"]
        for place in [_place(failed, name) for name in names]:
            failed[place] = failed.get(place, 0) + 1

    def close(self) -> None:
        for exchange in self._exchanges:
            exchange.close()

    def _this_minute(self) -> Minute:
        if self._minute.number != _present():
            self._minute = Minute(_present())
        return self._minute


def _network(address: str) -> str:
    """Return the network under which calls from an address are counted. IPv6 addresses are grouped by /64, because one
    subscriber has 2^64 addresses."""
    if ":" in address:
        with contextlib.suppress(ValueError):
            return str(ipaddress.ip_network((address, 64), strict=False))
    return address


def _place(failed: dict[str, int], name: str) -> str:
    """Return the key under which to count `name`. To bound memory, new names beyond `_MAX_ADDRESSES` share "others"."""
    return name if name in failed or len(failed) < _MAX_ADDRESSES else "others"


def _limited(reason: Sentence) -> RateLimited:
    seconds = _seconds_left()
    return RateLimited(retry_after=seconds, reason=reason, seconds=seconds)


def _present() -> int:
    return int(time.time()) // 60


def _seconds_left() -> int:
    return 60 - int(time.time()) % 60
