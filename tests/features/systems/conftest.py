"""Fixtures: systems outside of Lethe, whose servers are called and acknowledge."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from joserfc.jwk import OKPKey

from app.config import Settings
from app.installations import Installation
from app.operations.periodic_jobs import settle
from tests.command_line import lethe
from tests.features.webhooks.conftest import deliveries, receiving
from tests.lethe.conftest import client

__all__ = ["client", "deliveries", "lethe", "receiving"]

URL = "https://recommender.example/lethe"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"webhook_allowed_networks": "127.0.0.0/8"})


@pytest.fixture
def system_key() -> dict[str, str]:
    """Return a system's private Ed25519 key as a JWK."""
    return {name: str(value) for name, value in OKPKey.generate_key("Ed25519").as_dict(private=True).items()}


@pytest.fixture
def new_system(gateway: TestClient) -> Callable[..., dict[str, Any]]:
    """Return a function that registers a system and returns it."""

    def create(name: str = "Recommender", **given: Any) -> dict[str, Any]:
        body = {"name": name, "contact": "its team", "webhook_url": URL} | given
        answer = gateway.post("/v1/systems", json=body)
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made

    return create


@pytest.fixture
def task_of(gateway: TestClient) -> Callable[..., dict[str, Any]]:
    """Return a function that returns a request's only task."""

    def find(request_id: str) -> dict[str, Any]:
        answer = gateway.get("/v1/system-tasks", params={"request_id": request_id})
        [task] = answer.json()["items"]
        found: dict[str, Any] = answer.json()["items"][0]
        assert found == task
        return found

    return find


@pytest.fixture
def settled(installation: Installation) -> Callable[[], None]:
    """Return a function that completes requests that are no longer waiting for anything, as a worker does every
    second."""

    def do() -> None:
        settle(installation)

    return do
