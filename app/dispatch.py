"""Notifications of workers about new work. Lost or duplicate notifications are harmless, because workers read the
database.

An embedded worker is notified by a byte in a named pipe of the data folder, others by an empty Celery message.
"""

import contextlib
import os
import select
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from app import telemetry
from app.config import Settings

if TYPE_CHECKING:
    from celery import Celery

TASK = "lethe.work"


class Notifier(Protocol):
    def wake(self) -> None:
        """Notify a worker. Log failures and never raise; the sweeper finds the work."""


class PipeNotifier:
    """Notifier of embedded workers. Workers of the data folder that are listening get the notification."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / "bell"

    def wake(self) -> None:
        # If no worker is listening yet, it will read the database at its start.
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
            try:
                os.write(descriptor, b"!")
            finally:
                os.close(descriptor)

    def listen(self) -> int:
        """Return a descriptor for `wait`, which the caller closes."""
        with contextlib.suppress(FileExistsError):
            os.mkfifo(self._path, 0o600)
        return os.open(self._path, os.O_RDWR | os.O_NONBLOCK)


def wait(descriptor: int, *, seconds: float) -> None:
    """Return after a notification, or after `seconds`. All notifications until then count as one."""
    if select.select([descriptor], [], [], seconds)[0]:
        with contextlib.suppress(BlockingIOError):
            os.read(descriptor, 65536)


class CeleryNotifier:
    """Notifier of workers on a broker, one of which gets the notification."""

    def __init__(self, broker_url: str) -> None:
        self._celery = celery_client(broker_url)

    def wake(self) -> None:
        try:
            self._celery.send_task(TASK, ignore_result=True)
        # The request is stored, whatever the broker's client raises.
        except Exception as error:  # noqa: BLE001
            telemetry.logger().warning("dispatch.notification_failed", error=type(error).__name__)


def notifier(settings: Settings) -> Notifier:
    """Return the notifier for the settings: by a broker if one is configured, otherwise by the pipe."""
    if settings.broker_url is None:
        return PipeNotifier(settings.data_dir)
    return CeleryNotifier(settings.broker_url.get_secret_value())


@lru_cache
def celery_client(broker_url: str) -> "Celery":
    """Return a Celery client for notifications only, without arguments, results or retries."""
    # Installations without a broker need not wait for the import.
    from celery import Celery

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
            # Applies to publishing; a consuming worker continues to reconnect.
            "max_retries": 0,
            "socket_connect_timeout": 2,
            "socket_timeout": 3,
            "socket_keepalive": True,
        },
    )
    return client
