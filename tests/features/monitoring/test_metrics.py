"""The metrics as a whole: the cost of a scrape, the labels, and who may read them where."""

import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app import installations
from app.config import Settings
from app.db import Actor, migrate
from app.db.tables import DeletionRequest, InstallationIdentity
from app.features.monitoring.metrics import Metrics
from app.installations import Installation
from app.journal import tombstones
from app.main import create_app
from lethe.contract.sets import Scope
from tests import sqlite
from tests.faults.processes import wait_until
from tests.ports import free_port

Make = Callable[..., dict[str, Any]]
Sample = Callable[..., float]


def test_scrapes_are_cached(gateway: TestClient, installation: Installation) -> None:
    """A second scrape within a few seconds does not query the database."""
    counted = []

    def count(connection: sa.Connection, *_: object) -> None:
        # Periodic jobs and gateways of other tests can query at any time.
        is_ours = connection.engine.url == installation.database.engine.url
        if is_ours and threading.current_thread().name.startswith("AnyIO"):
            counted.append(1)

    gateway.get("/metrics")
    sa.event.listen(sa.Engine, "before_cursor_execute", count)
    try:
        assert gateway.get("/metrics").status_code == 200
        assert not counted
        assert gateway.get("/readyz").status_code == 200
        assert counted
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", count)


def test_metrics_survive_an_unreachable_database(
    gateway: TestClient, sample: Sample, installation: Installation
) -> None:
    """If the database cannot be reached, metrics are still served and report the outage. Values that depend on the
    database are omitted."""
    assert sample("lethe_database_up") == 1
    assert 'lethe_requests_overdue{regulation="gdpr"}' in gateway.get("/metrics").text
    with installation.database.reading() as session:
        own = session.scalars(sa.select(InstallationIdentity)).one()
    migrate.downgrade(installation.database.engine)
    # After a second the gateway looks the key up in the database again.
    time.sleep(1.1)
    assert sample("lethe_database_up") == 0
    text = gateway.get("/metrics").text
    assert "lethe_requests_overdue{" not in text
    assert "lethe_queue_age_seconds NaN" in text
    assert sample("lethe_log_events_total", level="error", event="operations.database_unavailable") > 0
    made = sa.insert(InstallationIdentity).values(id=own.id, check_values=own.check_values, created_at=own.created_at)
    migrate.upgrade(installation.database.engine, then=lambda connection: connection.execute(made))
    # This creates the installation's first key.
    installations.set_up(installation.settings)
    assert sample("lethe_database_up") == 1


@pytest.mark.soak
def test_a_scrape_reads_only_open_requests(
    gateway: TestClient, sample: Sample, installation: Installation, by: Actor
) -> None:
    """With a million archived and ten thousand open requests, a scrape reads only the open ones. Reading all of them
    would take the database more than ten million instructions."""
    numbers = "WITH RECURSIVE n(i) AS (SELECT CAST(:first AS integer) UNION ALL SELECT i + 1 FROM n WHERE i < :last)"
    status = "CASE WHEN i % 100 = 0 THEN 'accepted' ELSE 'completed' END"
    columns = "id, subject_ref, regulation, time_zone, status, kept, discreet, tenant_id"
    columns += ", submitted_at, created_at, due_at, deadline"
    moments = ", ".join(["'2026-01-01 00:00:00'"] * 2 + ["'2036-01-01 00:00:00'"] * 2)
    insert = sa.text(
        f"{numbers} INSERT INTO deletion_requests ({columns}) "
        f"SELECT 'dr_' || i, 'ref' || i, 'gdpr', 'UTC', {status}, 'request', false, '{by.tenant_id}', {moments} FROM n"
    )
    # Insert in parts, so that no statement exceeds its time limit on a slow machine.
    for last in range(100_000, 1_000_001, 100_000):
        with installation.database.writing() as session:
            session.execute(insert, {"first": last - 99_999, "last": last})
    with installation.database.writing() as session:
        # In production, autovacuum analyses the table.
        session.execute(sa.text("ANALYZE"))
    assert sample("lethe_requests_open", status="accepted", regulation="gdpr") == 10_000
    with sqlite.instructions() as taken:
        assert gateway.get("/metrics").status_code == 200
    print(f"scrape: {taken()} instructions")
    assert 10_000 < taken() < 2_000_000


def test_metrics_count_calls_by_route(gateway: TestClient) -> None:
    """Calls are counted by route template, so that no actual path, which could name a person, appears in a metric."""
    gateway.get("/v1/datasets/ds_0/subjects/jane.doe@example.org")
    gateway.get("/nowhere/jane.doe@example.org")
    gateway.request("JANE", "/nowhere")
    metrics = gateway.get("/metrics").text
    assert '/datasets/{dataset_id}/subjects/{subject_id}",status="404"' in metrics
    assert 'route="(none)",status="404"' in metrics
    assert 'method="other"' in metrics
    assert "jane" not in metrics.lower()


def test_labels_are_bounded(gateway: TestClient, new_dataset: Make, forget: Make, work: Callable[[], int]) -> None:
    """No metric label identifies a request, a model, a run or a path: the code defines all possible label values."""
    new_dataset()
    made = forget("p1")
    work()
    metrics = gateway.get("/metrics").text
    for prefix in ("ds_", "dr_", "run_0", "run_1", "mdl_", "ver_", "p1", made["subject_ref"]):
        assert f'"{prefix}' not in metrics


def test_alerts_use_existing_metrics(gateway: TestClient, new_dataset: Make, work: Callable[[], int]) -> None:
    """Every metric used in an alert rule is exposed, and every rule has a section in the runbook."""
    root = Path(__file__).parents[3]
    rules_file = root / "deploy" / "prometheus" / "lethe.rules.yml"
    rules = rules_file.read_text()
    runbook = (root / "docs" / "operations.md").read_text()
    metrics = gateway.get("/metrics").text
    words = "".join(letter if letter.isalnum() or letter == "_" else " " for letter in rules).split()
    named = {word for word in words if word.startswith("lethe_")}
    assert len(named) > 5
    for name in named:
        assert f"# TYPE {name.removesuffix('_total').removesuffix('_bucket').removesuffix('_count')}" in metrics, name
    alerts = [line.split(":")[1].strip() for line in rules.splitlines() if "alert:" in line]
    assert len(alerts) > 5
    assert all(f"### {alert}\n" in runbook for alert in alerts)
    if promtool := shutil.which("promtool"):
        subprocess.run([promtool, "check", "rules", rules_file], check=True)


def test_only_operators_grant_the_monitoring_scope(
    gateway: TestClient, key_with: Callable[..., dict[str, str]], refused: Callable[..., Any]
) -> None:
    """Only an operator can grant the metrics scope, because metrics reveal whether there is work to do. A tenant's
    admin cannot grant it."""
    asked = {"name": "monitoring", "scopes": ["metrics:read"]}
    refused(gateway.post("/v1/api-keys", json=asked, headers=key_with(Scope.ADMIN)), 403, "scope_missing")
    assert gateway.post("/v1/api-keys", json=asked).status_code == 201


def test_metrics_can_have_their_own_port(settings: Settings) -> None:
    """If the settings name a metrics port, that port serves the metrics without requiring a key, and serves nothing
    else."""
    port = free_port()
    with TestClient(create_app(settings.model_copy(update={"metrics_port": port}))) as client:
        assert client.get("/metrics").status_code == 401
        assert "lethe_database_up 1.0" in httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text
        for path in ("/", "/metrics/", "/v1/models", "/readyz"):
            assert httpx.get(f"http://127.0.0.1:{port}{path}", timeout=60).status_code == 404
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60)


def test_completions_reported_early_are_counted(
    installation: Installation,
    gateway: TestClient,
    new_dataset: Make,
    sample: Sample,
    key_with: Callable[..., dict[str, str]],
) -> None:
    """The metrics count requests that applications already see as completed but that are still open."""
    new_dataset()
    app = key_with(Scope.REQUESTS_WRITE)
    for who in ("p1", "nobody"):
        gateway.post("/v1/deletion-requests", json={"subject_id": who}, headers=app).raise_for_status()
    assert sample("lethe_requests_reported_open") == 0
    with installation.database.writing() as session:
        session.execute(sa.update(DeletionRequest).values(reported_at=DeletionRequest.created_at))
    assert sample("lethe_requests_reported_open") == 1


def test_a_restored_database_is_reported(installation: Installation, gateway: TestClient, forget: Make) -> None:
    """If the database is older than its tombstones, the gateway refuses to serve it, and the metrics report the
    reason."""
    assert "lethe_database_put_back 0.0" in gateway.get("/metrics").text
    forget("stranger")
    tombstones.record(installation)
    *_, line = tombstones.journal(installation).lines()
    ahead = tombstones.JournalLine(kind="request", number=line.number + 10, at=line.at, request=line.request)
    tombstones.journal(installation).append(lambda last: [ahead])
    wait_until(lambda: gateway.get("/readyz").status_code == 503)
    metrics = Metrics(installation).exposition().decode()
    assert "lethe_database_up 0.0" in metrics
    assert "lethe_database_put_back 1.0" in metrics
