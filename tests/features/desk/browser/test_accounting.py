"""Budgets and theorems: what is spent, the costliest people, and the origin of a number."""

import pytest
from playwright.sync_api import expect

from tests.faults.processes import Child
from tests.features.desk.browser.browsing import Visitor


def test_budgets_are_compared(officer: Visitor, worker: Child) -> None:
    """If there is no dataset, the page shows an empty state. Otherwise an engineer can compare the budget that a
    dataset has spent with a chosen limit, and sees which requests would force the dataset's model to be retrained."""
    page = officer.page
    officer.goes_to("Accounting")
    expect(page.get_by_text("No dataset yet")).to_be_visible()
    officer.shows()
    dataset = officer.site.upload(rows=300, rows_each=100)
    made = officer.site.model(dataset, noise_scale=0.01, learn_steps=8)
    officer.site.until(f"/v1/models/{made}", lambda model: model["live_version"])
    worker.kill()
    request = officer.site.forget("p1")
    officer.goes_to("Accounting")
    expect(page.get_by_text("spent of one record")).to_be_visible()
    page.get_by_role("spinbutton", name="Budget: ε").fill("500")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_text("more", exact=False).first).to_be_visible()
    expect(page.get_by_text("ε = 500")).to_be_visible()
    officer.shows("accounting")
    expect(page.get_by_text("1 open request would make")).to_be_visible()
    page.get_by_role("link", name="people", exact=True).click()
    expect(page.get_by_role("heading", name="Account of people")).to_be_visible()
    expect(page.get_by_role("link", name=request)).to_be_visible()
    officer.shows()


@pytest.mark.soak
def test_a_theorem_is_evaluated(officer: Visitor) -> None:
    """A visitor searches for a theorem and evaluates it. The page names a precondition that is not met."""
    page = officer.page
    officer.goes_to("Calculator")
    officer.shows("calculator")
    page.get_by_role("searchbox", name="Search").fill("gaussian epsilon")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="Gaussian differential privacy to epsilon").click()
    officer.shows()
    page.get_by_role("textbox", name="mu", exact=True).fill("0.5")
    page.get_by_role("textbox", name="delta", exact=True).fill("1e-5")
    page.get_by_role("button", name="Evaluate").click()
    officer.shows("calculator-theorem")
    page.get_by_role("textbox", name="mu", exact=True).fill("-1")
    page.get_by_role("button", name="Evaluate").click()
    expect(page.get_by_role("alert")).to_contain_text("Expected mu=-1")
    # The browser logs the status 422 of the response.
    officer.complaints.clear()
    officer.shows()
