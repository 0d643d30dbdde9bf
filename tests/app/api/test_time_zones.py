"""Stored policies whose time zone is unknown to the operating system of this host."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.access import service as access
from app.db import Actor
from app.db.tables import DeletionRequest, Tenant
from app.installations import Installation
from app.operations.periodic_jobs import purge_requests
from tests.faults.processes import environment_of

Refused = Callable[..., dict[str, Any]]

_ELSEWHERE = """
import sys
from fastapi.testclient import TestClient
from app import installations
from app.config import Settings
from app.main import create_app
from app.operations.periodic_jobs import purge_requests

with TestClient(create_app(Settings()), raise_server_exceptions=False) as gateway:
    for key in sys.argv[1:]:
        headers = {"Authorization": f"Bearer {key}"}
        print(gateway.post("/v1/deletion-requests", json={"subject_id": "p1"}, headers=headers).status_code)
with installations.opened(Settings()) as installation:
    purge_requests(installation)
print("purged")
"""


@pytest.fixture
def other(gateway: TestClient) -> dict[str, str]:
    """Return the authorization header of an admin of another tenant, which does not retain the details of ended
    requests."""
    policy = {"report_seconds": 0, "retain_details_days": 0, "retain_requests_days": 0}
    made = gateway.post("/v1/tenants", json={"name": "shop", "policy": policy}).json()
    return {"Authorization": f"Bearer {made['admin_key']}"}


def test_legacy_time_zones_are_known_on_every_host(
    gateway: TestClient, installation: Installation, other: dict[str, str], admin_key: str
) -> None:
    """A process on a host without time zone data serves tenants in any time zone, including legacy ones, and runs its
    purges."""
    gateway.patch("/v1/tenant", json={"policy": {"time_zone": "US/Eastern"}}).raise_for_status()
    settings = installation.settings
    environment = environment_of(settings.data_dir, database_url=settings.resolved_database_url())
    done = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE, admin_key, other["Authorization"].split()[1]],
        env=environment | {"PYTHONTZPATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.split() == ["202", "202", "purged"], done.stderr


def test_an_unknown_time_zone_affects_only_its_tenant(
    gateway: TestClient,
    installation: Installation,
    by: Actor,
    other: dict[str, str],
    refused: Refused,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """If a host does not recognise the time zone in a stored policy, it refuses that tenant's requests and logs the
    reason. Other tenants are still served, retention continues for all tenants, and the tenant can switch to another
    zone."""
    with installation.database.writing() as session:
        tenant = session.get_one(Tenant, by.tenant_id)
        tenant.policy = tenant.policy | {"time_zone": "Mars/Olympus"}
        access.will_change(session)
    answer = refused(gateway.post("/v1/deletion-requests", json={"subject_id": "p1"}), 503, "unavailable")
    assert "time zone" in answer["detail"]
    assert "time_zone" in answer["detail"]
    logged = [json.loads(line) for line in capsys.readouterr().err.splitlines() if "zone_unknown" in line]
    assert [(line["level"], line["event"], line["zone"]) for line in logged] == [
        ("error", "deadlines.zone_unknown", "Mars/Olympus")
    ]
    made = gateway.post("/v1/deletion-requests", json={"subject_id": "p1"}, headers=other)
    assert made.status_code == 202
    purge_requests(installation)
    with installation.database.reading() as session:
        assert session.scalars(sa.select(DeletionRequest.kept)).all() == ["trace"]
    assert gateway.get("/v1/tenant").json()["policy"]["time_zone"] == "Mars/Olympus"
    refused(gateway.patch("/v1/tenant", json={"policy": {"grace_seconds": 1}}), 422, "input_invalid")
    assert gateway.patch("/v1/tenant", json={"policy": {"time_zone": "Europe/Berlin"}}).status_code == 200
    assert gateway.post("/v1/deletion-requests", json={"subject_id": "p1"}).status_code == 202
