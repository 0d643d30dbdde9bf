"""A new model: previewed, refused, and created."""

import re

import pytest
from playwright.sync_api import expect

from tests.faults.processes import Child
from tests.features.desk.browser.browsing import Visitor


@pytest.mark.soak
def test_estimates_update_while_typing(officer: Visitor, worker: Child) -> None:
    """If there is no dataset, the page links to the upload form. Otherwise, the estimates update as the fields and the
    slider change, and invalid input is explained. Once the input is valid, the model is created and trained."""
    page = officer.page
    officer.opens("/admin/models/new")
    expect(page.get_by_role("link", name="Upload a dataset")).to_be_visible()
    officer.shows()
    officer.site.upload(rows=400)
    officer.goes_to("Models")
    page.get_by_role("link", name="New model").click()
    outlook = page.locator("#outlook")
    steps = outlook.locator(".tile b").first
    epsilon = outlook.locator(".tile b").nth(3)
    before, left = steps.inner_text(), epsilon.inner_text()
    slider = page.get_by_role("slider", name="Target ε")
    slider.focus()
    page.keyboard.press("PageDown")
    expect(page.get_by_role("spinbutton", name="Target ε")).not_to_have_value("1")
    expect(epsilon).not_to_have_text(left)
    page.get_by_text("Loss and fit", exact=True).click()
    page.get_by_label("Regularisation").fill("-1")
    expect(outlook.get_by_role("alert")).to_contain_text("Enter a number above 0.")
    page.get_by_label("Regularisation").fill("0.05")
    expect(steps).not_to_have_text(before)
    officer.shows("model-new", at="main")
    page.get_by_text("Canary tests", exact=True).click()
    page.get_by_label("On-demand canary multiplier").fill("65")
    page.get_by_label("Name").fill("income")
    page.get_by_role("button", name="Create model").click()
    expect(page.get_by_label("On-demand canary multiplier")).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_role("alert").first).to_contain_text("Enter 64 or less.")
    # The browser logs the status 422 of the response.
    officer.complaints.clear()
    officer.shows()
    page.get_by_label("On-demand canary multiplier").fill("")
    page.get_by_role("button", name="Create model").click()
    page.wait_for_url(re.compile("/admin/models/mdl_"))
    expect(page.get_by_text("Model created.")).to_be_visible()
    expect(page.locator("dt:text-is('Live version') + dd")).to_have_text("1")
    officer.shows()


def test_a_model_is_previewed_without_scripts(officer: Visitor) -> None:
    """If scripts are disabled a button previews the model, and the form keeps its input."""
    officer.site.upload(rows=400)
    officer.page.route("**/*.js*", lambda route: route.abort())
    officer.opens("/admin/models/new")
    page = officer.page
    page.get_by_label("Name").fill("kept")
    page.get_by_role("spinbutton", name="Target ε").fill("0.5")
    page.get_by_role("button", name="Show the estimate").click()
    expect(page.get_by_label("Name")).to_have_value("kept")
    expect(page.get_by_role("spinbutton", name="Target ε")).to_have_value("0.5")
    expect(page.get_by_text("steps to learn", exact=True)).to_be_visible()
