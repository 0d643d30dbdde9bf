"""The storage quota of a tenant, by uploads over HTTP."""

import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from app.catalogue import datasets
from app.config import Settings
from app.installations import Installation
from app.main import create_app
from app.operations import periodic_jobs
from app.rows.row_store import RowStore
from lethe.features.drop.standard import DropList, hashes
from tests.conftest import CLASSES, npz, people

ROW_BYTES = 4 * (3 + 1) + 8 + 128
"""Bytes of a row of three features, as the quota counts it."""
PDF = b"%PDF-1.7\n" + b"0" * 4000
Make = Callable[..., dict[str, Any]]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Return settings with room for a hundred rows of three features."""
    return settings.model_copy(update={"max_tenant_bytes": 100 * ROW_BYTES})


def upload(gateway: TestClient, rows: int, **headers: str) -> httpx.Response:
    """Upload `rows` rows as a dataset and return the response."""
    files = {"file": ("people.npz", npz(rows=rows))}
    return gateway.post("/v1/datasets", data={"name": "people", "classes": CLASSES}, files=files, headers=headers)


def blocks(settings: Settings) -> int:
    """Return the number of stored files that contain rows."""
    return sum(path.suffix == ".sealed" for path in settings.data_dir.rglob("blocks/*"))


def test_an_upload_over_the_quota_is_refused(
    gateway: TestClient, refused: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upload that would exceed the quota gets a 409 that states the stored bytes, the quota and what to delete, and
    no block is written. A dataset that just fits is stored."""
    written: list[object] = []
    put = RowStore._put
    monkeypatch.setattr(RowStore, "_put", lambda *given: (written.append(given), put(*given))[1])
    assert upload(gateway, 60).status_code == 201
    assert len(written) == 1
    problem = refused(upload(gateway, 41), 409, "storage_quota_exceeded")
    assert len(written) == 1
    for part in (f"{101 * ROW_BYTES} bytes", f"may store {100 * ROW_BYTES}", f"datasets {60 * ROW_BYTES}", "Retire"):
        assert part in problem["detail"]
    assert upload(gateway, 40).status_code == 201


def test_retiring_a_dataset_frees_the_quota(
    gateway: TestClient, refused: Make, get: Callable[[str], Any], new_dataset: Make, installation: Installation
) -> None:
    """The overview shows a tenant's quota and stored bytes by kind. The stored bytes decrease when a dataset is
    retired."""
    dataset = new_dataset(rows=100)
    overview = get("/overview")
    assert overview["stored_bytes"]["datasets"] == overview["max_stored_bytes"] == 100 * ROW_BYTES
    refused(upload(gateway, 2), 409, "storage_quota_exceeded")
    assert gateway.delete(f"/v1/datasets/{dataset['id']}").status_code == 200
    periodic_jobs.settle(installation)
    assert get("/overview")["stored_bytes"]["datasets"] == 0
    assert upload(gateway, 100).status_code == 201


def test_concurrent_uploads_do_not_exceed_the_quota(
    gateway: TestClient, settings: Settings, monkeypatch: pytest.MonkeyPatch, get: Callable[[str], Any]
) -> None:
    """If two concurrent uploads fit individually but not together, one of them is refused, even if both were received
    before either was stored. No part of the refused upload stays on disk."""
    both_read, encode = threading.Barrier(2), datasets.encode

    def encoded(*given: Any, **named: Any) -> Any:
        result = encode(*given, **named)
        both_read.wait(30)
        return result

    monkeypatch.setattr(datasets, "encode", encoded)
    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(upload(gateway, 60).status_code)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [201, 409]
    assert get("/overview")["stored_bytes"]["datasets"] == 60 * ROW_BYTES
    assert blocks(settings) == 1


def test_repeating_an_upload_succeeds_over_the_quota(gateway: TestClient) -> None:
    """Repeating an upload stores nothing and returns the first response, even if the quota is used up."""
    first = upload(gateway, 100, **{"Idempotency-Key": "1"})
    again = upload(gateway, 100, **{"Idempotency-Key": "1"})
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()


def test_deletion_requests_are_accepted_over_the_quota(
    gateway: TestClient, settings: Settings, admin_key: str, new_dataset: Make, new_model: Make, work: Callable[[], int]
) -> None:
    """Deletion requests, single or in batches, are accepted and completed for a tenant over its quota."""
    new_model(new_dataset(rows=60)["id"])
    work()
    with TestClient(create_app(settings.model_copy(update={"max_tenant_bytes": 1}))) as full:
        full.headers["Authorization"] = f"Bearer {admin_key}"
        assert upload(full, 2).json()["code"] == "storage_quota_exceeded"
        one = full.post("/v1/deletion-requests", json={"subject_id": "p0"})
        many = full.post("/v1/deletion-requests:batch", json={"requests": [{"subject_id": "p1"}]})
        assert one.status_code == 202
        assert many.json()["accepted"] == 1, many.text
        work()
        assert full.get(f"/v1/deletion-requests/{one.json()['id']}").json()["outcome"] == "forgotten"


def test_only_uploads_are_refused_over_the_quota(settings: Settings, admin_key: str, new_dataset: Make) -> None:
    """A tenant over its quota can still create models and register systems, but not upload a ledger."""
    dataset = new_dataset(rows=60)["id"]
    with TestClient(create_app(settings.model_copy(update={"max_tenant_bytes": 1}))) as full:
        full.headers["Authorization"] = f"Bearer {admin_key}"
        system = {"name": "Recommender", "contact": "its team", "webhook_url": "https://elsewhere.example/lethe"}
        assert full.post("/v1/models", json={"name": "m", "dataset_id": dataset}).status_code == 202
        assert full.post("/v1/systems", json=system).status_code == 201
        ledger = {"format": "opacus", "history": [[2.0, 0.01, 200]]}
        terms = {"delta": 1e-5, "max_rows_per_person": 1, "budget_epsilon": 3.0, "trained_from": "2026-01-01T00:00:00Z"}
        model = full.post("/v1/dp-models", json={"name": "Ranker", "ledger": ledger} | terms)
        assert (model.status_code, model.json()["code"]) == (409, "storage_quota_exceeded")


def test_additions_count_towards_the_quota(gateway: TestClient, refused: Make, new_dataset: Make, forget: Make) -> None:
    """Added rows count towards the quota until they are written into their slots. An addition that exceeds the quota is
    refused."""
    dataset = new_dataset(rows=100)
    forget("p0")
    files = {"file": ("row.npz", people("new"))}
    answer = gateway.post(f"/v1/datasets/{dataset['id']}/records", files=files)
    refused(answer, 409, "storage_quota_exceeded")


def test_every_kind_of_upload_counts_towards_the_quota(
    gateway: TestClient, refused: Make, get: Callable[[str], Any], forget: Make, new_dataset: Make
) -> None:
    """Attachments, training tables, identity maps, networks, hashes of people and trainers count towards the same
    quota. An upload that would exceed it is refused as a whole."""
    new_dataset(rows=90)
    request = forget("p0")["id"]
    csv = "subject,age\n" + "".join(f"q{number},{number}\n" for number in range(300))
    pair = [{"kind": "customer_id", "id": "p"}, {"kind": "email", "id": "p@shop.example"}]
    hashed = {"id": "p1", "hashes": {"Email": hashes(DropList.EMAIL, {"email": "p@shop.example"})}}
    network = {"name": "n", "licence": "MIT", "provenance": "noise"}
    before = get("/overview")["stored_bytes"]
    for path, body in {
        f"deletion-requests/{request}/attachments": {"files": {"file": ("a.pdf", PDF)}},
        "training-tables": {"data": {"name": "t", "subject_column": "subject"}, "files": {"file": ("t.csv", csv)}},
        "networks": {"data": network, "files": {"file": ("n.onnx", bytes(4000))}},
        "identities": {"json": {"links": [{"identifiers": pair}]}},
        "drop/people": {"json": {"people": [hashed]}},
    }.items():
        refused(gateway.post(f"/v1/{path}", **body), 409, "storage_quota_exceeded")
    assert get("/overview")["stored_bytes"] == before


def test_quotas_are_per_tenant(gateway: TestClient, settings: Settings, new_dataset: Make, refused: Make) -> None:
    """One tenant's uploads do not use up another tenant's storage quota."""
    new_dataset(rows=100)
    made = gateway.post("/v1/tenants", json={"name": "other"})
    own = {"Authorization": f"Bearer {made.json()['admin_key']}"}
    assert upload(gateway, 100, **own).status_code == 201
    refused(upload(gateway, 2, **own), 409, "storage_quota_exceeded")
