"""Recovery from a disaster: no forgotten person returns with the backup."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app import installations
from app.config import Settings
from lethe import Client
from lethe.contract.problems import SubjectSuppressed
from tests.conftest import npz, people
from tests.faults import processes
from tests.faults.processes import ForkedUp, wait_until
from tests.stored import rows_of

NewDatabase = Callable[[], contextlib.AbstractContextManager[dict[str, str]]]


@pytest.fixture
def new_database(kind: str, request: pytest.FixtureRequest) -> NewDatabase:
    """Return a function that creates an empty database and yields the settings that name it, which are empty for the
    default database."""

    @contextlib.contextmanager
    def made() -> Iterator[dict[str, str]]:
        if kind == "sqlite":
            yield {}
        else:
            postgres = request.getfixturevalue("postgres")
            with postgres.database() as name:
                yield {"database_url": postgres.url(name)}

    return made


@pytest.mark.soak
def test_forgotten_people_do_not_return(tmp_path: Path, new_database: NewDatabase) -> None:
    """Everything except the archive, the key file and the tombstones is lost, and the restore is killed once and
    repeated. Before the restored service serves anything, the rows of people who were forgotten or had requested
    deletion are null. These people's requests get new certificates, and their waiting rows are not added again. The
    ledger and the audit logs verify."""
    data, kept = tmp_path / "data", tmp_path / "kept"
    kept.mkdir()
    tombstones, archive, key_file = kept / "tombstones.jsonl", kept / "archive", kept / "key"
    settings = {"tombstones": str(tombstones), "lease_seconds": "3"}

    with (
        new_database() as database,
        processes.forked_up(data, **settings, **database) as up,
        connected(up, data) as client,
    ):
        upload = tmp_path / "people.npz"
        upload.write_bytes(npz(rows=300))
        dataset = client.datasets.upload(upload, classes=["0", "1"], name="people")
        model = client.models.create(name="model", dataset_id=dataset.id, l2=0.05)
        client.models.wait(model.id)
        done = lethe("backup", archive, "--key-file", key_file, data=data, **settings, **database)
        assert done.returncode == 0, done.stderr
        first = client.deletion_requests.create(subject_id="p7")
        client.deletion_requests.wait(first.id)
        old = client.deletion_requests.get(first.id)
        assert up.end() == 0
        alone = Settings.model_validate({"data_dir": data} | settings | database)
        with processes.gateway(alone) as (gateway, address), Client(address, admin_key(data)) as client:
            second = client.deletion_requests.create(subject_id="p8")
            wait_until(lambda: second.id in tombstones.read_text())
            gateway.kill()
    shutil.rmtree(data)

    with new_database() as database:
        restore = ("restore", archive, "--key-file", key_file)
        refused = lethe(*restore, data=data, **settings, **database)
        assert refused.returncode == 1
        assert "backup_refused" in refused.stderr
        assert not data.exists()
        killed(*restore, "--tombstones", tombstones, data=data, **settings, **database)
        ended = lethe("up", data=data, **settings, **database)
        assert (ended.returncode, "restore_unfinished" in ended.stderr) == (1, True)
        done = lethe(*restore, "--tombstones", tombstones, data=data, **settings, **database)
        assert done.returncode == 0, done.stderr
        with installations.opened(Settings.model_validate({"data_dir": data} | settings | database)) as installation:
            features = rows_of(installation, dataset.id).features
        assert (~features.any(axis=1)).sum() == 2
        assert not list((data / "weights").rglob("*.sealed"))

        with processes.forked_up(data, **settings, **database) as up, connected(up, data) as client:
            for asked in (first, second):
                found = client.deletion_requests.wait(asked.id)
                assert (found.status, found.outcome, found.due_at) == ("completed", "forgotten", asked.due_at)
                [certificate] = client.deletion_requests.certificates(asked.id)
                assert certificate.id != old.models[0].certificate_id
                assert client.certificates.verify(certificate)
            again = client.models.get(model.id)
            assert (again.status, again.live_version) == ("live", 2)
            upload.write_bytes(people("p7", "somebody"))
            with pytest.raises(SubjectSuppressed):
                client.datasets.upload(upload, classes=["0", "1"], name="again")
            for what in ("ledger", "audit"):
                verified = lethe(what, "verify", data=data, **settings, **database)
                assert verified.returncode == 0, verified.stderr
            assert up.end() == 0
        kinds = [json.loads(line)["kind"] for line in tombstones.read_text().splitlines()]
        assert kinds.count("restored") == 1


@contextlib.contextmanager
def connected(up: ForkedUp, data: Path) -> Iterator[Client]:
    with Client(up.address(), admin_key(data)) as client:
        yield client


def admin_key(data: Path) -> str:
    return (data / "keys" / "admin.key").read_text().strip()


def lethe(*words: Any, data: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command until it ends, and return its result."""
    return processes.ended("lethe", *map(str, words), environment=processes.environment_of(data, **settings))


def killed(*words: Any, data: Path, **settings: str) -> None:
    """Run a command, and kill it when the installation's keys exist and the command has not finished."""
    command = subprocess.Popen(
        [processes.LETHE, *map(str, words)],
        env=processes.environment_of(data, **settings),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: (data / "keys" / "subject.key").exists())
    os.kill(command.pid, signal.SIGSTOP)
    assert (data / "restore-unfinished").exists()
    command.kill()
    command.wait()
