"""One request from upload to certificate."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.accounting import repository as accounting_repository
from app.installations import Installation
from lethe import verification
from lethe.verification import ledgers
from tests.stored import rows_of, slots_of, versions_in

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


@pytest.mark.parametrize("classes", [2, 3])
def test_a_person_is_forgotten(
    gateway: TestClient,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
    classes: int,
) -> None:
    """A deletion request nulls the person's rows, publishes a certified version and completes, and the old weights are
    destroyed."""
    dataset = new_dataset(rows=90, classes=classes, rows_each=2)
    slots = slots_of(installation, dataset["id"], "p3")
    model = new_model(dataset["id"], noise_scale=0.02)
    assert model["status"] == "learning"
    assert work() == 1
    first = gateway.get(f"/v1/models/{model['id']}/versions/1/weights").content

    request = forget("p3")
    assert request["status"] == "accepted"
    assert request["estimate"]["steps"] >= 1
    assert work() == 1

    done = get(f"/deletion-requests/{request['id']}")
    assert (done["status"], done["outcome"]) == ("completed", "forgotten")
    assert [event["status"] for event in get(f"/deletion-requests/{request['id']}/events")["items"]] == [
        "received",
        "accepted",
        "running",
        "running",
        "completed",
    ]
    rows = rows_of(installation, dataset["id"])
    assert np.flatnonzero(~rows.features.any(axis=1)).tolist() == sorted(slots)
    assert not rows.labels[slots].any()
    assert get(f"/datasets/{dataset['id']}")["num_records"] == 88

    [owed] = done["models"]
    assert (owed["status"], owed["version"]) == ("completed", 2)
    certificate = get(f"/certificates/{owed['certificate_id']}")
    verified = verification.verify(certificate["jws"], gateway.get("/.well-known/jwks.json").json())
    by_notion = {guarantee.notion: guarantee for guarantee in verified.guarantees}
    target = model["target"]
    assert by_notion["unlearning"].epsilon <= target["epsilon"] * (1 + 1e-6)
    assert by_notion["deletion"].mu <= by_notion["unlearning"].mu * (1 + 1e-9)
    assert verified.statement["evidence"]["records"] == 2

    gone = gateway.get(f"/v1/models/{model['id']}/versions/1/weights")
    assert (gone.status_code, gone.json()["code"]) == (410, "weights_destroyed")
    second = gateway.get(f"/v1/models/{model['id']}/versions/2/weights")
    assert second.status_code == 200
    assert second.content != first
    with installation.database.reading() as session:
        report = ledgers.verify(accounting_repository.all_entries(session), versions_in(session))
    assert report.entries == 2
