"""Endpoints of lineage and exports, called from outside the gateway, with a real worker."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.catalogue import service as catalogue
from app.db import Actor
from app.features.lineage import repository
from app.installations import Installation
from lethe.contract.problems import WeightsDestroyed
from lethe.contract.sets import Scope

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]
Refused = Callable[..., dict[str, Any]]


def trace(gateway: TestClient, **subject: str) -> Any:
    answer = gateway.post("/v1/lineage", json=subject)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_person_is_followed_from_rows_to_certificate(
    gateway: TestClient, new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Work
) -> None:
    """The lineage shows a person's rows and every version trained on them. While the request is open, the lineage
    contains no version without the person. Once the request is completed, the lineage shows the certificate and marks
    the earlier versions as destroyed. It never lists later versions."""
    dataset = new_dataset(rows_each=2)
    model = new_model(dataset["id"])
    work()
    forget("p1")
    work()
    before = trace(gateway, subject_id="p2")
    assert before["datasets"] == [{"id": dataset["id"], "name": "people", "records": 2, "erased_at": None}]
    [fed] = before["models"]
    assert (fed["model_id"], fed["name"], fed["dataset_id"]) == (model["id"], "model", dataset["id"])
    assert [(one["number"], one["status"]) for one in fed["versions"]] == [(2, "live"), (1, "destroyed")]
    assert (fed["num_versions"], fed["first_without"], fed["owed"]) == (2, None, False)

    request = forget("p2")
    [owing] = get(f"/deletion-requests/{request['id']}/lineage")["models"]
    assert owing == fed | {"owed": True}
    work()
    forget("p3")
    work()
    after = get(f"/deletion-requests/{request['id']}/lineage")
    assert after == trace(gateway, subject_id="p2")
    [rows] = after["datasets"]
    assert (rows["records"], rows["erased_at"] is None) == (2, False)
    [done] = after["models"]
    [certificate] = get(f"/deletion-requests/{request['id']}/certificate")["certificates"]
    third = get(f"/models/{model['id']}/versions/3")
    assert done["first_without"] == {
        "number": 3,
        "published_at": third["published_at"],
        "certificate_id": certificate["id"],
    }
    assert [(one["number"], one["status"]) for one in done["versions"]] == [(2, "destroyed"), (1, "destroyed")]
    assert all(one["destroyed_at"] for one in done["versions"])
    assert (done["num_versions"], done["owed"]) == (2, False)


def test_models_trained_without_the_person_have_no_versions_in_the_lineage(
    gateway: TestClient, new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Work
) -> None:
    """A model that was created after the rows were erased is not in the lineage. A model that was still waiting to be
    trained, and was then trained without the person, has a certificate and no version that contained the person."""
    dataset = new_dataset()
    waiting = new_model(dataset["id"])
    request = forget("p1")
    work()
    new_model(dataset["id"], name="late")
    work()
    [only] = get(f"/deletion-requests/{request['id']}/lineage")["models"]
    assert (only["model_id"], only["num_versions"], only["versions"]) == (waiting["id"], 0, [])
    assert only["first_without"]["number"] == 1
    assert only["first_without"]["certificate_id"]


def test_the_lineage_of_a_request_covers_its_datasets(
    gateway: TestClient, new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Work
) -> None:
    """A request's lineage covers only that request's datasets. A person's lineage covers all datasets, whether or not
    the person's rows have been erased."""
    first, second = new_dataset("one"), new_dataset("two")
    models = {new_model(dataset["id"])["id"]: dataset["id"] for dataset in (first, second)}
    work()
    request = forget("p1", dataset_ids=[first["id"]])
    work()
    asked = get(f"/deletion-requests/{request['id']}/lineage")
    assert [one["id"] for one in asked["datasets"]] == [first["id"]]
    assert [models[one["model_id"]] for one in asked["models"]] == [first["id"]]
    everywhere = trace(gateway, subject_id="p1")
    assert {one["name"]: one["erased_at"] is None for one in everywhere["datasets"]} == {"one": False, "two": True}
    assert {one["model_id"]: one["first_without"] is None for one in everywhere["models"]} == {
        model_id: dataset_id == second["id"] for model_id, dataset_id in models.items()
    }


def test_a_second_request_has_the_same_lineage(
    gateway: TestClient, installation: Installation, live: dict[str, Any], forget: Make, get: Get, work: Work
) -> None:
    """A second request that joins the first has the same lineage with its own certificate. A request submitted after
    completion has an empty lineage, but the person's own lineage is still complete."""
    first, second = forget("p1"), forget("p1")
    work()
    late = forget("p1")
    lineages = [get(f"/deletion-requests/{request['id']}/lineage") for request in (first, second, late)]
    certificates = [lineage["models"][0]["first_without"].pop("certificate_id") for lineage in lineages[:2]]
    assert certificates[0] != certificates[1]
    assert lineages[0] == lineages[1]
    assert lineages[2] == {"datasets": [], "models": []}
    assert trace(gateway, subject_id="p1")["models"][0]["num_versions"] == 1


def test_a_person_is_traced_by_id_or_hash(gateway: TestClient, live: dict[str, Any]) -> None:
    """A person can be traced by id or by the id's hash. Tracing an unknown person returns an empty lineage, not an
    error."""
    named = trace(gateway, subject_id="p1")
    assert named["datasets"]
    assert named == trace(gateway, subject_sha256=hashlib.sha256(b"p1").hexdigest())
    assert trace(gateway, subject_id="nobody") == {"datasets": [], "models": []}
    assert "p1" not in json.dumps(named)


def test_exported_copies_stay_in_the_lineage(
    gateway: TestClient, live: dict[str, Any], forget: Make, get: Get, work: Work, key_with: Callable[..., Any]
) -> None:
    """Each download of weights trained on the person stays listed, even after the person has been forgotten. Downloads
    of later versions are not listed."""
    place = f"/models/{live['id']}"
    header = key_with(Scope.MODELS_READ)
    assert gateway.get(f"/v1{place}/versions/1/weights", headers=header).status_code == 200
    request = forget("p1")
    work()
    assert gateway.get(f"/v1{place}/versions/2/weights").status_code == 200
    [model] = get(f"/deletion-requests/{request['id']}/lineage")["models"]
    exports = get(f"{place}/exports")["items"]
    assert [one["version"] for one in exports] == [2, 1]
    assert (model["num_copies_outside"], model["copies_outside"]) == (1, exports[1:])
    keys = {one["id"]: one["name"] for one in get("/api-keys")["items"]}
    assert keys[exports[1]["api_key_id"]] == "test"
    assert get(f"{place}/exports?version=1")["items"] == exports[1:]
    first = get(f"{place}/exports?limit=1")
    assert first["items"] + get(f"{place}/exports?cursor={first['next_cursor']}")["items"] == exports


def test_a_refused_download_is_not_an_export(
    gateway: TestClient, live: dict[str, Any], forget: Make, get: Get, work: Work, refused: Refused
) -> None:
    """A refused download creates no export. A successful download is also recorded in the audit log under the caller's
    key."""
    forget("p1")
    work()
    place = f"/v1/models/{live['id']}/versions"
    refused(gateway.get(f"{place}/1/weights"), 410, "weights_destroyed")
    refused(gateway.get(f"{place}/3/weights"), 404, "version_unknown")
    assert get(f"/models/{live['id']}/exports")["items"] == []
    gateway.get(f"{place}/2/weights")
    [export] = get(f"/models/{live['id']}/exports")["items"]
    [entry] = [one for one in get("/audit-log")["items"] if one["action"] == "model.weights_exported"]
    assert (entry["object_id"], entry["detail"]) == (live["id"], {"version": 2, "export_id": export["id"]})
    assert entry["actor"] == export["api_key_id"]


def test_the_lineage_of_another_tenant_is_unknown(
    gateway: TestClient, installation: Installation, live: dict[str, Any], forget: Make, work: Work, refused: Refused
) -> None:
    """An admin of another tenant gets 404 for requests and models, and an empty lineage for a person."""
    request = forget("p1")
    work()
    gateway.get(f"/v1/models/{live['id']}/versions/2/weights")
    other = gateway.post("/v1/tenants", json={"name": "other"}).json()["admin_key"]
    header = {"Authorization": f"Bearer {other}"}
    refused(gateway.get(f"/v1/deletion-requests/{request['id']}/lineage", headers=header), 404, "request_unknown")
    refused(gateway.get(f"/v1/models/{live['id']}/exports", headers=header), 404, "model_unknown")
    answer = gateway.post("/v1/lineage", json={"subject_id": "p1"}, headers=header)
    assert answer.json() == {"datasets": [], "models": []}


def test_a_lineage_needs_one_subject(gateway: TestClient, refused: Refused) -> None:
    """Tracing without a subject, with two subjects or with a malformed subject is refused."""
    for body in ({}, {"subject_id": "a", "subject_sha256": "0" * 64}, {"subject_id": ""}, {"subject_sha256": "x"}):
        refused(gateway.post("/v1/lineage", json=body), 422, "input_invalid")


def test_weights_superseded_while_being_read_are_refused(
    installation: Installation, by: Actor, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]
) -> None:
    """If a version is superseded while its weights are being read, the download is refused and no export is
    recorded."""
    model = new_model(new_dataset()["id"])
    work()
    forget("p1")
    work()
    with pytest.raises(WeightsDestroyed), installation.database.writing(by=by) as session:
        catalogue.hand_out(session, model_id=model["id"], number=1)
    with installation.database.writing(by=by) as session:
        catalogue.hand_out(session, model_id=model["id"], number=2)
    with installation.database.reading(by=by) as session:
        [found] = repository.exports(session, model_id=model["id"], version=None, limit=5, cursor=None).items
    assert (found.version, found.api_key_id) == (2, by.name)
