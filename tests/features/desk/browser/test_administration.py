"""Tasks of an admin and an operator: policy, audit log, receivers of webhooks, settings."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from playwright.sync_api import Route, expect

from app.config import Settings
from tests.features.desk.browser.browsing import Site, Visitor


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Return settings that permit receivers on this machine."""
    settings.webhook_allowed_networks = "127.0.0.0/8"
    return settings


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[int]]]:
    """Yield a receiver's URL and the list of statuses that it returns next. It returns 204 once the list is empty."""
    answers: list[int] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(answers.pop(0) if answers else 204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/hook", answers
        server.shutdown()


def test_a_refused_delivery_is_replayed(officer: Visitor, site: Site, receiver: tuple[str, list[int]]) -> None:
    """An officer finds a delivery that the receiver refused, reads the reason, replays the delivery and sees it
    arrive."""
    url, answers = receiver
    answers.append(410)
    site.forget("p1", identity_verified=False, callback_url=url)
    site.until("/v1/webhook-deliveries", lambda page: page["items"] and page["items"][0]["status"] == "gone")
    page = officer.page
    officer.goes_to("Deliveries")
    page.get_by_label("Status").select_option("gone")
    page.wait_for_url("**status=gone**")
    officer.shows("deliveries")
    page.get_by_role("link", name="In review").click()
    expect(page.get_by_text(url)).to_be_visible()
    officer.shows()
    page.get_by_role("button", name="Resend").click()
    expect(page.get_by_text("It is resent")).to_be_visible()
    site.until("/v1/webhook-deliveries", lambda page: page["items"][0]["status"] == "delivered")
    page.reload()
    expect(page.get_by_text("Delivered", exact=True)).to_be_visible()


def test_the_webhook_secret_is_rotated(officer: Visitor) -> None:
    """An admin reveals the webhook secret and rotates it."""
    officer.opens("/admin/webhook-secret")
    secret = officer.page.get_by_text("whsec_")
    expect(secret).to_be_hidden()
    officer.page.get_by_text("Show it").click()
    expect(secret).to_be_visible()
    before = secret.inner_text()
    officer.page.get_by_label("I will give receivers the new one within a day").check()
    officer.shows()
    officer.page.get_by_role("button", name="Replace the secret").click()
    expect(officer.page.get_by_text("New secret created")).to_be_visible()
    officer.page.get_by_text("Show it").click()
    assert secret.inner_text() != before


@pytest.mark.soak
def test_the_policy_is_changed(officer: Visitor, site: Site) -> None:
    """An admin changes the policy. If a value is invalid, the error names its field, and the form keeps the value for
    correction."""
    page = officer.page
    officer.goes_to("Policy")
    officer.shows("policy")
    page.get_by_label("Incoming requests").select_option("no")
    page.get_by_label("Grace period", exact=True).fill("a while")
    page.get_by_role("button", name="Review the change").click()
    expect(page.get_by_role("alert")).to_contain_text("Grace seconds: Enter a whole number.")
    expect(page.get_by_label("Grace period", exact=True)).to_have_value("a while")
    officer.complaints[:] = [said for said in officer.complaints if "422" not in said]
    officer.shows()
    page.get_by_label("Grace period", exact=True).fill("1")
    page.get_by_label("Grace period, unit").select_option("hours")
    page.get_by_label("Name of regulation 1").fill("lgpd")
    page.get_by_label("Days of regulation 1", exact=True).fill("15")
    page.get_by_role("button", name="Review the change").press("Enter")
    expect(page.get_by_role("row", name="Grace seconds 0 seconds 1 hour")).to_be_visible()
    expect(page.get_by_role("row", name="Regulation lgpd not there 15 days")).to_be_visible()
    officer.shows()
    page.get_by_role("button", name="Save the policy").press("Enter")
    expect(page.get_by_text("Policy saved.")).to_be_visible()
    policy = site.api.get("/v1/tenant").json()["policy"]
    assert (policy["auto_accept"], policy["grace_seconds"]) == (False, 3600)
    assert policy["regulations"]["lgpd"]["days"] == 15
    expect(page.get_by_text("Grace seconds: 1 hour")).to_be_visible()
    page.get_by_text("OpenDSR and the Data Rights Protocol").click()
    page.get_by_text("Add an issuer").click()
    page.get_by_text("Add an agent").click()
    officer.shows()


@pytest.mark.soak
def test_the_audit_log_is_verified(officer: Visitor, site: Site) -> None:
    """An auditor verifies the audit log without leaving the page and finds the actions of one key."""
    site.api.post("/v1/api-keys", json={"name": "app", "scopes": ["models:read"]})
    page = officer.page
    officer.goes_to("Audit log")
    while_asked: list[bool] = []

    def look(route: Route) -> None:
        while_asked.append(page.get_by_text("Working …").is_visible())
        route.continue_()

    page.route("**/audit-log/verify", look)
    page.get_by_role("button", name="Verify now").press("Enter")
    expect(page.get_by_text("Verified.")).to_be_visible()
    assert while_asked == [True]
    officer.shows("audit-log")
    page.get_by_role("link", name="api_key.created").first.click()
    expect(page.get_by_label("What")).to_have_value("api_key.created")
    page.get_by_text("more", exact=True).first.click()
    officer.shows()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download checkpoints").click()
    assert download.value.suggested_filename == "audit-checkpoints.json"


@pytest.mark.soak
def test_an_operator_creates_a_tenant(officer: Visitor, site: Site) -> None:
    """An operator creates a tenant and sees the installation's settings, but none of its secrets."""
    page = officer.page
    officer.goes_to("Tenants")
    page.get_by_label("Name").fill("acme")
    officer.shows()
    page.get_by_role("button", name="Create tenant").click()
    expect(page.get_by_text("it is shown only once")).to_be_visible()
    officer.shows()
    officer.goes_to("Installation")
    expect(page.get_by_text("LETHE_WEBHOOK_ALLOWED_NETWORKS")).to_be_visible()
    officer.shows("settings", at="tbody tr:nth-child(12)")


def test_a_suppression_is_lifted_on_consent(officer: Visitor, site: Site) -> None:
    """An officer finds suppressed people and lifts the suppression of a person who consented."""
    site.forget("ann@example.org", identity_verified=False)
    site.forget("bob@example.org")
    page = officer.page
    officer.goes_to("Suppressions")
    officer.shows()
    page.get_by_label("Subject id", exact=True).fill("bob@example.org")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("heading", name="Of this person")).to_be_visible()
    page.get_by_label("Subject ID of the person who gave new consent").fill("bob@example.org")
    page.get_by_role("button", name="Lift suppression").click()
    expect(page.get_by_text("1 suppression ended")).to_be_visible()
    assert "bob@" not in site.gateway.log.read_text()
    officer.shows()
