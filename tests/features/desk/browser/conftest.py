"""Fixtures for browser tests: one browser, and for each test a gateway, a worker if needed, and a visitor."""

import contextlib
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Playwright, sync_playwright

from app.config import Settings
from tests.faults import processes
from tests.features.desk.browser.browsing import Site, Visitor, chromium, served, visitor


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "desk/browser" in item.path.as_posix():
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    """Start one Playwright instance for all browsers, because a process cannot have a second one."""
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="session")
def browser(playwright: Playwright) -> Iterator[Browser]:
    with contextlib.closing(chromium(playwright)) as started:
        yield started


@pytest.fixture
def site(settings: Settings) -> Iterator[Site]:
    """Start a gateway without a worker."""
    with served(settings) as started:
        yield started


@pytest.fixture
def worker(site: Site) -> Iterator[processes.Child]:
    with processes.worker(site.settings) as started:
        yield started


@pytest.fixture
def anybody(browser: Browser, site: Site) -> Iterator[Visitor]:
    """Return a visitor who is not logged in."""
    found = visitor(browser, site)
    yield found
    found.page.context.close()


@pytest.fixture
def officer(anybody: Visitor) -> Visitor:
    """Return a visitor logged in as an admin, at the overview."""
    anybody.logs_in()
    anybody.page.wait_for_url("**/admin")
    return anybody
