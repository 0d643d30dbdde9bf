"""A database that answers queries but refuses changes, like a standby server."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from psycopg import sql

from app.accounting_main import create_app
from app.config import Settings
from app.installations import Installation
from tests.faults import hops, processes
from tests.faults.checks import assert_all_done_once
from tests.faults.processes import wait_until
from tests.postgres.server import Server

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.parametrize("kind", ["postgresql"], indirect=True, scope="session"),
]

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Switch = Callable[[bool], None]


@pytest.fixture
def read_only(settings: Settings, postgres: Server) -> Switch:
    """Return a function that makes the database read-only or writable, even for existing connections."""
    name = settings.resolved_database_url().rsplit("/", 1)[1]
    of_others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = {}"

    def switch(on: bool) -> None:
        change = sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = {}")
        postgres.do(change.format(sql.Identifier(name), sql.Literal("on" if on else "off")))
        postgres.do(sql.SQL(of_others).format(sql.Literal(name)))

    return switch


def test_writes_to_a_read_only_database_return_503(
    gateway: TestClient,
    read_only: Switch,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    work: Any,
) -> None:
    """With a read-only database, calls that change nothing succeed. Other calls return 503 and succeed when repeated
    later."""
    new_model(new_dataset()["id"], noise_scale=0.02)
    assert work() == 1
    read_only(True)
    key = {"Idempotency-Key": "once"}
    refused = gateway.post("/v1/deletion-requests", json={"subject_id": "p3"}, headers=key)
    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    assert int(refused.headers["retry-after"]) > 0
    for path in ("/v1/models", "/v1/deletion-requests", "/healthz", "/readyz"):
        assert gateway.get(path).status_code == 200, path
    read_only(False)
    accepted = gateway.post("/v1/deletion-requests", json={"subject_id": "p3"}, headers=key)
    assert accepted.status_code == 202
    assert work() == 1
    assert gateway.get(f"/v1/deletion-requests/{accepted.json()['id']}").json()["status"] == "completed"
    assert_all_done_once(installation)


def test_unrecorded_lookups_are_refused(gateway: TestClient, read_only: Switch, new_dataset: Make) -> None:
    """A lookup of people is refused with 503 and reveals nothing if the lookup cannot be recorded."""
    dataset_id = new_dataset()["id"]
    gateway.post("/v1/deletion-requests", json={"subject_id": "p3"})
    looks = [
        lambda: gateway.get(f"/v1/datasets/{dataset_id}/subjects/p1"),
        lambda: gateway.get("/v1/deletion-requests.csv"),
        lambda: gateway.post("/v1/lineage", json={"subject_id": "p1"}),
    ]
    read_only(True)
    for look in looks:
        answer = look()
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert int(answer.headers["retry-after"]) > 0
    read_only(False)
    assert [look().status_code for look in looks] == [200, 200, 200]


def test_accounting_works_on_a_read_only_database(
    settings: Settings, admin_key: str, read_only: Switch, new_dataset: Make, new_model: Make, work: Callable[[], int]
) -> None:
    """The accounting service gives the same responses whether its database is writable or read-only."""
    model = new_model(new_dataset()["id"])
    assert work() == 1
    with TestClient(create_app(settings), headers={"Authorization": f"Bearer {admin_key}"}) as accounting:
        path = f"/v1/accounting/models/{model['id']}"
        before = accounting.get(path)
        read_only(True)
        after = accounting.get(path)
    assert (after.status_code, after.json()) == (200, before.json())


@pytest.mark.parametrize("hop", ["claimed", "mid-chain", "weights put"])
def test_a_worker_survives_a_read_only_database(
    hop: str,
    settings: Settings,
    read_only: Switch,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Any,
) -> None:
    """If the database becomes read-only during a run, the worker publishes nothing. It works again once the database is
    writable."""
    new_model(new_dataset()["id"], noise_scale=0.02)
    assert work() == 1
    request = forget("p3")
    with processes.worker(settings, hop=hop, act=hops.stop) as worker:
        worker.pause()
        read_only(True)
        worker.wake()
        wait_until(lambda: worker.logged("worker.database_lost"))
        assert get(f"/deletion-requests/{request['id']}")["status"] == "running"
        read_only(False)
        wait_until(lambda: get(f"/deletion-requests/{request['id']}")["status"] == "completed")
        assert worker.stop() == 0
    assert_all_done_once(installation)
