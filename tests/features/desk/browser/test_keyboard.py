"""Keyboard use: every key stroke is one of a keyboard, and the focus is always visible."""

import re

from playwright.sync_api import Locator, Page, expect

from tests.features.desk.browser.browsing import Visitor

_STOPS = 150
_UNSEEN = """stop => {
    const style = getComputedStyle(stop), box = stop.getBoundingClientRect();
    const isOutlined = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
    const isThere = box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight;
    return isOutlined && isThere ? null : stop.outerHTML.slice(0, 160);
}"""


def tab_to(page: Page, goal: Locator, *, back: bool = False) -> None:
    """Press Tab (Shift+Tab to go `back`) until `goal` has the focus, which must be visible at each stop."""
    expect(goal).to_be_visible()
    for _ in range(_STOPS):
        page.keyboard.press("Shift+Tab" if back else "Tab")
        stop = page.locator(":focus")
        if not stop.count():
            # The focus is in the browser's own controls.
            continue
        unseen = stop.evaluate(_UNSEEN)
        assert unseen is None, unseen
        if goal.evaluate("goal => goal === document.activeElement"):
            return
    raise AssertionError(f"No Tab leads to {goal}")


def press(page: Page, goal: Locator, key: str = "Enter", *, back: bool = False) -> None:
    """Move the focus to an element with Tab, and press a key there."""
    tab_to(page, goal, back=back)
    page.keyboard.press(key)


def test_approving_by_keyboard(officer: Visitor) -> None:
    """The first press of Tab focuses a link that skips the menu. An officer opens a request and its confirmation
    dialog, and closes the dialog with Escape, which restores the focus. The officer then opens the dialog again and
    approves. While the dialog is open, the focus stays inside it."""
    made = officer.site.forget("p1", identity_verified=False, external_id="case-1")
    page = officer.page
    press(page, page.get_by_role("link", name="Skip to the content"))
    expect(page.locator("#main")).to_be_focused()
    press(page, page.get_by_role("link", name="case-1").first)
    page.wait_for_url(f"**/admin?**&case={made}")
    expect(page.get_by_role("heading", name="Impact")).to_be_visible()
    opens = page.get_by_role("button", name="Approve …")
    press(page, opens)
    dialog = page.get_by_role("dialog", name="Approve")
    expect(dialog.get_by_role("button", name="Go back")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(opens).to_be_focused()
    page.keyboard.press("Space")
    press(page, dialog.get_by_role("button", name="Approve the request"), back=True)
    expect(page.get_by_role("status").filter(has_text="Request approved.")).to_be_visible()


def test_entering_a_request_by_keyboard(officer: Visitor) -> None:
    """Using only the keyboard, an officer enters a request received by post, and expands and fills in the collapsed
    fields."""
    page = officer.page
    press(page, page.get_by_role("navigation", name="Main").get_by_role("link", name="Requests", exact=True))
    press(page, page.get_by_role("link", name="New request"))
    tab_to(page, page.get_by_label("Data subject"))
    page.keyboard.type("ann@example.com")
    tab_to(page, page.get_by_label("Case number"))
    page.keyboard.type("2026-0815")
    officer.shows("request-new")
    press(page, page.get_by_role("combobox", name="Regulation"), "ArrowDown")
    press(page, page.get_by_role("button", name="Create request"))
    expect(page.get_by_role("heading", name="2026-0815")).to_be_visible()
    press(page, page.get_by_role("group", name="Decide").get_by_text("Reject …"))
    press(page, page.get_by_role("combobox", name="Legal basis"), "ArrowDown")
    tab_to(page, page.get_by_label("Explanation to the person"))
    page.keyboard.type("A case is before court.")
    press(page, page.get_by_role("button", name="Reject the request"))
    expect(page.get_by_text("Request rejected.").first).to_be_visible()


def test_filtering_by_keyboard(officer: Visitor) -> None:
    """A list does not change until all filters are chosen: arrow keys select an option, a date is typed, and Enter or
    the button shows the matches. At the end of the list, the keyboard can also open the next page and return to the
    first."""
    bodies = [{"subject_id": f"q{n}", "identity_verified": False, "regulation": "ccpa"} for n in range(55)]
    assert officer.site.api.post("/v1/deletion-requests:batch", json={"requests": bodies}).is_success
    officer.site.forget("p1", identity_verified=False)
    page = officer.page
    officer.opens("/admin/requests")
    status = page.get_by_role("combobox", name="Status")
    tab_to(page, status)
    for _ in status.locator("option").all():
        if status.input_value() != "in_review":
            page.keyboard.press("ArrowDown")
    press(page, page.get_by_text("More filters"))
    tab_to(page, page.get_by_role("combobox", name="Regulation"))
    page.keyboard.type("CCPA")
    tab_to(page, page.get_by_label("Received from"))
    page.keyboard.type("02022026")
    assert "?" not in page.url
    page.keyboard.press("Enter")
    page.wait_for_url("**received_from=2026-02-02**")
    assert "status=in_review" in page.url
    assert "regulation=ccpa" in page.url
    press(page, page.get_by_role("link", name="Next page"), back=True)
    page.wait_for_url("**cursor=**")
    press(page, page.get_by_role("link", name="First page"), back=True)
    page.wait_for_url(lambda url: "cursor=" not in url)
    press(page, page.get_by_text("More filters"))
    press(page, page.get_by_role("combobox", name="Order"), "ArrowDown")
    page.keyboard.press("ArrowDown")
    press(page, page.get_by_role("button", name="Show", exact=True))
    page.wait_for_url("**order=deadline**")
    expect(page.get_by_role("heading", name=re.compile("earliest deadline first"))).to_be_visible()


def test_a_view_is_chosen_by_keyboard(officer: Visitor) -> None:
    """The list's columns can be chosen by keyboard, and the choice is stored in the page's URL."""
    officer.site.forget("p1", identity_verified=False)
    page = officer.page
    officer.opens("/admin/requests?status=in_review")
    press(page, page.get_by_text("Columns", exact=True))
    press(page, page.get_by_role("checkbox", name="Source"), "Space")
    officer.shows()
    tab_to(page, page.get_by_role("button", name="Show", exact=True).last)
    page.keyboard.press("Enter")
    page.wait_for_url("**columns=**")
    expect(page.get_by_role("columnheader", name="Source")).to_be_visible()


def test_logging_out_by_keyboard(officer: Visitor) -> None:
    """Using only the keyboard, a user changes the language, opens and closes the menu on a phone, and logs out."""
    page = officer.page
    press(page, page.get_by_role("button", name="Deutsch"))
    expect(page.locator("html[lang=de]")).to_be_attached()
    press(page, page.get_by_role("button", name="English"))
    expect(page.locator("html[lang=en]")).to_be_attached()
    page.set_viewport_size({"width": 390, "height": 800})
    menu = page.get_by_role("button", name="Menu")
    press(page, menu)
    expect(page.get_by_role("navigation", name="Main")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("navigation", name="Main")).to_be_hidden()
    expect(menu).to_be_focused()
    page.keyboard.press("Enter")
    press(page, page.get_by_role("navigation", name="Main").get_by_text("Models", exact=True).first)
    press(page, page.get_by_role("link", name="Datasets"))
    page.wait_for_url("**/datasets")
    press(page, page.get_by_role("button", name="Log out"))
    expect(page.get_by_text("You are logged out.")).to_be_visible()
    expect(page.get_by_label("E-mail address")).to_be_focused()
