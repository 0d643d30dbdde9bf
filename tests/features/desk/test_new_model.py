"""A new model: the form, the preview, and invalid forms."""

from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from app.features.desk.wording import at_most, number
from lethe.contract.sets import Scope
from tests.features.desk.browsing import Browser
from tests.features.networks.nets import FORM
from tests.features.networks.networks import exported, perceptron
from tests.tables import each

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]


def test_a_missing_dataset_is_explained(officer: Browser) -> None:
    """If there is no dataset, the page explains that one must be uploaded first."""
    page = officer.get("/admin/models/new").text
    assert "There is nothing to learn from yet" in page
    assert "/admin/datasets/new" in page


def test_a_model_is_created(officer: Browser, new_dataset: Make, get: Get) -> None:
    """The form creates the same model as an API call with the same numbers and leads to the model's page."""
    dataset = new_dataset(rows=200)["id"]
    fields = {"epsilon": "0.5", "delta": "1e-4", "l2": "0.05", "noise_scale": "0.02", "step_size": "", "radius": ""}
    runs = {"learn_steps": "300", "max_requests": "5", "max_wait_seconds": "60", "lanes": "8"}
    answer = officer.post("/admin/models/new", name="churn", dataset_id=dataset, **fields, **runs)
    assert answer.status_code == 303
    page = officer.get(answer.headers["location"]).text
    assert "It learns as soon as a worker is free." in page
    [model] = get("/models")["items"]
    assert answer.headers["location"].startswith(f"/admin/models/{model['id']}")
    assert model["name"] == "churn"
    assert model["dataset_id"] == dataset
    assert model["target"] == {"epsilon": 0.5, "delta": 1e-4}
    assert model["batching"] == {"max_requests": 5, "max_wait_seconds": 60}
    assert (model["audit"]["lanes"], model["audit"]["chains"]) == (8, 16)
    wanted = {"l2": 0.05, "noise_scale": 0.02, "learn_steps": 300}
    assert {name: model["mechanism"][name] for name in wanted} == wanted


def test_a_hinge_model_is_created(officer: Browser, new_dataset: Make, get: Get) -> None:
    """The objective is chosen from a list. The model's page shows the objective and the width of its loss."""
    dataset = new_dataset(rows=200)["id"]
    chosen = {"dataset_id": dataset, "objective": "smoothed_hinge", "loss_width": "0.5"}
    answer = officer.post("/admin/models/new", name="churn", **chosen)
    assert answer.status_code == 303
    page = officer.get(answer.headers["location"]).text
    assert "Smoothed hinge" in page
    assert "Width of the loss" in page
    assert get("/models")["items"][0]["mechanism"]["loss_width"] == 0.5
    refused = officer.post("/admin/models/new", name="costs", **chosen | {"objective": "least_squares"})
    assert refused.status_code == 422
    assert "one of logistic_regression, smoothed_hinge" in refused.text


def test_a_model_with_another_method_is_created(officer: Browser, new_dataset: Make, get: Get) -> None:
    """The form previews and creates a model with the chosen training method and refuses settings that the method does
    not have."""
    fields = {"name": "churn", "dataset_id": new_dataset(rows=200)["id"], "method": "objective_perturbation"}
    forecast = officer.post("/admin/models/new/preview", **fields).text
    assert "iterations to learn, at most" in forecast
    assert "Each request is served by a version that is learned from scratch." in forecast
    assert "does not have it" in officer.post("/admin/models/new", **fields, radius="3").text
    assert officer.post("/admin/models/new", **fields).status_code == 303
    assert get("/models")["items"][0]["method"] == "objective_perturbation"


def test_a_model_with_weights_and_a_gate_is_created(officer: Browser, new_dataset: Make, get: Get) -> None:
    """Class weights and a quality gate are passed to the API, and an error in either is shown at its field."""
    dataset, measured = new_dataset(rows=200)["id"], new_dataset(rows=50, seed=2, first=500)["id"]
    fields = {"name": "churn", "dataset_id": dataset, "evaluation_dataset_id": measured, "class_weights": "1 = 4\n"}
    gate = {"metric": "auc", "threshold": "0.8", "on_breach": "hold"}
    assert (
        'id="class_weights-fault"' in officer.post("/admin/models/new", **fields | {"class_weights": "1 = much"}).text
    )
    assert 'id="class_weights-fault"' in officer.post("/admin/models/new", **fields | {"class_weights": "5"}).text
    assert 'id="threshold-fault"' in officer.post("/admin/models/new", **fields | gate | {"threshold": "high"}).text
    unmeasured = {name: value for name, value in fields.items() if name != "evaluation_dataset_id"}
    for step in ("", "/preview"):
        assert "needs evaluation data" in officer.post(f"/admin/models/new{step}", **unmeasured, **gate).text
    assert get("/models")["items"] == []
    assert "steps to learn" in officer.post("/admin/models/new/preview", **fields, **gate).text
    assert officer.post("/admin/models/new", **fields, **gate).status_code == 303
    [model] = get("/models")["items"]
    assert model["mechanism"]["class_weights"] == [0.25, 1.0]
    assert {name: model["quality"][name] for name in gate} == gate | {"threshold": 0.8}


def test_a_tangent_model_is_created(officer: Browser, gateway: TestClient, new_dataset: Make, get: Get) -> None:
    """A network, the names of its weights and a rank define a tangent model. An unknown name is refused with an error
    at its field."""
    dataset = new_dataset(rows=200)
    content = exported(perceptron(dataset["num_features"], 1), dataset["num_features"])
    made = gateway.post("/v1/networks", data=FORM, files={"file": ("small.onnx", content)}).json()
    fields = {"name": "churn", "dataset_id": dataset["id"], "network_id": made["id"], "rank": "2"}
    assert "small (" in officer.get("/admin/models/new").text
    for step in ("", "/preview"):
        page = officer.post(f"/admin/models/new{step}", **fields, layers="0.wait").text
        assert 'id="layers-fault"' in page
        assert "did you mean 0.weight" in page
    assert "steps to learn" in officer.post("/admin/models/new/preview", **fields, layers="0.weight").text
    assert officer.post("/admin/models/new", **fields, layers="0.weight\n2.weight\n").status_code == 303
    [model] = get("/models")["items"]
    stated = model["mechanism"]["network"]
    assert (stated["sha256"], stated["linearisation"]["rank"]) == (made["sha256"], 2)
    assert stated["linearisation"]["layers"] == ["0.weight", "2.weight"]


def test_the_preview_matches_the_model(
    officer: Browser, gateway: TestClient, new_dataset: Make, new_model: Make, get: Get, work: Work
) -> None:
    """The preview of a planned model shows the same numbers as the model once it is created. The preview itself creates
    nothing."""
    dataset = new_dataset(rows=200)["id"]
    asked = {"dataset_id": dataset, "epsilon": "1", "l2": "0.05", "noise_scale": "0.01"}
    page = officer.post("/admin/models/new/preview", **asked).text
    assert get("/models")["items"] == []
    assert "no run on these rows was measured yet" in page
    model = new_model(dataset, l2=0.05, noise_scale=0.01)
    work()
    preview = gateway.post("/v1/accounting/preview", json={"model_id": model["id"]}).json()
    assert f"<b>{model['mechanism']['learn_steps']:,}</b><span>steps to learn" in page
    assert f"<b>{preview['steps']:,}</b><span>steps to forget one record" in page
    assert f"<b>{at_most(preview['epsilon_without_steps'])}</b>" in page
    assert f">{number(model['target']['delta'])}<" in page
    for option in preview["options"]:
        assert f'<td class="number">{option["steps"]:,}</td>' in page
    assert "at the pace of past runs on these rows" in officer.post("/admin/models/new/preview", **asked).text


def test_only_the_preview_is_sent_to_scripts(officer: Browser, new_dataset: Make) -> None:
    """While a user types, the server sends only the preview. Without scripts it sends a page that keeps the input."""
    asked = {"csrf": officer.token(), "name": "<b>", "dataset_id": new_dataset()["id"], "l2": "0.05", "chains": "2"}
    path = "/admin/models/new/preview"
    headers = {"HX-Request": "true", "Origin": "http://testserver"}
    alone = officer.client.post(path, data=asked, headers=headers).text
    assert "<html" not in alone
    assert "<form" not in alone
    assert "steps to learn" in alone
    page = officer.post(path, **asked).text
    assert 'name="name" type="text" value="&lt;b&gt;"' in page
    assert 'name="l2" type="text" value="0.05"' in page
    assert page.count('<details class="field" open>') == 2


@each(
    ("field", "value"),
    [
        ("epsilon", "-1"),
        ("epsilon", "much"),
        ("delta", "2"),
        ("l2", "0"),
        ("learn_steps", "1.5"),
        ("learn_steps", "1" * 400),
        ("chains", "65"),
        ("max_wait_seconds", "-1"),
        ("name", ""),
    ],
)
def test_an_invalid_field_shows_its_fault(
    officer: Browser, new_dataset: Make, get: Get, field: str, value: str
) -> None:
    """An invalid field is shown with its error, the form keeps the other input, and no model is created."""
    fields = {"name": "kept", "dataset_id": new_dataset()["id"]} | {field: value}
    answer = officer.post("/admin/models/new", **fields)
    assert answer.status_code in (409, 412, 422)
    if answer.status_code == 422:
        assert f'id="{field}-fault"' in answer.text
        assert 'aria-invalid="true"' in answer.text
    assert 'role="alert"' in answer.text
    assert f'name="name" type="text" value="{fields["name"]}"' in answer.text
    assert get("/models")["items"] == []


@each("step", ["", "/preview"])
def test_unreachable_targets_are_refused(officer: Browser, new_dataset: Make, step: str) -> None:
    """A mechanism without a guarantee and a target that no number of steps can reach are refused with the accountant's
    message."""
    fields = {"name": "m", "dataset_id": new_dataset()["id"]}
    page = officer.post(f"/admin/models/new{step}", **fields, step_size="1000").text
    assert "choose step_size" in page
    page = officer.post(f"/admin/models/new{step}", **fields, l2="1e-9").text
    assert "raise l2" in page
    assert "There is no dataset" in officer.post(f"/admin/models/new{step}", name="m", dataset_id="ds_0").text


def test_creating_a_model_needs_the_scope(
    somebody_with: Callable[..., Browser], officer: Browser, new_dataset: Make
) -> None:
    """Creating a model is offered only with the scope `models:write`, and accepted only from forms of the
    dashboard."""
    dataset = new_dataset()["id"]
    reader = somebody_with(Scope.MODELS_READ)
    for path in ("/admin/models", f"/admin/datasets/{dataset}"):
        assert "/admin/models/new" not in reader.get(path).text
        assert "/admin/models/new" in officer.get(path).text
    for path in ("/admin/models/new", "/admin/models/new/preview"):
        assert officer.post(path, name="m", dataset_id=dataset, csrf="0" * 64).status_code == 403
