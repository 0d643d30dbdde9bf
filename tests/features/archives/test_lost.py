import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from joserfc.jwk import KeySet

from app import installations
from app.access.service import DEFAULT_TENANT
from app.accounting import ledger
from app.audit import repository as audit_repository
from app.audit.checkpoints import CHAINS, LEDGER
from app.config import Settings
from app.db.tables import Model
from app.errors import BackupRefused
from app.features.archives import restoring, service
from app.features.archives.restoring import Restored
from app.features.archives.service import Backup
from app.installations import Installation
from app.journal import tombstones
from app.main import create_app
from app.operations import periodic_jobs
from lethe.contract.problems import DatabasePutBack, LedgerRestored
from lethe.verification import ledgers
from tests.app.journal.working import work_at
from tests.faults.checks import assert_all_done_once
from tests.features.archives.conftest import quietly
from tests.stored import rows_of, slots_of

Make = Callable[..., dict[str, Any]]


def test_lost_versions_are_counted(
    gateway: TestClient,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
    other: Settings,
) -> None:
    """Every `adaptive` guarantee that is signed after a restore counts the versions published after the backup."""
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


def test_lost_models_are_counted(
    gateway: TestClient,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
    other: Settings,
) -> None:
    """A model created after the backup is lost in the restore, but its published versions are still counted."""
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
    """Return the `adaptive` mu stated in a request's certificate."""
    [certificate] = client.get(f"/v1/deletion-requests/{request['id']}/certificate").json()["certificates"]
    stated = certificate["statement"]["guarantees"]
    return float(next(one["mu"] for one in stated if one["notion"] == "adaptive"))


def test_restored_chains_name_heads_signed_after_the_backup(
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
    other: Settings,
) -> None:
    """The audit log and the ledger name the chain heads that were signed after the backup. Both verify and continue,
    even when compared with the tombstones. Comparing the ledger with a saved head reports the restore."""
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
            found = ledger.verify_tenant(session, keys, tenant_id=DEFAULT_TENANT, heads=kept)
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


def test_missing_tombstones_must_be_acknowledged(
    installation: Installation,
    archive: Path,
    key_file: Path,
    new_dataset: Make,
    back_up: Callable[[], Backup],
    other: Settings,
) -> None:
    """A restore with a missing tombstone file is refused before anything changes. A restore that is explicitly run
    without tombstones is accepted and starts a new file from the database."""
    new_dataset()
    back_up()
    with pytest.raises(BackupRefused, match="no tombstones at"):
        restoring.restore(other, archive, key_file=key_file, remembered_in=other.data_dir / "nothing", progress=quietly)
    assert not other.data_dir.exists()
    restored = restoring.restore(other, archive, key_file=key_file, remembered_in=None, progress=quietly)
    assert restored.requests.made == 0


def test_a_backup_of_a_rolled_back_database_can_be_restored(
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
    """If the database and the rows were rolled back by other means than `restore`, a backup of that state can still be
    restored with the tombstones, however old the tombstones are. The person who had returned through the rollback is
    forgotten again."""
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
