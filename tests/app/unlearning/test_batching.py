"""Models can batch requests up to a maximum number and waiting time, but not within a week of a deadline."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.db import now
from app.db.tables import DeletionRequest
from app.installations import Installation
from tests.tables import each

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
HOUR = 3600


@pytest.fixture
def older(installation: Installation) -> Callable[..., None]:
    """Return a function that moves all requests back in time, so that they were made or are due earlier."""

    def move(**by: datetime.timedelta) -> None:
        with installation.database.writing() as session:
            for name, distance in by.items():
                column = getattr(DeletionRequest, name)
                for request_id, moment in session.execute(sa.select(DeletionRequest.id, column)).all():
                    change = {name: moment - distance}
                    session.execute(sa.update(DeletionRequest).where(DeletionRequest.id == request_id).values(change))

    return move


def statuses(get: Get, *requests: dict[str, Any]) -> list[str]:
    return [get(f"/deletion-requests/{request['id']}")["status"] for request in requests]


def test_requests_wait_for_a_full_batch(
    new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """A model with a batch size of three lets two requests wait and serves three in one run."""
    model = new_model(new_dataset()["id"], batching={"max_requests": 3, "max_wait_seconds": HOUR})
    assert model["batching"] == {"max_requests": 3, "max_wait_seconds": HOUR}
    work()
    first, second = forget("p1"), forget("p2")
    assert work() == 0
    assert statuses(get, first, second) == ["accepted", "accepted"]
    third = forget("p3")
    assert work() == 1
    assert statuses(get, first, second, third) == ["completed"] * 3
    assert get(f"/models/{model['id']}")["live_version"] == 2


def test_requests_wait_no_longer_than_max_wait(
    new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Callable[[], int], older: Any
) -> None:
    """When the oldest request has waited for max_wait_seconds, all waiting requests are served."""
    new_model(new_dataset()["id"], batching={"max_wait_seconds": HOUR})
    work()
    first = forget("p1")
    older(created_at=datetime.timedelta(seconds=HOUR - 60))
    assert work() == 0
    second = forget("p2")
    older(created_at=datetime.timedelta(seconds=120))
    assert work() == 1
    assert statuses(get, first, second) == ["completed"] * 2


def test_a_near_deadline_ends_the_wait(
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
    older: Any,
) -> None:
    """Waiting requests are served a week before the first of them is due, whatever the batching settings."""
    new_model(new_dataset()["id"], batching={"max_requests": 1000, "max_wait_seconds": 30 * 24 * HOUR})
    work()
    request = forget("p1")
    with installation.database.reading() as session:
        left = session.get_one(DeletionRequest, request["id"]).deadline - now(session)
    older(deadline=left - datetime.timedelta(days=7, hours=1))
    assert work() == 0
    older(deadline=datetime.timedelta(hours=2))
    assert work() == 1
    assert statuses(get, request) == ["completed"]


def test_batching_is_per_model(
    new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Callable[[], int], older: Any
) -> None:
    """A model without batching runs at once and erases the rows, while a model with batching on the same dataset runs
    later."""
    dataset = new_dataset()
    prompt = new_model(dataset["id"])
    patient = new_model(dataset["id"], batching={"max_wait_seconds": HOUR})
    work()
    request = forget("p1")
    assert work() == 1
    served = {m["model_id"]: m["status"] for m in get(f"/deletion-requests/{request['id']}")["models"]}
    assert served == {prompt["id"]: "completed", patient["id"]: "pending"}
    assert get(f"/datasets/{dataset['id']}")["num_records"] == dataset["num_records"] - 1
    older(created_at=datetime.timedelta(seconds=HOUR))
    assert work() == 1
    assert statuses(get, request) == ["completed"]


def test_training_does_not_wait(
    new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """A model that has to be trained is trained at once, and its run also serves the requests waiting on its
    dataset."""
    dataset = new_dataset()
    new_model(dataset["id"], batching={"max_wait_seconds": HOUR})
    work()
    request = forget("p1")
    assert work() == 0
    new = new_model(dataset["id"])
    work()
    assert get(f"/models/{new['id']}")["status"] == "live"
    assert get(f"/datasets/{dataset['id']}")["num_records"] == dataset["num_records"] - 1
    assert statuses(get, request) == ["running"]


@each("batching", [{"max_requests": 0}, {"max_wait_seconds": -1}, {"max_wait_seconds": 31 * 86400}, {"other": 1}])
def test_unusable_batching_is_refused(gateway: TestClient, new_dataset: Make, batching: dict[str, int]) -> None:
    """Batching settings with out-of-range numbers or unknown names return 422."""
    body = {"name": "m", "dataset_id": new_dataset()["id"], "batching": batching}
    assert gateway.post("/v1/models", json=body).status_code == 422
