"""Celery worker that survives malformed messages: anything but a wake-up is dropped and logged without its body.

A client that can write to the broker can only wake workers. Remote control, which could end a worker, is disabled.
"""

from collections.abc import Callable
from typing import Any

import redis
from celery.worker import consumer
from kombu.transport import redis as kombu_redis

from app import telemetry

_MALFORMED = (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError, redis.DataError)
"""Errors that the libraries raise on messages that they did not write themselves."""


class Consumer(consumer.Consumer):  # type: ignore[misc]
    """Consumer that drops messages without a valid task. Any other error in its loop counts as a lost connection."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        loop: Callable[..., None] = self.loop  # type: ignore[has-type]

        def outliving(*loop_arguments: Any) -> None:
            try:
                loop(*loop_arguments)
            except self.connection_errors:
                raise
            except Exception as error:
                telemetry.logger().error("worker.consumer_begins_anew", error=type(error).__name__)
                raise ConnectionResetError("The consumer failed") from error

        self.loop = outliving

    def create_task_handler(self, *arguments: Any, **options: Any) -> Callable[[Any], None]:
        handle = super().create_task_handler(*arguments, **options)

        def handled(message: Any) -> None:
            try:
                handle(message)
            # Even an unknown error must not end the worker.
            except Exception as error:  # noqa: BLE001
                _dropped(error)
                if not message.acknowledged:
                    message.reject()

        return handled

    def _drop(self, message: Any) -> None:
        _dropped(None)
        message.reject()

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        self._drop(message)

    def on_unknown_message(self, body: object, message: Any) -> None:
        self._drop(message)

    def on_unknown_task(self, body: object, message: Any, exc: Exception) -> None:
        self._drop(message)

    def on_invalid_task(self, body: object, message: Any, exc: Exception) -> None:
        self._drop(message)


class _Channel(kombu_redis.Channel):
    """Channel that skips malformed messages, because a message has already left its Redis list when it is parsed."""

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)  # type: ignore[no-untyped-call]
        except _MALFORMED as error:
            _dropped(error)
            return True


class RedisTransport(kombu_redis.Transport):
    Channel = _Channel


def _dropped(error: Exception | None) -> None:
    telemetry.logger().warning("worker.message_dropped", error=type(error).__name__ if error else None)
