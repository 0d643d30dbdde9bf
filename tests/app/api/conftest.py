"""Fixtures for the endpoints: uploads, keys of any scopes, callers of every kind, refusals, and stored objects."""

import io
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from app.access import service as access
from app.accounting.certificates import statement_in
from app.db import Actor
from app.db.tables import Dataset, DeletionRequest, Model
from app.installations import Installation
from app.unlearning import queue, service as unlearning
from app.unlearning.queue import ClaimedRun
from lethe.contract.sets import Scope
from tests.conftest import CLASSES

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


@pytest.fixture(scope="session")
def npz_of() -> Callable[..., bytes]:
    """Return the bytes of an npz file of twenty made-up people; any of its arrays can be replaced."""

    def build(**replaced: Any) -> bytes:
        x = np.random.default_rng(0).normal(size=(20, 3))
        arrays = {"x": x, "y": (x[:, 0] > 0).astype(int), "subject": np.array([f"p{row}" for row in range(20)])}
        buffer = io.BytesIO()
        np.savez(buffer, **(arrays | replaced))
        return buffer.getvalue()

    return build


@pytest.fixture
def upload(gateway: TestClient, npz_of: Callable[..., bytes]) -> Callable[..., httpx.Response]:
    """POST a file as a dataset and return the response; further arguments are sent as form fields."""

    def send(
        content: bytes | None = None,
        *,
        filename: str = "people.npz",
        headers: dict[str, str] | None = None,
        **form: str,
    ) -> httpx.Response:
        files = {"file": (filename, npz_of() if content is None else content)}
        if filename.lower().endswith(".npz"):
            form = {"classes": CLASSES} | form
        return gateway.post("/v1/datasets", data={"name": "people"} | form, files=files, headers=headers)

    return send


@pytest.fixture
def key_with(installation: Installation, by: Actor) -> Callable[..., dict[str, str]]:
    """Return the authorization header of a new API key with these scopes."""

    def make(*scopes: Scope) -> dict[str, str]:
        key = access.new_key()
        with installation.database.writing(by=by) as session:
            access.add_key(session, name="test", key=key, scopes=scopes)
        return {"Authorization": f"Bearer {key}"}

    return make


@pytest.fixture
def live(new_dataset: Make, new_model: Make, work: Callable[[], int]) -> dict[str, Any]:
    """Return a model with a live version."""
    model = new_model(new_dataset()["id"])
    assert work() == 1
    return model


@pytest.fixture
def refused() -> Callable[[httpx.Response, int, str], dict[str, Any]]:
    """Assert that a response is a complete problem document with this status and code, and return its JSON."""

    def check(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
        problem: dict[str, Any] = answer.json()
        assert (answer.status_code, problem["code"]) == (status, code), answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        members = {"type", "title", "status", "detail", "code"} | ({"errors"} if status == 422 else set())
        assert problem.keys() == members
        assert problem["status"] == status
        assert problem["title"]
        assert problem["detail"]
        assert all(fault.keys() == {"path", "message"} for fault in problem.get("errors", []))
        return problem

    return check


@pytest.fixture
def stored(installation: Installation) -> Callable[[], dict[str, int]]:
    """Count the datasets, models and deletion requests, and the files that contain rows or uploads."""

    def count() -> dict[str, int]:
        with installation.database.reading() as session:
            rows = {
                table.__tablename__: session.scalar(sa.select(sa.func.count()).select_from(table)) or 0
                for table in (Dataset, Model, DeletionRequest)
            }
        folders = [installation.settings.data_dir / name for name in ("datasets", "tmp")]
        return rows | {"files": sum(path.is_file() for folder in folders for path in folder.rglob("*"))}

    return count


@pytest.fixture
def nothing() -> dict[str, int]:
    """Return the counts of `stored` for an empty installation."""
    return {"datasets": 0, "models": 0, "deletion_requests": 0, "files": 0}


@pytest.fixture
def claim(installation: Installation) -> Callable[[], ClaimedRun]:
    """Claim the next run as a worker that then stops responding."""

    def take() -> ClaimedRun:
        with installation.database.writing() as session:
            claimed = queue.claim(session, worker="silent", lease_seconds=60, max_requests=10)
        assert claimed
        return claimed

    return take


@pytest.fixture
def give_up(installation: Installation) -> Callable[[], None]:
    """Release the run of the worker that stopped responding."""

    def take_back() -> None:
        with installation.database.writing() as session:
            assert unlearning.take_back(session, worker="silent") == 1

    return take_back


@pytest.fixture
def shown(get: Get) -> Make:
    """Return the current state of a request."""
    return lambda request: get(f"/deletion-requests/{request['id']}")


@pytest.fixture
def statuses(get: Get) -> Callable[[dict[str, Any]], list[str]]:
    """Return the statuses of a request's events."""
    return lambda request: [event["status"] for event in get(f"/deletion-requests/{request['id']}/events")["items"]]


@pytest.fixture
def statements(get: Get) -> Callable[[dict[str, Any]], list[dict[str, Any]]]:
    """Return the statements of a request's certificates."""

    def of(request: dict[str, Any]) -> list[dict[str, Any]]:
        found = get(f"/deletion-requests/{request['id']}/certificate")
        assert found["request_id"] == request["id"]
        return [statement_in(certificate["jws"]) for certificate in found["certificates"]]

    return of


@pytest.fixture
def policy(gateway: TestClient) -> Callable[..., None]:
    """Change fields of the tenant's policy."""

    def change(**fields: Any) -> None:
        answer = gateway.patch("/v1/tenant", json={"policy": fields})
        assert answer.status_code == 200, answer.text

    return change


@pytest.fixture
def sample(gateway: TestClient, monkeypatch: pytest.MonkeyPatch) -> Callable[..., float]:
    """Return the current value of a metric, or 0 if the metric has no such sample."""
    monkeypatch.setattr("app.features.monitoring.metrics._FRESH_SECONDS", -1.0)

    def read(name: str, **labels: str) -> float:
        written = [line for line in gateway.get("/metrics").text.splitlines() if line.startswith(name)]
        for family in text_string_to_metric_families("\n".join(written) + "\n"):
            for found in family.samples:
                if found.name == name and found.labels == labels:
                    return found.value
        return 0.0

    return read
