"""The service with a bucket: learn, forget, certify; on two hosts; with rotated and lost keys."""

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app import installations
from app.config import Settings
from app.installations import Installation
from app.keys import KeyEncryptionKeyLost
from app.vault.store import StoreKeepsVersions
from lethe import verification
from lethe.contract.problems import InstallationMismatch, WeightsDestroyed
from tests.conftest import people
from tests.faults.checks import assert_all_done_once
from tests.faults.processes import wait_until
from tests.features.buckets.server import Server
from tests.stored import rows_of, slots_of
from worker import runner

Get = Callable[[str], Any]
Make = Callable[..., dict[str, Any]]


@pytest.mark.soak
def test_learn_forget_and_certify(
    s3: Server,
    bucket: str,
    settings: Settings,
    installation: Installation,
    gateway: TestClient,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """A model is trained on a person's data and forgets the person, and the certificate verifies. Whatever remains of
    the person's data cannot be decrypted."""
    dataset = new_dataset(rows=9000)
    model = new_model(dataset["id"], noise_scale=0.02)
    work()
    first = f"/v1/models/{model['id']}/versions/1/weights"
    assert gateway.get(first).status_code == 200
    with installation.database.reading():
        [version_id] = installation.weights.version_ids()
    [slot] = slots_of(installation, dataset["id"], "p5")
    backup, row = s3.contents(bucket), rows_of(installation, dataset["id"]).features[slot].tobytes()

    request = forget("p5")
    work()
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
    [owed] = get(f"/deletion-requests/{request['id']}")["models"]
    certificate = get(f"/certificates/{owed['certificate_id']}")
    assert verification.verify(certificate["jws"], gateway.get("/.well-known/jwks.json").json()).guarantees
    assert gateway.get(first).status_code == 410
    assert not rows_of(installation, dataset["id"]).features[slot].any()
    assert_all_done_once(installation)

    files = [path.read_bytes() for path in settings.data_dir.rglob("*") if path.is_file()]
    assert not any(row in content for content in (*files, *s3.contents(bucket).values()))
    for name, content in backup.items():
        if name not in s3.contents(bucket):
            s3.write(bucket, name, content)
    with pytest.raises(WeightsDestroyed):
        installation.weights.get(version_id)


def test_rows_are_added(
    s3: Server,
    bucket: str,
    settings: Settings,
    installation: Installation,
    gateway: TestClient,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """Added rows are staged in encrypted form, written to the dataset by another host, and later forgotten. None of the
    batch's objects remains in the bucket."""
    dataset = new_dataset(rows=20)
    new_model(dataset["id"], noise_scale=0.05)
    assert work() == 1
    for subject in ("p3", "p4"):
        forget(subject)
    assert work() == 1
    before = set(s3.contents(bucket))
    files = {"file": ("people.npz", people("new1", "new2"))}
    addition = gateway.post(f"/v1/datasets/{dataset['id']}/records", files=files).json()["id"]
    staged = {name: content for name, content in s3.contents(bucket).items() if name not in before}
    assert staged
    assert not any((settings.data_dir / "blocks").glob(f"{addition}*.sealed"))
    there, null = slots_of(installation, dataset["id"], "new1", "new2")
    with installations.opened(settings) as other:
        forget("new2")
        assert runner.run_next(other, worker="w2")
    features = rows_of(installation, dataset["id"]).features
    assert (features[there].any(), features[null].any()) == (True, False)
    assert not staged.keys() & s3.contents(bucket).keys()
    assert set(installation.rows.stored()) == {dataset["id"]}
    row = features[there].tobytes()
    assert not any(row in content for content in staged.values())
    assert get("/runs")["items"][0]["kind"] == "relearn"
    assert_all_done_once(installation)


def test_hosts_can_share_a_bucket(
    settings: Settings,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """Two hosts that share a data folder, a database and a bucket serve requests alternately, and each request is
    completed exactly once."""
    dataset = new_dataset()
    new_model(dataset["id"], noise_scale=0.02)
    work()
    with installations.opened(settings) as other:
        for number in range(4):
            request = forget(f"p{number}")
            assert runner.run_next(other if number % 2 else installation, worker=f"w{number % 2}")
            assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
        for host in (installation, other):
            assert_all_done_once(host)


def test_an_outage_loses_nothing(
    settings: Settings,
    s3: Server,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If a run fails because the bucket is down, its request returns to the queue and completes after the outage."""
    dataset = new_dataset()
    model = new_model(dataset["id"], noise_scale=0.02)
    assert runner.run_next(installation, worker="w")
    request = forget("p3")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://127.0.0.1:1")
    monkeypatch.setattr("app.features.buckets.stores._RETRIES", 0)
    with installations.opened(settings) as cut_off, contextlib.suppress(OSError):
        runner.run_next(cut_off, worker="w")
    assert get(f"/deletion-requests/{request['id']}")["status"] == "accepted"
    assert get(f"/models/{model['id']}")["error_code"] == "StoreUnavailable"
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    wait_until(lambda: work() and get(f"/deletion-requests/{request['id']}")["status"] == "completed", seconds=90)
    assert_all_done_once(installation)


def test_keys_are_rotated_while_the_service_runs(
    settings: Settings,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
    tmp_path: Path,
) -> None:
    """The service continues to work after the key-encryption key is rotated, and an old copy of the keys and objects
    cannot be decrypted."""
    dataset = new_dataset()
    new_model(dataset["id"], noise_scale=0.02)
    work()
    shutil.copytree(settings.data_dir / "weights" / "keys", tmp_path / "backup")
    for _ in range(2):
        installations.rotate_key_encryption_key(settings)
    forget("p1")
    work()
    assert_all_done_once(installation)
    for key in (tmp_path / "backup").iterdir():
        shutil.copy(key, settings.data_dir / "weights" / "keys")
        with pytest.raises((KeyEncryptionKeyLost, WeightsDestroyed)):
            installation.weights.get(key.stem)


def test_a_versioned_bucket_prevents_setup(s3: Server, settings: Settings) -> None:
    """An installation whose bucket has versioning enabled cannot be set up."""
    settings = settings.model_copy(update={"store_url": f"s3://{s3.new_bucket(versioning='Enabled')}"})
    with pytest.raises(StoreKeepsVersions):
        installations.set_up(settings)


def test_a_lost_key_encryption_key_is_not_replaced(
    settings: Settings, installation: Installation, new_dataset: Make, tmp_path: Path
) -> None:
    """If sealed data exists but its key-encryption key is missing, the service refuses to start until the key is
    restored."""
    new_dataset()
    kek = settings.resolved_key_encryption_key_file()
    kek.rename(tmp_path / "away")
    with pytest.raises(InstallationMismatch, match="put it back"):
        installations.set_up(settings)
    assert not kek.exists()
    (tmp_path / "away").rename(kek)
    installations.set_up(settings)
