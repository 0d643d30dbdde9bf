"""Pages of the curve, the plan and the forecasts of a model."""

import html
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.features.desk.wording import at_most
from tests.conftest import FORM, npz
from tests.features.desk.browsing import Browser
from tests.tables import each

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]


@pytest.fixture
def forgotten(new_dataset: Make, new_model: Make, forget: Make, work: Work) -> dict[str, Any]:
    """Return a model that was trained and then forgot one person."""
    model = new_model(new_dataset()["id"], noise_scale=0.02)
    work()
    forget("p3")
    work()
    return model


def plots(page: str) -> list[dict[str, Any]]:
    return [json.loads(html.unescape(found)) for found in re.findall(r'data-plot="([^"]+)"', page)]


def test_the_curve_is_drawn(officer: Browser, forgotten: dict[str, Any], get: Get) -> None:
    """All runs are drawn at the same width, marks show deletions and versions, and a horizontal line shows the target.
    The numbers match the API, and values that a logarithmic scale cannot show are left as gaps."""
    page = officer.get(f"/admin/models/{forgotten['id']}/curve").text
    epsilons, influences = plots(page)
    assert epsilons["level"]["y"] == forgotten["target"]["epsilon"]
    assert epsilons["marks"] == influences["marks"]
    assert [(mark["kind"], mark["x"], mark["text"]) for mark in epsilons["marks"]] == [
        ("release", 1.0, "v1"),
        ("batch", 1.0, "−1"),
        ("release", 2.0, "v2"),
    ]
    rows = epsilons["rows"]
    places = [row[0] for row in rows]
    assert (places[0], places[-1]) == (0.0, 2.0)
    assert places == sorted(places)
    assert len(rows) == len(epsilons["names"]) == page.count('<tr><th scope="row" class="number">') - 2
    assert rows[0][1:] == [None, None, None, rows[0][4], None]
    forgetting, learning = get(f"/accounting/models/{forgotten['id']}/trajectory?points=60&limit=12")["items"]
    said = [point["epsilon"]["unlearning"] or None for point in learning["points"] + forgetting["points"]]
    assert [row[1] for row in rows] == said


def test_the_alternative_axis_counts_steps(officer: Browser, forgotten: dict[str, Any]) -> None:
    """The alternative axis counts the steps over the model's whole life, and an unknown axis is refused. When a browser
    polls, the page is sent again only if the browser does not yet show the live version."""
    path = f"/admin/models/{forgotten['id']}/curve"
    assert [officer.get(f"{path}?{query}").status_code for query in ("known=2", "known=1")] == [204, 200]
    assert [officer.get(f"{path}?{query}").status_code for query in ("axis=x", "cursor=x")] == [422, 422]
    [epsilons, _] = plots(officer.get(f"{path}?axis=steps").text)
    learned = forgotten["mechanism"]["learn_steps"]
    assert epsilons["ticks"] is None
    assert [mark["x"] for mark in epsilons["marks"]][:2] == [learned, learned]
    assert epsilons["rows"][-1][0] > learned


def test_a_plan_is_drawn(
    officer: Browser, gateway: TestClient, new_dataset: Make, new_model: Make, get: Get, work: Work
) -> None:
    """A model's plan page plots the passes in the API's plan against epsilon. It also plots a metric of the versions,
    which is the quality gate's metric if the model has a gate. The page for creating a model plots the passes for the
    l2 entered in the form."""
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


@pytest.fixture
def path(new_dataset: Make, new_model: Make, work: Work) -> str:
    model = new_model(new_dataset(rows=200)["id"], noise_scale=0.02)
    work()
    return f"/admin/models/{model['id']}"


def test_the_page_matches_the_api(officer: Browser, gateway: TestClient, path: str) -> None:
    """The page shows the same steps, runs and epsilon for batches as the API's preview."""
    model_id = path.rpartition("/")[2]
    asked = {"model_id": model_id, "num_records": 12, "epsilon": 0.5, "batch": 5}
    preview = gateway.post("/v1/accounting/preview", json=asked).json()
    page = officer.get(f"{path}/what-if?records=12&epsilon=0.5&batch=5").text
    assert f"<b>{preview['schedule']['steps']:,}</b>" in page
    assert "in 3 runs" in page
    assert f"<b>{at_most(preview['epsilon_without_steps'])}</b>" in page
    assert f"<b>{at_most(preview['schedule']['epsilon'])}</b>" in page


def test_sliders_get_a_fragment(officer: Browser, path: str) -> None:
    """Moving a slider fetches only the part of the page that changes. A form submitted without scripts returns a whole
    page that contains the form."""
    alone = officer.get(f"{path}/what-if?records=3&epsilon=1&batch=", **{"HX-Request": "true"}).text
    assert "<html" not in alone
    assert "<form" not in alone
    assert 'type="number" value="1e-07"' in officer.get(f"{path}/what-if?epsilon=1e-7").text
    page = officer.get(f"{path}/what-if?records=3&epsilon=&batch=").text
    assert 'name="records" type="number" value="3"' in page


@each(
    ("query", "why"),
    [
        ("records=0", "Enter 1 or more."),
        ("records=x", "Enter a whole number."),
        ("epsilon=-1", "Enter a number above 0."),
        ("epsilon=nan", "Enter a number."),
        ("batch=0", "Enter 1 or more."),
        ("records=1000&batch=1", "Expected num_records=1000 in at most 100 runs"),
    ],
)
def test_an_invalid_forecast_is_refused(officer: Browser, path: str, query: str, why: str) -> None:
    """The page refuses numbers out of range and schedules that would take too long to compute, and states the
    reason."""
    page = officer.get(f"{path}/what-if?{query}")
    assert page.status_code == 422
    assert why in page.text
