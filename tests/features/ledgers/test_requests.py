"""Budgets of models with ledgers in the life of a request, and its bundle."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app import signing
from app.installations import Installation
from lethe.contract.problems import CertificateInvalid
from lethe.features.ledgers import accountant
from lethe.features.systems import bundle
from tests.features.ledgers.conftest import LEDGER, ledger, moment
from tests.tables import each

New = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Settled = Callable[[], None]


def test_requests_are_bounded_until_the_budget_is_spent(
    gateway: TestClient, new_dp_model: New, forget: New, settled: Settled, get: Get
) -> None:
    """A request gets a privacy bound as long as the budget covers the rows of all such requests together. The next
    request waits for a ledger whose training started after that request was accepted; an older ledger is not enough."""
    model = new_dp_model()
    assert (model["epsilon"], model["budget_rows"], model["retraining_due"]) == (0.576, 4, False)
    assert {point["rows"]: point["epsilon"] for point in model["curve"]} == {
        1: 0.27,
        2: 0.576,
        4: 1.234,
        5: 1.58,
        6: 1.936,
        8: 2.676,
    }
    first, second, third = (forget(f"{name}@example.com")["id"] for name in "abc")
    settled()
    statuses = [get(f"/deletion-requests/{one}")["status"] for one in (first, second, third)]
    assert statuses == ["completed", "completed", "accepted"]
    waiting = get(f"/deletion-requests/{third}/systems")
    assert (waiting["waits_for"], waiting["grade"]) == (["Ranker"], "not_reached")
    assert get(f"/deletion-requests/{second}/systems")["grade"] == "declared"
    spent = get(f"/dp-models/{model['id']}")
    assert (spent["forgotten_rows"], spent["waiting_requests"], spent["retraining_due"]) == (6, 1, True)

    path = f"/v1/dp-models/{model['id']}/ledgers"
    for before in ({"hours": 2}, {"days": -1}):
        refused = gateway.post(path, json=ledger(trained_from=moment(**before)))
        assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "trained_from"), refused.text
    same = ledger(trained_from=spent["trained_from"])
    assert gateway.post(path, json=same).json()["version"] == 1
    # The training is older than the requests, and its budget covers only one of them.
    refused = gateway.post(path, json=ledger(budget_epsilon=0.6))
    assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "trained_from"), refused.text
    settled()
    assert get(f"/deletion-requests/{third}")["status"] == "accepted"

    new = ledger(trained_from=moment())
    renewed = gateway.post(path, json=new)
    assert renewed.status_code == 200, renewed.text
    assert gateway.post(path, json=new).json() == renewed.json()
    assert (renewed.json()["version"], renewed.json()["forgotten_rows"]) == (2, 0)
    settled()
    assert get(f"/deletion-requests/{third}")["status"] == "completed"
    [line] = [
        one for one in get(f"/deletion-requests/{first}/bundle")["statement"]["lines"] if one["grade"] == "declared"
    ]
    assert (line["evidence"]["version"], line["evidence"]["forgotten_rows"]) == (2, 0)


def test_a_larger_budget_covers_waiting_requests(
    gateway: TestClient, new_dp_model: New, forget: New, settled: Settled, get: Get
) -> None:
    """Registering a larger budget for the same training gives waiting requests their privacy bound, oldest first, until
    the budget is used up. The remaining requests continue to wait."""
    model = new_dp_model(budget_epsilon=0.6)
    ids = [forget(f"{name}@example.com")["id"] for name in "abc"]
    settled()
    assert [get(f"/deletion-requests/{one}")["status"] for one in ids] == ["completed", "accepted", "accepted"]
    larger = ledger(budget_epsilon=1.3, trained_from=model["trained_from"])
    assert gateway.post(f"/v1/dp-models/{model['id']}/ledgers", json=larger).status_code == 200
    settled()
    assert [get(f"/deletion-requests/{one}")["status"] for one in ids] == ["completed", "completed", "accepted"]


def test_a_cancelled_request_frees_budget(
    gateway: TestClient, new_dp_model: New, forget: New, settled: Settled, get: Get, policy: Callable[..., None]
) -> None:
    """A request that is cancelled in its grace period no longer counts against the budget, and the oldest waiting
    request gets its privacy bound instead."""
    policy(grace_seconds=3600)
    new_dp_model(budget_epsilon=0.6)
    first, second = (forget(f"{name}@example.com")["id"] for name in "ab")
    assert "Ranker" in get(f"/deletion-requests/{second}/systems")["waits_for"]
    assert gateway.post(f"/v1/deletion-requests/{first}/cancel").status_code == 200
    after = get(f"/deletion-requests/{second}/systems")
    assert "Ranker" not in after["waits_for"]
    assert {line["name"]: line["grade"] for line in after["lines"]}["Ranker"] == "declared"


def test_retiring_a_model_ends_waiting_requests(
    gateway: TestClient, new_dp_model: New, forget: New, settled: Settled, get: Get
) -> None:
    """Retiring a model completes the requests that are waiting for it, with a headline stating that the model was not
    reached. Later requests do not include the model."""
    model = new_dp_model(budget_epsilon=0.6)
    ids = [forget(f"{name}@example.com")["id"] for name in "ab"]
    for _ in range(2):
        assert gateway.delete(f"/v1/dp-models/{model['id']}").status_code == 204
    settled()
    assert [get(f"/deletion-requests/{one}")["status"] for one in ids] == ["completed", "completed"]
    assert get(f"/deletion-requests/{ids[1]}/bundle")["grade"] == "not_reached"
    later = forget("c@example.com")["id"]
    assert [line["kind"] for line in get(f"/deletion-requests/{later}/systems")["lines"]] == ["rows"]


def test_only_requests_about_its_datasets_concern_a_model(
    gateway: TestClient, new_dataset: New, new_dp_model: New, forget: New, get: Get
) -> None:
    """A request that is limited to other datasets does not add to the model's count of forgotten rows. The model is
    included in the list of systems."""
    mine, other = new_dataset(), new_dataset(name="other")
    model = new_dp_model(dataset_ids=[mine["id"]])
    forget("p0", dataset_ids=[other["id"]])
    assert get(f"/dp-models/{model['id']}")["forgotten_rows"] == 0
    forget("p1", dataset_ids=[mine["id"]])
    forget("p2")
    assert get(f"/dp-models/{model['id']}")["forgotten_rows"] == 4
    [listed] = [one for one in get("/systems")["items"] if one["kind"] == "dp_model"]
    assert (listed["id"], listed["grade"]) == (model["id"], "declared")
    assert [one["id"] for one in get("/dp-models")["items"]] == [model["id"]]
    refused = gateway.post("/v1/dp-models", json={"name": "x", "dataset_ids": ["ds_0"]} | ledger())
    assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "dataset_ids.0")


@each(
    ("given", "path", "expected"),
    [
        ({"ledger": {"format": "dp_event", "event": {"class_name": "ZCDpEvent", "rho": 1.0}}}, "ledger", "'ZCDpEvent'"),
        ({"ledger": {"format": "pickle"}}, "ledger", "ledger_whole"),
        ({"relation": "replace_one"}, "relation", "add_or_remove_one"),
        ({"budget_epsilon": 0.5}, "budget_epsilon", "at least 0.576"),
        ({"ledger": {"format": "opacus", "history": [[0.1, 0.5, 999]]}}, "budget_epsilon", "a ledger of epsilon 50"),
        ({"delta": 0.0}, "delta", "greater than or equal"),
        ({"trained_from": moment(days=-1)}, "trained_from", "no time in the future"),
    ],
)
def test_a_ledger_without_a_computable_epsilon_is_refused(
    gateway: TestClient, get: Get, given: dict[str, Any], path: str, expected: str
) -> None:
    """A ledger whose privacy loss cannot be computed is not stored, and the response names the event or the field."""
    answer = gateway.post("/v1/dp-models", json={"name": "Ranker"} | ledger(**given))
    [fault] = answer.json()["errors"]
    assert (answer.status_code, fault["path"]) == (422, path), answer.text
    assert expected in fault["message"]
    assert get("/dp-models")["items"] == []


def test_a_bundle_recomputes_epsilon(
    gateway: TestClient, installation: Installation, new_dp_model: New, forget: New, settled: Settled, get: Get
) -> None:
    """A bundle contains the ledger and verifies with only the public keys. If the evidence claims a smaller epsilon,
    another ledger, more rows or a later start of training, verification fails and names the failed check, even if the
    installation signed the bundle."""
    new_dp_model()
    for name in "ab":
        request = forget(f"{name}@example.com")["id"]
    settled()
    whole, jwks = get(f"/deletion-requests/{request}/bundle"), signing.public_keys(installation.keys)
    assert whole["grade"] == "declared"
    assert bundle.verify(json.dumps(whole), jwks).statement == whole["statement"]
    [place] = [n for n, line in enumerate(whole["statement"]["lines"]) if line["grade"] == "declared"]
    evidence = whole["statement"]["lines"][place]["evidence"]
    assert (evidence["epsilon_of_person"], evidence["epsilon_of_forgotten"], evidence["forgotten_rows"]) == (
        0.576,
        1.234,
        4,
    )
    assert any("sampler is not in a ledger" in limit for limit in whole["statement"]["lines"][place]["limits"])

    def refusal(**fields: Any) -> str:
        statement = copy.deepcopy(whole["statement"])
        statement["lines"][place]["evidence"].update(fields)
        signed = signing.sign(installation.keys, json.dumps(statement).encode(), kind=bundle.TYPE)
        with pytest.raises(CertificateInvalid) as refused:
            bundle.verify(signed, jwks)
        return str(refused.value).partition(":")[0]

    assert refusal(epsilon_of_person=0.5) == "epsilon_recomputed"
    assert refusal(epsilon_of_forgotten=1.2) == "epsilon_recomputed"
    assert refusal(ledger={"format": "opacus", "history": [[2.0, 0.02, 200]]}) == "epsilon_recomputed"
    assert refusal(ledger={"format": "dp_event", "event": {"class_name": "ZCDpEvent", "rho": 1}}) == "event_known"
    assert refusal(max_rows_per_person=3) == "epsilon_recomputed"
    assert refusal(forgotten_rows=0, epsilon_of_forgotten=0.0) == "rows_counted"
    assert refusal(trained_from=moment()) == "rows_counted"
    assert refusal(budget_epsilon=1.0) == "epsilon_within_budget"
    assert refusal(relation="replace_one") == "relation_known"
    assert refusal(delta=1e-3) == "epsilon_recomputed"


def test_verification_names_its_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """If dp-accounting is not installed, verification fails with an error that names the extra to install."""
    monkeypatch.setitem(__import__("sys").modules, "dp_accounting.pld", None)
    with pytest.raises(Exception, match=r"accountant_installed: Install lethe-sdk\[ledgers\]"):
        accountant.epsilon(accountant.read(LEDGER), rows=1, delta=1e-5)
