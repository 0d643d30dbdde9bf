"""The bell: rung by whoever has work, heard by whoever listens, missed by nobody who looks."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from app import dispatch
from app.config import Settings
from app.dispatch import CeleryNotifier, PipeNotifier


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[int]:
    descriptor = PipeNotifier(tmp_path).listen()
    yield descriptor
    os.close(descriptor)


def _waited(descriptor: int, *, seconds: float) -> float:
    started = time.monotonic()
    dispatch.wait(descriptor, seconds=seconds)
    return time.monotonic() - started


def test_settings_choose_the_bell(tmp_path: Path) -> None:
    """Without a broker the notifier is a pipe in the data folder, with a broker it is Celery's."""
    assert isinstance(dispatch.notifier(Settings(data_dir=tmp_path)), PipeNotifier)
    broker = SecretStr("redis://127.0.0.1:1/0")
    assert isinstance(dispatch.notifier(Settings(data_dir=tmp_path, broker_url=broker)), CeleryNotifier)


def test_a_ring_wakes_a_waiting_listener(tmp_path: Path, listener: int) -> None:
    """A waiting listener is woken by a ring from another process."""
    ringing = threading.Timer(0.1, PipeNotifier(tmp_path).wake)
    ringing.start()
    assert _waited(listener, seconds=30) < 10
    ringing.join()


def test_ring_before_the_wait_is_heard(tmp_path: Path, listener: int) -> None:
    """A ring while the listener is busy ends its next wait at once."""
    PipeNotifier(tmp_path).wake()
    assert _waited(listener, seconds=30) < 10


def test_many_rings_count_as_one(tmp_path: Path, listener: int) -> None:
    """Any number of rings, even more than the pipe holds, ends one wait only."""
    notifier = PipeNotifier(tmp_path)
    for _ in range(1000):
        notifier.wake()
    dispatch.wait(listener, seconds=30)
    assert _waited(listener, seconds=0.2) >= 0.2
    for _ in range(70_000):
        notifier.wake()


def test_silence_ends_the_wait_too(listener: int) -> None:
    """Without a ring a wait ends after its timeout."""
    assert 0.2 <= _waited(listener, seconds=0.2) < 10


def test_ringing_without_a_listener(tmp_path: Path) -> None:
    """Ringing does not fail before there is a listener, after it has gone, or without a data folder."""
    notifier = PipeNotifier(tmp_path)
    notifier.wake()
    os.close(notifier.listen())
    notifier.wake()
    PipeNotifier(tmp_path / "missing").wake()


def test_two_listeners_share_one_pipe(tmp_path: Path, listener: int) -> None:
    """A worker that starts while its predecessor's pipe still exists listens to the same pipe."""
    other = PipeNotifier(tmp_path).listen()
    PipeNotifier(tmp_path).wake()
    assert _waited(other, seconds=30) < 10
    os.close(other)
    assert (tmp_path / "bell").stat().st_mode & 0o777 == 0o600


def test_ringing_without_a_broker_is_quick_and_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    """If no broker answers, ringing neither fails nor blocks its caller; the log reports it without the broker's
    address."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"redis://:secret@127.0.0.1:{closed.getsockname()[1]}/0"
        started = time.monotonic()
        CeleryNotifier(url).wake()
        CeleryNotifier(url).wake()
    assert time.monotonic() - started < 10
    dispatch.celery_client(url).close()
    said = "".join(capfd.readouterr())
    assert "secret" not in said
    assert "dispatch.notification_failed" in said


@pytest.mark.soak
def test_ringing_a_silent_broker_ends(capfd: pytest.CaptureFixture[str]) -> None:
    """A broker that accepts connections and never answers blocks the caller for less than 5 s."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        waited = []
        for _ in range(3):  # the first imports what it rings with, and the machine itself may be late
            started = time.monotonic()
            CeleryNotifier(url).wake()
            waited.append(time.monotonic() - started)
    assert min(waited) < 5
    dispatch.celery_client(url).close()
    assert "dispatch.notification_failed" in "".join(capfd.readouterr())
