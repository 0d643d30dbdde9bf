"""The inbox and the overview: empty, during work, without a worker, and without a gateway."""

import datetime
import os
import re
import signal

import pytest
from playwright.sync_api import expect

from tests.faults import hops, processes
from tests.features.desk.browser.browsing import Visitor


@pytest.mark.soak
def test_an_open_page_updates(officer: Visitor) -> None:
    """While a page is open, a run's progress bar grows, the model becomes live and a request completes."""
    site, page = officer.site, officer.page
    dataset = site.upload(rows=20_000, features=30)
    site.model(dataset, name="income", l2=0.0005, learn_steps=30_000)
    officer.opens("/admin/overview")
    bar = page.get_by_role("progressbar")
    expect(bar).to_have_count(0)
    with processes.worker(site.settings, hop="mid-chain", act=hops.halt) as worker:
        halted = worker.halted_run()
        expect(bar).to_be_visible()
        processes.wait_until(lambda: bar.evaluate("bar => bar.value > 0"))
        officer.shows("overview-learning")
        reached = bar.evaluate("bar => bar.value")
        halted.resume()
        # A live model has no bar.
        processes.wait_until(lambda: bar.evaluate_all(f"bars => bars.every(bar => bar.value > {reached})"))
        expect(page.get_by_text("within the target")).to_be_visible(timeout=400_000)
        site.forget("p1", submitted_at="2026-01-01T00:00:00Z", regulation="ccpa", identity_verified=False)
        made = site.forget("p2")
        expect(page.get_by_role("link", name=re.compile("^1 ?Completed$"))).to_be_visible(timeout=400_000)
        expect(page.get_by_text("days overdue")).to_be_visible()
        officer.shows("overview")
        assert site.api.get(f"/v1/deletion-requests/{made}").json()["status"] == "completed"


def test_an_unreachable_gateway_is_reported(officer: Visitor) -> None:
    """If the gateway cannot be reached, the page reports it and keeps its last content."""
    officer.site.gateway.kill()
    expect(officer.page.get_by_text("The gateway does not respond.")).to_be_visible()
    expect(officer.page.get_by_role("heading", name="Awaiting decision")).to_be_visible()
    assert officer.overflows() == []


def test_a_hanging_gateway_is_reported(officer: Visitor) -> None:
    """If the gateway accepts connections but never responds, the page reports this within seconds instead of submitting
    the form."""
    officer.opens("/admin/requests")
    officer.page.get_by_label("Data subject").fill("somebody")
    os.kill(officer.site.gateway.process.pid, signal.SIGSTOP)
    try:
        officer.page.get_by_role("button", name="Search").click()
        expect(officer.page.get_by_text("The gateway does not respond.")).to_be_visible(timeout=9_000)
        expect(officer.page.get_by_label("Data subject")).to_have_value("somebody")
    finally:
        os.kill(officer.site.gateway.process.pid, signal.SIGCONT)


@pytest.mark.soak
def test_a_gateway_that_hangs_while_a_page_is_open_is_reported(officer: Visitor) -> None:
    """If the gateway hangs while the overview is open, a notice within seconds states that the page may be outdated.
    The notice disappears once the gateway responds again."""
    expect(officer.page.get_by_role("heading", name="Awaiting decision")).to_be_visible()
    os.kill(officer.site.gateway.process.pid, signal.SIGSTOP)
    try:
        expect(officer.page.get_by_text("The gateway does not respond.")).to_be_visible(timeout=12_000)
    finally:
        os.kill(officer.site.gateway.process.pid, signal.SIGCONT)
    expect(officer.page.get_by_text("The gateway does not respond.")).to_be_hidden()


def test_the_overview_shows_what_is_at_risk(officer: Visitor) -> None:
    """The first screen of a new installation states that no request awaits a decision and that no worker runs. Later,
    the overview counts overdue requests and describes each problem in a sentence. Each number is a link to the matching
    list and works by keyboard."""
    expect(officer.page.get_by_text("Nothing awaits a decision")).to_be_visible()
    officer.shows()
    officer.site.forget("p1", submitted_at="2026-01-01T00:00:00Z", regulation="ccpa", identity_verified=False)
    officer.opens("/admin")
    danger = officer.page.get_by_role("region", name="Needs attention")
    expect(danger).to_contain_text("No worker has responded for a minute")
    officer.shows("overview-danger")
    officer.page.get_by_role("link", name=re.compile("^1 ?Overdue$")).press("Enter")
    officer.page.wait_for_url("**/admin/requests?due=overdue&order=deadline")
    expect(officer.page.get_by_role("link", name=re.compile("^dr_"))).to_have_count(1)
    officer.opens("/admin/overview")
    expect(danger).to_contain_text("1 request is past its legal deadline.")
    danger.get_by_role("link", name="1 request").press("Enter")
    officer.page.wait_for_url("**/admin/requests?due=overdue&order=deadline")


def test_the_calendar_counts_due_requests(officer: Visitor) -> None:
    """The calendar counts the requests due on each day, describes each day in words, and links to that day's requests.
    The links work by keyboard. The calendar fits on narrow screens and updates when requests arrive."""
    now = datetime.datetime.now(datetime.UTC)
    for n, age in enumerate((35, 35, 100)):
        submitted_at = (now - datetime.timedelta(days=age)).isoformat()
        officer.site.forget(f"p{n}", submitted_at=submitted_at, regulation="ccpa", identity_verified=False)
    due = now + datetime.timedelta(days=10)
    officer.opens("/admin/calendar")
    calendar = officer.page.get_by_role("region", name="Due in the next 30 days")
    expect(calendar.get_by_role("listitem")).to_have_count(33)
    expect(calendar.get_by_role("link", name="1 overdue")).to_be_visible()
    weeks = officer.page.get_by_role("region", name="Last 12 weeks")
    expect(weeks.get_by_role("link", name=re.compile("^2 received in the week of "))).to_be_visible()
    officer.shows("calendar")
    submitted_at = (now - datetime.timedelta(days=100)).isoformat()
    officer.site.forget("p3", submitted_at=submitted_at, regulation="ccpa", identity_verified=False)
    # Trigger the refresh that is due after a minute.
    officer.page.evaluate("htmx.trigger(document.querySelector('[data-live=\"60\"]'), 'live')")
    expect(calendar.get_by_role("link", name="2 overdue")).to_be_visible()
    calendar.get_by_role("link", name=f"2 due on {due.day} {due:%b}").press("Enter")
    officer.page.wait_for_url(
        f"**/admin/requests?due=running&due_from={due:%Y-%m-%d}&due_to={due:%Y-%m-%d}&order=deadline"
    )
    expect(officer.page.get_by_role("link", name=re.compile("^dr_"))).to_have_count(2)


def test_an_expired_session_asks_for_a_login_in_place(officer: Visitor) -> None:
    """If the session ends while the page is open, the page asks for a login in place and then continues."""
    officer.page.context.clear_cookies()
    expect(officer.page.get_by_role("heading", name="Log in again")).to_be_visible()
    expect(officer.page.get_by_role("heading", name="Inbox")).to_be_hidden()
    officer.page.get_by_label("API key").fill(officer.site.key)
    officer.page.keyboard.press("Enter")
    expect(officer.page.get_by_role("heading", name="Inbox")).to_be_visible()
