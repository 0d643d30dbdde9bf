"""Attachments: an officer attaches a letter to a request, saves it, and erases it."""

from pathlib import Path

from playwright.sync_api import expect

from tests.features.desk.attached import PDF
from tests.features.desk.browser.browsing import Visitor


def test_a_letter_is_attached_and_erased(officer: Visitor) -> None:
    """A file of an unsupported type is refused with an error at the field. A letter is attached, downloaded instead of
    displayed, and erased once the officer has confirmed the deletion."""
    page = officer.page
    request = officer.site.forget("p1", identity_verified=False, external_id="case-1")
    officer.opens(f"/admin/requests/{request}")
    region = page.get_by_role("region", name="Attachments")
    chosen = page.get_by_label("Attach a file")
    chosen.set_input_files({"name": "letter.pdf", "mimeType": "application/pdf", "buffer": b"MZ"})
    page.get_by_role("button", name="Attach", exact=True).click()
    expect(region.get_by_text("is not what the end of its name says")).to_be_visible()
    # The browser logs the refusal.
    officer.complaints.clear()
    chosen.set_input_files({"name": "Letter of Žofie.pdf", "mimeType": "application/pdf", "buffer": PDF})
    page.get_by_role("button", name="Attach", exact=True).press("Enter")
    expect(page.get_by_role("status").filter(has_text="File attached.")).to_be_visible()
    officer.shows()
    with page.expect_download() as saving:
        region.get_by_role("link", name="Letter of Žofie.pdf").click()
    assert saving.value.suggested_filename == "Letter of Žofie.pdf"
    assert Path(saving.value.path()).read_bytes() == PDF
    region.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Go back").click()
    expect(region.get_by_role("link", name="Letter of Žofie.pdf")).to_be_visible()
    region.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete the file").click()
    expect(page.get_by_role("status").filter(has_text="File erased.")).to_be_visible()
    expect(region.get_by_role("link")).to_have_count(0)
    officer.shows()
