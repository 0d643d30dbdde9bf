"""An officer who reads German."""

from playwright.sync_api import expect

from tests.features.desk.browser.browsing import Visitor


def test_an_officer_works_in_german(officer: Visitor) -> None:
    """The frame switches to German: the overview is read, a request is opened and approved; every page declares its
    language, and is as accessible as in English."""
    site, page = officer.site, officer.page
    model = site.model(site.upload())
    request = site.forget("p1", identity_verified=False, external_id="case-1")
    site.api.post(f"/v1/deletion-requests/{request}/resume").raise_for_status()
    officer.opens("/admin")
    page.get_by_role("button", name="Deutsch").click()
    page.wait_for_url("**/admin")
    expect(page.locator("html[lang=de]")).to_be_attached()
    expect(page.get_by_role("heading", name="Eingang", exact=True)).to_be_visible()
    officer.shows()
    page.get_by_role("link", name="case-1").first.click()
    page.wait_for_url(f"**/admin?**&case={request}")
    expect(page.locator(".next")).to_contain_text("Genehmigen Sie ihn")
    officer.shows()
    page.get_by_role("button", name="Genehmigen …").click()
    dialog = page.get_by_role("dialog", name="Genehmigen")
    expect(dialog.locator("#in-short")).to_contain_text("Gelöscht werden:")
    dialog.get_by_role("button", name="Antrag genehmigen").click()
    expect(page.get_by_role("status").filter(has_text="Der Antrag ist genehmigt.")).to_be_visible()
    expect(page.locator("html[lang=de]")).to_be_attached()
    officer.shows()
    officer.opens(f"/admin/models/{model}")
    expect(page.get_by_role("heading", name="Resteinfluss", exact=False).first).to_be_visible()
    officer.shows()
    page.get_by_role("button", name="English").click()
    expect(page.locator("html[lang=en]")).to_be_attached()


def test_a_language_is_chosen_before_a_login(anybody: Visitor) -> None:
    """A language chosen before the login is kept after it."""
    page = anybody.page
    anybody.opens("/admin/login")
    page.get_by_role("button", name="Deutsch").click()
    expect(page.get_by_role("heading", name="Anmelden")).to_be_visible()
    anybody.shows()
    page.get_by_label("API-Schlüssel").fill(anybody.site.key)
    page.get_by_role("button", name="Anmelden").click()
    expect(page.get_by_role("heading", name="Eingang", exact=True)).to_be_visible()
