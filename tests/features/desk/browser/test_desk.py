"""The desk: near times in words, fixed heads of long tables, marks of work in progress, and the search box."""

import re

import pytest
from playwright.sync_api import expect

from tests.features.desk.browser.browsing import Visitor


@pytest.mark.soak
def test_a_long_list_is_navigated(officer: Visitor) -> None:
    """The header of a long table stays visible, pages can be changed by keyboard, a range of days can be chosen, and
    the search box leads to a case."""
    bodies = [{"subject_id": f"q{n}", "external_id": f"case-{n}", "identity_verified": False} for n in range(60)]
    assert officer.site.api.post("/v1/deletion-requests:batch", json={"requests": bodies}).is_success
    page = officer.page
    officer.opens("/admin/requests")
    expect(page.get_by_text("1 to 50 of 60 requests")).to_be_visible()
    page.get_by_role("link", name=re.compile("^case-")).nth(40).scroll_into_view_if_needed()
    head = page.get_by_role("columnheader", name="Case")
    expect(head).to_be_in_viewport()
    page.get_by_role("link", name="Next page").press("Enter")
    expect(page.get_by_text("51 to 60 of 60 requests")).to_be_visible()
    page.get_by_role("link", name="Previous page").press("Enter")
    expect(page.get_by_text("1 to 50 of 60 requests")).to_be_visible()
    # The script that submits the choice runs after the table is shown.
    page.wait_for_load_state()
    page.get_by_label("Per page").select_option("25")
    expect(page.get_by_text("1 to 25 of 60 requests")).to_be_visible()
    officer.shows("requests-many")
    page.get_by_text("More filters").click()
    page.get_by_label("Received from").fill("2999-01-01")
    expect(page.get_by_text("No matching requests")).to_be_visible()
    box = page.get_by_role("searchbox", name="Find anything")
    box.fill("case-7")
    box.press("Enter")
    expect(page.get_by_role("heading", name="case-7", level=1)).to_be_visible()
    assert "case-7" not in page.url
    when = page.locator(".timeline time").first
    expect(when).to_have_text(re.compile(r"^\d+ \w+ \d{4}, \d\d:\d\d$"))
    expect(when).to_have_attribute("title", re.compile(r"^\d+ \w+ \d{4}, \d\d:\d\d UTC on your clock$"))
    officer.shows()
