"""Restoring an installation whose requests reached identity maps, systems and trainers: no person returns anywhere."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from app import installations
from app.config import Settings
from app.features.archives.restoring import Restored
from app.features.archives.service import Backup
from app.features.identities import jobs as identity_jobs
from app.features.trainers import jobs as trainer_jobs, training
from app.installations import Installation
from app.main import create_app
from app.operations import periodic_jobs
from lethe.features.systems import acknowledgements
from tests.app.journal.working import work_at
from tests.features.attested.conftest import AttestedTrainer, new_trainer, trainer as attested
from tests.features.systems.conftest import new_system, system_key, task_of
from tests.features.trainers.conftest import PEOPLE, new_table, new_trainer as new_hermetic

__all__ = ["attested", "new_hermetic", "new_system", "new_table", "new_trainer", "system_key", "task_of"]

Make = Callable[..., dict[str, Any]]
MAIL = "ada@example.org"
A1, A2, A3 = (hashlib.sha256(name).hexdigest() for name in (b"first", b"second", b"third"))


@contextmanager
def _gateway(settings: Settings, key: str) -> Iterator[TestClient]:
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        client.headers["Authorization"] = f"Bearer {key}"
        yield client


def _got(answer: httpx.Response) -> dict[str, Any]:
    assert answer.is_success, answer.text
    found: dict[str, Any] = answer.json()
    return found


def _trained(installation: Installation) -> None:
    trainer_jobs.erase_from_tables(installation)
    while training.run_next(installation):
        trainer_jobs.erase_from_tables(installation)


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_asked_before", [False, True])
def test_people_forgotten_in_systems_and_trainers_do_not_return(
    is_asked_before: bool,
    gateway: TestClient,
    installation: Installation,
    admin_key: str,
    live: dict[str, Any],
    attested: AttestedTrainer,
    new_table: Make,
    new_hermetic: Make,
    new_system: Make,
    system_key: dict[str, str],
    task_of: Make,
    forget: Make,
    work: Callable[[], int],
    npz_of: Callable[..., bytes],
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
    other: Settings,
) -> None:
    """A person who requested deletion by e-mail and was forgotten after the backup is forgotten again under every
    identifier. Rows, tables and artefacts in the backup are erased, and an attested artefact that may contain the
    person is not served. The external system receives the task again, and the identity map forgets the person last. The
    data of people without requests is restored."""
    links = [{"identifiers": [{"id": "p3"}, {"kind": "email", "id": MAIL}]}]
    _got(gateway.post("/v1/identities", json={"links": links}))
    table = new_table()
    hermetic = new_hermetic(table["id"])
    _trained(installation)
    system = new_system(public_key=system_key["x"])
    attested.retrain("p3", "eve", artefacts=[A1])
    request = forget(MAIL, kind="email") if is_asked_before else {}
    back_up()

    request = request or forget(MAIL, kind="email")
    assert work() >= 1
    _trained(installation)
    attested.retrain("p3", "eve", artefacts=[A2])
    task = task_of(request["id"])
    jws = acknowledgements.sign(system_key, task=task, by="on call")
    _got(gateway.post(f"/v1/system-tasks/{task['id']}/acknowledge", json={"jws": jws}))
    periodic_jobs.settle(installation)
    assert _got(gateway.get(f"/v1/deletion-requests/{request['id']}"))["status"] == "completed"
    assert attested.serving(A1)["reason"] == "superseded"

    assert restore().requests.made == (not is_asked_before)
    with installations.opened(other) as restored, _gateway(other, admin_key) as client:
        path = f"/v1/deletion-requests/{request['id']}"
        again = _got(client.get(path))
        assert (again["status"], again["identity_unknown"]) != ("completed", True)
        assert client.get(f"/v1/datasets/{live['dataset_id']}/subjects/p3").status_code == 404
        assert client.get(f"/v1/datasets/{live['dataset_id']}/subjects/p4").status_code == 200
        for kind, who in (("customer_id", "p3"), ("email", MAIL)):
            content = npz_of(subject=[who, *(f"q{row}" for row in range(19))])
            form = {"name": kind, "classes": json.dumps(["0", "1"]), "subject_kind": kind}
            refused = client.post("/v1/datasets", data=form, files={"file": ("a.npz", content)})
            assert refused.status_code in (409, 422), refused.text
        assert not _got(client.get("/v1/serving", params={"artefact_sha256": A1}))["may_serve"]
        assert not _got(client.get("/v1/serving", params={"artefact_sha256": A2}))["may_serve"]

        assert "np3" not in client.get(f"/v1/trainers/{hermetic['id']}/artefacts/names.txt").text

        work_at(restored)
        _trained(restored)
        names = client.get(f"/v1/trainers/{hermetic['id']}/artefacts/names.txt").text.split()
        assert set(names) == {f"np{place}" for place in range(PEOPLE)} - {"np3"}
        there = AttestedTrainer(gateway=client, id=attested.id, key=attested.key)
        assert there.digests("p3", "eve")["digests"][0] is None
        assert there.retrain("p3", "eve", artefacts=[A3])["num_served"] == 1
        assert there.serving(A3)["may_serve"]
        assert there.serving(A1)["reason"] == "superseded"
        [task] = _got(client.get("/v1/system-tasks", params={"request_id": request["id"]}))["items"]
        assert (task["system_id"], task["status"]) == (system["id"], "open")
        assert _got(client.get(path))["status"] != "completed"
        jws = acknowledgements.sign(system_key, task=task, by="on call")
        _got(client.post(f"/v1/system-tasks/{task['id']}/acknowledge", json={"jws": jws}))
        periodic_jobs.settle(restored)
        assert _got(client.get(path))["status"] == "completed"
        for job in identity_jobs.WORKER_JOBS:
            job.do(restored)
        kinds = {kind["name"]: kind["num_identifiers"] for kind in _got(client.get("/v1/identities"))["kinds"]}
        assert kinds["email"] == kinds["customer_id"] == 0
        [loaded] = [_got(client.post("/v1/identities", json={"links": links}))]
        assert loaded["num_suppressed"] == 1
