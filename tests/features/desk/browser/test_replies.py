"""A reply: an officer chooses the person's language, reads it, and saves it for sending."""

from pathlib import Path

from playwright.sync_api import expect
from pypdf import PdfReader

from tests.features.desk.browser.browsing import Visitor


def test_a_reply_is_saved_in_spanish(officer: Visitor) -> None:
    """The reply is shown in the chosen language and saved as PDF and as text with the same content."""
    page = officer.page
    request = officer.site.forget("p1", identity_verified=False, external_id="case-1")
    officer.opens(f"/admin/requests/{request}")
    page.get_by_label("Language of the reply").select_option("Español")
    page.get_by_role("button", name="Preview reply").press("Enter")
    page.wait_for_url("**/reply?language=es")
    expect(page.get_by_role("article").get_by_text("Su número de expediente es case-1.")).to_be_visible()
    officer.shows()
    page.get_by_label("Recipient").fill("María García\nCalle Mayor 1\n28013 Madrid")
    for name, end in (("Save as PDF", "pdf"), ("Save as text", "txt")):
        with page.expect_download() as saving:
            page.get_by_role("button", name=name).click()
        assert saving.value.suggested_filename == f"reply-{request}.{end}"
        path = Path(saving.value.path())
        said = PdfReader(path).pages[0].extract_text() if end == "pdf" else path.read_text()
        assert "expediente es case-1." in " ".join(said.split())
        assert "Calle Mayor 1" in said
        expect(page.get_by_role("button", name=name)).to_be_enabled()
    officer.opens(f"/admin/requests/{request}")
    page.get_by_text("Record a sent reply …").click()
    page.get_by_label("Sent by").select_option("Letter")
    page.get_by_role("button", name="Record").click()
    expect(page.get_by_text("Reply recorded as sent.")).to_be_visible()
    expect(page.get_by_role("region", name="History").get_by_text("Reply sent on")).to_be_visible()
