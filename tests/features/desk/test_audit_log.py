"""The audit log on pages: searched, recomputed, and what was signed about it to take away."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from app.installations import Installation
from app.operations import periodic_jobs
from lethe.contract.sets import Scope
from tests.features.desk.browsing import Browser

Get = Callable[[str], Any]


@pytest.fixture
def keys(gateway: Any) -> list[str]:
    """Three new keys: three entries."""
    body = {"name": "app", "scopes": ["models:read"]}
    return [gateway.post("/v1/api-keys", json=body).json()["id"] for _ in range(3)]


def test_entries_are_found(officer: Browser, keys: list[str]) -> None:
    """Filters find entries by actor, action and object, and the page says if there are none."""
    page = officer.get("/admin/audit-log?action=api_key.created").text
    assert all(key in page for key in keys)
    page = officer.get(f"/admin/audit-log?object_id={keys[1]}").text
    assert keys[0] not in page
    assert "1 entry" in page
    assert "No matching entries" in officer.get("/admin/audit-log?actor=nobody").text


@pytest.mark.usefixtures("keys")
def test_the_chain_is_recomputed(officer: Browser, installation: Installation) -> None:
    """The button reports whether the chain is intact and, after a manipulation, the first wrong entry."""
    periodic_jobs.sign_heads(installation)
    fragment = officer.client.post(
        "/admin/audit-log/verify",
        headers={"Origin": "http://testserver", "HX-Request": "true", "X-CSRF-Token": officer.token()},
    ).text
    assert "It holds." in fragment
    assert "1 signature agrees" in fragment
    assert "<html" not in fragment
    with installation.database.engine.connect() as connection:
        connection.execute(sa.text("DROP TRIGGER audit_entries_no_update"))
        connection.execute(sa.text("UPDATE audit_entries SET actor = 'nobody' WHERE sequence = 2"))
        connection.commit()
    page = officer.post("/admin/audit-log/verify").text
    assert "It does not hold." in page
    assert "audit entry 2" in page


def test_checkpoints_are_downloaded(officer: Browser, installation: Installation, get: Get) -> None:
    """The signed checkpoints are downloaded as a file."""
    periodic_jobs.sign_heads(installation)
    answer = officer.get("/admin/audit-log/checkpoints.json")
    assert "attachment" in answer.headers["content-disposition"]
    assert json.loads(answer.text) == get("/audit-log/checkpoints")["items"]


def test_only_admins_see_it(somebody_with: Callable[..., Browser]) -> None:
    """Only admins can see the audit log, recompute it and download its signatures."""
    browser = somebody_with(Scope.REQUESTS_READ, Scope.ACCOUNTING_READ)
    assert browser.get("/admin/audit-log").status_code == 403
    assert browser.post("/admin/audit-log/verify").status_code == 403
    assert browser.get("/admin/audit-log/checkpoints.json").status_code == 403
