import socket
import time
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from app import installations
from app.config import Settings
from app.main import create_app
from tests import servers
from tests.faults.processes import wait_until
from tests.postgres import server
from tests.servers import serving

pytestmark = pytest.mark.postgres


def test_a_delivery_during_an_outage_is_recorded_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A delivery that reaches its receiver while the database is down is recorded as soon as the database is available
    again, and is not repeated. The log reports the outage once."""
    with server.running() as mortal, mortal.database() as name:
        settings = Settings(
            data_dir=tmp_path / "data",
            database_url=SecretStr(mortal.url(name)),
            webhook_allowed_networks="127.0.0.0/8",
            webhook_timeout_seconds=60.0,
        )
        installations.set_up(settings)
        key = settings.resolved_admin_key_file().read_text().strip()

        def answer(connection: socket.socket) -> None:
            if len(receiver.calls) == 1:
                mortal.stop()
            servers.status(200)(connection)

        headers = {"Authorization": f"Bearer {key}"}
        with serving(answer) as receiver, TestClient(create_app(settings), headers=headers) as gateway:
            asked = {"subject_id": "nobody", "callback_url": f"http://127.0.0.1:{receiver.port}/hook"}
            assert gateway.post("/v1/deletion-requests", json=asked).status_code == 202
            logged = ""

            def is_noticed() -> bool:
                nonlocal logged
                logged += capfd.readouterr().err
                return '"webhooks.database_unavailable"' in logged

            wait_until(is_noticed)
            # The dispatcher polls every second.
            time.sleep(3)
            mortal.start()

            def all_delivered() -> bool:
                items = gateway.get("/v1/webhook-deliveries").json()["items"]
                return [item["status"] for item in items] == ["delivered", "delivered"]

            wait_until(all_delivered)
            assert len(receiver.calls) == 2
    logged += capfd.readouterr().err
    assert logged.count('"webhooks.database_unavailable"') == 1
    assert '"webhooks.round_failed"' not in logged
