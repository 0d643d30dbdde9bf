"""Long lists: paged forward and back with their filters."""

import datetime
import html
import re
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from fastapi.testclient import TestClient

from app.access.service import DEFAULT_TENANT
from app.db import now
from app.db.tables import LedgerEntry, Run
from app.features.lineage.tables import Export
from app.features.networks.tables import Network
from app.features.rehearsals.tables import Rehearsal
from app.features.webhooks.tables import WebhookDelivery
from app.installations import Installation
from lethe.contract.sets import RunStatus, Scope
from lethe.features.rehearsals.contract import RehearsalStatus
from lethe.features.webhooks.contract import DeliveryStatus
from tests.features.desk.browsing import Browser
from tests.features.together.test_authorisation import delivered
from tests.tables import each

Make: TypeAlias = Callable[..., dict[str, Any]]
Fill: TypeAlias = Callable[[str], None]
_MANY = 30
"""Number of entries: two pages of 25 each."""


@pytest.fixture
def fill(gateway: TestClient, installation: Installation, new_dataset: Make, new_model: Make, forget: Make) -> Fill:
    """Return a function that fills a list with many entries."""

    def of_runs() -> None:
        model = new_model(new_dataset()["id"])
        with installation.database.writing() as session:
            began = now(session)
            for number in range(_MANY):
                at = began + datetime.timedelta(seconds=number)
                asked = {"kind": "learn", "model_id": model["id"], "dataset_id": model["dataset_id"], "revision": 0}
                asked |= {"steps_total": 9, "steps_done": 9, "records": 0, "reason": "requested", "worker": "w"}
                asked |= {
                    "version_id": "ver_x",
                    "started_at": at,
                    "lease_expires_at": at,
                    "finished_at": at,
                    "error_code": "failed",
                }
                run = {"id": f"run_{number:016x}", "status": RunStatus.FAILED}
                session.add(Run(tenant_id=DEFAULT_TENANT, **run, **asked))

    def of_deliveries() -> None:
        made = forget("p1")["id"]
        ids = [delivered(installation, made) for _ in range(_MANY)]
        with installation.database.writing() as session:
            for delivery_id in ids:
                delivery = session.get_one(WebhookDelivery, delivery_id)
                delivery.status, delivery.error = DeliveryStatus.DEAD, "http_503"

    def of_models() -> None:
        dataset_id = new_dataset()["id"]
        for _ in range(_MANY):
            new_model(dataset_id)

    def of_keys() -> None:
        body = {"name": "app", "scopes": [Scope.MODELS_READ]}
        for _ in range(_MANY):
            gateway.post("/v1/api-keys", json=body).raise_for_status()

    def of_networks() -> None:
        asked = {"size": 9, "licence": "MIT", "provenance": "nobody", "opset": 17}
        asked |= {"output_size": 2, "num_parameters": 9, "parameters": [], "operators": [], "input_shape": [2]}
        with installation.database.writing() as session:
            for number in range(_MANY):
                made = {"id": f"net_{number:016x}", "name": "n", "sha256": f"{number:064x}", "created_at": now(session)}
                session.add(Network(tenant_id=DEFAULT_TENANT, **made, **asked))

    def make(what: str) -> None:
        match what:
            case "runs":
                of_runs()
            case "deliveries":
                of_deliveries()
            case "models":
                of_models()
            case "datasets":
                for _ in range(_MANY):
                    new_dataset(rows=8)
            case "suppressions":
                bodies = [{"subject_id": f"q{number}"} for number in range(_MANY)]
                gateway.post("/v1/deletion-requests:batch", json={"requests": bodies}).raise_for_status()
            case "keys" | "audit-log":
                of_keys()
            case "networks":
                of_networks()
            case "tenants":
                for number in range(_MANY):
                    gateway.post("/v1/tenants", json={"name": f"shop {number}"}).raise_for_status()
            case "people":
                for number in range(_MANY):
                    body = {"name": "Jo", "email": f"jo{number}@example.org", "role": "viewer"}
                    gateway.post("/v1/users", json=body).raise_for_status()

    return make


@pytest.mark.parametrize(
    ("what", "queries"),
    [
        ("datasets", {"": None}),
        ("models", {"": None, "order=risk": "30 models"}),
        ("runs", {"status=failed": None, "status=unresolved": "30 runs"}),
        ("deliveries", {"status=dead": None, "status=undelivered": "30 deliveries"}),
        ("audit-log", {"action=api_key.created": None}),
        ("suppressions", {"": None}),
        ("keys", {"": None}),
        ("networks", {"": None}),
        ("tenants", {"": None}),
        ("people", {"": None}),
    ],
)
def test_pages_link_to_their_neighbours(
    officer: Browser, fill: Fill, what: str, queries: dict[str, str | None]
) -> None:
    """Each page of a list links to the next and the previous page with the same filters and page size. It shows the
    range of its entries and, for counted lists, their total."""
    fill(what)
    for query, total in queries.items():
        walk(officer, what, query, total)


def walk(officer: Browser, what: str, query: str, total: str | None) -> None:
    """Go to the second page of a list, back to the first, and forward again, and check each page."""
    way = f"/admin/{what}?{query}&size=25"
    shown, rows = [], []
    for direction in ("next", "prev", "next"):
        found = officer.get(way).text.partition('<h2 id="found">')[2]
        shown += re.findall(r"^[^<]*<small>([^<]*)</small>", found)
        rows.append(re.findall(r"<tr>.*?</tr>", found.partition("<tbody>")[2], re.S))
        assert ('rel="prev"' in found) == ("First page" in found) == (direction == "prev")
        [way] = map(html.unescape, re.findall(rf'rel="{direction}" href="([^"]+)"', found))
        assert way.startswith(f"/admin/{what}?")
        assert query in way
        assert "size=25" in way
    assert shown[0] == shown[2] == (f"1 to 25 of {total}" if total else "1 to 25")
    assert re.fullmatch(r"26 to (3\d) of \1 .+", shown[1])
    assert total is None or shown[1].endswith(f" of {total}")
    assert len(rows[0]) == 25
    assert len(rows[1]) == int(shown[1].split()[2]) - 25
    assert not set(rows[0]) & set(rows[1])


def test_the_lists_of_a_model_are_paginated(
    officer: Browser, installation: Installation, new_dataset: Make, new_model: Make, work: Callable[[], int]
) -> None:
    """The versions, copies, ledger entries and rehearsals of a model are paginated in both directions."""
    model_id = new_model(new_dataset()["id"])["id"]
    work()
    with installation.database.writing() as session:
        first = session.get_one(LedgerEntry, (model_id, 1))
        for number in range(_MANY):
            mine = {"tenant_id": DEFAULT_TENANT, "model_id": model_id}
            at = now(session) + datetime.timedelta(seconds=number)
            asked = {"people": 10, "status": RehearsalStatus.FAILED, "asked_at": at}
            session.add(Export(id=f"exp_{number:016x}", version=1, api_key_id="key_1", at=at, **mine))
            session.add(Rehearsal(id=f"reh_{number:016x}", **asked, **mine))
            entry = {"body": first.body, "previous_hash": first.hash, "hash": f"{number:064x}"}
            session.add(LedgerEntry(model_id=model_id, sequence=number + 2, **entry))
    for what, many in (("exports", "30 copies"), ("rehearsals", "30 rehearsals"), ("ledger", "31 entries")):
        path = f"/admin/models/{model_id}/{what}"
        first_page = officer.get(f"{path}?size=25").text
        assert "<small>1 to 25</small>" in first_page, what
        [onward] = re.findall(r'rel="next" href="([^"]+)"', first_page)
        second = officer.get(html.unescape(onward)).text
        assert f"<small>26 to {many[:2]} of {many}</small>" in second
        assert f'rel="prev" href="{path}?size=25"' in second
    assert "<small>1 version</small>" in officer.get(f"/admin/models/{model_id}/versions?size=25").text


def test_accounts_are_paginated(officer: Browser, new_dataset: Make) -> None:
    """A page shows ten accounts, whatever the page size of other lists, and its links keep the given budget."""
    for _ in range(12):
        new_dataset(rows=8)
    page = officer.get("/admin/accounting?epsilon=5").text
    assert page.count('class="later"') == 10
    assert 'name="size"' not in page
    [onward] = re.findall(r'rel="next" href="([^"]+)"', page)
    second = officer.get(html.unescape(onward)).text
    assert second.count('class="later"') == 2
    assert 'rel="prev" href="/admin/accounting?epsilon=5.0"' in second


@each(("what", "heading"), [("models", "Created"), ("runs", "Began")])
def test_models_and_runs_are_sorted_by_age(officer: Browser, fill: Fill, what: str, heading: str) -> None:
    """Models and runs are sorted by age in either direction, on pages of the chosen size. The page links keep the
    order."""
    fill(what)
    found, way = {}, f"/admin/{what}?size=25"
    for order, sort in (("oldest", "ascending"), ("newest", "descending")):
        [way] = map(html.unescape, re.findall(rf'<a href="([^"]+)">{heading}', officer.get(way).text))
        assert {f"order={order}", "size=25"} == set(way.partition("?")[2].split("&"))
        page = officer.get(way).text
        assert re.findall(r'aria-sort="(\w+)"', page) == [sort]
        assert f"order={order}" in page.partition('rel="next"')[2] or order == "newest"
        found[order] = re.findall(rf'<th scope="row"><a href="(/admin/{what}/\w+)"', page)
    assert found["oldest"][:-21:-1] == found["newest"][5:]


@each("what", ["runs", "deliveries", "audit-log", "models"])
def test_filters_keep_the_page_size(officer: Browser, what: str) -> None:
    """A list keeps its page size when its filters change."""
    page = officer.get(f"/admin/{what}?size=100").text
    [form] = re.findall(r'<form method="get"[^>]*aria-label="Filters">(.*?)</form>', page, re.S)
    assert '<input type="hidden" name="size" value="100">' in form


def test_a_live_list_refreshes_its_own_page(officer: Browser, fill: Fill) -> None:
    """An open list refreshes the page that it shows, including the link to the previous page."""
    fill("runs")
    [onward] = re.findall(r'rel="next" href="([^"]+)"', officer.get("/admin/runs?size=25").text)
    page = officer.get(html.unescape(onward)).text
    [live] = re.findall(r'"(/admin/runs/live[^"]*)"', page)
    assert 'rel="prev" href="/admin/runs?size=25"' in officer.get(html.unescape(live)).text


def test_page_links_cover_the_whole_list_after_lifting(officer: Browser, gateway: TestClient) -> None:
    """After a search, or after a suppression is lifted, the page links cover the whole list, because neither is part of
    the URL."""
    bodies = [{"subject_id": f"q{number}"} for number in range(60)]
    gateway.post("/v1/deletion-requests:batch", json={"requests": bodies}).raise_for_status()
    page = officer.post("/admin/suppressions/lift", subject_id="q1").text
    assert "1 to 50" in page
    [onward] = re.findall(r'rel="next" href="([^"]+)"', page)
    assert "51 to 59 of 59 suppressions" in officer.get(html.unescape(onward)).text
