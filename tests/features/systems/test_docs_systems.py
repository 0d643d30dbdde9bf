"""The example of docs/systems.md: a system that is notified by a real call, and a bundle that verifies offline."""

import hashlib
import json
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from app.config import Settings
from app.installations import Installation
from app.operations import periodic_jobs
from lethe import Client
from lethe.features.systems import bundle
from tests.command_line import Lethe
from tests.faults import processes
from tests.features.webhooks.conftest import Receiver

New = Callable[..., dict[str, Any]]
PAGE = Path(__file__).parents[3] / "docs" / "systems.md"


@pytest.fixture
def handle() -> Callable[..., Any]:
    """Return the handler defined on the documentation page."""
    [example] = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(example, names)
    handler: Callable[..., Any] = names["handle"]
    return handler


def test_a_system_acknowledges_a_webhook(
    client: Client,
    installation: Installation,
    receiving: Callable[..., AbstractContextManager[Receiver]],
    new_system: New,
    handle: Callable[..., Any],
    system_key: dict[str, str],
) -> None:
    """A system receives a signed webhook that names the case and not the person, and acknowledges it with the handler
    from the documentation. The request completes, and its bundle verifies with only the public keys."""
    erased: list[str] = []

    def erase(external_id: str) -> str:
        erased.append(external_id)
        return "ab" * 32

    with receiving() as receiver:
        new_system(webhook_url=receiver.url, public_key=system_key["x"])
        request = client.deletion_requests.create(subject_id="maria@example.com", external_id="ticket 7")
        receiver.got(1)
        [told] = receiver.server.calls
    assert b"maria" not in told.body
    secret = client.webhooks.secret().secret
    handled = handle(client, secret, system_key, dict(told.headers), told.body.decode(), erase)
    assert (handled.status, erased) == ("acknowledged", ["ticket 7"])
    periodic_jobs.settle(installation)
    assert client.deletion_requests.get(request.id).status == "completed"
    whole = client.deletion_requests.bundle(request.id)
    verified = bundle.verify(whole.model_dump_json(), client.certificates.public_keys())
    assert [line["grade"] for line in verified.statement["lines"]] == ["acknowledged", "searched"]


def test_a_task_is_acknowledged_on_the_command_line(
    settings: Settings, admin_key: str, lethe: Lethe, system_key: dict[str, str], tmp_path: Path
) -> None:
    """The command signs an acknowledgement with the system's key and sends the evidence's digest."""
    evidence, key = tmp_path / "log.txt", tmp_path / "key.json"
    evidence.write_text("deleted 3 rows")
    key.write_text(json.dumps(system_key))
    with processes.gateway(settings) as (_, address):
        at = ("--url", address, "--key", admin_key)
        url = "https://shop.example/lethe"
        made = lethe("system", "create", "Shop", "its team", url, "--public-key", system_key["x"], *at)
        assert made.code == 0, made.err
        assert lethe("request", "submit", "maria@example.com", "--no-wait", *at).code == 0
        task = lethe("task", "list", "--json", *at).json["id"]
        signed = ("--by", "Max", "--evidence", evidence, "--sign-with", key)
        done = lethe("task", "acknowledge", task, *signed, *at)
        assert done.code == 0, done.err
        shown = lethe("task", "show", task, *at).json
    assert (shown["by"], shown["status"]) == ("Max", "acknowledged")
    assert shown["evidence_sha256"] == hashlib.sha256(evidence.read_bytes()).hexdigest()
