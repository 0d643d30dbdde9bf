"""What if more people asked: the numbers of the preview and of what others have published."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.dashboard.wording import at_most
from tests.app.dashboard.browsing import Browser

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]


@pytest.fixture
def path(new_dataset: Make, new_model: Make, work: Work) -> str:
    model = new_model(new_dataset(rows=200)["id"], noise_scale=0.02)
    work()
    return f"/admin/models/{model['id']}"


def test_the_same_as_the_api_says(officer: Browser, gateway: TestClient, path: str, get: Get) -> None:
    """The answer has the steps, seconds and epsilon of the preview in its batches, and the steps of all rivals."""
    model_id = path.rpartition("/")[2]
    asked = {"model_id": model_id, "num_records": 12, "epsilon": 0.5, "batch": 5}
    preview = gateway.post("/v1/accounting/preview", json=asked).json()
    page = officer.get(f"{path}/what-if?records=12&epsilon=0.5&batch=5").text
    assert f"<b>{preview['schedule']['steps']:,}</b>" in page
    assert "in 3 runs" in page
    assert f"<b>{at_most(preview['epsilon_without_steps'])}</b>" in page
    assert f"<b>{at_most(preview['schedule']['epsilon'])}</b>" in page
    rivals = get(f"/accounting/models/{model_id}/rivals?num_records=12&epsilon=0.5")["rivals"]
    assert len(rivals) > 3
    for rival in rivals:
        if rival["steps"] is not None:
            assert f">{rival['steps']:,}<" in page


def test_a_precondition_that_fails(officer: Browser, path: str) -> None:
    """A rival without a number says which of its preconditions fails."""
    page = officer.get(f"{path}/what-if?records=1&epsilon=50").text
    assert "epsilon_at_most_log" in page


def test_a_fragment_for_sliders(officer: Browser, path: str) -> None:
    """Sliders get the answer alone; whoever sends the form without a script gets a page with the form in it."""
    alone = officer.get(f"{path}/what-if?records=3&epsilon=1&batch=", **{"HX-Request": "true"}).text
    assert "<html" not in alone
    assert "<form" not in alone
    assert 'type="number" value="1e-07"' in officer.get(f"{path}/what-if?epsilon=1e-7").text
    page = officer.get(f"{path}/what-if?records=3&epsilon=&batch=").text
    assert 'name="records" type="number" value="3"' in page


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("records=0", "Write 1 or more."),
        ("records=x", "Write a whole number."),
        ("epsilon=-1", "Write a number above 0."),
        ("epsilon=nan", "Write a number."),
        ("batch=0", "Write 1 or more."),
        ("records=1000&batch=1", "Expected num_records=1000 in at most 100 runs"),
    ],
)
def test_what_cannot_be_asked(officer: Browser, path: str, query: str, why: str) -> None:
    """Numbers out of range, and schedules too long to wait for, are refused and the page says why."""
    page = officer.get(f"{path}/what-if?{query}")
    assert page.status_code == 422
    assert why in page.text
