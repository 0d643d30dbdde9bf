"""Restoring: the same as before, but for everybody who asked to be forgotten since."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from joserfc.jwk import KeySet

from app import installations
from app.access.service import DEFAULT_TENANT
from app.accounting import anchors
from app.audit import repository as audit_repository
from app.audit.chains import CHAINS, LEDGER
from app.backup import restoring, service, tombstones
from app.backup.restoring import Restored
from app.backup.service import Backup
from app.config import Settings
from app.db.tables import AuditEntry, Dataset, DeletionRequest, Model, Version
from app.errors import BackupRefused, DatabasePutBack, RestoreUnfinished
from app.installations import Installation
from app.main import create_app
from app.operations import periodic_jobs
from app.rows import records
from lethe.contract.problems import LedgerRestored
from lethe.verification import ledgers
from tests.app.backup.conftest import quietly
from tests.conftest import FORM, people
from tests.faults.checks import assert_all_done_once
from tests.stored import rows_of, slots_of
from worker import runner

Make = Callable[..., dict[str, Any]]


def work_at(installation: Installation) -> int:
    runs = 0
    while runner.run_next(installation, worker="test"):
        runs += 1
    return runs


def test_whoever_was_forgotten_since_is_forgotten_again(
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
    """Their rows are null on disk before anything may be served, their requests are open again under their own ids and
    deadlines, and a worker completes them with new certificates; nobody else's rows are touched."""
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


def test_versions_that_were_lost_are_counted(
    gateway: TestClient,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
    other: Settings,
) -> None:
    """What versions gave away that the backup does not know is in every `adaptive` number that is signed afterwards."""
    model = new_model(new_dataset(rows=60)["id"])
    assert work() == 1
    back_up()
    for person in ("p1", "p2"):
        forget(person)
        assert work() == 1
    last = forget("p3")
    assert work() == 1
    before = adaptive(gateway, last)
    restore()
    with installations.opened(other) as again, TestClient(create_app(other)) as client:
        client.headers["Authorization"] = gateway.headers["Authorization"]
        with again.database.reading() as session:
            assert len(session.get_one(Model, model["id"]).lost_releases) == 3
        assert work_at(again) == 1
        assert adaptive(client, last) >= before
        later = client.post("/v1/deletion-requests", json={"subject_id": "p9"}).json()
        assert work_at(again) == 1
        [certificate] = client.get(f"/v1/deletion-requests/{later['id']}/certificate").json()["certificates"]
        [exposure] = certificate["statement"]["evidence"]["exposures"].values()
        assert sum(count for _, count in exposure["releases"]) == 1 + 3 + 1
        verified = client.post("/v1/certificates:verify", json={"jws": certificate["jws"]})
        assert verified.status_code == 200, verified.text


def test_models_that_were_lost_are_counted(
    gateway: TestClient,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
    other: Settings,
) -> None:
    """A model that was made after the backup is gone, and what it gave away is counted all the same."""
    dataset = new_dataset(rows=60)
    kept = new_model(dataset["id"])
    assert work() == 1
    back_up()
    lost = new_model(dataset["id"])
    assert work() == 1
    restore()
    with installations.opened(other) as again, TestClient(create_app(other)) as client:
        client.headers["Authorization"] = gateway.headers["Authorization"]
        assert work_at(again) == 1
        request = client.post("/v1/deletion-requests", json={"subject_id": "p9"}).json()
        assert work_at(again) == 1
        [certificate] = client.get(f"/v1/deletion-requests/{request['id']}/certificate").json()["certificates"]
        exposures = certificate["statement"]["evidence"]["exposures"]
        assert exposures.keys() == {kept["id"], lost["id"]}
        assert sum(count for _, count in exposures[lost["id"]]["releases"]) == 1
        verified = client.post("/v1/certificates:verify", json={"jws": certificate["jws"]})
        assert verified.status_code == 200, verified.text
        assert client.get(f"/v1/accounting/datasets/{dataset['id']}").status_code == 200
        assert client.get(f"/v1/accounting/models/{kept['id']}/trajectory").status_code == 200


def adaptive(client: TestClient, request: dict[str, Any]) -> float:
    """What the certificate of a request states."""
    [certificate] = client.get(f"/v1/deletion-requests/{request['id']}/certificate").json()["certificates"]
    stated = certificate["statement"]["guarantees"]
    return float(next(one["mu"] for one in stated if one["notion"] == "adaptive"))


def test_what_else_happened_since_happens_again(
    gateway: TestClient,
    installation: Installation,
    new_dataset: Make,
    forget: Make,
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
    other: Settings,
) -> None:
    """Requests that were withdrawn, approved or extended since the backup are where they stood; one that was made and
    withdrawn since is not there; one that waits for review waits again."""
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


def test_a_grace_time_goes_on(
    gateway: TestClient,
    new_dataset: Make,
    forget: Make,
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
    other: Settings,
) -> None:
    """Whoever may still be cancelled is not erased, and may be cancelled until the time that was set at first."""
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


def test_a_batch_that_waits_is_added(
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
    """Rows that waited to be added are added, but for those of somebody who has asked to be forgotten since."""
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


def test_everything_is_said_in_the_audit_logs(
    installation: Installation,
    new_dataset: Make,
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
    other: Settings,
) -> None:
    """Each tenant's log goes on with an entry about the restore."""
    new_dataset()
    made = back_up()
    restore()
    with installations.opened(other) as again, again.database.reading() as session:
        [tenant_id] = audit_repository.tenant_ids(session)
        last = list(audit_repository.all_entries(session, tenant_id=tenant_id))[-1]
        assert isinstance(last, AuditEntry)
        assert (last.action, last.object_id, last.detail["tombstones"]) == ("installation.restored", made.id, True)


def test_what_was_signed_and_lost_is_said_in_the_chains(
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
    other: Settings,
) -> None:
    """Heads that were signed after the backup are named in audit log and ledger, which both verify and go on, also
    against the tombstones; to whoever kept one of them the ledger says that it was restored."""
    new_model(new_dataset()["id"])
    work()
    made = back_up()
    forget("p1")
    work()
    periodic_jobs.sign_heads(installation)
    with installation.database.reading() as session:
        lost = {
            chain.name: audit_repository.checkpoints(session, chain, tenant_id=DEFAULT_TENANT, limit=1)[0]
            for chain in CHAINS
        }
    restore()
    with installations.opened(other) as again:
        assert work_at(again) == 1
        tombstones.record(again)
        periodic_jobs.sign_heads(again)
        keys = KeySet([again.keys.signing_key])
        kept = [LEDGER.kept(one.jws) for one in tombstones.kept_heads(other) if one.log == "ledger"]
        assert len(kept) == 1
        with again.database.reading() as session:
            found = anchors.verify_tenant(session, keys, tenant_id=DEFAULT_TENANT, kept=kept)
            assert (found.links, found.signed) == (3, 3)
            [said] = found.restored
            assert (said["sequence"], said["backup_id"]) == (2, made.id)
            assert said["lost"] == {"sequence": 2, "hash": lost["ledger"].hash}
            with pytest.raises(LedgerRestored, match="restored from a backup"):
                ledgers.require_kept(found, lost["ledger"], keys)
            entries = list(audit_repository.all_entries(session, tenant_id=DEFAULT_TENANT))
            [entry] = [one for one in entries if one.action == "installation.restored"]
            assert entry.detail["lost_head"] == {"sequence": lost["audit"].sequence, "hash": lost["audit"].hash}
            assert entry.detail["lost_ledger_head"] == said["lost"]


def test_without_tombstones_it_must_be_said(
    installation: Installation,
    archive: Path,
    key_file: Path,
    new_dataset: Make,
    back_up: Callable[[], Backup],
    other: Settings,
) -> None:
    """A file that is not there is refused before anything is changed; none at all starts a new file with what the
    database knows."""
    new_dataset()
    back_up()
    with pytest.raises(BackupRefused, match="no tombstones at"):
        restoring.restore(other, archive, key_file=key_file, remembered_in=other.data_dir / "nothing", progress=quietly)
    assert not other.data_dir.exists()
    restored = restoring.restore(other, archive, key_file=key_file, remembered_in=None, progress=quietly)
    assert restored.requests.made == 0


def test_it_is_restored_where_nothing_is(
    installation: Installation,
    archive: Path,
    key_file: Path,
    new_dataset: Make,
    forget: Make,
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
    other: Settings,
) -> None:
    """Over an installation, over part of one, or beside other tombstones, nothing is restored."""
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
    restore()


def test_empty_folders_are_in_nobodys_way(
    new_dataset: Make, back_up: Callable[[], Backup], restore: Callable[[], Restored], other: Settings
) -> None:
    """A data folder in which volumes are mounted that are empty is one in which nothing is."""
    new_dataset()
    back_up()
    for name in ("keys", "sealing"):
        (other.data_dir / name).mkdir(parents=True, mode=0o700)
    assert restore().num_datasets == 1


def test_tombstones_must_reach_back_to_the_backup(
    installation: Installation,
    new_dataset: Make,
    forget: Make,
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
) -> None:
    """A backup that is older than what is remembered is refused."""
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
def test_what_was_cut_off_serves_nobody_and_can_be_run_again(
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
    """A restore that ends early, anywhere, leaves what refuses to be opened or set up; the next one begins anew."""
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


def test_it_can_be_backed_up_and_restored_again(
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
    """The tombstones go on in the restored installation: the same old backup restored again knows all of both lives."""
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


def test_a_database_that_was_put_back_is_mended(
    installation: Installation,
    archive: Path,
    key_file: Path,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
    restore: Callable[[], Restored],
    other: Settings,
    tmp_path: Path,
) -> None:
    """Whoever is back because the database and the rows were put back by other means is forgotten again, however long
    ago that was: a backup of what is there restores with the tombstones."""
    dataset = new_dataset()
    slots = slots_of(installation, dataset["id"], "p1")
    new_model(dataset["id"])
    work()
    service.back_up(installation, archive, key_file=key_file, progress=quietly)
    forget("p1")
    work()
    tombstones.record(installation)
    own = installation.settings.resolved_tombstones()
    long_ago = tmp_path / "long ago"
    restoring.restore(other, archive, key_file=key_file, remembered_in=None, progress=quietly)
    shutil.copy(own, other.resolved_tombstones())
    with installations.opened(other) as again:
        assert rows_of(again, dataset["id"]).features[slots].any()
        with pytest.raises(DatabasePutBack):
            tombstones.record(again)
        service.back_up(again, long_ago, key_file=key_file, progress=quietly)
    third = Settings(data_dir=tmp_path / "third")
    found = restoring.restore(third, long_ago, key_file=key_file, remembered_in=own, progress=quietly)
    assert found.requests.made == 1
    with installations.opened(third) as mended:
        assert not rows_of(mended, dataset["id"]).features[slots].any()
        work_at(mended)
        assert_all_done_once(mended)


def test_what_was_retired_since_does_not_come_back(
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
    """A model and a dataset that were retired after the backup are retired again: no row of theirs is written to disk,
    nothing is learned, and the requests that were open in the backup are over; what was not retired is restored."""
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
