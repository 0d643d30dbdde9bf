"""Notifiers: a listening worker is woken, and a missed notification does not lose work."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app import dispatch
from app.config import Settings
from app.dispatch import AtTicks, PipeNotifier


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[int]:
    descriptor = PipeNotifier(tmp_path).listen()
    yield descriptor
    os.close(descriptor)


def _waited(descriptor: int, *, seconds: float) -> float:
    started = time.monotonic()
    dispatch.wait(descriptor, seconds=seconds)
    return time.monotonic() - started


def test_the_notifier_is_a_pipe_without_a_broker(tmp_path: Path) -> None:
    """Without a broker, the notifier is a pipe in the data folder."""
    assert isinstance(dispatch.notifier(Settings(data_dir=tmp_path)).notifier, PipeNotifier)


def test_a_notification_wakes_a_waiting_listener(tmp_path: Path, listener: int) -> None:
    """A waiting listener is woken by a notification from another process."""
    ringing = threading.Timer(0.1, PipeNotifier(tmp_path).wake)
    ringing.start()
    assert _waited(listener, seconds=30) < 10
    ringing.join()


def test_a_notification_before_the_wait_is_not_lost(tmp_path: Path, listener: int) -> None:
    """If a notification arrives while the listener is busy, the listener's next wait ends at once."""
    PipeNotifier(tmp_path).wake()
    assert _waited(listener, seconds=30) < 10


def test_many_notifications_end_one_wait(tmp_path: Path, listener: int) -> None:
    """Any number of notifications, even more than the pipe can buffer, ends only one wait."""
    notifier = PipeNotifier(tmp_path)
    for _ in range(1000):
        notifier.wake()
    dispatch.wait(listener, seconds=30)
    assert _waited(listener, seconds=0.2) >= 0.2
    for _ in range(70_000):
        notifier.wake()


def test_a_wait_times_out(listener: int) -> None:
    """A wait without a notification ends after its timeout."""
    assert 0.2 <= _waited(listener, seconds=0.2) < 10


def test_notifying_without_a_listener_succeeds(tmp_path: Path) -> None:
    """Sending a notification succeeds even if no listener has started, the listener has exited, or there is no
    data folder."""
    notifier = PipeNotifier(tmp_path)
    notifier.wake()
    os.close(notifier.listen())
    notifier.wake()
    PipeNotifier(tmp_path / "missing").wake()


@pytest.mark.slow
def test_notifications_are_delayed_to_the_next_tick(tmp_path: Path, listener: int) -> None:
    """Notifications sent at any time wake the listener only once, and not before the next multiple of the interval on
    the clock."""
    notifier = AtTicks(PipeNotifier(tmp_path), seconds=0.5)
    for pause in (0.0, 0.13, 0.29):
        time.sleep(pause)
        tick = time.time() // 0.5 + 1
        notifier.wake()
        notifier.wake()
        dispatch.wait(listener, seconds=30)
        assert time.time() >= 0.5 * tick - 0.01
    assert _waited(listener, seconds=0.6) >= 0.6


def test_the_poll_interval_determines_the_ticks(tmp_path: Path, listener: int) -> None:
    """Notifications about requests are delayed to the next multiple of LETHE_POLL_SECONDS."""
    began = time.time()
    dispatch.notifier(Settings(data_dir=tmp_path, poll_seconds=0.7)).wake()
    dispatch.wait(listener, seconds=30)
    assert time.time() // 0.7 > began // 0.7


def test_two_listeners_share_one_pipe(tmp_path: Path, listener: int) -> None:
    """A worker that starts while its predecessor's pipe still exists listens to the same pipe."""
    other = PipeNotifier(tmp_path).listen()
    PipeNotifier(tmp_path).wake()
    assert _waited(other, seconds=30) < 10
    os.close(other)
    assert (tmp_path / "bell").stat().st_mode & 0o777 == 0o600
