"""Fixtures for pages: a browser that is not logged in, and one that is."""

from collections.abc import Callable

import pytest
from fastapi.testclient import TestClient

from app.access import service as access
from app.db import Actor
from app.installations import Installation
from lethe.contract.sets import Scope
from tests.app.dashboard.browsing import Browser


def _beside(gateway: TestClient) -> TestClient:
    """A client with cookies of its own, in the event loop in which the gateway runs."""
    client = TestClient(gateway.app, raise_server_exceptions=False)
    client.portal = gateway.portal
    return client


@pytest.fixture
def browser(gateway: TestClient, admin_key: str) -> Browser:
    """Not logged in yet, and with an admin's key at hand; the gateway is called by nobody else with its cookies."""
    return Browser(client=_beside(gateway), key=admin_key)


@pytest.fixture
def officer(browser: Browser) -> Browser:
    """Logged in as an admin."""
    assert browser.log_in().status_code == 303
    return browser


@pytest.fixture
def somebody_with(gateway: TestClient, installation: Installation, by: Actor) -> Callable[..., Browser]:
    """Log in with a new key of these scopes; `by`: for another tenant."""

    def log_in(*scopes: Scope, by: Actor = by) -> Browser:
        key = access.new_key()
        with installation.database.writing(by=by) as session:
            access.add_key(session, name="test", key=key, scopes=scopes)
        browser = Browser(client=_beside(gateway), key=key)
        assert browser.log_in().status_code == 303
        return browser

    return log_in
