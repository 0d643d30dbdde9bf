"""The page of a model's quality: setting a gate, and releasing a held version."""

from collections.abc import Callable
from typing import Any

from tests.features.desk.browsing import Browser

Make = Callable[..., dict[str, Any]]


def test_a_gate_is_set_and_a_held_version_released(
    officer: Browser, new_dataset: Make, new_model: Make, work: Callable[[], int]
) -> None:
    """A gate can be set on the page, which explains invalid input. The overview shows a version that misses its gate as
    a danger until the version is released or the gate is removed."""
    measured = new_dataset(name="measured", seed=1, first=1000)["id"]
    model_id = new_model(new_dataset()["id"], evaluation_dataset_id=measured)["id"]
    work()
    place = f"/admin/models/{model_id}/quality"
    assert "No gate" in officer.get(place).text
    refused = officer.post(place, metric="r_squared", threshold="0.5", on_breach="hold")
    assert refused.status_code == 422
    assert "is not available for logistic_regression" in refused.text
    assert officer.post(place, metric="accuracy", threshold="", on_breach="hold").status_code == 422
    assert officer.post(place, metric="accuracy", threshold="1.5", on_breach="hold").status_code == 303
    assert "Held back" in officer.get(place).text
    assert "is not served" in officer.get(f"/admin/models/{model_id}").text
    assert "missed the quality gate and is not served" in officer.get("/admin/overview").text
    assert model_id in officer.get("/admin/models?danger=held").text
    released = officer.post(f"/admin/models/{model_id}/versions/1/release").headers["location"]
    assert "The version is served." in officer.get(released).text
    assert "is served although it misses the quality gate" in officer.get("/admin/overview").text
    assert "No gate" in officer.get(officer.post(f"{place}/remove").headers["location"]).text


def test_a_gate_needs_evaluation_data(
    officer: Browser, new_dataset: Make, new_model: Make, work: Callable[[], int]
) -> None:
    """For a model without evaluation data, the page explains why the model cannot have a gate and still lists the
    remedies."""
    model_id = new_model(new_dataset()["id"])["id"]
    work()
    text = officer.get(f"/admin/models/{model_id}/quality").text
    assert "no evaluation data" in text
    assert "Retrain" in text
