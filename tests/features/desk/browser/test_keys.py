"""Keys: created and copied once, rotated, revoked; the session of an ended key is logged out."""

import re

from playwright.sync_api import Browser, expect

from tests.faults.processes import wait_until
from tests.features.desk.browser.browsing import Site, Visitor, visitor


def test_a_key_is_created_rotated_and_revoked(officer: Visitor, browser: Browser, site: Site) -> None:
    """If a form is incomplete, the invalid field is marked and explained, and the form keeps its values. An admin can
    create, copy, rotate and revoke a key. After the revocation, the key's holder is returned to the login page."""
    page = officer.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=site.url)
    officer.goes_to("Keys")
    page.get_by_label("Name").fill("auditor")
    page.keyboard.press("Enter")
    scopes = page.get_by_role("group", name="Permissions")
    expect(scopes).to_contain_text("Choose at least 1.")
    expect(scopes).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_label("Name")).to_have_value("auditor")
    # The browser logs the status of the response.
    officer.complaints.clear()
    officer.shows("key-refused")
    officer.goes_to("Keys")
    page.get_by_label("Name").fill("auditor")
    page.get_by_label("requests:read").check()
    page.get_by_label("accounting:read").check()
    officer.shows("keys")
    page.get_by_role("button", name="Create key").click()
    expect(page.get_by_text("Copy this key now; it is shown only once")).to_be_visible()
    copy = page.get_by_role("button", name="Copy the key")
    copy.evaluate(
        """button => {
          window.said = [];
          new MutationObserver(() => window.said.push(button.textContent)).observe(button, { childList: true });
        }"""
    )
    copy.click()
    # The message is shown only for a moment.
    wait_until(lambda: "Copied" in page.evaluate("window.said"))
    key = page.evaluate("navigator.clipboard.readText()")
    assert re.fullmatch(r"lethe_[\w-]{43}", key)
    officer.shows()
    auditor = visitor(browser, site)
    auditor.logs_in(key)
    expect(auditor.page.get_by_role("link", name="Requests", exact=True)).to_be_visible()
    page.get_by_role("link", name="I have copied it").click()
    assert key not in page.content()
    page.get_by_role("link", name="auditor").click()
    officer.shows()
    page.get_by_role("button", name="Rotate").click()
    expect(page.get_by_text("works for another 24 h")).to_be_visible()
    page.get_by_role("link", name="I have copied it").click()
    page.get_by_role("link", name="auditor").last.click()
    page.get_by_label("Clients that use this key lose access").check()
    page.get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("Key revoked")).to_be_visible()
    officer.shows()
    auditor.opens("/admin/requests")
    expect(auditor.page.get_by_label("API key")).to_be_visible()
    auditor.page.context.close()
