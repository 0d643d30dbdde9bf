"""Deliveries on pages: found by status, replayed; and their signing secret."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from app.features.desk.glossary import delivery_advice
from app.features.webhooks.tables import WebhookDelivery
from app.installations import Installation
from lethe.contract.sets import Scope
from tests.features.desk.browsing import Browser
from tests.features.together.test_authorisation import delivered
from tests.tables import each

Get = Callable[[str], Any]


@pytest.fixture
def delivery(installation: Installation, forget: Callable[..., dict[str, Any]]) -> str:
    """Return the id of a successful delivery."""
    return delivered(installation, forget("p1")["id"])


def test_deliveries_are_shown(officer: Browser, delivery: str) -> None:
    """The list shows each delivery with its status. The delivery's page shows admins its URL and body."""
    assert delivery in officer.get("/admin/deliveries?status=delivered").text
    assert "No matching deliveries" in officer.get("/admin/deliveries?status=dead").text
    page = officer.get(f"/admin/deliveries/{delivery}").text
    assert "https://app.example/hook" in page
    assert "{}" in page


def test_an_ended_delivery_is_replayed(officer: Browser, delivery: str, get: Get) -> None:
    """An ended delivery is replayed under the same id. While a delivery is pending, its page does not offer a
    replay."""
    assert "Resend" in officer.get(f"/admin/deliveries/{delivery}").text
    answer = officer.post(f"/admin/deliveries/{delivery}/replay")
    assert get(f"/webhook-deliveries/{delivery}")["ended_at"] is None
    page = officer.get(answer.headers["location"]).text
    assert "with ten new attempts" in page


def test_failures_are_explained_and_replayed(
    officer: Browser,
    somebody_with: Callable[..., Browser],
    installation: Installation,
    delivery: str,
    forget: Callable[..., dict[str, Any]],
    get: Get,
) -> None:
    """Lists and pages explain in words why a delivery failed. With one click, an admin can replay all ended deliveries
    that match a filter. Other users cannot."""
    other = delivered(installation, forget("p2")["id"])
    with installation.database.writing() as session:
        failed = sa.update(WebhookDelivery).where(WebhookDelivery.id.in_([delivery, other]))
        session.execute(failed.values(status="dead", error="http_503", attempts=10))
    assert "Resend all of these" not in officer.get("/admin/deliveries").text
    for path in ("/admin/deliveries?status=undelivered", f"/admin/deliveries/{delivery}"):
        assert "The receiver failed (503)." in officer.get(path).text
    assert "Resend all of these" in officer.get("/admin/deliveries?status=undelivered").text
    reader = somebody_with(Scope.REQUESTS_READ, Scope.ACCOUNTING_READ)
    assert "Resend all of these" not in reader.get("/admin/deliveries?status=dead").text
    assert reader.post("/admin/deliveries/send-again?status=dead").status_code == 403
    answer = officer.post("/admin/deliveries/send-again?status=undelivered")
    assert answer.status_code == 303
    assert "2 deliveries are resent under their old IDs." in officer.get(answer.headers["location"]).text
    assert all(get(f"/webhook-deliveries/{one}")["ended_at"] is None for one in (delivery, other))
    assert officer.post("/admin/deliveries/send-again?status=pending").status_code == 422


@each("code", ["timeout", "tls_failed", "redirected", "http_404", "http_418", "http_503", "internal_error", "new_one"])
def test_every_failure_is_explained(code: str) -> None:
    """Every error code has one sentence that explains it and one that recommends an action."""
    found = delivery_advice(code)
    assert found.means.endswith(".")
    assert found.todo.endswith(".")


def test_bodies_and_urls_are_hidden_from_others(somebody_with: Callable[..., Browser], delivery: str) -> None:
    """Callers without the admin scope see no URL, body or secret of a delivery and cannot replay it."""
    reader = somebody_with(Scope.REQUESTS_READ, Scope.ACCOUNTING_READ)
    page = reader.get(f"/admin/deliveries/{delivery}").text
    assert "app.example" in page
    assert "/hook" not in page
    assert "Only admins see what is sent" in page
    assert "Resend" not in page
    assert "signing secret" not in reader.get("/admin/deliveries").text
    assert reader.post(f"/admin/deliveries/{delivery}/replay").status_code == 403
    assert reader.get("/admin/webhook-secret").status_code == 403


def test_an_unknown_delivery_is_a_404(officer: Browser) -> None:
    """Showing or replaying an unknown delivery returns a 404 page."""
    assert officer.get("/admin/deliveries/whd_none").status_code == 404
    assert officer.post("/admin/deliveries/whd_none/replay").status_code == 404


def test_the_secret_is_replaced_once(officer: Browser, get: Get) -> None:
    """The form names the generation that it replaces, so submitting the form twice replaces the secret only once."""
    first = get("/webhook-secret")
    assert first["secret"] in officer.get("/admin/webhook-secret").text
    generation = str(first["generation"])
    answer = officer.post("/admin/webhook-secret/rotate", generation=generation)
    assert answer.headers["location"] == "/admin/webhook-secret?done=rotated"
    officer.post("/admin/webhook-secret/rotate", generation=generation)
    assert get("/webhook-secret")["generation"] == first["generation"] + 1
    assert officer.post("/admin/webhook-secret/rotate", generation="99").status_code == 409
    assert officer.post("/admin/webhook-secret/rotate", generation="first").status_code == 422
