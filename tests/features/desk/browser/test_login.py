"""Logging in, and refusals of a login."""

from playwright.sync_api import Browser, expect

from app.config import Settings
from tests.features.desk.browser.browsing import Visitor, served, visitor
from tests.features.people import provider


def test_logging_in_and_out(anybody: Visitor) -> None:
    """A wrong key is refused, and the right key leads to the requested page. After a logout, no page can be opened
    without logging in again."""
    anybody.opens("/admin/requests")
    expect(anybody.page.get_by_role("heading", name="Log in")).to_be_visible()
    anybody.shows("login")
    anybody.page.get_by_label("API key").fill("lethe_wrong")
    anybody.page.keyboard.press("Enter")
    expect(anybody.page.get_by_role("alert")).to_contain_text("not valid")
    assert anybody.complaints.pop().count("401") == 1
    anybody.shows()
    anybody.page.get_by_label("API key").fill(anybody.site.key)
    anybody.page.get_by_role("button", name="Log in").click()
    expect(anybody.page.get_by_role("heading", name="Requests", exact=True)).to_be_visible()
    anybody.page.get_by_role("button", name="Log out").click()
    expect(anybody.page.get_by_text("You are logged out.")).to_be_visible()
    anybody.opens("/admin")
    expect(anybody.page.get_by_role("heading", name="Log in")).to_be_visible()


def test_a_page_without_the_scope_shows_a_message(officer: Visitor, anybody: Visitor) -> None:
    """A visitor whose key lacks the scope of a page sees a message within the usual page layout."""
    made = officer.site.api.post("/v1/api-keys", json={"name": "ml", "scopes": ["models:read"]}).json()
    officer.page.get_by_role("button", name="Log out").click()
    expect(officer.page.get_by_text("You are logged out.")).to_be_visible()
    anybody.logs_in(made["key"])
    anybody.page.wait_for_url("**/admin")
    anybody.opens("/admin/requests")
    expect(anybody.page.get_by_role("heading", name="Your key may not see this")).to_be_visible()
    assert anybody.complaints.pop().count("403") == 1
    anybody.shows("refused")


def test_a_link_keeps_its_filter_through_a_login(anybody: Visitor) -> None:
    """A user who follows a link to a filtered list before logging in sees that list afterwards."""
    anybody.opens("/admin/requests?status=in_review&order=deadline")
    anybody.page.get_by_label("API key").fill(anybody.site.key)
    anybody.page.keyboard.press("Enter")
    anybody.page.wait_for_url("**/admin/requests?status=in_review&order=deadline")
    expect(anybody.page.get_by_role("combobox", name="Status")).to_have_value("in_review")


def test_text_is_kept_if_the_session_ends_while_writing(officer: Visitor) -> None:
    """If the session ends while a user is writing, the login form appears in place when the text is submitted. The text
    is kept and submitted after the login. Everything works by keyboard."""
    made = officer.site.forget("p1", identity_verified=False)
    page = officer.page
    officer.opens(f"/admin/requests/{made}")
    page.get_by_role("group", name="Decide").get_by_text("Reject …").click()
    page.get_by_label("Explanation to the person").fill("A case is before court.")
    page.get_by_label("Legal basis").select_option("legal_claims")
    page.context.clear_cookies()
    page.get_by_role("button", name="Reject the request").press("Enter")
    expect(page.get_by_role("heading", name="Log in again")).to_be_visible()
    expect(page.get_by_role("heading", name=made)).to_be_hidden()
    # The browser logs that the session has ended.
    officer.complaints.clear()
    officer.shows("login-again")
    page.get_by_label("API key").fill("lethe_wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("not valid")
    page.get_by_label("API key").fill(officer.site.key)
    page.keyboard.press("Enter")
    expect(page.get_by_text("Request rejected.").first).to_be_visible()
    expect(page.get_by_text("A case is before court.")).to_be_visible()


def test_another_key_logs_in_with_its_own_permissions(officer: Visitor) -> None:
    """If a user logs in again with another key, the page shows what that key permits."""
    made = officer.site.api.post("/v1/api-keys", json={"name": "ml", "scopes": ["models:read"]}).json()
    officer.opens("/admin/requests")
    officer.page.context.clear_cookies()
    officer.page.get_by_label("Data subject").fill("somebody")
    officer.page.keyboard.press("Enter")
    officer.page.get_by_label("API key").fill(made["key"])
    officer.page.keyboard.press("Enter")
    expect(officer.page.get_by_role("heading", name="Your key may not see this")).to_be_visible()


def test_text_is_kept_if_a_provider_session_ends_while_writing(browser: Browser, settings: Settings) -> None:
    """If a session started through the company's identity provider ends, the user logs in at the provider in another
    tab. The original page then continues and submits the text."""
    maria = {"sub": "maria-1", "email": "maria@example.com", "email_verified": True}
    with provider.running(maria) as company:
        secret = settings.data_dir / "oidc.secret"
        secret.write_text("a secret of the client\n")
        known = {"oidc_issuer": company.issuer, "oidc_client_id": "lethe", "oidc_client_secret_file": secret}
        with served(settings.model_copy(update=known | {"oidc_name": "Example Ltd"})) as site:
            invited = {"name": "Maria Lopez", "email": "maria@example.com", "role": "administrator"}
            site.api.post("/v1/users", json=invited).raise_for_status()
            site.upload()
            made = site.forget("p1", identity_verified=False)
            found = visitor(browser, site)
            page = found.page
            found.opens(f"/admin/requests/{made}")
            page.get_by_role("link", name="Log in with Example Ltd").click()
            page.get_by_role("button", name="maria-1").click()
            page.get_by_role("group", name="Decide").get_by_text("Reject …").click()
            page.get_by_label("Explanation to the person").fill("A case is before court.")
            page.get_by_label("Legal basis").select_option("legal_claims")
            page.context.clear_cookies()
            page.get_by_role("button", name="Reject the request").press("Enter")
            expect(page.get_by_role("heading", name="Log in again")).to_be_visible()
            # The browser logs that the session has ended, and the inline style of the provider's page.
            found.complaints.clear()
            found.shows()
            with page.context.expect_page() as opened:
                page.get_by_role("link", name="Log in with Example Ltd").click()
            opened.value.get_by_role("button", name="maria-1").click()
            expect(page.get_by_text("Request rejected.").first).to_be_visible()
            expect(page.get_by_text("A case is before court.")).to_be_visible()
            expect(page.get_by_role("heading", name="Log in again")).to_be_hidden()
            page.context.close()
