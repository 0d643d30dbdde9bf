"""Dangers on the first page: each with its number, and a link to the list that it counts."""

import datetime
import html
import re
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.db.tables import InstallationIdentity, Model
from app.features.desk.pages.home import dangers
from app.features.webhooks.tables import WebhookDelivery
from app.installations import Installation
from app.unlearning import queue, service as unlearning
from lethe.contract.sets import Scope, WorkerState
from lethe.features.overview.contract import BackupsOut, HostOut, ModelsCountOut, OverviewOut
from lethe.features.webhooks.contract import DeliveryStatus
from tests.features.desk.browsing import Browser
from tests.features.together.test_authorisation import delivered

Make = Callable[..., dict[str, Any]]
AT = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
SAFE = OverviewOut(
    stored_bytes={},
    max_stored_bytes=1,
    open={"received": 0, "in_review": 0, "accepted": 0, "running": 0},
    ended={"completed": 1, "rejected": 0, "cancelled": 0},
    at_risk=0,
    overdue=0,
    queue_age_seconds=0.0,
    running=0,
    workers=WorkerState.ALIVE,
    worker_seen_at=AT,
    hosts=[],
    models=ModelsCountOut(total=3, waiting=1, failed=0, degraded=0, held=0, audits_passed=3, audits_refused=0),
    failed_runs={},
    undelivered={},
    backups=BackupsOut(last_at=AT, is_late=False),
)


def said(**changed: Any) -> list[str]:
    found = dangers(SAFE.model_copy(update=changed), at=AT, risk_days=7)
    return [f"{one.subject} {one.predicate}" for one in found]


def test_requests_within_their_limit_are_not_dangers() -> None:
    """Requests that have ended, or are still within their time limit, are not reported as dangers."""
    assert said() == []


def test_each_danger_states_number_and_reason() -> None:
    """Each danger is described in a sentence with its number and, if known, its reason. The most serious danger comes
    first."""
    seen = (
        HostOut(name="blue", workers=WorkerState.ALIVE, seen_at=AT),
        HostOut(name="green", workers=WorkerState.SILENT, seen_at=AT),
    )
    models = SAFE.models.model_copy(update={"failed": 2, "audits_refused": 1, "degraded": 3, "held": 1})
    found = said(
        overdue=1,
        at_risk=2000,
        hosts=list(seen),
        models=models,
        failed_runs={"worker_lost": 1, "audit_failed": 2},
        undelivered={DeliveryStatus.DEAD: 1, DeliveryStatus.PENDING: 3},
        backups=BackupsOut(last_at=AT - datetime.timedelta(days=9), is_late=True),
    )
    assert found == [
        "1 host of 2 with workers sent no heartbeat for a minute: green.",
        "1 request is past its legal deadline.",
        "2,000 requests are due in the next 7 days.",
        "2 models could not be learned, and will not be retried automatically.",
        "1 model had the last canary test refute a run, which published nothing.",
        "1 model missed the quality gate and is not served: release the version or apply a remedy.",
        "2 models are served below their quality gates.",
        "3 runs failed and have not been retried successfully: 2 × audit_failed, 1 × worker_lost.",
        "1 webhook delivery failed permanently: the receiver was not reached for three days.",
        "3 webhook deliveries have not arrived yet, and are sent automatically.",
        "The last backup was finished 9 days ago.",
    ]
    assert said(workers=WorkerState.SILENT)[0].startswith("No worker has responded")
    assert said(workers=WorkerState.FAILING) == ["The last runs all failed."]
    assert said(backups=BackupsOut(last_at=None, is_late=True)) == ["No backup was ever made."]


def test_every_tile_links_to_its_list(
    officer: Browser,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
) -> None:
    """Each tile of the overview and of the inbox shows a number and links to a list with exactly that number of
    entries."""
    for _ in range(2):
        new_model(new_dataset()["id"])
    work()
    soon = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=42)
    for n, submitted_at in enumerate(("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", soon.isoformat())):
        forget(f"p{n}", identity_verified=False, regulation="ccpa", submitted_at=submitted_at)
    forget("stranger")
    accepted = forget("p7")["id"]
    with installation.database.writing() as session:
        claimed = queue.claim(session, worker="test", lease_seconds=60, max_requests=1)
        assert claimed is not None
        unlearning.fail(session, run_id=claimed.run_id, error_code="run_process_died")
    gone = delivered(installation, accepted)
    with installation.database.writing() as session:
        session.execute(sa.update(WebhookDelivery).where(WebhookDelivery.id == gone).values(status="dead"))
    tiles = [
        re.findall(r'class="tile[^"]*" href="([^"]+)"><b>(\d+)</b><span>([^<]+)<', officer.get(path).text)
        for path in ("/admin/overview", "/admin")
    ]
    assert len(tiles[1]) == 6
    assert set(tiles[1]) <= set(tiles[0])
    found = {text: (html.unescape(path), int(number)) for path, number, text in tiles[0]}
    assert {text: number for text, (_, number) in found.items()} == {
        "Overdue": 2,
        "Due within 7 days": 1,
        "In review": 3,
        "Queued": 1,
        "In progress": 0,
        "Completed": 1,
        "Models": 2,
        "With erasures pending": 2,
        "Canary tests passed": 2,
        "Unresolved failed runs": 1,
        "Webhooks undelivered": 1,
    }
    for text, (path, number) in found.items():
        page = officer.get(path).text
        listed = re.split(r'<h2 id="found">', page)[1]
        assert len(re.findall(r'<th scope="row">', listed)) == number, text


def test_the_calendar_links_to_its_lists(officer: Browser, gateway: TestClient, forget: Make) -> None:
    """Each number in the calendar links to a list with exactly that number of requests: the numbers of a day, of
    overdue requests, of later ones, and of each bar of the chart. Days are counted in the policy's time zone. A day
    without requests has no link."""
    gateway.patch("/v1/tenant", json={"policy": {"time_zone": "Europe/Berlin"}}).raise_for_status()
    now = datetime.datetime.now(datetime.UTC)
    for n, (days, regulation) in enumerate([(100, "ccpa"), (35, "ccpa"), (35, "ccpa"), (20, "ccpa"), (1, "ccpa")]):
        submitted_at = (now - datetime.timedelta(days=days)).isoformat()
        forget(f"p{n}", identity_verified=False, regulation=regulation, submitted_at=submitted_at)
    forget("stranger")
    page = officer.get("/admin/calendar").text
    cells = re.findall(r'<a class="day[^"]*" href="([^"]+)"[^>]*>(.*?)</a>', page)
    bars = re.findall(r'<a href="([^"]+)" title="Week[^>]*>(.*?)</a>', page)
    found = {" ".join(re.sub(r"<[^>]+>", "", inside).split()): html.unescape(path) for path, inside in [*cells, *bars]}
    asked = (now - datetime.timedelta(days=35)).astimezone(ZoneInfo("Europe/Berlin"))
    # In this time zone the clock may have been put back since.
    due = asked + datetime.timedelta(days=45)
    assert {"1 overdue", f"2 due on {due.day} {due:%b}", "1 due later"} <= found.keys()
    assert sum(int(name.split()[0]) for name in found if "due" in name) == 5
    # One request is older than the period shown.
    assert sum(int(name.split()[0]) for name in found if "received" in name) == 5
    assert sum(int(name.split()[0]) for name in found if "completed" in name) == 1
    for name, path in found.items():
        listed = re.split(r'<h2 id="found">', officer.get(path).text)[1]
        assert len(re.findall(r'<th scope="row">', listed)) == int(name.split()[0]), name
    assert "<b>0</b>" in page
    figures = re.findall(r"<dd>(.*?)</dd>", page)
    assert figures[:3] == ["0 days", "0 days", "100 %"]


def test_the_calendar_is_refreshed_once_a_minute(officer: Browser, somebody_with: Callable[..., Browser]) -> None:
    """The calendar is refreshed once a minute, separately from the rest of the page. A key that may not see requests
    does not get the calendar."""
    page = officer.get("/admin/calendar").text
    assert 'class="calendar"' in page
    assert 'data-live="60" hx-get="/admin/outlook"' in page
    assert 'class="calendar"' not in officer.get("/admin/live").text
    again = officer.get("/admin/outlook").text
    assert 'class="calendar"' in again
    assert "<html" not in again
    assert 'class="calendar"' not in somebody_with(Scope.MODELS_READ).get("/admin/outlook").text


def test_the_audit_log_is_linked_only_with_its_scope(
    somebody_with: Callable[..., Browser], installation: Installation
) -> None:
    """A user who may not read the audit log sees the warning that no backup was made, but no link to the log."""
    long_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=8)
    with installation.database.writing() as session:
        session.execute(sa.update(InstallationIdentity).values(created_at=long_ago))
    page = somebody_with(Scope.ACCOUNTING_READ).get("/admin").text
    assert "No backup</strong> was ever made." in page
    assert "/admin/audit-log" not in page


def test_the_worst_models_are_shown(
    officer: Browser, installation: Installation, new_dataset: Make, new_model: Make
) -> None:
    """The overview names the eight models most at risk and links to the list of all models."""
    dataset = new_dataset(rows=4)["id"]
    made = [new_model(dataset, name=f"m{n}")["id"] for n in range(10)]
    with installation.database.writing() as session:
        session.execute(sa.update(Model).where(Model.id == made[0]).values(status="failed"))
    home = officer.get("/admin/overview").text
    assert len(set(re.findall(r'href="/admin/models/(mdl_[0-9a-f]+)"', home))) == 8
    assert "All 10 models" in home
    assert "1 model</a> could not be learned" in home


def test_waiting_people_are_shown_without_dangers(
    officer: Browser, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]
) -> None:
    """If no deadline is near, the page shows how many requests are waiting, how many models still contain the data of
    the people who made these requests, and the earliest due date."""
    new_model(new_dataset()["id"])
    work()
    made = forget("p1")
    due = datetime.datetime.fromisoformat(made["due_at"])
    page = html.unescape(re.sub(r"<[^>]+>", "", officer.get("/admin/overview").text))
    assert "1 request waits to be done; people who asked are still fully in 1 model, the first due" in page
    assert f"the first due {due.day} {due:%b %Y} UTC." in page
