"""Totals of runs and requests by their labels, read from the database, equal at every gateway."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.config import Settings
from app.db.tables import DeletionRequest, Run
from app.errors import AuditFailed
from app.features.monitoring import metrics
from app.installations import Installation
from app.main import create_app
from app.unlearning import queue, service as unlearning
from tests.app.api.test_operations import DAY, add_runs, now

Make = Callable[..., dict[str, Any]]
Sample = Callable[..., float]


@pytest.mark.soak
def test_regulation_and_tenant_labels_are_limited(
    sample: Sample, installation: Installation, new_dataset: Make, forget: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant-defined regulation appears as a label value as long as it has requests. Regulations and tenants beyond a
    limit share one label value."""
    new_dataset()
    made = [forget(f"p{number}")["id"] for number in range(6)]

    def rename(**names: str) -> str:
        with installation.database.writing() as session:
            for number, request_id in enumerate(made):
                request = session.get_one(DeletionRequest, request_id)
                request.regulation = names.get(f"p{number}", "gdpr")
            return request.tenant_id

    tenant_id = rename(p1="lgpd", p2="lgpd")
    assert sample("lethe_requests_open", status="accepted", regulation="lgpd") == 2
    assert sample("lethe_tenant_requests_open", tenant=tenant_id) == 6
    rename(p1="appi", p2="pipeda", p3="pipeda", p4="lgpd")
    monkeypatch.setattr(metrics, "_MAX_REGULATIONS", 4)
    assert sample("lethe_requests_open", status="accepted", regulation="pipeda") == 2
    assert sample("lethe_requests_open", status="accepted", regulation="(others)") == 2
    assert sample("lethe_requests_open", status="accepted", regulation="lgpd") == 0
    rename()
    assert sample("lethe_requests_open", status="accepted", regulation="gdpr") == 6
    assert sample("lethe_requests_open", status="accepted", regulation="(others)") == 0


@pytest.mark.soak
def test_runs_are_counted_once(
    settings: Settings,
    admin_key: str,
    sample: Sample,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    work: Callable[[], int],
) -> None:
    """The totals are read from the database, so every gateway reports the same values and repeated scrapes do not
    change them."""
    model = new_model(new_dataset()["id"])
    add_runs(installation, "published", "abandoned", ago=DAY)
    for runs in (1, 2, 2):
        assert sample("lethe_runs_total", kind="unlearn", status="published") == runs
        assert sample("lethe_run_steps_total", kind="unlearn") == 9 * runs
        assert sample("lethe_runs_total", kind="unlearn", status="abandoned") == 1
        if runs == 1:
            add_runs(installation, "published")
    assert sample("lethe_run_seconds_count", kind="unlearn") == 1
    assert sample("lethe_run_seconds_sum", kind="unlearn") == pytest.approx(1)
    with installation.database.writing() as session:
        assert queue.claim(session, worker="w", lease_seconds=30, max_requests=1)
    assert (sample("lethe_runs_running"), sample("lethe_runs_total", kind="learn", status="abandoned")) == (1, 0)
    with installation.database.writing() as session:
        unlearning.take_back(session, worker="w")
    assert (sample("lethe_runs_running"), sample("lethe_runs_total", kind="learn", status="abandoned")) == (0, 1)
    assert work() == 1
    assert sample("lethe_run_steps_total", kind="learn") == model["mechanism"]["learn_steps"]
    with TestClient(create_app(settings), headers={"Authorization": f"Bearer {admin_key}"}) as another:
        assert 'lethe_runs_total{kind="unlearn",status="published"} 2.0' in another.get("/metrics").text


def test_canary_tests_are_counted_once(
    settings: Settings,
    admin_key: str,
    sample: Sample,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    work: Callable[[], int],
) -> None:
    """Passed and failed canary tests are counted separately, and every gateway reports the same counts. Runs without
    canaries, and runs that failed for other reasons, are counted in neither total."""
    dataset = new_dataset()
    assert [sample("lethe_audits_total", result=result) for result in ("passed", "failed")] == [0, 0]
    for lanes in (256, 0):
        new_model(dataset["id"], audit={"lanes": lanes})
    assert work() == 2
    add_runs(installation, "failed", "failed")
    with installation.database.writing() as session:
        refuted = session.scalars(sa.select(Run).where(Run.status == "failed").limit(1)).one()
        refuted.error_code = AuditFailed.code
    for _ in range(2):
        assert [sample("lethe_audits_total", result=result) for result in ("passed", "failed")] == [1, 1]
    # Move the runs into the past for another gateway.
    with installation.database.writing() as session:
        session.execute(sa.update(Run).values(started_at=now() - DAY, finished_at=now() - DAY))
    with TestClient(create_app(settings), headers={"Authorization": f"Bearer {admin_key}"}) as another:
        text = another.get("/metrics").text
    assert 'lethe_audits_total{result="passed"} 1.0' in text
    assert 'lethe_audits_total{result="failed"} 1.0' in text
