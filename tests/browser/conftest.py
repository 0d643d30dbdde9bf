"""Fixtures for stories: one browser, and for each a gateway of its own, a worker where it needs one, a visitor."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from app.config import Settings
from tests.browser.browsing import Site, Visitor, chromium, served, visitor
from tests.faults import processes


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/browser" in item.path.as_posix():
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def site(settings: Settings) -> Iterator[Site]:
    """A gateway without a worker."""
    with served(settings) as started:
        yield started


@pytest.fixture
def worker(site: Site) -> Iterator[processes.Child]:
    with processes.worker(site.settings) as started:
        yield started


@pytest.fixture
def anybody(browser: Browser, site: Site) -> Iterator[Visitor]:
    """Not logged in."""
    found = visitor(browser, site)
    yield found
    found.page.context.close()


@pytest.fixture
def officer(anybody: Visitor) -> Visitor:
    """Logged in as an admin, at the overview."""
    anybody.logs_in()
    anybody.page.wait_for_url("**/admin")
    return anybody
