"""Row weights end to end: stored, learned, added, rehearsed and forgotten."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.installations import Installation
from lethe import verification
from lethe.encoding.rows import weights_in
from lethe.encoding.targets import UNIT
from tests.stored import rows_of
from tests.tables import each

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]
Refused = Callable[..., dict[str, Any]]
Send = Callable[..., httpx.Response]
COLUMNS: dict[str, Any] = {
    "person": {"role": "subject"},
    "age": {"kind": "standard", "center": 50, "scale": 25},
    "ill": {"role": "label", "values": ["no", "yes"]},
    "times": {"role": "weight", "max": 4},
}


def table(weights: Any, *, first: int = 0, seed: int = 0) -> bytes:
    """Return a file of people with weights, where older people are ill more often."""
    random = np.random.default_rng(seed)
    age = random.integers(0, 101, len(weights))
    ill = np.where(random.random(len(weights)) < age / 100, "yes", "no")
    written = io.StringIO()
    lines = csv.writer(written)
    lines.writerow(["person", "age", "ill", "times"])
    lines.writerows([f"p{first + row}", age[row], ill[row], weight] for row, weight in enumerate(weights))
    return written.getvalue().encode()


def drawn(people: int = 300) -> Any:
    return np.random.default_rng(5).integers(0, 17, people) / 4


@pytest.fixture
def send(gateway: TestClient) -> Send:
    """POST a table with the given changes to its weight column, or with a schema that ignores this column if the change
    is None."""

    def of(content: bytes, weight: dict[str, Any] | None = COLUMNS["times"], **form: str) -> httpx.Response:
        columns = COLUMNS | {"times": {"role": "ignored"} if weight is None else weight}
        data = {"name": "people", "schema": json.dumps({"columns": columns})} | form
        return gateway.post("/v1/datasets", data=data, files={"file": ("people.csv", content)})

    return of


def test_weights_are_stored_learned_and_forgotten(
    gateway: TestClient,
    installation: Installation,
    send: Send,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Work,
) -> None:
    """The weight of each row, divided by the public bound, is stored with its label, used in training, and set to 0
    when the row's person is forgotten. A rehearsal forgets and relearns with the weights, but counts all rows equally
    in its metrics. The certificate states the bound and the same constants as for unweighted rows."""
    made = send(table(drawn()))
    assert made.status_code == 201, made.text
    dataset = made.json()
    measured = send(table(drawn(), first=1000, seed=1)).json()
    assert dataset["schema"]["columns"]["times"] == {"role": "weight", "max": 4.0, "outside": "error"}
    stored = weights_in(rows_of(installation, dataset["id"]).labels)
    assert stored is not None
    assert sorted((stored / UNIT * 4).tolist()) == sorted(drawn().tolist())

    model = new_model(dataset["id"], l2=0.01, evaluation_dataset_id=measured["id"])
    plain = new_model(send(table(drawn(), first=2000), None).json()["id"], l2=0.01)["mechanism"]
    assert model["mechanism"] == plain | {"weight_bound": 4.0}
    work()
    work()
    metrics = get(f"/models/{model['id']}")["metrics"]
    assert metrics["accuracy"] > 0.6
    asked = gateway.post(f"/v1/models/{model['id']}/rehearsals", json={"people": 60})
    assert asked.status_code == 202, asked.text
    work()
    rehearsal = get(f"/models/{model['id']}/rehearsals/{asked.json()['id']}")
    assert rehearsal["report"]["forgotten"]["sets"]["retain"]["accuracy"] > 0.5, rehearsal

    request = forget("p7")["id"]
    work()
    [certificate] = get(f"/deletion-requests/{request}/certificate")["certificates"]
    verdict = verification.verify(certificate["jws"], gateway.get("/.well-known/jwks.json").json())
    assert verdict.statement["evidence"]["mechanism"]["weight_bound"] == 4.0
    assert verdict.statement["audit"]["findings"] == []
    left = rows_of(installation, dataset["id"])
    [gone] = np.flatnonzero(~left.features.any(axis=1))
    assert not left.labels[gone].any()
    assert get(f"/models/{model['id']}")["live_version"] == 2


def test_weights_affect_training(gateway: TestClient, send: Send, new_model: Make, get: Get, work: Work) -> None:
    """If ill people's rows have low weights, the model more often predicts that a person is not ill."""
    content = table(np.full(400, 4)).decode().splitlines()
    lighter = "\n".join(line.removesuffix(",4") + (",0.1" if ",yes," in line else ",4") for line in content[1:])
    found = []
    for rows in ("\n".join(content[1:]), lighter):
        dataset = send(f"{content[0]}\n{rows}\n".encode()).json()
        model = new_model(dataset["id"], l2=0.01)
        work()
        records = [{"age": age} for age in range(0, 101, 5)]
        answer = gateway.post(f"/v1/models/{model['id']}/predictions", json={"records": records}).json()
        found.append(sum(one["label"] == "yes" for one in answer["predictions"]))
    assert found[0] > found[1] + 4


def test_added_rows_have_weights_too(
    gateway: TestClient, installation: Installation, send: Send, new_model: Make, forget: Make, get: Get, work: Work
) -> None:
    """Added rows are written to null slots with their weights, and relearning uses them."""
    dataset = send(table(np.full(200, 2))).json()["id"]
    model = new_model(dataset, l2=0.05)
    work()
    forget("p3")
    forget("p4")
    while work():
        pass
    files = {"file": ("more.csv", table([1, 3], first=900))}
    added = gateway.post(f"/v1/datasets/{dataset}/records", files=files)
    assert added.status_code == 202, added.text
    while work():
        pass
    stored = weights_in(rows_of(installation, dataset).labels)
    assert stored is not None
    assert sorted((stored / UNIT * 4).tolist()) == [1, *[2] * 198, 3]
    assert get(f"/models/{model['id']}")["live_version"] >= 3


@each("written", ["4.01", "", "much"])
def test_a_malformed_weight_is_refused(
    send: Send, refused: Refused, stored: Callable[[], dict[str, int]], nothing: dict[str, int], written: str
) -> None:
    """A file with a value that is not a valid weight is refused; the error names the line and column. No part of the
    file is quoted or stored."""
    problem = refused(send(table([1, 2, written, 3])), 422, "row_invalid")
    assert problem["errors"] == [{"path": "line 4, column times", "message": "expected a weight, a number from 0 to 4"}]
    assert stored() == nothing


def test_weights_above_the_bound_may_be_clipped(installation: Installation, send: Send) -> None:
    """With `outside: clip`, a weight above the bound is replaced by the bound, but a weight below 0 is still
    refused."""
    weight = COLUMNS["times"] | {"outside": "clip"}
    dataset = send(table([1, 2, 400, 3, 1, 1, 1, 1]), weight).json()["id"]
    kept = weights_in(rows_of(installation, dataset).labels)
    assert kept is not None
    assert sorted(kept.tolist())[-2:] == [3 * UNIT // 4, UNIT]
    assert send(table([1, -2, 4, 3]), weight).status_code == 422


@each(("weights", "places"), [((1, 0, 2), ["class no"]), ((0, 0, 0), [])])
def test_a_class_without_weight_is_refused(
    send: Send,
    refused: Refused,
    stored: Callable[[], dict[str, int]],
    weights: tuple[int, ...],
    places: list[str],
) -> None:
    """A class whose rows all have weight 0 is refused, just like a class without rows."""
    labels = ["yes", "no", "perhaps"]
    lines = [f"p{label},50,{label},{weight}\n" for label, weight in zip(labels, weights, strict=True)]
    columns = COLUMNS | {"ill": {"role": "label", "values": labels}}
    content = "".join(["person,age,ill,times\n", *lines]).encode()
    problem = refused(send(content, schema=json.dumps({"columns": columns})), 422, "dataset_unusable")
    assert [fault["path"] for fault in problem["errors"]] == places
    assert "weight" in problem["detail"]
    assert stored()["datasets"] == 0
