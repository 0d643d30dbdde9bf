"""Requests: found, decided, forgotten and proven."""

import re

from playwright.sync_api import Browser, expect

from tests.faults.processes import Child
from tests.features.desk.browser.browsing import Site, Visitor, visitor


def test_selected_requests_are_rejected(officer: Visitor) -> None:
    """An officer selects requests in a list, rejects them on a legal ground, and sees the result."""
    for n in range(4):
        officer.site.forget(f"p{n}", identity_verified=False, external_id=f"case-{n}")
    officer.goes_to("Requests")
    officer.shows("requests")
    page = officer.page
    page.get_by_label(re.compile("^Choose dr_")).first.check()
    expect(page.get_by_text("1 request chosen")).to_be_visible()
    page.get_by_label("Choose all requests on this page").check()
    expect(page.get_by_text("4 requests chosen")).to_be_visible()
    page.locator("#decide").get_by_text("Reject …").click()
    page.get_by_label("Legal basis").select_option("legal_claims")
    page.get_by_label("Explanation to the person").fill("A case is before court.")
    officer.shows("requests-rejecting")
    page.get_by_role("button", name="Reject selected").click()
    expect(page.get_by_role("status").filter(has_text="4 requests rejected.")).to_be_visible()
    officer.shows()


def test_all_matching_requests_are_decided(officer: Visitor) -> None:
    """If more requests match than fit on a page, an officer selects all of them, sees their number and decides by
    keyboard."""
    bodies = [{"subject_id": f"q{n}", "identity_verified": False, "regulation": "ccpa"} for n in range(55)]
    assert officer.site.api.post("/v1/deletion-requests:batch", json={"requests": bodies}).is_success
    page = officer.page
    officer.opens("/admin/requests?regulation=ccpa")
    page.get_by_role("link", name="Select all 55 that match").press("Enter")
    expect(page.get_by_role("button", name="Approve 55 requests")).to_be_visible()
    officer.shows("requests-all")
    page.get_by_role("button", name="Approve 55 requests").press("Enter")
    expect(page.get_by_role("status").filter(has_text="55 requests approved.")).to_be_visible()
    assert "regulation=ccpa" in page.url


def test_a_request_is_followed_from_review_to_proof(officer: Visitor, worker: Child) -> None:
    """An officer approves a request, sees it complete without reloading the page, and reads and verifies the
    certificate."""
    officer.site.live_model()
    made = officer.site.forget("p1", identity_verified=False, external_id="case-1", metadata={"note": "<b>urgent</b>"})
    officer.opens(f"/admin/requests/{made}")
    page = officer.page
    officer.shows("request-in-review")
    page.get_by_role("group", name="Decide").get_by_text("Reject …").click()
    officer.shows("request-rejecting")
    page.get_by_role("group", name="Decide").get_by_text("Reject …").click()
    expect(page.get_by_role("heading", name="case-1")).to_be_visible()
    expect(page.get_by_text("awaits a decision")).to_be_visible()
    page.get_by_role("button", name="Approve …").press("Enter")
    expect(page.get_by_role("button", name="Go back")).to_be_focused()
    officer.shows("request-approving")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Approve the request")).to_be_hidden()
    page.get_by_role("button", name="Approve …").press("Enter")
    page.get_by_role("button", name="Approve the request").press("Enter")
    expect(page.get_by_text("Request approved.")).to_be_visible()
    expect(page.get_by_role("heading", name=re.compile("has forgotten this person"))).to_be_visible(timeout=400_000)
    expect(page.get_by_text("<b>urgent</b>")).to_be_visible()
    models = page.get_by_role("region", name="What the request asks of each model")
    expect(models.get_by_role("link", name="churn")).to_have_attribute("href", re.compile("/admin/models/"))
    expect(models.get_by_role("link", name=re.compile("^run_"))).to_have_attribute("href", re.compile("/admin/runs/"))
    page.get_by_role("button", name="Verify now").click()
    expect(page.get_by_text("Verified.")).to_be_visible()
    officer.shows("request-completed")
    page.wait_for_timeout(3_000)
    expect(page.get_by_text("Verified.")).to_be_visible()
    officer.shows()
    officer.is_pictured("certificate", at="article", height=460)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download as JSON").click()
    assert download.value.suggested_filename.startswith("crt_")
    page.get_by_role("link", name="Draft the reply").press("Enter")
    page.get_by_role("link", name="Deutsch").press("Enter")
    expect(page.get_by_text("Sehr geehrte Damen und Herren,")).to_be_visible()
    officer.shows("request-reply")


def test_requests_work_without_scripts(officer: Visitor) -> None:
    """Everything except live updates works in a browser with scripts disabled."""
    made = officer.site.forget("p1", identity_verified=False)
    browser = officer.page.context.browser
    assert browser
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{officer.site.url}/admin/requests/{made}")
    page.get_by_label("API key").fill(officer.site.key)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("group", name="Decide").get_by_text("Reject …").click()
    page.get_by_label("Legal basis").select_option("legal_claims")
    page.get_by_label("Explanation to the person").fill("A case is before court.")
    page.get_by_role("button", name="Reject the request").click()
    expect(page.get_by_text("A case is before court.")).to_be_visible()
    context.close()


def test_legal_dates_are_in_the_zone_of_the_policy(browser: Browser, site: Site) -> None:
    """A request's dates of receipt and deadline are in the policy's time zone, wherever the reader is. The zone is
    named once in the table header, and hovering over a date shows the reader's local time."""
    assert site.api.patch("/v1/tenant", json={"policy": {"time_zone": "Europe/Berlin"}}).status_code == 200
    made = site.forget("p1", submitted_at="2026-01-01T23:30:00Z", identity_verified=False)
    for clock, hour in (("Pacific/Honolulu", "13:30 GMT-10"), ("Pacific/Auckland", "12:30 GMT+13")):
        reader = visitor(browser, site, clock=clock)
        reader.logs_in()
        reader.page.wait_for_url("**/admin")
        reader.opens(f"/admin/requests/{made}")
        received = reader.page.locator("dt:text-is('Received') + dd")
        expect(received).to_have_text("2 Jan 2026")
        expect(reader.page.locator("dt:text-is('Deadline') + dd time")).to_have_text("2 Feb 2026")
        expect(received.locator("time")).to_have_attribute("title", re.compile(re.escape(f"{hour} on your clock")))
        expect(reader.page.get_by_text("Europe/Berlin")).to_have_text(["Dates in Europe/Berlin"])
        reader.shows()
        reader.page.context.close()
