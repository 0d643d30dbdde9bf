"""Runs: in progress, interrupted by a worker that dies, and completed by another."""

import pytest
from playwright.sync_api import expect

from tests.faults import hops, processes
from tests.faults.processes import Child
from tests.features.desk.browser.browsing import Site, Visitor


@pytest.mark.soak
def test_a_dead_worker_is_shown(officer: Visitor, site: Site) -> None:
    """An engineer watches a run, sees that its worker died and what this means, and sees another worker complete it."""
    page = officer.page
    officer.goes_to("Runs")
    expect(page.get_by_text("No runs yet")).to_be_visible()
    expect(page.get_by_text("No worker has responded")).to_be_visible()
    officer.shows()
    with processes.worker(site.settings, name="blue", hop="mid-chain", act=hops.halt) as blue:
        site.model(site.upload(rows=3000, features=20), l2=0.002, learn_steps=20_000)
        expect(page.get_by_role("progressbar", name="Learning of churn")).to_be_visible(timeout=400_000)
        expect(page.get_by_text("blue", exact=True)).to_be_visible()
        site.until("/v1/runs", lambda runs: runs["items"][0]["steps_done"])
        blue.kill()
    with processes.worker(site.settings, name="green", hop="mid-chain", act=hops.halt):
        expect(page.get_by_text("green", exact=True)).to_be_visible(timeout=400_000)
        expect(page.get_by_text("lease_expired").first).to_be_visible()
        expect(page.get_by_text("another run repeats the work")).to_be_visible()
        officer.shows("runs")
        page.get_by_role("link", name="Learning").first.click()
        expect(page.get_by_role("progressbar", name="Steps of the run")).to_be_visible()
        officer.shows()
    officer.goes_to("Runs")
    page.get_by_label("Status").select_option("published")
    expect(page.get_by_text("No matching runs")).to_be_visible()
    officer.shows()


@pytest.mark.soak
def test_the_last_canary_test_is_shown(officer: Visitor, worker: Child) -> None:
    """The overview counts canary tests. The model's page links to the last test's page, which states what the test
    proved."""
    site, page = officer.site, officer.page
    made = site.model(site.upload(rows=400), noise_scale=0.004)
    site.until(f"/v1/models/{made}", lambda model: model["live_version"])
    site.forget("p3")
    site.until(f"/v1/models/{made}", lambda model: model["live_version"] == 2)
    officer.opens("/admin/overview")
    expect(page.get_by_role("link", name="1 Canary tests passed")).to_be_visible()
    officer.opens(f"/admin/models/{made}")
    page.locator("dt:has-text('Last canary test') + dd a").click()
    expect(page.get_by_text("The run passed.")).to_be_visible()
    officer.shows("run-audit", at="#audit")
