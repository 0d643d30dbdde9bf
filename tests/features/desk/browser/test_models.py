"""A model: learned, observed while it forgets, previewed with more requests, and verified against its ledger."""

import re

import pytest
from playwright.sync_api import expect

from tests.faults.processes import Child
from tests.features.desk.browser.browsing import Visitor


def test_pages_explain_what_is_missing(officer: Visitor) -> None:
    """If there is no model, or a model has not been trained yet, the pages explain what they will show."""
    page = officer.page
    officer.goes_to("Models")
    expect(page.get_by_text("No models yet")).to_be_visible()
    officer.shows()
    officer.site.model(officer.site.upload())
    page.reload()
    page.get_by_role("link", name="churn").click()
    expect(page.get_by_text("No version yet").first).to_be_visible()
    expect(page.get_by_text("No curve yet")).to_be_visible()
    officer.shows()


@pytest.mark.soak
def test_an_open_page_shows_the_next_version(officer: Visitor, worker: Child) -> None:
    """As soon as a person is forgotten, an open page shows the next version with its guarantee and its curve."""
    made = officer.site.model(officer.site.upload(rows=400), noise_scale=0.004)
    officer.site.until(f"/v1/models/{made}", lambda model: model["live_version"] == 1)
    officer.opens("/admin/models")
    officer.shows("models")
    officer.page.get_by_role("link", name="churn").click()
    page = officer.page
    curve = page.locator("#curve")
    expect(curve.locator("canvas")).to_have_count(2)
    expect(curve.get_by_role("rowheader", name="2", exact=True)).to_have_count(0)
    officer.site.forget("p3")
    expect(page.locator("dt:text-is('Live version') + dd")).to_have_text("2")
    expect(curve.get_by_role("rowheader", name="2", exact=True).first).to_be_visible()
    expect(curve.locator("canvas")).to_have_count(2)
    expect(page.get_by_text("Within the target").first).to_be_visible()
    officer.shows("model", at="main")
    officer.shows("model-curve", at="#life")
    page.get_by_role("link", name="Equal width per step").click()
    expect(page.get_by_role("link", name="Equal width per step")).to_have_attribute("aria-current", "true")
    page.get_by_text("Every number of the curves as a table").click()
    expect(page.get_by_role("region", name="The curve, step by step")).to_be_visible()
    officer.shows()


@pytest.mark.soak
def test_sliders_update_the_forecast(officer: Visitor, worker: Child) -> None:
    """Sliders and number fields update the forecast without submitting a form. If a forecast is refused, the page
    explains why."""
    made = officer.site.model(officer.site.upload(rows=400), noise_scale=0.004)
    officer.site.until(f"/v1/models/{made}", lambda model: model["live_version"])
    officer.opens(f"/admin/models/{made}")
    page = officer.page
    steps = page.locator("#what-if-answer .tile b").first
    before = steps.inner_text()
    slider = page.get_by_role("slider", name="Records to forget")
    slider.focus()
    for _ in range(5):
        page.keyboard.press("PageUp")
    records = page.get_by_role("spinbutton", name="Records to forget")
    expect(records).not_to_have_value("1")
    expect(steps).not_to_have_text(before)
    assert int(steps.inner_text().replace(",", "")) > int(before.replace(",", ""))
    asked = records.input_value()
    expect(page.get_by_role("status").filter(has_text=f"Forgetting {asked} records")).to_be_attached()
    page.get_by_role("spinbutton", name="Records in one run").fill("5")
    expect(page.get_by_text(re.compile(r"steps in \d+ runs"))).to_be_visible()
    officer.shows("model-what-if", at="#what-if")
    page.get_by_role("spinbutton", name="Records to forget").fill("400")
    page.get_by_role("spinbutton", name="Records in one run").fill("1")
    expect(page.get_by_role("alert")).to_contain_text("at most 100 runs")
    # The browser logs the status 422 of the response.
    officer.complaints.clear()
    officer.shows()


@pytest.mark.soak
def test_the_ledger_is_verified(officer: Visitor, worker: Child) -> None:
    """The page reports that every entry of the ledger was recomputed, and lists destroyed versions and exported copies
    of the weights."""
    made = officer.site.live_model()
    officer.site.api.get(f"/v1/models/{made}/versions/1/weights").raise_for_status()
    officer.site.forget("p1")
    officer.site.until(f"/v1/models/{made}/versions", lambda page: page["items"][-1]["status"] == "destroyed")
    officer.opens(f"/admin/models/{made}")
    page = officer.page
    page.get_by_role("button", name="Verify now").click()
    expect(page.get_by_text("2 entries recomputed")).to_be_visible()
    expect(page.get_by_role("region", name="Versions of the model, newest first")).to_contain_text("Destroyed")
    expect(page.get_by_role("region", name="Weights that were handed out")).to_contain_text("admin")
    officer.shows("model-ledger", at="#versions")
    page.get_by_role("link", name="All entries").click()
    expect(page.get_by_role("region", name="Entries of the ledger")).to_contain_text("Unlearning")
    officer.shows()


@pytest.mark.soak
def test_a_missing_curve_is_retried(officer: Visitor, worker: Child) -> None:
    """If a model's curve cannot be fetched yet, the page shows that it is loading and retries until the curve
    arrives."""
    made = officer.site.live_model()
    officer.page.route("**/curve", lambda route: route.abort())
    officer.opens(f"/admin/models/{made}")
    expect(officer.page.get_by_text("Loading the ledger")).to_be_visible()
    expect(officer.page.get_by_text("Within the target").first).to_be_visible()
    # The browser logs each failed request for the curve, so only the other faults are checked.
    assert (officer.faults(), officer.overflows()) == ([], [])
    officer.page.unroute("**/curve")
    expect(officer.page.locator("#curve canvas")).to_have_count(2, timeout=400_000)
