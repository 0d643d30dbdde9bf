"""Restoring yields the same installation as before, without the people who have requested deletion since the backup."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app import installations
from app.audit import repository as audit_repository
from app.config import Settings
from app.db.tables import AuditEntry, Dataset, DeletionRequest, Model, Version
from app.errors import BackupRefused, RestoreUnfinished
from app.features.archives import restoring
from app.features.archives.restoring import Restored
from app.features.archives.service import Backup
from app.installations import Installation
from app.journal import tombstones
from app.main import create_app
from app.rows import records
from tests.app.journal.working import work_at
from tests.conftest import FORM, people
from tests.faults.checks import assert_all_done_once
from tests.features.archives.conftest import quietly
from tests.stored import rows_of, slots_of

Make = Callable[..., dict[str, Any]]


def test_people_forgotten_since_the_backup_are_forgotten_again(
    gateway: TestClient,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
    other: Settings,
) -> None:
    """The rows of people forgotten since the backup are null on disk before anything is served, and no other rows
    change. Their requests are open again under their own ids and deadlines, and a worker completes them with new
    certificates."""
    dataset = new_dataset(rows=60)
    slots = slots_of(installation, dataset["id"], "p1", "p3", "p5")
    model = new_model(dataset["id"])
    assert work() == 1
    earlier = forget("p1")
    assert work() == 1
    back_up()
    done = forget("p3", regulation="ccpa")
    assert work() == 1
    certificate = gateway.get(f"/v1/deletion-requests/{done['id']}").json()["models"][0]["certificate_id"]
    waits = forget("p5")

    restored = restore()
    assert (restored.requests.made, restored.num_models) == (2, 1)
    with installations.opened(other) as again:
        rows = rows_of(again, dataset["id"])
        assert not rows.features[slots].any()
        assert rows.features.any(axis=1).sum() == 57
        with again.database.reading() as session:
            assert set(session.scalars(sa.select(Version.status))) == {"destroyed"}
            restored_dataset = session.get_one(Dataset, dataset["id"])
            assert records.first_damaged(session, restored_dataset) is None
        assert not again.weights.version_ids()
        with TestClient(create_app(other)) as client:
            client.headers["Authorization"] = gateway.headers["Authorization"]
            assert client.get(f"/v1/models/{model['id']}/serving").json()["reason"] == "weights_destroyed"
            for asked in (done, waits):
                found = client.get(f"/v1/deletion-requests/{asked['id']}").json()
                assert found["status"] == "running"
                assert {found[name] == asked[name] for name in ("due_at", "submitted_at", "regulation")} == {True}
            assert work_at(again) == 1
            for asked in (done, waits):
                found = client.get(f"/v1/deletion-requests/{asked['id']}").json()
                assert (found["status"], found["outcome"]) == ("completed", "forgotten")
                assert found["models"][0]["certificate_id"] != certificate
            assert client.get(f"/v1/deletion-requests/{earlier['id']}").json()["status"] == "completed"
            refused = client.post("/v1/datasets", data=FORM, files={"file": ("x.npz", people("p3", "p4"))})
            assert refused.json()["code"] == "subject_suppressed"
        assert_all_done_once(again)


def test_row_weights_are_restored(
    gateway: TestClient,
    installation: Installation,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
    other: Settings,
) -> None:
    """Row weights are restored, except for those of people forgotten since the backup. The model is retrained with
    these weights, and its mechanism contains their bound."""
    columns = {
        "person": {"role": "subject"},
        "age": {"kind": "numeric", "min": 0, "max": 100},
        "ill": {"role": "label", "values": ["no", "yes"]},
        "times": {"role": "weight", "max": 4},
    }
    lines = [f"p{n},{n},{'yes' if n > 25 else 'no'},{n % 17 / 4}" for n in range(1, 61)]
    data = {"name": "people", "schema": json.dumps({"columns": columns})}
    content = "\n".join(["person,age,ill,times", *lines]).encode()
    dataset = gateway.post("/v1/datasets", data=data, files={"file": ("people.csv", content)}).json()
    new_model(dataset["id"])
    assert work() == 1
    [slot] = slots_of(installation, dataset["id"], "p33")
    wanted = rows_of(installation, dataset["id"]).labels
    assert wanted[slot].all()
    back_up()
    forget("p33")
    assert work() == 1

    restore()
    wanted[slot] = 0
    with installations.opened(other) as again:
        np.testing.assert_array_equal(rows_of(again, dataset["id"]).labels, wanted)
        assert work_at(again) == 1
        with again.database.reading() as session:
            [model] = session.scalars(sa.select(Model))
            assert (model.live_version, model.mechanism["weight_bound"]) == (2, 4)


def test_decisions_since_the_backup_are_repeated(
    gateway: TestClient,
    installation: Installation,
    new_dataset: Make,
    forget: Make,
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
    other: Settings,
) -> None:
    """Requests that were withdrawn, approved or extended since the backup have their later state after the restore. A
    request that was both made and withdrawn since the backup does not exist, and a request that was awaiting review
    awaits it again."""
    new_dataset()
    withdrawn, extended = forget("p1"), forget("p2")
    policy = gateway.get("/v1/tenant").json()["policy"]
    assert gateway.patch("/v1/tenant", json={"policy": {"auto_accept": False}}).status_code == 200, policy
    approved = forget("p3")
    back_up()
    gateway.post(f"/v1/deletion-requests/{withdrawn['id']}/cancel")
    gateway.post(f"/v1/deletion-requests/{extended['id']}/extend", json={"reason": "many"})
    gateway.post(f"/v1/deletion-requests/{approved['id']}/approve")
    waits, gone = forget("p4"), forget("p5")
    gateway.post(f"/v1/deletion-requests/{gone['id']}/cancel")
    wanted = {
        one["id"]: gateway.get(f"/v1/deletion-requests/{one['id']}").json()
        for one in (withdrawn, extended, approved, waits)
    }

    restored = restore()
    assert (restored.requests.made, restored.requests.changed) == (1, 3)
    with TestClient(create_app(other)) as client:
        client.headers["Authorization"] = gateway.headers["Authorization"]
        for request_id, before in wanted.items():
            found = client.get(f"/v1/deletion-requests/{request_id}").json()
            assert found["status"] == before["status"].replace("accepted", "running")
            assert (found["due_at"], found["extended_due_at"]) == (before["due_at"], before["extended_due_at"])
        assert client.get(f"/v1/deletion-requests/{gone['id']}").status_code == 404


def test_a_grace_period_continues(
    gateway: TestClient,
    new_dataset: Make,
    forget: Make,
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
    other: Settings,
) -> None:
    """A request in its grace period is not erased after a restore, and can be cancelled until the grace period's
    original end."""
    dataset = new_dataset()
    back_up()
    assert gateway.patch("/v1/tenant", json={"policy": {"grace_seconds": 3600}}).status_code == 200
    asked = forget("p1")
    restore()
    with installations.opened(other) as again:
        assert rows_of(again, dataset["id"]).features.any(axis=1).all()
        with again.database.reading() as session:
            held_until = session.get_one(DeletionRequest, asked["id"]).held_until
            assert held_until is not None
            assert 3500 < (held_until - session.get_one(DeletionRequest, asked["id"]).created_at).total_seconds() < 3700
    with TestClient(create_app(other)) as client:
        client.headers["Authorization"] = gateway.headers["Authorization"]
        assert client.post(f"/v1/deletion-requests/{asked['id']}/cancel").json()["status"] == "cancelled"


def test_a_waiting_batch_is_added(
    installation: Installation,
    gateway: TestClient,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
    other: Settings,
) -> None:
    """A batch of rows that was waiting at the time of the backup is added after the restore, without the rows of people
    who have requested deletion since then."""
    dataset = new_dataset()
    new_model(dataset["id"])
    work()
    for subject in ("p1", "p2"):
        forget(subject)
    work()
    added = gateway.post(f"/v1/datasets/{dataset['id']}/records", files={"file": ("more.npz", people("new1", "new2"))})
    assert added.status_code in (201, 202), added.text
    slot, other_slot = slots_of(installation, dataset["id"], "new1", "new2")
    back_up()
    forget("new2")
    work()
    restore()
    with installations.opened(other) as again:
        staged = rows_of(again, added.json()["id"])
        assert staged.features.any(axis=1).tolist() == [slot < other_slot, slot > other_slot]
        work_at(again)
        assert np.flatnonzero(~rows_of(again, dataset["id"]).features.any(axis=1)).tolist() == [other_slot]
        assert_all_done_once(again)


def test_audit_logs_record_the_restore(
    installation: Installation,
    new_dataset: Make,
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
    other: Settings,
) -> None:
    """Each tenant's audit log continues with an entry about the restore."""
    new_dataset()
    made = back_up()
    restore()
    with installations.opened(other) as again, again.database.reading() as session:
        [tenant_id] = audit_repository.tenant_ids(session)
        last = list(audit_repository.all_entries(session, tenant_id=tenant_id))[-1]
        assert isinstance(last, AuditEntry)
        assert (last.action, last.object_id, last.detail["tombstones"]) == ("installation.restored", made.id, True)


def test_tombstones_must_reach_back_to_the_backup(
    installation: Installation,
    new_dataset: Make,
    forget: Make,
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
) -> None:
    """A backup older than the oldest tombstone is refused."""
    new_dataset()
    back_up()
    forget("p1")
    forget("p2")
    tombstones.record(installation)
    installation.settings.tombstone_days = 1e-9
    tombstones.drop_old(installation)
    with pytest.raises(BackupRefused, match="remember nothing before"):
        restore()


@pytest.mark.parametrize("where", ["_load", "_forget", "_write_rows", "_finish"])
def test_an_interrupted_restore_can_be_repeated(
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
    other: Settings,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    """A restore that is interrupted at any point leaves an installation that can neither be opened nor set up. The next
    restore starts from the beginning."""
    dataset = new_dataset()
    slots = slots_of(installation, dataset["id"], "p1")
    new_model(dataset["id"])
    work()
    back_up()
    forget("p1")
    work()
    done = getattr(restoring, where)

    def dies(*given: Any, **named: Any) -> Any:
        done(*given, **named)
        if where == "_finish":
            installations.unfinished(other).touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(restoring, where, dies)
    with pytest.raises(KeyboardInterrupt):
        restore()
    with pytest.raises(RestoreUnfinished):
        installations.set_up(other)
    with pytest.raises(RestoreUnfinished), installations.opened(other):
        pass
    monkeypatch.undo()
    if where == "_finish":
        remembered_in = other.resolved_tombstones()
        kinds = [line.kind for line in tombstones.Journal(remembered_in, installation.keys).lines()]
        assert kinds[-3:] == ["restored", "signed", "signed"]
        remembered_in.unlink()
    restore()
    with installations.opened(other) as again:
        assert work_at(again) == 1
        assert not rows_of(again, dataset["id"]).features[slots].any()
        assert_all_done_once(again)


def test_a_restored_installation_can_be_restored_again(
    installation: Installation,
    tmp_path: Path,
    archive: Path,
    key_file: Path,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
    other: Settings,
) -> None:
    """A restored installation continues the tombstones, so that restoring the same old backup again includes the
    requests of both periods."""
    dataset = new_dataset()
    slots = slots_of(installation, dataset["id"], "p1", "p2")
    new_model(dataset["id"])
    work()
    back_up()
    forget("p1")
    work()
    restore()
    with TestClient(create_app(other)) as client, installations.opened(other) as again:
        client.headers["Authorization"] = (
            f"Bearer {installation.settings.resolved_admin_key_file().read_text().strip()}"
        )
        assert client.post("/v1/deletion-requests", json={"subject_id": "p2"}).status_code == 202
        work_at(again)
    third = Settings(data_dir=tmp_path / "third")
    remembered_in = other.resolved_tombstones()
    found = restoring.restore(third, archive, key_file=key_file, remembered_in=remembered_in, progress=quietly)
    assert found.requests.made == 2
    with installations.opened(third) as again:
        assert not rows_of(again, dataset["id"]).features[slots].any()
        work_at(again)
        assert_all_done_once(again)


def test_retired_objects_do_not_return(
    gateway: TestClient,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
    other: Settings,
) -> None:
    """A model and a dataset that were retired after the backup are retired again: their rows are not written to disk,
    no model is trained, and the requests that were open in the backup are closed. Everything else is restored."""
    dataset, kept = new_dataset(rows=60), new_dataset("kept", rows=60, seed=1)
    model = new_model(dataset["id"])
    assert work() == 1
    request = forget("p1", dataset_ids=[dataset["id"]])
    back_up()
    assert work() == 1
    for path in (f"/models/{model['id']}", f"/datasets/{dataset['id']}"):
        assert gateway.delete(f"/v1{path}").json()["destroyed_at"]

    restore()
    with installations.opened(other) as again, TestClient(create_app(other)) as client:
        client.headers["Authorization"] = gateway.headers["Authorization"]
        assert again.rows.stored().keys() == {kept["id"]}
        for path in (f"/models/{model['id']}", f"/datasets/{dataset['id']}"):
            found = client.get(f"/v1{path}").json()
            assert found["retired_at"]
            assert found["destroyed_at"]
        assert client.get(f"/v1/datasets/{dataset['id']}").json()["num_subjects"] == 0
        assert client.get(f"/v1/deletion-requests/{request['id']}").json()["status"] == "completed"
        assert work_at(again) == 0
        assert client.get(f"/v1/models/{model['id']}/versions").json()["items"][0]["status"] == "destroyed"


def test_a_restore_needs_an_empty_target(
    installation: Installation,
    archive: Path,
    key_file: Path,
    new_dataset: Make,
    forget: Make,
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
    other: Settings,
) -> None:
    """A restore is refused if its target contains an installation, parts of an installation or other files, or is next
    to other tombstones."""
    new_dataset()
    forget("p1")
    back_up()
    tombstones.record(installation)
    own = installation.settings.resolved_tombstones()
    for settings, why in (
        (installation.settings, "is not empty"),
        (
            installation.settings.model_copy(update={"data_dir": archive.parent / "x", "tombstones": own}),
            "database|not empty",
        ),
        (other.model_copy(update={"tombstones": archive}), "There are tombstones at"),
    ):
        if settings.database_url is None and settings.data_dir.name == "x":
            settings = settings.model_copy(update={"store_url": str(installation.settings.data_dir)})
        with pytest.raises(BackupRefused, match=why):
            restoring.restore(settings, archive, key_file=key_file, remembered_in=own, progress=quietly)
    with pytest.raises(BackupRefused, match="no key file"):
        restoring.restore(other, archive, key_file=archive.parent / "no", remembered_in=own, progress=quietly)
    something = other.data_dir / "something"
    something.parent.mkdir()
    something.touch()
    with pytest.raises(BackupRefused, match=f"{other.data_dir} is not empty"):
        restore()
    something.unlink()
    restore()


def test_mounted_empty_folders_count_as_empty(
    new_dataset: Make, back_up: Callable[[], Backup], restore: Callable[[], Restored], other: Settings
) -> None:
    """A data folder that contains only mounted empty volumes counts as empty."""
    new_dataset()
    back_up()
    for name in ("keys", "sealing"):
        (other.data_dir / name).mkdir(parents=True, mode=0o700)
    assert restore().num_datasets == 1
