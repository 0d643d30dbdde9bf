"""The inbox: its requests, their order, and where its forms lead; and the menu."""

import datetime
import html
import re
from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from app.features.desk.menu import GROUPS, entries
from lethe.contract.sets import Scope
from tests.features.desk.browsing import Browser
from tests.tables import each

Make = Callable[..., dict[str, Any]]
_ROW = re.compile(r'<tr id="row-(dr_\w+)"')


def walked(officer: Browser, path: str) -> list[str]:
    """Return the ids of all rows, page after page."""
    found: list[str] = []
    while True:
        page = officer.get(path).text
        rows = _ROW.findall(page)
        assert 0 < len(rows) <= 25
        found += rows
        onward = re.findall(r'rel="next" href="([^"]+)"', page)
        if not onward:
            return found
        path = html.unescape(onward[0])


def test_the_most_urgent_requests_come_first(officer: Browser, gateway: TestClient, forget: Make) -> None:
    """Overdue requests come first, then requests with a running clock, then paused requests, each ordered by deadline.
    Every request that awaits a decision is on exactly one page."""
    now = datetime.datetime.now(datetime.UTC)
    for n in range(54):
        asked = {"submitted_at": (now - datetime.timedelta(days=(7 * n) % 50 + 1)).isoformat()}
        forget(f"p{n}", identity_verified=False, regulation="gdpr" if n % 3 == 0 else "ccpa", **asked)
    forget("stranger")
    listed = gateway.get("/v1/deletion-requests?status=in_review&limit=100").json()["items"]
    ranks = {"overdue": 0, "on_time": 1, "at_risk": 1, "paused": 2}
    clocks = {one["id"]: (ranks[one["clock"]["state"]], one["clock"]["deadline"]) for one in listed}
    assert {rank for rank, _ in clocks.values()} == {0, 1, 2}
    found = walked(officer, "/admin")
    assert len(found) == len(set(found)) == 54
    assert [clocks[one] for one in found] == sorted(clocks.values())
    assert officer.get("/admin?cursor=nowhere").status_code == 422


def test_queues_are_filtered_by_assignee(officer: Browser, gateway: TestClient, forget: Make) -> None:
    """The unassigned queue excludes assigned requests, and the number next to the link of each queue equals the number
    of its rows. Only human users have a queue of assigned requests."""
    made = [forget(f"p{n}", identity_verified=False)["id"] for n in range(3)]
    person = {"name": "Maria Lopez", "email": "maria@example.com", "role": "officer"}
    maria = gateway.post("/v1/users", json=person).json()["id"]
    gateway.post(f"/v1/deletion-requests/{made[0]}/assign", json={"assignee": maria}).raise_for_status()
    page = officer.get("/admin").text
    queues = dict(re.findall(r'href="/admin\?queue=(\w+)"[^>]*>\w+ <span class="number">(\d+)<', page))
    assert queues == {"unassigned": "2", "all": "3"}
    assert set(walked(officer, "/admin?queue=all")) == set(made)
    assert set(walked(officer, "/admin?queue=unassigned")) == set(made[1:])
    assert "Nothing awaits a decision here" in officer.get("/admin?queue=mine").text


@each(("inbox", "leads"), [("unassigned", "/admin?queue=unassigned&case="), ("x", "/admin/requests/")])
def test_forms_redirect_to_the_queue_or_the_case(officer: Browser, forget: Make, inbox: str, leads: str) -> None:
    """A form about a case redirects to the queue if it was sent from the inbox, and otherwise to the case's page."""
    made = forget("p1", identity_verified=False)["id"]
    answer = officer.post(f"/admin/requests/{made}/note", text="Called back.", inbox=inbox)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith(f"{leads}{made}")
    page = officer.get(answer.headers["location"]).text
    assert "Note added." in page
    chosen = officer.post("/admin/requests/decide", decision="approve", chosen=made, inbox=inbox)
    assert chosen.headers["location"].startswith("/admin?queue=" if inbox != "x" else "/admin/requests?")
    assert "1 request approved." in officer.get(chosen.headers["location"]).text


def test_an_open_case_shows_queue_and_case(officer: Browser, forget: Make) -> None:
    """The URL of an open case shows the queue next to the case, and the case's forms contain the queue's name. The case
    alone is returned as a fragment instead of a complete page."""
    made = forget("p1", identity_verified=False, external_id="2026-0815")["id"]
    page = officer.get(f"/admin?queue=all&case={made}").text
    assert f'action="/admin/requests/{made}/approve"' in page
    assert page.count('name="inbox" value="all"') > 5
    part = officer.get(f"/admin/inbox/cases/{made}").text
    assert "<html" not in part
    assert "<h2>2026-0815</h2>" in part
    assert officer.get("/admin?case=dr_none").status_code == 404


def test_an_ended_case_is_not_polled(officer: Browser, forget: Make) -> None:
    """An open case's page polls the state of the case, and an ended case's page does not."""
    still_open = forget("p1", identity_verified=False)["id"]
    assert f'hx-get="/admin/requests/{still_open}/live' in officer.get(f"/admin/requests/{still_open}").text
    ended = forget("stranger")["id"]
    assert f"/admin/requests/{ended}/live" not in officer.get(f"/admin/requests/{ended}").text


def test_the_inbox_is_hidden_without_the_scope(somebody_with: Callable[..., Browser]) -> None:
    """A key that may not see requests gets the overview instead of the inbox."""
    engineer = somebody_with(Scope.MODELS_READ)
    page = engineer.get("/admin").text
    assert "<h1>Overview</h1>" in page
    assert ">Inbox</a>" not in page


def test_the_menu_has_four_groups(officer: Browser) -> None:
    """Every menu entry is in one of four groups, and the group of the current page is open."""
    assert list(GROUPS) == ["work", "models", "evidence", "settings"]
    assert {entry.group for entry in entries()} == set(GROUPS)
    page = officer.get("/admin/models").text
    groups = re.findall(r'<details class="menu-group"[^>]*?( open)?>\s*<summary>(\w+)<', page)
    assert groups == [("", "Work"), (" open", "Models"), ("", "Evidence"), ("", "Settings")]
