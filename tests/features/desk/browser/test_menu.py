"""The menu: always there where there is room for it, behind a button on small screens, not on paper."""

import pytest
from playwright.sync_api import expect

from tests.features.desk.browser.browsing import Visitor


@pytest.mark.parametrize(("width", "height"), [(390, 844), pytest.param(844, 390, marks=pytest.mark.soak)])
def test_on_a_phone(officer: Visitor, width: int, height: int) -> None:
    """Upright and on its side, the menu opens and closes by keyboard and by touch, and all of it can be reached."""
    page = officer.page
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
    page.get_by_role("link", name="Settings", exact=True).click()
    page.wait_for_url("**/admin/settings")
    expect(menu).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_where_there_is_room(officer: Visitor) -> None:
    """On a laptop it stands beside the page, without a button; on paper there is neither."""
    page = officer.page
    expect(page.get_by_role("link", name="Settings", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Menu")).to_be_hidden()
    page.emulate_media(media="print")
    expect(page.get_by_role("navigation", name="Main")).to_be_hidden()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
