"""Technical terms are each explained by one sentence."""

from playwright.sync_api import expect

from tests.faults.processes import Child
from tests.features.desk.browser.browsing import Visitor
from tests.tables import each


def test_a_term_is_explained(officer: Visitor, worker: Child) -> None:
    """The explanation of a term opens by keyboard and closes with Escape, with and without scripts. Next to epsilon it
    states the attacker's accuracy."""
    made = officer.site.live_model()
    page = officer.page
    officer.opens("/admin/models")
    expect(page.get_by_text("best possible attack: 50.0 % accuracy")).to_be_visible()
    term = page.get_by_role("button", name="Residual ε")
    term.focus()
    page.keyboard.press("Enter")
    explanation = page.get_by_text("The bound on how far the live version differs")
    expect(explanation).to_be_in_viewport(ratio=1)
    officer.shows()
    page.keyboard.press("Escape")
    expect(explanation).to_be_hidden()
    browser = page.context.browser
    assert browser
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(f"{officer.site.url}/admin/models/{made}")
    plain.get_by_label("API key").fill(officer.site.key)
    plain.get_by_role("button", name="Log in").click()
    plain.get_by_text("Privacy parameters", exact=True).click()
    plain.get_by_role("button", name="Gradient bound (M)").press("Space")
    expect(plain.get_by_text("The largest norm of the gradient of one record's loss")).to_be_visible()
    context.close()


@each("width", [390, 1440])
def test_explanations_stay_on_the_screen(officer: Visitor, width: int) -> None:
    """The explanation of each term on a page fits within the screen, wherever its button is."""
    officer.site.upload(rows=400)
    officer.opens("/admin/models/new")
    page = officer.page
    page.set_viewport_size({"width": width, "height": 800})
    terms = page.locator("main button.explained:visible")
    assert terms.count() > 3
    for term in terms.all():
        term.scroll_into_view_if_needed()
        term.click()
        sentence = page.locator(".explanation:popover-open")
        box = sentence.bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width, term.inner_text()
        assert 0 <= box["y"] <= box["y"] + box["height"] <= 800, term.inner_text()
        page.keyboard.press("Escape")
