"""Accuracy against epsilon against passes, of a dataset: what a model would cost, and what those there are reached."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.conftest import FORM, npz

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]


def test_a_plan_says_what_a_model_then_costs(
    gateway: TestClient, new_dataset: Make, new_model: Make, get: Get, work: Work
) -> None:
    """What a plan says of a setting is true of the model that is made with it; without evaluation data nothing is said
    of accuracy, and no row is read."""
    dataset = new_dataset(rows=400)["id"]
    plan = get(f"/accounting/datasets/{dataset}/plan?l2=0.05")
    assert [cost["epsilon"] for cost in plan["costs"]] == [0.25, 0.5, 1, 2, 4, 8]
    [cost] = [cost for cost in plan["costs"] if cost["epsilon"] == 2]
    model = new_model(dataset, target={"epsilon": 2})
    work()
    mechanism = model["mechanism"]
    assert cost["learn_passes"] == mechanism["learn_steps"] / mechanism["num_batches"]
    asked = gateway.post("/v1/accounting/preview", json={"model_id": model["id"]}).json()
    assert cost["request_passes"] == asked["steps"] / mechanism["num_batches"]
    assert get(f"/accounting/datasets/{dataset}/plan")["measured"] == []
    assert len(get(f"/accounting/datasets/{dataset}/plan")["costs"]) == 18


def test_a_plan_has_what_versions_reached(
    gateway: TestClient, new_dataset: Make, new_model: Make, get: Get, work: Work, forget: Make
) -> None:
    """Every version that was measured is in the plan, with its model's target and the passes that its run took; by
    another metric, if that is asked for."""
    dataset = new_dataset(rows=200)["id"]
    other = npz(rows=60, first=500, seed=3)
    answer = gateway.post("/v1/datasets", data=FORM, files={"file": ("p.npz", other)})
    model = new_model(dataset, evaluation_dataset_id=answer.json()["id"], noise_scale=0.02)
    work()
    forget("p3")
    work()
    now, before = get(f"/accounting/datasets/{dataset}/plan")["measured"]
    versions = get(f"/models/{model['id']}/versions")["items"]
    assert [one["value"] for one in (now, before)] == [version["metrics"]["accuracy"] for version in versions]
    assert [(one["version"], one["live"], one["kind"]) for one in (now, before)] == [
        (2, True, "unlearn"),
        (1, False, "learn"),
    ]
    measured = get(f"/accounting/datasets/{dataset}/plan?metric=log_loss")["measured"]
    assert [one["value"] for one in measured] == [version["metrics"]["log_loss"] for version in versions]
    assert get(f"/accounting/datasets/{dataset}/plan?metric=r_squared")["measured"] == []
    mechanism = model["mechanism"]
    assert before["passes"] == mechanism["learn_steps"] / mechanism["num_batches"] > now["passes"] > 0


@pytest.mark.parametrize("asked", ["objective=least_squares", "loss_width=1"])
def test_a_plan_of_what_cannot_be_learned(new_dataset: Make, gateway: TestClient, refused: Any, asked: str) -> None:
    """An objective that the dataset does not have is refused as where a model is made."""
    dataset = new_dataset()["id"]
    refused(gateway.get(f"/v1/accounting/datasets/{dataset}/plan?{asked}"), 422, "precondition_failed")
