"""The inbox: the next case, by pointer and by keyboard, with the case next to the queue."""

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.faults.processes import Child
from tests.features.desk.browser.browsing import Visitor

_MOST_CLICKS = 9
_FIRST_ROW = """() => document.querySelector('tbody tr').getBoundingClientRect().bottom"""
_ROWS_IN_SIGHT = """() => [...document.querySelectorAll('[data-rows] tr')]
    .filter(row => row.getBoundingClientRect().bottom <= innerHeight).length"""


def fill(officer: Visitor, number: int) -> None:
    """Create requests that await a decision, two of them overdue."""
    bodies = [
        {
            "subject_id": f"p{n}",
            "identity_verified": False,
            "regulation": "ccpa",
            "external_id": f"2026-{1000 + n}",
            "submitted_at": f"2026-{1 if n < 2 else 11:02}-{1 + n % 20:02}T00:00:00Z",
        }
        for n in range(number)
    ]
    assert officer.site.api.post("/v1/deletion-requests:batch", json={"requests": bodies}).is_success


def test_a_case_takes_at_most_nine_clicks(officer: Visitor, worker: Child) -> None:
    """From the inbox, adding a note, approving the request, verifying the certificate and sending the reply take an
    officer at most nine clicks."""
    officer.site.live_model()
    officer.site.forget("p1", identity_verified=False, external_id="case-1")
    page, clicks = officer.page, 0

    def click(target: Locator) -> None:
        nonlocal clicks
        target.click()
        clicks += 1

    page.set_viewport_size({"width": 1440, "height": 900})
    officer.opens("/admin")
    click(page.get_by_role("link", name="case-1"))
    case = page.get_by_role("region", name="Case", exact=True)
    case.get_by_label("New note").fill("She wrote from the address that we know.")
    click(case.get_by_role("button", name="Add note"))
    expect(case.get_by_text("Note added.")).to_be_visible()
    click(case.get_by_role("button", name="Approve …"))
    click(case.get_by_role("button", name="Approve the request"))
    expect(case.get_by_text("Request approved.")).to_be_visible()
    expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
    expect(case.get_by_role("heading", name=re.compile("has forgotten this person"))).to_be_visible(timeout=400_000)
    click(case.get_by_role("button", name="Verify now"))
    expect(case.get_by_text("Verified.")).to_be_visible()
    click(case.get_by_role("link", name="Draft the reply"))
    with page.expect_download() as download:
        click(page.get_by_role("button", name="Save as PDF"))
    assert download.value.suggested_filename.endswith(".pdf")
    assert clicks <= _MOST_CLICKS


def test_the_queue_works_by_keyboard(officer: Visitor) -> None:
    """Keyboard shortcuts move between rows, open a case, select rows, ask for confirmation of a decision, and start a
    search. They are inactive while the user types text, and single-key shortcuts can be turned off."""
    fill(officer, 4)
    page = officer.page
    page.set_viewport_size({"width": 1440, "height": 900})
    officer.opens("/admin")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="2026-1000")).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    case = page.get_by_role("region", name="Case", exact=True)
    expect(case.get_by_role("heading", name="2026-1000")).to_be_visible()
    expect(page.get_by_role("link", name="2026-1000")).to_be_focused()
    assert "case=dr_" in page.url
    expect(case.locator(".later")).to_have_count(0)
    officer.shows()
    officer.is_pictured("inbox-case", width=1280, height=400)
    page.set_viewport_size({"width": 1440, "height": 900})
    page.keyboard.press("a")
    expect(page.get_by_role("dialog", name="Approve")).to_be_visible()
    # The shortcut is inactive while a dialog is open.
    page.keyboard.press("j")
    page.keyboard.press("Escape")
    page.keyboard.press("r")
    expect(case.get_by_role("combobox", name="Legal basis")).to_be_focused()
    explanation = case.get_by_label("Explanation to the person")
    explanation.press_sequentially("jar / ?")
    expect(explanation).to_have_value("jar / ?")
    case.get_by_text("Reject …").click()
    page.get_by_role("link", name="2026-1001").focus()
    page.keyboard.press("x")
    expect(page.get_by_text("1 request chosen")).to_be_visible()
    page.keyboard.press("a")
    expect(page.locator("#decide").get_by_role("button", name="Approve", exact=True)).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Find anything")).to_be_focused()
    page.get_by_role("heading", name="Inbox").click()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("searchbox", name="Find anything")).to_be_focused()
    page.get_by_role("heading", name="Inbox").click()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    officer.shows()
    page.get_by_label("Single keys work as shortcuts in this browser").uncheck()
    page.get_by_role("button", name="Close").click()
    officer.opens("/admin")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="2026-1000")).not_to_be_focused()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_the_first_screen_shows_the_queue(officer: Visitor) -> None:
    """A laptop shows 25 rows, with or without an open case. At each screen size, the first row of the inbox and of the
    request list is visible without scrolling. On a phone, problems and overdue requests come first, an open case fills
    the screen, and due dates are not cut off, even next to a long case number."""
    fill(officer, 30)
    long = {"external_id": "a-rather-long-case-number-2026-000017", "submitted_at": "2026-01-03T00:00:00Z"}
    officer.site.forget("q", identity_verified=False, regulation="ccpa", **long)
    page = officer.page
    officer.opens("/admin")
    page.set_viewport_size({"width": 1440, "height": 900})
    assert page.evaluate(_ROWS_IN_SIGHT) == 25
    page.get_by_role("link", name="2026-1000").click()
    case = page.get_by_role("region", name="Case", exact=True)
    expect(case.get_by_role("heading", name="2026-1000")).to_be_visible()
    assert page.evaluate(_ROWS_IN_SIGHT) == 25
    page.set_viewport_size({"width": 390, "height": 844})
    expect(case).to_be_visible()
    expect(page.get_by_role("heading", name="Awaiting decision")).to_be_hidden()
    case.get_by_role("link", name="Close").click()
    expect(page.get_by_role("heading", name="Awaiting decision")).to_be_visible()
    late = page.get_by_role("link", name=re.compile("^3 ?Overdue$"))
    places = (
        page.get_by_role("region", name="Needs attention"),
        late,
        page.get_by_role("heading", name="Awaiting decision"),
    )
    tops = [place.evaluate("part => part.getBoundingClientRect().top") for place in places]
    assert tops == sorted(tops)
    for path, name in (
        ("/admin", "Requests that await a decision, most urgent first"),
        ("/admin/requests?status=in_review&regulation=ccpa", "Requests"),
    ):
        officer.opens(path)
        table = page.get_by_role("region", name=name, exact=True)
        for width, height in ((1440, 900), (1024, 768), (390, 844)):
            page.set_viewport_size({"width": width, "height": height})
            assert page.evaluate(_FIRST_ROW) <= height, (path, width)
        expect(table.locator("time").first).to_be_visible()
        assert table.evaluate("part => part.scrollWidth <= part.clientWidth"), path
    officer.shows()
    officer.opens("/admin")
    officer.shows()
    officer.is_pictured("inbox", height=430)
    officer.is_pictured("inbox-phone", width=390, height=780)


def test_filters_are_chips(officer: Visitor) -> None:
    """The active filters of a list are shown above it, and a click on a filter removes it."""
    fill(officer, 2)
    page = officer.page
    officer.opens("/admin/requests?status=in_review&regulation=ccpa&due=overdue")
    chips = page.get_by_role("list", name="Active filters")
    expect(chips.get_by_role("link")).to_have_text(["In review ×", "CCPA ×", "Overdue ×", "Clear all"])
    chips.get_by_role("link", name="Remove the filter: CCPA").click()
    page.wait_for_url("**/admin/requests?status=in_review&due=overdue")
    officer.shows("requests-filtered")
    chips.get_by_role("link", name="Clear all").click()
    expect(chips).to_have_count(0)


@pytest.mark.soak
def test_the_inbox_works_without_scripts(officer: Visitor) -> None:
    """With scripts disabled, the queue links to its cases and a case's forms work. The URL of an open case shows the
    case next to the queue."""
    made = officer.site.forget("p1", identity_verified=False, external_id="case-1")
    browser = officer.page.context.browser
    assert browser
    context = browser.new_context(java_script_enabled=False, viewport={"width": 1440, "height": 900})
    context.add_cookies(officer.page.context.cookies())  # type: ignore[arg-type]  # as it gave them
    page = context.new_page()
    page.goto(f"{officer.site.url}/admin")
    expect(page.get_by_role("button", name="Keyboard shortcuts")).to_be_hidden()
    page.get_by_role("link", name="case-1").click()
    page.wait_for_url(f"**/admin/requests/{made}")
    page.goto(f"{officer.site.url}/admin?case={made}")
    page.get_by_label("New note").fill("by hand")
    page.get_by_role("button", name="Add note").click()
    page.wait_for_url(f"**/admin?queue=all&case={made}&done=note")
    expect(page.get_by_text("by hand")).to_be_visible()
    context.close()
