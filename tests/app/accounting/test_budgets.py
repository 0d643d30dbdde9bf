"""Datasets with a budget for everything that all versions of their models may ever reveal."""

import functools
import json
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.accounting import budgets, certificates
from app.db.tables import Dataset, Version
from app.installations import Installation
from app.unlearning import queue, service
from lethe import verification
from lethe.contract.problems import AdaptiveBudgetSpent, CertificateInvalid
from lethe.proof import conversion
from tests.conftest import FORM, npz
from tests.stored import rows_of, slots_of
from tests.tables import each

Make = Callable[..., dict[str, Any]]
Budgeted = Callable[[float], dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]

DELTA = 1e-5


@pytest.fixture
def budgeted(new_dataset: Make) -> Budgeted:
    """Return a function that uploads made-up people as a dataset with a budget and returns the dataset."""
    return lambda epsilon: new_dataset(form={"adaptive_epsilon": str(epsilon), "adaptive_delta": str(DELTA)})


@pytest.fixture(scope="module")
def known() -> dict[int, float]:
    """Cache the budgets that `epsilon_of` has computed."""
    return {}


@pytest.fixture
def epsilon_of(
    known: dict[int, float], new_dataset: Make, new_model: Make, forget: Make, work: Work, get: Get
) -> Callable[[int], float]:
    """Return a function that computes the budget that exactly covers the initial training and the given number of
    versions, each of which forgets one person."""

    def found(releases: int) -> float:
        if releases in known:
            return known[releases]
        dataset = new_dataset()
        new_model(dataset["id"], noise_scale=0.05)
        work()
        for number in range(releases):
            forget(f"p{number}", dataset_ids=[dataset["id"]])
            work()
        used = get(f"/accounting/datasets/{dataset['id']}?adaptive_delta={DELTA}")["used"]
        known[releases] = float(used["epsilon"]) * (1 + 1e-6)
        return known[releases]

    return found


def test_a_certificate_states_the_budget(
    gateway: TestClient,
    budgeted: Budgeted,
    new_model: Make,
    forget: Make,
    work: Work,
    get: Get,
    epsilon_of: Callable[[int], float],
) -> None:
    """If a dataset has a budget, the `adaptive` guarantee states the budget instead of the sum over versions. The
    certificate states that no version was published beyond the budget, and its numbers can be recomputed offline."""
    dataset = budgeted(epsilon := epsilon_of(3))
    assert dataset["adaptive_budget"] == {"epsilon": epsilon, "delta": DELTA}
    model = new_model(dataset["id"], noise_scale=0.05)
    work()
    request = forget("p1", dataset_ids=[dataset["id"]])
    work()
    [signed] = get(f"/deletion-requests/{request['id']}/certificate")["certificates"]
    verified = verification.verify(signed["jws"], get_keys(gateway))
    adaptive = next(one for one in verified.guarantees if one.notion == "adaptive")
    assert adaptive.mu == conversion.gdp_mu(epsilon=epsilon, delta=DELTA)
    assert "budget set in advance" in adaptive.reference_process
    joint = get(f"/deletion-requests/{request['id']}/certificate")["joint"]
    assert adaptive.mu in [one["mu"] for one in joint["guarantees"]]
    curve = get(f"/accounting/models/{model['id']}/trajectory")
    assert adaptive.mu in [one["adaptive"]["mu"] for one in curve["items"] if one["adaptive"]]
    account = get(f"/accounting/datasets/{dataset['id']}")
    assert account["models"][0]["releases_left"]["epsilon"] == epsilon
    assert account["models"][0]["releases_left"]["count"] == 2


def get_keys(gateway: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = gateway.get("/.well-known/jwks.json").json()
    return found


def test_versions_that_exceed_the_stated_budget_are_refused(
    installation: Installation, gateway: TestClient, new_dataset: Make, new_model: Make, forget: Make, work: Work
) -> None:
    """Verification refuses a certificate if the published versions that it lists exceed the budget that it states."""
    new_model(new_dataset()["id"], noise_scale=0.05)
    work()
    request = forget("p1")
    work()
    proof = gateway.get(f"/v1/deletion-requests/{request['id']}/certificate").json()
    statement = certificates.statement_in(proof["certificates"][0]["jws"])
    models = list(statement["evidence"]["exposures"])
    statement["evidence"]["budgets"] = {statement["dataset"]["id"]: {"epsilon": 0.1, "delta": DELTA, "models": models}}
    with pytest.raises(CertificateInvalid, match="budget_kept"):
        verification.verify(certificates.sign(installation.keys, statement), get_keys(gateway))


def test_no_version_exceeds_the_budget(
    installation: Installation,
    gateway: TestClient,
    budgeted: Budgeted,
    new_model: Make,
    forget: Make,
    work: Work,
    get: Get,
    epsilon_of: Callable[[int], float],
) -> None:
    """If a version would exceed the budget, the rows are still erased, but the model reports `adaptive_budget_spent`,
    the request waits, and no new model can be created on the dataset. Retiring the model completes the request."""
    dataset = budgeted(epsilon_of(1))
    model = new_model(dataset["id"], noise_scale=0.05)
    work()
    first = forget("p1", dataset_ids=[dataset["id"]])
    work()
    assert get(f"/deletion-requests/{first['id']}")["status"] == "completed"
    slots = slots_of(installation, dataset["id"], "p2")
    second = forget("p2", dataset_ids=[dataset["id"]])
    assert work() == 1
    assert work() == 0
    assert not rows_of(installation, dataset["id"]).features[slots].any()
    waiting = get(f"/deletion-requests/{second['id']}")
    assert (waiting["status"], waiting["models"][0]["status"]) != ("completed", "completed")
    stands = get(f"/models/{model['id']}")
    assert (stands["live_version"], stands["error_code"]) == (2, "adaptive_budget_spent")
    body = {"name": "more", "dataset_id": dataset["id"], "l2": 0.05, "noise_scale": 0.05}
    answer = gateway.post("/v1/models", json=body)
    assert (answer.status_code, answer.json()["code"]) == (409, "adaptive_budget_spent")
    assert gateway.delete(f"/v1/models/{model['id']}").status_code == 200
    done = get(f"/deletion-requests/{second['id']}")
    assert (done["status"], done["outcome"]) == ("completed", "forgotten")
    assert [one["status"] for one in done["models"]] == ["destroyed"]
    with installation.database.reading() as session:
        budgets.require_kept(session, session.get_one(Dataset, dataset["id"]))
        assert (
            session.scalar(sa.select(sa.func.count()).select_from(Version).where(Version.model_id == model["id"])) == 2
        )


def test_a_run_is_not_published_once_the_budget_is_spent(
    installation: Installation,
    budgeted: Budgeted,
    new_model: Make,
    forget: Make,
    work: Work,
    epsilon_of: Callable[[int], float],
) -> None:
    """A run that was planned within the budget is not published if the budget has been spent before the run ends."""
    dataset = budgeted(epsilon_of(1))
    new_model(dataset["id"], noise_scale=0.05, audit={"lanes": 0})
    work()
    forget("p1", dataset_ids=[dataset["id"]])
    with installation.database.writing() as session:
        claimed = queue.claim(session, worker="w", lease_seconds=60, max_requests=10)
        assert claimed is not None
        assert claimed.mechanism is not None
        lost = {"mechanism": claimed.mechanism.to_json(), "steps": [claimed.mechanism.learn_steps]}
        session.get_one(Dataset, dataset["id"]).lost_models = {"mdl_lost": lost}
    publish = functools.partial(
        service.publish,
        keys=installation.keys,
        run_id=claimed.run_id,
        first_step_ran=claimed.first_step,
        steps_ran=claimed.steps,
        mechanism_ran=claimed.mechanism,
        weights_sha256="0" * 64,
        metrics={},
        observed=None,
    )
    with installation.database.writing() as session, pytest.raises(AdaptiveBudgetSpent):
        publish(session)


@each(
    "form",
    [
        {"adaptive_epsilon": "1"},
        {"adaptive_delta": "0.1"},
        {"adaptive_epsilon": "0", "adaptive_delta": "0.1"},
        {"adaptive_epsilon": "inf", "adaptive_delta": "0.1"},
        {"adaptive_epsilon": "1", "adaptive_delta": "1"},
    ],
)
def test_a_malformed_budget_is_refused(gateway: TestClient, form: dict[str, str]) -> None:
    """An incomplete budget, or a budget whose numbers are not a valid bound, is refused with a specific error, and
    nothing is stored."""
    answer = gateway.post("/v1/datasets", data=FORM | form, files={"file": ("people.npz", npz())})
    assert (answer.status_code, answer.json()["code"]) == (422, "input_invalid")
    assert "adaptive_" in json.dumps(answer.json()["errors"])
    assert gateway.get("/v1/datasets").json()["items"] == []


def test_the_audit_log_shows_when_a_budget_was_set(gateway: TestClient, budgeted: Budgeted) -> None:
    """The audit log shows that a budget was set before the first version was published."""
    dataset = budgeted(2.0)
    found = gateway.get("/v1/audit-log", params={"action": "dataset.created"}).json()["items"]
    [entry] = [one for one in found if one["object_id"] == dataset["id"]]
    assert (entry["detail"]["epsilon"], entry["detail"]["delta"]) == (2.0, DELTA)
