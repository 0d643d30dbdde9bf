"""Additions of rows to an existing dataset, which can occupy only slots of forgotten people."""

import io
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.installations import Installation
from tests.conftest import npz, people
from tests.stored import rows_of, slots_of
from tests.tables import each

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Refused = Callable[[httpx.Response, int, str], dict[str, Any]]
SCHEMA = '{"columns": {"x": {"kind": "numeric", "min": 0, "max": 1}, "y": {"role": "label", "values": ["a", "b"]}, '
SCHEMA += '"who": {"role": "subject"}}}'


@pytest.fixture
def add(gateway: TestClient) -> Callable[..., httpx.Response]:
    """Return a function that POSTs rows to a dataset and returns the response."""

    def send(dataset_id: str, content: bytes, *, filename: str = "p.npz", key: str | None = None, **form: str) -> Any:
        headers = {"Idempotency-Key": key} if key else {}
        path = f"/v1/datasets/{dataset_id}/records"
        return gateway.post(path, files={"file": (filename, content)}, data=form, headers=headers)

    return send


@pytest.fixture
def dataset(new_dataset: Make, forget: Make, work: Callable[[], int]) -> dict[str, Any]:
    """Return a dataset of twenty people, of whom p3, p4 and p5 are forgotten, without a model."""
    made = new_dataset(rows=20)
    for subject in ("p3", "p4", "p5"):
        forget(subject)
    assert work() == 1
    return made


def test_added_rows_are_held_and_written(
    installation: Installation,
    dataset: dict[str, Any],
    add: Callable[..., httpx.Response],
    get: Get,
    work: Callable[[], int],
) -> None:
    """Added people are reported as held as soon as the call returns 202. A worker then writes their rows into slots of
    forgotten people and deletes the batch of rows."""
    answer = add(dataset["id"], people("new1", "new2"))
    assert answer.status_code == 202, answer.text
    made = answer.json()
    assert (made["status"], made["num_records"], made["num_suppressed"], made["revision"]) == ("pending", 2, 0, None)
    assert get(answer.headers["location"].removeprefix("/v1")) == {
        k: v for k, v in made.items() if k != "num_suppressed"
    }
    assert get(f"/datasets/{dataset['id']}/subjects/new1") == {"num_records": 1}
    before = get(f"/datasets/{dataset['id']}")
    assert (before["num_records"], before["num_subjects"], before["num_slots"]) == (19, 19, 20)
    features = rows_of(installation, dataset["id"]).features
    assert len(free := np.flatnonzero(~features.any(axis=1))) == 3
    assert set(installation.rows.stored()) == {dataset["id"], made["id"]}

    assert work() == 1
    rows = rows_of(installation, dataset["id"])
    slots = slots_of(installation, dataset["id"], "new1", "new2")
    assert set(free) - set(slots) == set(np.flatnonzero(~rows.features.any(axis=1)))
    assert rows.labels[slots].tolist() == np.load(io.BytesIO(people("new1", "new2")))["y"].tolist()
    assert np.linalg.norm(rows.features, axis=1).max() <= 1
    installation.rows.check(dataset["id"], get(f"/datasets/{dataset['id']}")["digest"])
    assert set(installation.rows.stored()) == {dataset["id"]}
    [applied] = get(f"/datasets/{dataset['id']}/additions")["items"]
    assert (applied["status"], applied["revision"]) == ("applied", 2)
    after = get(f"/datasets/{dataset['id']}")
    assert (after["num_records"], after["num_slots"], after["revision"]) == (19, 20, 2)
    assert get("/runs")["items"][0]["kind"] == "add"
    assert work() == 0


def test_models_are_retrained_after_an_addition(
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    add: Callable[..., httpx.Response],
    get: Get,
    work: Callable[[], int],
) -> None:
    """After an addition, every model of the dataset is retrained from scratch, even a model that batches requests. The
    models can then forget the added people, and the certificate counts the steps since the addition."""
    dataset = new_dataset(rows=20)
    models = [
        new_model(dataset["id"], noise_scale=0.05),
        new_model(dataset["id"], noise_scale=0.05, batching={"max_wait_seconds": 3600}),
    ]
    assert work() == 2
    forget("p3")
    assert work() == 1
    assert add(dataset["id"], people("new1")).status_code == 202
    assert work() == 2
    for model in models:
        newest = get(f"/runs?model_id={model['id']}")["items"][0]
        assert (newest["kind"], newest["status"]) == ("relearn", "published")
    request = forget("new1")
    assert work() == 1
    owed = {one["model_id"]: one for one in get(f"/deletion-requests/{request['id']}")["models"]}
    assert owed[models[0]["id"]]["status"] == "completed"


def test_rows_beyond_the_free_slots_are_refused(
    dataset: dict[str, Any],
    add: Callable[..., httpx.Response],
    refused: Refused,
    installation: Installation,
    work: Callable[[], int],
) -> None:
    """An addition with more rows than free slots is refused with the number of free slots. Slots reserved for rows of
    waiting batches do not count as free."""
    problem = refused(add(dataset["id"], people("a", "b", "c", "d")), 409, "dataset_full")
    assert problem["detail"].startswith("3 slots")
    assert add(dataset["id"], people("a", "b")).status_code == 202
    assert refused(add(dataset["id"], people("c", "d")), 409, "dataset_full")["detail"].startswith("1 slots")
    assert add(dataset["id"], people("c")).status_code == 202
    assert refused(add(dataset["id"], people("e")), 409, "dataset_full")["detail"].startswith("0 slots")
    assert work() == 1
    assert set(installation.rows.stored()) == {dataset["id"]}


def test_a_repeated_call_adds_once(
    dataset: dict[str, Any], add: Callable[..., httpx.Response], refused: Refused, installation: Installation, get: Get
) -> None:
    """Repeating a call with the same idempotency key and rows returns the first response. Different rows under the same
    key are a conflict, and no further rows are staged."""
    first = add(dataset["id"], people("a"), key="k")
    assert add(dataset["id"], people("a"), key="k").json() == first.json()
    refused(add(dataset["id"], people("b"), key="k"), 409, "idempotency_conflict")
    assert len(get(f"/datasets/{dataset['id']}/additions")["items"]) == 1
    assert set(installation.rows.stored()) == {dataset["id"], first.json()["id"]}


def test_rows_of_forgotten_people_are_refused(
    gateway: TestClient,
    dataset: dict[str, Any],
    add: Callable[..., httpx.Response],
    refused: Refused,
    installation: Installation,
) -> None:
    """Rows of a forgotten person are refused, or skipped if the call requests this, until the person's consent is
    recorded."""
    refused(add(dataset["id"], people("p3", "a")), 409, "subject_suppressed")
    [match] = gateway.get("/v1/audit-log?action=suppressions.matched").json()["items"]
    assert (match["object_id"], match["detail"]) == (dataset["id"], {"rows": 1})
    assert set(installation.rows.stored()) == {dataset["id"]}
    skipped = add(dataset["id"], people("p3", "a"), suppressed="skip").json()
    assert (skipped["num_records"], skipped["num_suppressed"]) == (1, 1)
    lifted = gateway.post("/v1/suppressions:lift", json={"subject_id": "p3", "reason": "consent_given"})
    assert lifted.is_success, lifted.text
    assert add(dataset["id"], people("p3")).status_code == 202


def test_a_request_before_rows_are_applied_nulls_them(
    installation: Installation,
    dataset: dict[str, Any],
    add: Callable[..., httpx.Response],
    forget: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """A deletion request that arrives while a batch is waiting also finds a person whose rows are only in the batch.
    The person's rows are nulled, and the batch is deleted."""
    assert add(dataset["id"], people("new1", "new2")).status_code == 202
    null, there = slots_of(installation, dataset["id"], "new1", "new2")
    request = forget("new1")
    assert work() == 1
    done = get(f"/deletion-requests/{request['id']}")
    assert (done["status"], done["outcome"]) == ("completed", "forgotten")
    features = rows_of(installation, dataset["id"]).features
    assert not features[null].any()
    assert features[there].any()
    assert set(installation.rows.stored()) == {dataset["id"]}
    assert get(f"/datasets/{dataset['id']}")["num_records"] == 18


@each(
    ("content", "filename"),
    [
        (people("a", x=np.ones((1, 4))), "p.npz"),
        (people("a", y=np.array([2])), "p.npz"),
        (people("a", x=np.full((1, 3), np.nan)), "p.npz"),
        (people(), "p.npz"),
        (b"PK\x05\x06", "p.npz"),
        (b"x,y,who\n0.5,a,a\n", "p.csv"),
        (b"", "p.exe"),
    ],
)
def test_rows_that_do_not_fit_are_refused(
    content: bytes,
    filename: str,
    dataset: dict[str, Any],
    add: Callable[..., httpx.Response],
    stored: Callable[[], dict[str, int]],
) -> None:
    """Rows of the wrong shape, class or kind, damaged rows and empty files return 422, and no row is stored."""
    before = stored()
    answer = add(dataset["id"], content, filename=filename)
    assert answer.status_code == 422, answer.text
    assert stored() == before


def test_added_csv_rows_follow_the_schema(
    gateway: TestClient,
    add: Callable[..., httpx.Response],
    forget: Make,
    installation: Installation,
    work: Callable[[], int],
) -> None:
    """Rows of a CSV file are encoded like the dataset's own rows. If one row is malformed, the whole file is
    refused."""
    rows = "".join(f"0.{row},{'ab'[row % 2]},p{row}\n" for row in range(1, 9))
    form = {"name": "people", "schema": SCHEMA}
    made = gateway.post("/v1/datasets", data=form, files={"file": ("p.csv", "x,y,who\n" + rows)}).json()
    slots = slots_of(installation, made["id"], "p2")
    first = rows_of(installation, made["id"]).features[slots]
    forget("p2")
    assert work() == 1
    assert add(made["id"], b"x,y,who\n0.2,c,new\n", filename="p.csv").status_code == 422
    assert add(made["id"], people("new")).status_code == 422
    assert add(made["id"], b"x,y,who\n0.2,a,new\n", filename="p.csv").status_code == 202
    assert work() == 1
    np.testing.assert_array_equal(rows_of(installation, made["id"]).features[slots], first)


def test_an_unknown_dataset_is_a_404(add: Callable[..., httpx.Response], refused: Refused, gateway: TestClient) -> None:
    """Adding rows to an unknown dataset, or listing its additions, returns 404."""
    refused(add("ds_none", npz()), 404, "dataset_unknown")
    refused(gateway.get("/v1/datasets/ds_none/additions"), 404, "dataset_unknown")


def test_an_addition_belongs_to_its_dataset(
    dataset: dict[str, Any],
    new_dataset: Make,
    add: Callable[..., httpx.Response],
    refused: Refused,
    gateway: TestClient,
) -> None:
    """An addition is found only under its own dataset's URL."""
    addition, other = add(dataset["id"], people("a")).json()["id"], new_dataset("other", rows=3)["id"]
    assert gateway.get(f"/v1/datasets/{dataset['id']}/additions/{addition}").status_code == 200
    refused(gateway.get(f"/v1/datasets/{other}/additions/{addition}"), 404, "addition_unknown")
