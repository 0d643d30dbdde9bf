"""The notifier: tells a worker that there may be work. Losing or doubling it changes nothing; the database is the
truth.

Embedded, it is a byte in a named pipe of the data folder; with a broker, a Celery message that carries no content.
"""

import contextlib
import os
import select
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from celery import Celery

from app import telemetry
from app.config import Settings

TASK = "lethe.work"


class Notifier(Protocol):
    def wake(self) -> None:
        """Never raises: a notification that cannot be sent is logged, and the sweeper finds the work."""


class PipeNotifier:
    """Embedded: rung by the gateway, heard by those workers of the data folder that listen just then."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / "bell"

    def wake(self) -> None:
        with contextlib.suppress(OSError):  # nobody listens yet: the worker reads the database when it starts
            descriptor = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
            try:
                os.write(descriptor, b"!")
            finally:
                os.close(descriptor)

    def listen(self) -> int:
        """A descriptor to `wait` on; the caller closes it."""
        with contextlib.suppress(FileExistsError):
            os.mkfifo(self._path, 0o600)
        return os.open(self._path, os.O_RDWR | os.O_NONBLOCK)


def wait(descriptor: int, *, seconds: float) -> None:
    """Return when a worker was notified, or after `seconds`; all notifications until now count as one."""
    if select.select([descriptor], [], [], seconds)[0]:
        with contextlib.suppress(BlockingIOError):
            os.read(descriptor, 65536)


class CeleryNotifier:
    """With a broker: any worker hears it."""

    def __init__(self, broker_url: str) -> None:
        self._celery = celery_client(broker_url)

    def wake(self) -> None:
        try:
            self._celery.send_task(TASK, ignore_result=True)
        except Exception as error:  # noqa: BLE001  whatever the broker's client raises, the request is safe
            telemetry.logger().warning("dispatch.notification_failed", error=type(error).__name__)


def notifier(settings: Settings) -> Notifier:
    """The notifier that the settings ask for."""
    if settings.broker_url is None:
        return PipeNotifier(settings.data_dir)
    return CeleryNotifier(settings.broker_url.get_secret_value())


@lru_cache
def celery_client(broker_url: str) -> Celery:
    """Celery for messages that only ever notify: no arguments, no results, and no waiting for a broker."""
    client = Celery("lethe", broker=broker_url)
    client.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        task_publish_retry=False,
        task_acks_late=False,
        worker_prefetch_multiplier=1,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        broker_transport_options={
            "max_retries": 0,  # of connecting to ring; a worker that consumes goes on trying
            "socket_connect_timeout": 2,
            "socket_timeout": 3,
            "socket_keepalive": True,
        },
    )
    return client
