"""Bounds on the target of a model, and the warning for tenants that permit weaker targets."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from scipy.stats import norm

from app.installations import Installation
from lethe.contract.sets import Outcome, Scope
from tests.tables import each

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]
Refused = Callable[..., dict[str, Any]]
VACUOUS = {"epsilon": 100.0, "delta": 0.99}


def asked(dataset_id: str, **target: float) -> dict[str, Any]:
    return {"name": "m", "dataset_id": dataset_id, "l2": 0.05, "target": target}


@each(
    ("target", "paths"),
    [
        ({"epsilon": 8.000001}, ["target.epsilon"]),
        ({"delta": 0.0167}, ["target.delta"]),
        (VACUOUS, ["target.epsilon", "target.delta"]),
    ],
)
def test_a_vacuous_target_is_refused(
    gateway: TestClient,
    new_dataset: Make,
    refused: Refused,
    stored: Callable[[], dict[str, int]],
    target: dict[str, float],
    paths: list[str],
) -> None:
    """A model is not created if its target epsilon is above 8, or if its delta is above 1/n for a dataset with n slots;
    the error names the bounds."""
    dataset = new_dataset(rows=60)
    problem = refused(gateway.post("/v1/models", json=asked(dataset["id"], **target)), 422, "target_too_weak")
    assert [fault["path"] for fault in problem["errors"]] == paths
    assert "epsilon <= 8 and delta <= 0.01666666667" in problem["detail"]
    assert stored()["models"] == 0


def test_the_weakest_target_without_permission_is_accepted(gateway: TestClient, new_dataset: Make) -> None:
    """A target of epsilon 8 and delta 1/n is the weakest that is accepted without special permission."""
    dataset = new_dataset(rows=60)
    assert gateway.post("/v1/models", json=asked(dataset["id"], epsilon=8.0, delta=1 / 60)).status_code == 202


def test_a_tenant_can_be_stricter(gateway: TestClient, new_dataset: Make, refused: Refused) -> None:
    """A policy with stricter bounds applies to every model created afterwards."""
    dataset = new_dataset(rows=60)
    gateway.patch("/v1/tenant", json={"policy": {"max_epsilon": 0.5, "max_delta": 1e-4}}).raise_for_status()
    refused(gateway.post("/v1/models", json=asked(dataset["id"], epsilon=0.6, delta=1e-4)), 422, "target_too_weak")
    refused(gateway.post("/v1/models", json=asked(dataset["id"], epsilon=0.5, delta=2e-4)), 422, "target_too_weak")
    assert gateway.post("/v1/models", json=asked(dataset["id"], epsilon=0.5, delta=1e-4)).status_code == 202


@each("policy", [{"max_epsilon": 0}, {"max_epsilon": None}, {"max_delta": 1}, {"max_delta": 0}])
def test_vacuous_policy_bounds_are_refused(gateway: TestClient, policy: Any, refused: Refused) -> None:
    """A policy with a bound of 0, without a bound on epsilon, or with a delta of 1 is refused."""
    refused(gateway.patch("/v1/tenant", json={"policy": policy}), 422, "input_invalid")


def test_widened_bounds_are_in_the_audit_log(
    gateway: TestClient, key_with: Callable[..., dict[str, str]], get: Get, refused: Refused
) -> None:
    """Only an admin can widen the bounds on targets. The audit log records the change."""
    wider = {"policy": {"max_epsilon": 100.0, "max_delta": 0.99}}
    refused(gateway.patch("/v1/tenant", json=wider, headers=key_with(Scope.MODELS_WRITE)), 403, "scope_missing")
    gateway.patch("/v1/tenant", json=wider).raise_for_status()
    [changed] = [one for one in get("/audit-log")["items"] if one["action"] == "tenant.policy_changed"]
    assert changed["detail"]["policy"] == wider["policy"]


def test_a_person_is_not_forgotten_under_a_widened_target(
    gateway: TestClient, new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Work
) -> None:
    """If the bounds on targets were widened, a request's outcome and its certificate both state this, together with the
    accuracy of the best possible attacker."""
    gateway.patch("/v1/tenant", json={"policy": {"max_epsilon": 100.0, "max_delta": 0.99}}).raise_for_status()
    model = new_model(new_dataset()["id"], target=VACUOUS, noise_scale=0.01)
    work()
    request = forget("p1")
    work()
    assert get(f"/deletion-requests/{request['id']}")["outcome"] == Outcome.TARGET_WIDENED
    [certificate] = get(f"/deletion-requests/{request['id']}/certificate")["certificates"]
    slots = model["mechanism"]["num_slots"]
    bounds = {"largest_epsilon": 8.0, "largest_delta": 1 / slots, "widened": True}
    assert certificate["statement"]["target"] == VACUOUS | bounds
    for one in certificate["statement"]["guarantees"]:
        assert one["best_attacker_accuracy"] == pytest.approx(norm.cdf(one["mu"] / 2), rel=1e-9)
        assert one["best_attacker_accuracy"] >= norm.cdf(one["mu"] / 2)


def test_a_joining_request_does_not_hide_a_widened_target(
    gateway: TestClient, new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Work
) -> None:
    """If a model with a widened target was trained on a person's data, the person does not count as forgotten. This
    also applies to a later request by the person for which the model issues no certificate."""
    gateway.patch("/v1/tenant", json={"policy": {"max_epsilon": 100.0, "max_delta": 0.99}}).raise_for_status()
    dataset = new_dataset()["id"]
    new_model(dataset, target=VACUOUS, noise_scale=0.01)
    patient = new_model(dataset, noise_scale=0.2, batching={"max_wait_seconds": 86400})
    work()
    first = forget("p1")
    work()
    again = forget("p1")
    gateway.post(f"/v1/models/{patient['id']}/relearn").raise_for_status()
    work()
    for request in (first, again):
        assert get(f"/deletion-requests/{request['id']}")["outcome"] == Outcome.TARGET_WIDENED
    assert [one["model_id"] for one in get(f"/deletion-requests/{again['id']}")["models"]] == [patient["id"]]


def test_a_person_is_forgotten_under_a_target_within_the_bounds(
    live: dict[str, Any], forget: Make, get: Get, work: Work
) -> None:
    """If a model's target is within the default bounds, the person counts as forgotten, and the certificate states that
    no bound was widened."""
    request = forget("p1")
    work()
    assert get(f"/deletion-requests/{request['id']}")["outcome"] == Outcome.FORGOTTEN
    [certificate] = get(f"/deletion-requests/{request['id']}/certificate")["certificates"]
    assert certificate["statement"]["target"]["widened"] is False


def test_verifiers_enforce_their_own_limits(
    gateway: TestClient, live: dict[str, Any], forget: Make, get: Get, work: Work
) -> None:
    """A verifier accepts a certificate whose unlearning guarantee is within the verifier's own limits. A verifier with
    stricter limits refuses the same certificate."""
    request = forget("p1")
    work()
    [certificate] = get(f"/deletion-requests/{request['id']}/certificate")["certificates"]
    forgetting = {one["notion"]: one for one in certificate["statement"]["guarantees"]}["unlearning"]

    def verified(**limits: float) -> int:
        asked = {"jws": certificate["jws"], **limits}
        return gateway.post("/v1/certificates:verify", json=asked).status_code

    assert verified(max_epsilon=forgetting["epsilon"], max_delta=forgetting["delta"]) == 200
    assert verified(max_epsilon=forgetting["epsilon"] * 0.999) == 422
    assert verified(max_delta=forgetting["delta"] * 0.999) == 422
    assert verified(max_epsilon=0) == 422


def test_database_and_certificate_agree_on_the_largest_delta(installation: Installation) -> None:
    """For every number of slots below 3000, the database and the certificate compute the same largest delta."""
    from lethe.proof import target

    with installation.database.reading() as session:
        for slots in range(1, 3000):
            line = session.scalar(sa.select(sa.literal(1.0) / sa.literal(slots)))
            assert line == target.largest_delta(slots)
