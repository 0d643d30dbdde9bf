"""The curve over HTTP: erosion, a jump, recuperation."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Refused = Callable[..., dict[str, Any]]


def test_a_life_in_a_curve(new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Callable[[], int]) -> None:
    """Erosion while learning, a jump at the deletion, recuperation after it, down to where the model stands."""
    model = new_model(new_dataset()["id"], noise_scale=0.02)
    work()
    forget("p3")
    work()
    curve = get(f"/accounting/models/{model['id']}/trajectory?points=20")
    assert (curve["model_id"], curve["target"], curve["next_cursor"]) == (model["id"], model["target"], None)
    forgetting, learning = curve["items"]
    assert (learning["kind"], learning["records"], learning["requests"], learning["largest"]) == ("learn", 0, 0, None)
    assert (forgetting["records"], forgetting["requests"], forgetting["largest"]) == (1, 1, 1)
    assert (learning["steps_before"], forgetting["steps_before"]) == (0, learning["steps"])
    assert all(len(segment["points"]) <= 20 for segment in (learning, forgetting))
    erosion = [point["epsilon_of_one"] for point in learning["points"]]
    left = [point["epsilon"]["unlearning"] for point in forgetting["points"]]
    assert erosion == sorted(erosion)
    assert left == sorted(left, reverse=True)
    assert left[0] == erosion[-1] > model["target"]["epsilon"]
    account = get(f"/accounting/models/{model['id']}")
    assert left[-1] == account["guarantees"][0]["epsilon"]
    assert forgetting["points"][-1]["influence"] == account["influence"]
    assert forgetting["guarantees"] == account["guarantees"]


def test_a_curve_names_nobody(
    new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """Neither requests nor people are in a curve: how many there were, and no more."""
    model = new_model(new_dataset()["id"])
    work()
    request = forget("p3")
    work()
    said = str(get(f"/accounting/models/{model['id']}/trajectory"))
    assert request["id"] not in said
    assert request["subject_ref"] not in said


def test_pages_of_a_curve(live: dict[str, Any], forget: Make, get: Get, work: Callable[[], int]) -> None:
    """Pages go from the newest run to the first."""
    forget("p1")
    work()
    path = f"/accounting/models/{live['id']}/trajectory?limit=1"
    first = get(path)
    second = get(f"{path}&cursor={first['next_cursor']}")
    assert [page["items"][0]["version"] for page in (first, second)] == [2, 1]
    assert second["next_cursor"] is None


@pytest.mark.parametrize("query", ["points=1", "points=501", "limit=0", "cursor=x", "cursor=-1"])
def test_a_malformed_curve_is_refused(gateway: TestClient, live: dict[str, Any], query: str, refused: Refused) -> None:
    """One point is no curve, and a cursor comes from a page before."""
    refused(gateway.get(f"/v1/accounting/models/{live['id']}/trajectory?{query}"), 422, "input_invalid")


def test_the_curve_of_nothing(
    gateway: TestClient, new_dataset: Make, new_model: Make, get: Get, refused: Refused
) -> None:
    """A model that is still learning has an empty curve; an unknown one is a 404."""
    model = new_model(new_dataset()["id"])
    assert get(f"/accounting/models/{model['id']}/trajectory")["items"] == []
    refused(gateway.get("/v1/accounting/models/mdl_0/trajectory"), 404, "model_unknown")
