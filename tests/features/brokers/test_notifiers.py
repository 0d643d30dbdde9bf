"""The broker's notifier: which settings select it, and how callers behave if the broker is unreachable."""

import socket
import time
from pathlib import Path

import pytest
from pydantic import SecretStr

from app import dispatch
from app.config import Settings
from app.features.brokers import notifiers
from app.features.brokers.notifiers import CeleryNotifier
from lethe import sockets
from lethe.contract.problems import InputInvalid


def test_the_broker_determines_the_notifier(tmp_path: Path) -> None:
    """The Celery notifier is used if a broker is configured."""
    broker = SecretStr("redis://127.0.0.1:1/0")
    assert isinstance(dispatch.notifier(Settings(data_dir=tmp_path, broker_url=broker)).notifier, CeleryNotifier)


def test_a_broker_without_its_feature_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a broker is configured but its optional feature is not installed, an error names the setting."""
    monkeypatch.setattr(sockets, "plugs", lambda *socket: ())
    with pytest.raises(InputInvalid, match="LETHE_BROKER_URL"):
        dispatch.notifier(Settings(data_dir=tmp_path, broker_url=SecretStr("redis://127.0.0.1:1/0")))


def test_notifying_without_a_broker_does_not_block(capfd: pytest.CaptureFixture[str]) -> None:
    """Notifying an unreachable broker neither raises an error nor blocks the caller. The log reports the failure
    without the broker's address."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"redis://:secret@127.0.0.1:{closed.getsockname()[1]}/0"
        started = time.monotonic()
        CeleryNotifier(url).wake()
        CeleryNotifier(url).wake()
    assert time.monotonic() - started < 60
    notifiers.celery_client(url).close()
    said = "".join(capfd.readouterr())
    assert "secret" not in said
    assert "dispatch.notification_failed" in said


@pytest.mark.soak
def test_notifying_a_silent_broker_times_out(capfd: pytest.CaptureFixture[str]) -> None:
    """Notifying a broker that accepts connections but never answers blocks the caller for less than 5 s."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        waited = []
        # The first call imports its client, and another may be slow because the machine is busy.
        for _ in range(3):
            started = time.monotonic()
            CeleryNotifier(url).wake()
            waited.append(time.monotonic() - started)
    assert min(waited) < 5
    notifiers.celery_client(url).close()
    assert "dispatch.notification_failed" in "".join(capfd.readouterr())
