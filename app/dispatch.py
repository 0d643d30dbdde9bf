"""Notifying workers of new work. Lost or duplicate notifications are harmless, because workers read the database.

An embedded worker is notified by a byte in a named pipe in the data folder; a worker behind a broker is notified by a
feature. Both are notified at fixed ticks of the clock. A run that started together with a request would slow down the
calls that follow, and thus reveal to the caller that rows are held.
"""

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias

from app import config, telemetry
from lethe import sockets
from lethe.contract.problems import InputInvalid


class Notifier(Protocol):
    def wake(self) -> None:
        """Notify a worker. Log failures and never raise; the sweeper finds the work."""


class PipeNotifier:
    """Notifier of embedded workers. Every worker that is listening in the data folder is notified."""

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
        """Return a descriptor for `wait`. The caller must close it."""
        with contextlib.suppress(FileExistsError):
            os.mkfifo(self._path, 0o600)
        return os.open(self._path, os.O_RDWR | os.O_NONBLOCK)


def wait(descriptor: int, *, seconds: float) -> None:
    """Return after a notification, or after `seconds`. All notifications received until then count as one."""
    if select.select([descriptor], [], [], seconds)[0]:
        with contextlib.suppress(BlockingIOError):
            os.read(descriptor, 65536)


RingBroker: TypeAlias = Callable[[str], Notifier]
"""Factory of a notifier for workers behind the broker at a URL (extension socket `NOTIFIERS`)."""


class AtTicks:
    """Notifier that merges notifications and passes them on at the next tick. Ticks are multiples of `seconds` on the
    host's clock, so that requests do not affect their timing."""

    def __init__(self, notifier: Notifier, *, seconds: float) -> None:
        self.notifier = notifier
        self._seconds = seconds
        self._lock = threading.Lock()
        self._is_waiting = False

    def wake(self) -> None:
        with self._lock:
            if self._is_waiting:
                return
            self._is_waiting = True
        timer = threading.Timer(self._seconds - time.time() % self._seconds, self._notify)
        timer.daemon = True
        try:
            timer.start()
        # No thread can be started, so workers find the work when they look.
        except RuntimeError as error:
            self._is_waiting = False
            telemetry.logger().warning("dispatch.notification_failed", error=type(error).__name__)

    def _notify(self) -> None:
        # Reset before the notification, because work that is stored meanwhile needs another one.
        self._is_waiting = False
        self.notifier.wake()


def notifier(settings: config.Settings) -> AtTicks:
    """Return the notifier for `settings`: through the broker if one is configured, otherwise through the pipe."""
    if settings.broker_url is None:
        return AtTicks(PipeNotifier(settings.data_dir), seconds=settings.poll_seconds)
    notifiers: tuple[RingBroker, ...] = sockets.plugs("app.features", "notifiers", "NOTIFIERS")
    for by_broker in notifiers:
        return AtTicks(by_broker(settings.broker_url.get_secret_value()), seconds=settings.poll_seconds)
    raise InputInvalid("LETHE_BROKER_URL names a broker, for which nothing is installed; leave it out.")
