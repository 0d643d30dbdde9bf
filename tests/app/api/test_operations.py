"""What operators and their tools look at."""

from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from app.db import migrate
from app.installation import Installation

Make = Callable[..., dict[str, Any]]


def test_the_process_is_alive_whatever_the_database_does(gateway: TestClient, at: Installation) -> None:
    """Health asks nothing but whether the process answers; readiness asks for the present schema."""
    assert gateway.get("/healthz").json() == {"status": "ok"}
    assert gateway.get("/readyz").json() == {"status": "ready", "queue_age_seconds": 0.0}
    migrate.downgrade(at.database.engine)
    assert gateway.get("/healthz").status_code == 200
    answer = gateway.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "database_not_migrated")


def test_readiness_does_not_wait_for_writers(gateway: TestClient, at: Installation) -> None:
    """A writer at work does not keep the gateway from telling that it is ready."""
    with at.database.writing():
        assert gateway.get("/readyz").status_code == 200


def test_the_age_of_the_queue(gateway: TestClient, new_dataset: Make, forget: Make, work: Callable[[], int]) -> None:
    """Readiness tells how long the oldest open request has waited, and nothing when none does."""
    new_dataset()
    forget("p1")
    assert gateway.get("/readyz").json()["queue_age_seconds"] > 0
    work()
    assert gateway.get("/readyz").json()["queue_age_seconds"] == 0


def test_only_public_keys_are_published(gateway: TestClient) -> None:
    """The key set holds one Ed25519 key without its private part."""
    [key] = gateway.get("/.well-known/jwks.json").json()["keys"]
    assert key.keys() == {"kty", "crv", "x", "kid", "use", "alg"}
    assert (key["kty"], key["crv"], key["use"], key["alg"]) == ("OKP", "Ed25519", "sig", "Ed25519")


def test_metrics_count_calls_by_route(gateway: TestClient) -> None:
    """Calls are counted by the route's template, so that no path, which may name a person, gets into a metric."""
    gateway.get("/v1/datasets/ds_0/subjects/jane.doe@example.org")
    gateway.get("/nowhere/jane.doe@example.org")
    metrics = gateway.get("/metrics").text
    assert '/datasets/{dataset_id}/subjects/{subject_id}",status="404"' in metrics
    assert 'route="(none)",status="404"' in metrics
    assert "jane" not in metrics
