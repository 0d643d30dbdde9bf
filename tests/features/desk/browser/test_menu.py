"""The menu: always shown if there is room, behind a button on small screens, and absent on paper."""

from playwright.sync_api import expect

from tests.features.desk.browser.browsing import Visitor
from tests.tables import each


@each(("width", "height"), [(390, 844), (844, 390)])
def test_the_menu_opens_and_closes_on_a_phone(officer: Visitor, width: int, height: int) -> None:
    """In portrait and landscape, the menu opens and closes by keyboard and by touch, and every entry can be reached."""
    page = officer.page
    officer.opens("/admin")
    page.set_viewport_size({"width": width, "height": height})
    menu = page.get_by_role("navigation", name="Main")
    expect(menu).to_be_hidden()
    page.get_by_role("button", name="Menu").focus()
    page.keyboard.press("Enter")
    expect(menu).to_be_visible()
    assert officer.faults() == []
    box = menu.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= height
    page.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    officer.goes_to("Installation")
    page.wait_for_url("**/admin/settings")
    expect(menu).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_menu_is_beside_the_page_on_a_laptop(officer: Visitor) -> None:
    """On a laptop the menu is next to the page and needs no button, and it is not printed. Of its four groups, the
    group of the current page is open, and opening another group closes it."""
    page = officer.page
    menu = page.get_by_role("navigation", name="Main")
    assert menu.locator("summary").all_inner_texts() == ["Work", "Models", "Evidence", "Settings"]
    expect(menu.get_by_role("link", name="Inbox", exact=True)).to_have_attribute("aria-current", "page")
    menu.get_by_text("Settings", exact=True).press("Enter")
    expect(menu.get_by_role("link", name="Installation", exact=True)).to_be_visible()
    expect(menu.get_by_role("link", name="Inbox", exact=True)).to_be_hidden()
    expect(page.get_by_role("button", name="Menu")).to_be_hidden()
    page.emulate_media(media="print")
    expect(page.get_by_role("navigation", name="Main")).to_be_hidden()
    expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
