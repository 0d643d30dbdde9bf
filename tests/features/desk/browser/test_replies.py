"""The story of a reply: an officer chooses the person's language, reads it, and saves it to be sent."""

from pathlib import Path

from playwright.sync_api import expect
from pypdf import PdfReader

from tests.features.desk.browser.browsing import Visitor


def test_a_reply_in_spanish(officer: Visitor) -> None:
    """The reply is read in the language that was chosen, and saved as a PDF and as text, which say the same."""
    page = officer.page
    request = officer.site.forget("p1", identity_verified=False, external_id="case-1")
    officer.opens(f"/admin/requests/{request}")
    page.get_by_label("Language of the reply").select_option("Español")
    page.get_by_role("button", name="Preview reply").press("Enter")
    page.wait_for_url("**/reply?language=es")
    expect(page.get_by_role("article").get_by_text("Su número de expediente es case-1.")).to_be_visible()
    officer.shows()
    for name, end in (("Save as PDF", "pdf"), ("Save as text", "txt")):
        with page.expect_download() as saving:
            page.get_by_role("link", name=name).click()
        assert saving.value.suggested_filename == f"reply-{request}.{end}"
        path = Path(saving.value.path())
        said = PdfReader(path).pages[0].extract_text() if end == "pdf" else path.read_text()
        assert "expediente es case-1." in " ".join(said.split())
