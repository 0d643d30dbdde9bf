"""A user: invited, with a password and an app, recorded by name; by pointer and by keyboard."""

import datetime
import re

import pyotp
from playwright.sync_api import Browser, Page, expect

from tests.features.desk.browser.browsing import Site, Visitor, visitor

EMAIL, PASSWORD = "maria@example.com", "correct horse battery staple"


def secret_on(page: Page) -> str:
    """Return the secret that the page spells out next to its QR code."""
    return page.get_by_text("enter this key").locator("code").inner_text().replace(" ", "")


def code_of(secret: str, *, steps: int = 0) -> str:
    at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=30 * steps)
    return pyotp.TOTP(secret).at(int(at.timestamp()))


def test_an_officer_decides_by_name(officer: Visitor, browser: Browser, site: Site) -> None:
    """An administrator invites an officer, who sets a password and enrols an authenticator app, mistypes the password
    once, and then logs in with a code and approves a request. The page names the officer. Once disabled, the officer is
    returned to the login page."""
    request = site.forget("p1", identity_verified=False)
    page = officer.page
    officer.goes_to("People")
    expect(page.get_by_text("No one has been invited yet")).to_be_visible()
    officer.shows()
    page.get_by_label("Name").fill("Maria Lopez")
    page.get_by_label("E-mail address").fill(EMAIL)
    page.get_by_label("Role").select_option("officer")
    page.get_by_role("button", name="Invite").click()
    expect(page.get_by_role("heading", name="Copy the invitation now; it is shown only once")).to_be_visible()
    link = page.locator("[data-copy]").get_attribute("data-copy") or ""
    officer.shows()
    maria = visitor(browser, site)
    maria.page.goto(link)
    maria.shows()
    maria.page.get_by_label("Password").fill(PASSWORD)
    secret = secret_on(maria.page)
    maria.page.get_by_label("Code that the app shows").fill(code_of(secret))
    maria.page.get_by_role("button", name="Set the password and log in").click()
    expect(maria.page.get_by_role("heading", name="Inbox")).to_be_visible()
    maria.page.get_by_role("button", name="Log out").press("Enter")
    expect(maria.page.get_by_label("E-mail address")).to_be_focused()
    maria.page.keyboard.type(EMAIL)
    maria.page.keyboard.press("Tab")
    maria.page.keyboard.type("a wrong password")
    maria.page.keyboard.press("Enter")
    expect(maria.page.get_by_role("alert")).to_contain_text("is wrong")
    assert maria.complaints.pop().count("401") == 1
    expect(maria.page.get_by_label("E-mail address")).to_have_value(EMAIL)
    maria.page.get_by_label("Password").fill(PASSWORD)
    maria.page.get_by_role("button", name="Log in").click()
    expect(maria.page.get_by_label("Code of your authenticator app")).to_be_focused()
    maria.shows()
    maria.page.get_by_label("Code of your authenticator app").fill(code_of(secret, steps=1))
    maria.page.keyboard.press("Enter")
    expect(maria.page.get_by_role("link", name="Maria Lopez")).to_be_visible()
    expect(maria.page.locator(".who .tenant")).to_have_text("default")
    maria.opens(f"/admin/requests/{request}")
    maria.page.get_by_role("button", name="Approve …").click()
    maria.page.get_by_role("button", name="Approve the request").click()
    expect(maria.page.get_by_text(re.compile("by Maria Lopez")).first).to_be_visible()
    maria.shows()
    maria.page.get_by_role("link", name="Maria Lopez").click()
    expect(maria.page.get_by_role("heading", name="Change the password")).to_be_visible()
    maria.shows()
    page.get_by_role("link", name="I have copied it").click()
    officer.shows("people")
    page.get_by_role("link", name="Maria Lopez").click()
    officer.shows()
    page.get_by_label("Ends all sessions").check()
    page.get_by_role("button", name="Disable").click()
    expect(page.get_by_text("Account deactivated")).to_be_visible()
    maria.opens("/admin/requests")
    expect(maria.page.get_by_label("API key")).to_be_visible()
    maria.page.context.close()
