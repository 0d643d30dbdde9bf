"""Exchange of call rates between gateways through Redis: a thread reports each gateway's counts twice a second."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from app import periodic, telemetry
from app.access.rates import Exchange, Minute, ShareRates

if TYPE_CHECKING:
    import redis

_EVERY_SECONDS = 0.5
_REDIS_SECONDS = 1.0


class RedisExchange:
    """Exchange of the call counts returned by `minute` through the Redis server at `url`."""

    def __init__(self, url: str, minute: Callable[[], Minute]) -> None:
        # Imported late, so that installations without Redis do not wait for it.
        import redis

        self._redis = redis.Redis.from_url(url, socket_timeout=_REDIS_SECONDS, socket_connect_timeout=_REDIS_SECONDS)
        self._minute = minute
        self._is_away = False
        self._sharing = periodic.Periodic("call-rates", self._share, seconds=_EVERY_SECONDS).start()

    def close(self) -> None:
        self._sharing.stop()
        self._redis.close()

    def _share(self) -> None:
        try:
            has_exchanged = _exchange(self._redis, self._minute())
        # Calls are limited by local counts even if Redis or its client raises an error.
        except Exception as error:  # noqa: BLE001
            if not self._is_away:
                telemetry.logger().warning("access.rates_not_shared", error=type(error).__name__)
            self._is_away = True
        else:
            self._is_away = self._is_away and not has_exchanged


def _shared(broker_url: str, minute: Callable[[], Minute]) -> Exchange | None:
    return RedisExchange(broker_url, minute) if broker_url.startswith(("redis://", "rediss://")) else None


def _exchange(client: "redis.Redis", minute: Minute) -> bool:
    """Report the counts of new calls to Redis, and read other gateways' counts. Return False without new calls."""
    new_calls = {key_id: calls - minute.reported.get(key_id, 0) for key_id, calls in minute.own.copy().items()}
    new_calls = {key_id: calls for key_id, calls in new_calls.items() if calls}
    if not new_calls:
        return False
    with client.pipeline(transaction=False) as pipeline:
        for key_id, calls in new_calls.items():
            name = f"lethe:calls:{minute.number}:{key_id}"
            pipeline.incrby(name, calls)
            pipeline.expire(name, 120)
        totals = pipeline.execute()[::2]
    for (key_id, calls), total in zip(new_calls.items(), totals, strict=True):
        minute.reported[key_id] = minute.reported.get(key_id, 0) + calls
        # A Redis that restarted empty reports fewer calls than this gateway counted.
        minute.elsewhere[key_id] = max(0, total - minute.reported[key_id])
    return True


SHARED_RATES: tuple[ShareRates, ...] = (_shared,)
