from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.installations import Installation
from app.unlearning.queue import ClaimedRun

Get = Callable[[str], Any]
Make = Callable[..., dict[str, Any]]
PLACE = "/v1/deletion-requests"
Refused = Callable[..., dict[str, Any]]
Work = Callable[[], int]


def test_waiting_requests_are_served_together(
    installation: Installation,
    live: dict[str, Any],
    forget: Make,
    shown: Make,
    statements: Callable[..., list[dict[str, Any]]],
    get: Get,
    work: Work,
) -> None:
    """Two requests about one person and one request about another complete in the same run. Each request gets a
    certificate that covers only its own person's record, and the rows are nulled once."""
    requests = [forget("p1"), forget("p1"), forget("p2")]
    assert work() == 1
    certified = [statements(request)[0] for request in requests]
    assert [shown(request)["outcome"] for request in requests] == ["forgotten"] * 3
    about = [(statement["request"]["id"], statement["request"]["records"]) for statement in certified]
    assert about == [(request["id"], 1) for request in requests]
    assert certified[0]["ledger"] == certified[1]["ledger"] == certified[2]["ledger"]
    dataset = get(f"/datasets/{live['dataset_id']}")
    assert (dataset["revision"], dataset["num_records"]) == (1, 58)


def test_a_second_request_joins_an_erasure_in_progress(
    live: dict[str, Any],
    forget: Make,
    shown: Make,
    statuses: Callable[..., list[str]],
    statements: Callable[..., list[dict[str, Any]]],
    get: Get,
    claim: Callable[[], ClaimedRun],
    give_up: Callable[[], None],
    work: Work,
) -> None:
    """A request that arrives after the person's rows were claimed waits for the same run and gets a separate
    certificate."""
    first = forget("p1")
    claim()
    second = forget("p1")
    assert (shown(first)["status"], second["status"]) == ("running", "accepted")
    give_up()
    assert shown(first)["status"] == "accepted"
    assert work() == 1
    assert statuses(first) == ["received", "accepted", "running", "accepted", "running", "running", "completed"]
    for request in (first, second):
        assert shown(request)["outcome"] == "forgotten"
        assert statements(request)[0]["request"]["records"] == 1
    assert get(f"/datasets/{live['dataset_id']}")["revision"] == 1


def test_a_second_request_for_a_person_in_two_datasets_completes(
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    shown: Make,
    claim: Callable[[], ClaimedRun],
    give_up: Callable[[], None],
    work: Work,
) -> None:
    """If a person's rows are already claimed in one of two datasets, a new request about the person completes for both
    datasets."""
    models = [new_model(new_dataset(seed=seed)["id"])["id"] for seed in range(2)]
    work()
    requests = [forget("p1")]
    claim()
    requests.append(forget("p1"))
    give_up()
    assert work() == 2
    for request in map(shown, requests):
        assert request["outcome"] == "forgotten"
        assert {owed["model_id"] for owed in request["models"]} == set(models)
        assert all(owed["certificate_id"] for owed in request["models"])


@pytest.mark.parametrize("learning", ["waiting", "under way"])
def test_a_request_waits_for_a_model_that_is_learning(
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    shown: Make,
    statements: Callable[..., list[dict[str, Any]]],
    claim: Callable[[], ClaimedRun],
    give_up: Callable[[], None],
    work: Work,
    learning: str,
) -> None:
    """A request made before a model has a version waits for the first version, which is trained without the person's
    rows; the certificate states this."""
    model = new_model(new_dataset()["id"])
    if learning == "under way":
        claim()
    request = forget("p1")
    assert request["status"] == "accepted"
    assert request["estimate"]["models"][0]["kind"] == "learn"
    if learning == "under way":
        give_up()
    assert work() == 1
    [owed] = shown(request)["models"]
    assert (owed["model_id"], owed["version"]) == (model["id"], 1)
    [statement] = statements(request)
    assert statement["evidence"]["steps_present"] == 0
    assert statement["evidence"]["exposures"] == {}


def test_a_request_reaches_every_dataset_and_model_of_the_person(
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    shown: Make,
    statements: Callable[..., list[dict[str, Any]]],
    get: Get,
    work: Work,
) -> None:
    """A request covers every dataset and model with the person's records, and each certificate names all of these
    models."""
    datasets = [new_dataset(seed=seed)["id"] for seed in range(2)]
    models = {new_model(dataset)["id"] for dataset in datasets}
    work()
    request = forget("p1")
    assert work() == 2
    assert {owed["model_id"] for owed in shown(request)["models"]} == models
    assert [set(statement["evidence"]["exposures"]) for statement in statements(request)] == [models, models]
    assert [get(f"/datasets/{dataset}")["num_records"] for dataset in datasets] == [59, 59]


def test_a_request_may_name_its_datasets(
    gateway: TestClient, new_dataset: Make, forget: Make, get: Get, work: Work, refused: Refused
) -> None:
    """A person is forgotten only in the datasets named in the request; naming an unknown dataset returns 404."""
    kept, emptied = (new_dataset(seed=seed)["id"] for seed in range(2))
    forget("p1", dataset_ids=[emptied, emptied])
    assert work() == 1
    assert [get(f"/datasets/{dataset}")["num_records"] for dataset in (kept, emptied)] == [60, 59]
    refused(gateway.post(PLACE, json={"subject_id": "p1", "dataset_ids": [kept, "ds_0"]}), 404, "dataset_unknown")
    assert len(get("/deletion-requests")["items"]) == 1


def test_a_dataset_without_a_model_needs_no_certificate(
    new_dataset: Make, forget: Make, shown: Make, get: Get, work: Work
) -> None:
    """If no model was trained on the rows, they are erased and the request completes without certificates. The joint
    guarantee in its proof is null."""
    dataset = new_dataset()
    request = forget("p1")
    assert request["estimate"] == {"steps": 0, "models": []}
    assert work() == 1
    done = shown(request)
    assert (done["status"], done["outcome"], done["models"]) == ("completed", "forgotten", [])
    nothing = {"certificates": [], "damaged": [], "joint": None, "nothing_held": None}
    assert get(f"/deletion-requests/{request['id']}/certificate") == nothing | {"request_id": request["id"]}
    after = get(f"/datasets/{dataset['id']}")
    assert after["num_records"] == 59
    assert after["digest"] != dataset["digest"]
    assert [run["kind"] for run in get("/runs")["items"]] == ["erase"]
