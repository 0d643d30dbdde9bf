"""The story of the overview: empty, while work is done, when nobody works, when nothing answers."""

import re

from playwright.sync_api import expect

from tests.browser.browsing import SIZES, Visitor
from tests.faults import processes


def test_nothing_yet(officer: Visitor) -> None:
    """A new installation says what will stand where, and that nobody works yet."""
    expect(officer.page.get_by_text("Nobody waits to be forgotten")).to_be_visible()
    expect(officer.page.get_by_role("alert")).to_contain_text("No worker")
    officer.shows()


def test_it_follows_the_work(officer: Visitor) -> None:
    """While somebody looks, a run's bar grows, the model becomes live, and what is asked for is forgotten."""
    site, page = officer.site, officer.page
    dataset = site.upload(rows=20_000, features=30)
    site.model(dataset, name="income", l2=0.0005, learn_steps=30_000)
    with processes.worker(site.settings):
        bar = page.get_by_role("progressbar")
        expect(bar).to_be_visible()
        first = float(bar.get_attribute("value") or 0)
        processes.wait_until(lambda: bar.count() == 0 or float(bar.get_attribute("value") or 0) > first)
        officer.shows("overview-learning")
        expect(page.get_by_text("within the target")).to_be_visible(timeout=120_000)
        site.forget("p1", submitted_at="2026-01-01T00:00:00Z", regulation="ccpa", identity_verified=False)
        made = site.forget("p2")
        expect(page.get_by_role("link", name=re.compile("^1 ?Completed$"))).to_be_visible(timeout=120_000)
        expect(page.get_by_text("days overdue")).to_be_visible()
        officer.shows("overview")
        officer.is_pictured("overview-phone", width=SIZES["phone"], height=780)
        assert site.api.get(f"/v1/deletion-requests/{made}").json()["status"] == "completed"


def test_nothing_answers(officer: Visitor) -> None:
    """A gateway that is away is told about, and what was seen stays."""
    officer.site.gateway.kill()
    expect(officer.page.get_by_text("The gateway does not answer.")).to_be_visible()
    expect(officer.page.get_by_role("heading", name="Next deadlines")).to_be_visible()
    assert officer.overflows() == []


def test_a_session_that_ends(officer: Visitor) -> None:
    """Where the session ends while the page is open, the browser goes to the login by itself."""
    officer.page.context.clear_cookies()
    expect(officer.page.get_by_role("heading", name="Log in")).to_be_visible()
