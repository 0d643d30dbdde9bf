"""Fixtures: a trainer outside Lethe that reads some people's rows and makes an artefact from them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from joserfc.jwk import OKPKey

from app.config import Settings
from lethe.features.attested import manifests
from tests.command_line import lethe
from tests.features.webhooks.conftest import deliveries, receiving
from tests.lethe.conftest import client

__all__ = ["client", "deliveries", "lethe", "receiving"]

URL = "https://airflow.example/lethe"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"webhook_allowed_networks": "127.0.0.0/8"})


def new_key() -> dict[str, str]:
    """Return a private Ed25519 key as a JWK."""
    return {name: str(value) for name, value in OKPKey.generate_key("Ed25519").as_dict(private=True).items()}


@dataclass
class AttestedTrainer:
    """A trainer and its calls. `made` is the number of its artefacts."""

    gateway: TestClient
    id: str
    key: dict[str, str]
    made: int = field(default=0)

    def digests(self, *people: str) -> dict[str, Any]:
        answer = self.gateway.post(f"/v1/attested-trainers/{self.id}/identifiers", json={"ids": list(people)})
        assert answer.status_code == 200, answer.text
        read: dict[str, Any] = answer.json()
        return read

    def state(self) -> dict[str, Any]:
        answer = self.gateway.get(f"/v1/attested-trainers/{self.id}")
        assert answer.status_code == 200, answer.text
        shown: dict[str, Any] = answer.json()
        return shown

    def manifest(self, read: dict[str, Any], **changed: Any) -> dict[str, Any]:
        """Return a signed manifest for a new artefact made from the rows that were read."""
        self.made += 1
        stated = {
            "trainer_id": self.id,
            "retraining_id": self.state()["retraining_id"],
            "rows_read_at": read["read_at"],
            "identifiers": [digest for digest in read["digests"] if digest],
            "artefacts": [f"{self.made:064x}"],
            "code_revision": "5cff449",
            "environment": "sha256:11",
        } | changed
        return manifests.sign(stated.pop("key", self.key), **stated)

    def send(self, manifest: dict[str, Any]) -> httpx.Response:
        return self.gateway.post(f"/v1/attested-trainers/{self.id}/manifests", json=manifest)

    def retrain(self, *people: str, **changed: Any) -> dict[str, Any]:
        """Retrain on the people whose rows may be read, and return the accepted manifest."""
        answer = self.send(self.manifest(self.digests(*people), **changed))
        assert answer.status_code == 200, answer.text
        accepted: dict[str, Any] = answer.json()
        return accepted

    def serving(self, artefact: str) -> dict[str, Any]:
        answer = self.gateway.get("/v1/serving", params={"artefact_sha256": artefact})
        assert answer.status_code == 200, answer.text
        permission: dict[str, Any] = answer.json()
        return permission


@pytest.fixture
def new_trainer(gateway: TestClient) -> Callable[..., AttestedTrainer]:
    """Return a function that registers a trainer."""

    def create(name: str = "Churn", **given: Any) -> AttestedTrainer:
        key = new_key()
        body = {"name": name, "contact": "its team", "webhook_url": URL, "public_key": key["x"]} | given
        answer = gateway.post("/v1/attested-trainers", json=body)
        assert answer.status_code == 201, answer.text
        return AttestedTrainer(gateway=gateway, id=answer.json()["id"], key=key)

    return create


@pytest.fixture
def trainer(new_trainer: Callable[..., AttestedTrainer]) -> AttestedTrainer:
    return new_trainer()
