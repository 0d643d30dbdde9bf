"""A case: an officer takes it, writes a note for a colleague, and finds it among their own."""

import re

from playwright.sync_api import expect

from tests.features.desk.browser.browsing import Visitor


def test_a_case_is_assigned_and_annotated(officer: Visitor) -> None:
    """An officer assigns a request, adds a note, and filters the list first by assignee and then for unassigned
    requests."""
    site, page = officer.site, officer.page
    mine, other = (site.forget(f"p{n}", identity_verified=False, external_id=f"case-{n}") for n in range(2))
    person = {"name": "Maria Lopez", "email": "maria@example.com", "role": "officer"}
    site.api.post("/v1/users", json=person).raise_for_status()
    officer.opens(f"/admin/requests/{mine}")
    page.get_by_role("combobox", name="Assigned to").select_option("Maria Lopez")
    page.get_by_role("button", name="Assign").click()
    expect(page.get_by_role("status").filter(has_text="Request assigned.")).to_be_visible()
    expect(page.get_by_role("definition").filter(has_text="Maria Lopez")).to_be_visible()
    note = page.get_by_label("New note")
    note.fill("Called back at noon:\nthe copy of the passport comes by post.")
    page.get_by_role("button", name="Add note").press("Enter")
    expect(page.get_by_role("status").filter(has_text="Note added.")).to_be_visible()
    notes = page.get_by_role("region", name="Internal notes")
    expect(notes.get_by_text("Called back at noon:")).to_be_visible()
    expect(notes.locator("time")).to_have_text("just now")
    officer.shows()
    assert note.input_value() == ""
    officer.opens("/admin/requests")
    page.get_by_role("combobox", name="Assigned to").select_option("Maria Lopez")
    page.wait_for_url(re.compile("assigned=usr_"))
    expect(page.get_by_role("link", name="case-0")).to_be_visible()
    expect(page.get_by_role("link", name="case-1")).to_have_count(0)
    officer.shows()
    page.get_by_role("combobox", name="Assigned to").select_option("nobody")
    page.wait_for_url("**assigned=nobody**")
    expect(page.get_by_role("link", name="case-1")).to_be_visible()
    assert other in page.content()
