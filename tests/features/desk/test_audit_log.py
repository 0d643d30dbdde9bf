"""The audit log on pages: searched, recomputed, and its signatures downloaded."""

import csv
import datetime
import io
import json
import re
import zoneinfo
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from app.installations import Installation
from app.operations import periodic_jobs
from tests.features.desk.browsing import Browser

Get = Callable[[str], Any]


@pytest.fixture
def keys(gateway: Any) -> list[str]:
    """Create three keys, which add three entries to the audit log."""
    body = {"name": "app", "scopes": ["models:read"]}
    return [gateway.post("/v1/api-keys", json=body).json()["id"] for _ in range(3)]


def test_entries_are_filtered(officer: Browser, keys: list[str]) -> None:
    """Entries are filtered by actor, action and object. If no entry matches, the page says so."""
    page = officer.get("/admin/audit-log?action=api_key.created").text
    assert all(key in page for key in keys)
    page = officer.get(f"/admin/audit-log?object_id={keys[1]}").text
    assert keys[0] not in page
    assert "1 entry" in page
    assert "No matching entries" in officer.get("/admin/audit-log?actor=nobody").text


@pytest.mark.usefixtures("keys")
def test_the_chain_is_recomputed(officer: Browser, installation: Installation) -> None:
    """The page's verification reports that the chain is intact or, if an entry was manipulated, names the first wrong
    entry."""
    periodic_jobs.sign_heads(installation)
    fragment = officer.client.post(
        "/admin/audit-log/verify",
        headers={"Origin": "http://testserver", "HX-Request": "true", "X-CSRF-Token": officer.token()},
    ).text
    assert "Verified." in fragment
    assert "1 signature agrees" in fragment
    assert "<html" not in fragment
    with installation.database.engine.connect() as connection:
        connection.execute(sa.text("DROP TRIGGER audit_entries_no_update"))
        connection.execute(sa.text("UPDATE audit_entries SET actor = 'nobody' WHERE sequence = 2"))
        connection.commit()
    page = officer.post("/admin/audit-log/verify").text
    assert "Not valid." in page
    assert "audit entry 2" in page


def test_checkpoints_are_downloaded(officer: Browser, installation: Installation, get: Get) -> None:
    """The signed checkpoints can be downloaded as a file."""
    periodic_jobs.sign_heads(installation)
    answer = officer.get("/admin/audit-log/checkpoints.json")
    assert "attachment" in answer.headers["content-disposition"]
    assert json.loads(answer.text) == get("/audit-log/checkpoints")["items"]


def test_entries_are_filtered_by_days(officer: Browser, gateway: Any, keys: list[str]) -> None:
    """Entries can be filtered by a range of days in the tenant's time zone, inclusive at both ends. A day that does not
    exist is ignored, and text that is not a date is refused."""
    gateway.patch("/v1/tenant", json={"policy": {"time_zone": "Pacific/Kiritimati"}}).raise_for_status()
    [entry] = gateway.get("/v1/audit-log", params={"object_id": keys[0]}).json()["items"]
    local = datetime.datetime.fromisoformat(entry["at"]).astimezone(zoneinfo.ZoneInfo("Pacific/Kiritimati")).date()
    day = datetime.timedelta(days=1)
    for since, until, is_in in (
        (local, local, True),
        (local, "", True),
        ("", local, True),
        (local + day, "", False),
        ("", local - day, False),
        ("2026-02-31", "9999-12-31", True),
    ):
        page = officer.get(f"/admin/audit-log?object_id={keys[0]}&since={since}&until={until}").text
        assert ("1 entry" in page) is is_in, (since, until)
    assert officer.get("/admin/audit-log?since=yesterday").status_code == 422


def test_totals_by_action_match_the_entries(officer: Browser, gateway: Any, keys: list[str]) -> None:
    """The total shown for each action equals the number of matching entries with that action."""
    entries = gateway.get("/v1/audit-log", params={"limit": 500}).json()["items"]
    kinds = Counter(entry["action"] for entry in entries)
    assert kinds["api_key.created"] >= len(keys)
    page = officer.get("/admin/audit-log/totals").text
    shown = re.findall(r'<code>([\w.]+)</code></a></th><td class="number">([\d,]+)</td>', page)
    assert {kind: int(total.replace(",", "")) for kind, total in shown} == kinds
    assert f"{len(entries)} entries" in page
    page = officer.get(f"/admin/audit-log/totals?object_id={keys[0]}").text
    assert re.findall(r'<td class="number">(\d+)</td>', page) == ["1"]


def test_the_export_has_names_and_no_formulas(officer: Browser, gateway: Any, keys: list[str]) -> None:
    """The CSV and JSON exports contain the matching entries with names next to ids and with everything needed to
    recompute the hashes. No cell of the CSV is a formula."""
    made = gateway.post("/v1/api-keys", json={"name": "=1+1", "scopes": ["models:read"]}).json()["id"]
    lines = officer.get("/admin/audit-log/export?format=json&action=api_key.created").json()
    entries = gateway.get("/v1/audit-log", params={"limit": 500, "action": "api_key.created"}).json()["items"]
    assert [{name: line[name] for name in entries[0]} for line in lines] == entries
    assert {line["object_id"]: line["object_name"] for line in lines}[made] == "=1+1"
    answer = officer.get("/admin/audit-log/export?action=api_key.created")
    assert "attachment" in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["hash"] for row in rows] == [entry["hash"] for entry in entries]
    assert rows[0]["object_name"] == "'=1+1"
    assert {row["object_id"] for row in rows} >= set(keys)
