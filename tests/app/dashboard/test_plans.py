"""Accuracy, epsilon and passes on the pages of a model and of a new one."""

from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from tests.app.dashboard.browsing import Browser
from tests.app.dashboard.test_curves import plots
from tests.conftest import FORM, npz

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]


def test_a_plan_is_drawn(
    officer: Browser, gateway: TestClient, new_dataset: Make, new_model: Make, get: Get, work: Work
) -> None:
    """The page of a model draws the passes of the API's plan by epsilon and the metric of its versions (that of its
    quality gate, if it has one); that of a new model draws the former, at the l2 that is typed."""
    dataset = new_dataset(rows=200)["id"]
    [costs] = plots(officer.post("/admin/models/new/preview", dataset_id=dataset, l2="0.05").text)
    plan = get(f"/accounting/datasets/{dataset}/plan?l2=0.05")
    assert costs["columns"] == ["ε", "to learn", "to forget one"]
    assert costs["rows"] == [[one["epsilon"], one["learn_passes"], one["request_passes"]] for one in plan["costs"]]
    other = gateway.post("/v1/datasets", data=FORM, files={"file": ("p.npz", npz(rows=60, first=500, seed=3))})
    model = new_model(dataset, evaluation_dataset_id=other.json()["id"])
    page = officer.get(f"/admin/models/{model['id']}/plan").text
    assert "lethe model plan FILE" in page
    work()
    costs, lived = plots(officer.get(f"/admin/models/{model['id']}/plan").text)
    assert len(costs["columns"]) == 5
    [version] = get(f"/models/{model['id']}/versions")["items"]
    assert lived["rows"] == [[1, version["metrics"]["accuracy"]]]
    gate = {"metric": "log_loss", "threshold": 9, "on_breach": "publish_degraded"}
    assert gateway.patch(f"/v1/models/{model['id']}", json={"quality": gate}).status_code == 200
    _, lived = plots(officer.get(f"/admin/models/{model['id']}/plan").text)
    assert lived["rows"] == [[1, version["metrics"]["log_loss"]]]
