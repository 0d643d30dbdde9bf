"""Fixtures of features: those of the API, and for pages a browser without a login and one with a login."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from argon2 import PasswordHasher
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from fastapi.testclient import TestClient

from app.access import service as access
from app.db import Actor
from app.features.people import credentials
from app.installations import Installation
from app.keys import read_or_create
from lethe.contract.sets import Scope
from tests.app.api.conftest import (
    claim,
    give_up,
    key_with,
    live,
    nothing,
    npz_of,
    policy,
    refused,
    sample,
    shown,
    statements,
    statuses,
    stored,
    upload,
)
from tests.databases import OnBothDatabases
from tests.features.desk.browsing import Browser
from tests.features.protocols.agents import Agent
from tests.features.protocols.controllers import Controller

__all__ = [
    "browser",
    "claim",
    "give_up",
    "key_with",
    "live",
    "nothing",
    "npz_of",
    "officer",
    "policy",
    "refused",
    "sample",
    "shown",
    "somebody_with",
    "statements",
    "statuses",
    "stored",
    "upload",
]


_HASHER = credentials._hasher


@pytest.fixture(scope="session", autouse=True)
def cheap_passwords() -> Iterator[None]:
    """Hash passwords quickly. The product spends a fifth of a second of CPU time on each password, so that passwords
    people can remember are hard to guess."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(credentials, "_hasher", functools.cache(lambda: PasswordHasher(time_cost=2, memory_cost=64)))
        yield


@pytest.fixture
def costly_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash passwords as the product does."""
    monkeypatch.setattr(credentials, "_hasher", _HASHER)


def _beside(gateway: TestClient) -> TestClient:
    """Return a client that has its own cookies and runs in the gateway's event loop."""
    client = TestClient(gateway.app, raise_server_exceptions=False)
    client.portal = gateway.portal
    return client


@pytest.fixture
def browser(gateway: TestClient, admin_key: str) -> Browser:
    """Return a browser that is not logged in, with an admin's key and its own cookies."""
    return Browser(client=_beside(gateway), key=admin_key)


@pytest.fixture
def officer(browser: Browser) -> Browser:
    """Return a browser that is logged in as an admin."""
    assert browser.log_in().status_code == 303
    return browser


@pytest.fixture
def somebody_with(gateway: TestClient, installation: Installation, by: Actor) -> Callable[..., Browser]:
    """Return a function that logs in with a new key that has these scopes; `by` selects another tenant."""

    def log_in(*scopes: Scope, by: Actor = by) -> Browser:
        key = access.new_key()
        with installation.database.writing(by=by) as session:
            access.add_key(session, name="test", key=key, scopes=scopes)
        browser = Browser(client=_beside(gateway), key=key)
        assert browser.log_in().status_code == 303
        return browser

    return log_in


@pytest.fixture
def agent(gateway: TestClient, policy: Callable[..., None]) -> Agent:
    """Return an agent that is registered and has a token."""
    policy(drp_business_id="BUSINESS", drp_claim="email", grace_seconds=3600)
    agent = Agent(gateway=gateway)
    agent.register()
    assert agent.set_up().status_code == 200
    return agent


@pytest.fixture(scope="session")
def signing_key() -> str:
    """Create the signing key only once, because creating it takes a second."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form, secret = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, secret).decode()


@pytest.fixture
def with_signing_key(installation: Installation, signing_key: str) -> None:
    """Give an installation an existing key for its OpenDSR certificate, so that it does not have to generate one."""
    read_or_create(installation.settings.data_dir / "keys" / "opendsr.key", lambda: signing_key)


@pytest.fixture
def controller(gateway: TestClient, key_with: Callable[..., dict[str, str]], policy: Callable[..., None]) -> Controller:
    """Return an OpenDSR controller whose key may submit requests but may not see whether a person is in the data."""
    policy(opendsr_identities=["controller_customer_id"])
    return Controller(gateway=gateway, headers=key_with(Scope.REQUESTS_READ, Scope.REQUESTS_WRITE))


ON_BOTH_DATABASES = OnBothDatabases(
    folder=Path(__file__).parent,
    where_different=(
        "archives/test_dump.py",
        "attested/test_manifests.py",
        "identities/test_components.py",
        "identities/test_endpoints.py",
        "desk/test_every_page.py",
        "insight/test_summary.py",
        "ledgers/test_requests.py",
        "systems/test_tasks.py",
        "webhooks/test_claims.py",
    ),
    with_soak=(
        "archives/test_catching_up.py",
        "archives/test_lost.py",
        "archives/test_restoring_everything.py",
        "attested/test_round_trip.py",
        "canary_people/test_trainings.py",
        "drop/test_endpoints.py",
        "drop/test_loading.py",
        "identities/test_advice.py",
        "identities/test_loading.py",
        "identities/test_service.py",
        "ledgers",
        "leaving",
        "protocols",
        "stores/test_agent.py",
        "stores/test_kills.py",
        "systems/test_bundle.py",
        "systems/test_kills.py",
        "webhooks/test_retention.py",
        "webhooks/test_secret.py",
        "webhooks/test_service.py",
        "lineage/test_endpoints.py",
        "trainers/test_faults.py",
        "trainers/test_planner.py",
        "trainers/test_retraining.py",
        "trainers/test_tables.py",
    ),
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    ON_BOTH_DATABASES.parametrize(metafunc)
