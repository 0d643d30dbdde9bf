"""A trainer is notified, retrains and sends a manifest, with each step over real HTTP."""

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from app.config import Settings
from app.features.attested import jobs
from app.installations import Installation
from app.operations import periodic_jobs
from lethe import Client
from lethe.features.attested.contract import ManifestRefused
from lethe.features.attested.trainer import retrain
from tests.command_line import Lethe
from tests.faults import processes
from tests.features.attested.conftest import new_key
from tests.features.webhooks.conftest import Receiver

EXAMPLE = Path(__file__).parents[3] / "examples" / "attested" / "churn.py"
DETAILS = {"code_revision": "5cff449", "environment": "sha256:11"}


def test_a_webhook_leads_to_retraining(
    client: Client, installation: Installation, receiving: Callable[..., AbstractContextManager[Receiver]]
) -> None:
    """A trainer receives a signed webhook that names no person, and its manifest completes the request. A manifest is
    refused if its retraining has been superseded by a later one."""
    key = new_key()
    rows = [("ada", 1), ("eve", 2), ("eve", 3)]
    trained: list[list[tuple[str, int]]] = []

    def train(given: list[tuple[str, int]]) -> bytes:
        trained.append(given)
        return json.dumps(given).encode()

    with receiving() as receiver:
        trainer = client.attested_trainers.create(
            name="Churn", contact="its team", webhook_url=receiver.url, public_key=key["x"]
        )
        request = client.deletion_requests.create(subject_id="ada", external_id="ticket 7")
        jobs.announce_retrainings(installation)
        [told] = receiver.got(1)
        receiver.verify(client.webhooks.secret().secret)
        [call] = receiver.server.calls
    assert told["data"]["trainer_id"] == trainer.id
    # A word boundary is needed, because an id can contain these letters.
    assert not re.search(rb"\bada\b", call.body)
    assert b"ticket" not in call.body
    artefact, manifest = retrain(client, trainer.id, key, rows=rows, person=lambda row: row[0], train=train, **DETAILS)
    assert trained == [rows[1:]]
    assert (manifest.num_served, manifest.num_identifiers) == (1, 1)
    assert manifest.artefacts == [hashlib.sha256(artefact).hexdigest()]
    periodic_jobs.settle(installation)
    assert client.deletion_requests.get(request.id).status == "completed"

    def overtaken(given: list[tuple[str, int]]) -> bytes:
        retrain(client, trainer.id, key, rows=rows, person=lambda row: row[0], train=train, **DETAILS)
        return train(given)

    with pytest.raises(ManifestRefused) as refused:
        retrain(client, trainer.id, key, rows=rows, person=lambda row: row[0], train=overtaken, **DETAILS)
    assert [fault.path for fault in refused.value.errors] == ["manifest_current"]


def test_the_example_and_the_command_line_run(settings: Settings, admin_key: str, lethe: Lethe, tmp_path: Path) -> None:
    """The documented example runs unchanged. One command signs and sends a manifest, and others state that its artefact
    may be served and list the trainer."""
    with processes.gateway(settings) as (_, address):
        environment = os.environ | {"LETHE_URL": address, "LETHE_API_KEY": admin_key}
        done = subprocess.run(
            [sys.executable, EXAMPLE], env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "first training: 200 people, may be served: True" in done.stdout
        assert "second training: 199 people, 1 request served" in done.stdout
        assert "the first artefact: superseded" in done.stdout
        assert "verified offline: retrained_attested by " in done.stdout

        at = ("--url", address, "--key", admin_key)
        key, people, artefact = tmp_path / "key.json", tmp_path / "people.txt", tmp_path / "model.bin"
        private = new_key()
        key.write_text(json.dumps(private))
        artefact.write_bytes(b"weights")
        made = lethe("attested-trainer", "create", "Shop", "its team", "https://shop.example/x", private["x"], *at)
        assert made.code == 0, made.err
        with Client(address, admin_key) as client:
            trainer = next(one.id for one in client.attested_trainers.list() if one.name == "Shop")
            read = client.attested_trainers.identifiers(trainer, ids=["eve"])
        people.write_text("".join(f"{digest}\n" for digest in read.digests))
        signed = ("--rows-read-at", read.read_at.isoformat(), "--code-revision", "1", "--environment", "2")
        sent = lethe(
            "attested-trainer", "accept", trainer, people, "--artefact", artefact, "--sign-with", key, *signed, *at
        )
        assert sent.code == 0, sent.err
        sha256 = hashlib.sha256(b"weights").hexdigest()
        assert lethe("attested-trainer", "serving", "--artefact-sha256", sha256, *at).json["may_serve"]
        assert trainer in lethe("attested-trainer", "list", *at).out
