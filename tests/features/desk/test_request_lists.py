"""The list of requests: filtered by fields and days, paged, and searched."""

import html
import re
from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from app.installations import Installation
from tests.features.desk.browsing import Browser
from tests.tables import each

Make = Callable[..., dict[str, Any]]
HOSTILE = '<script>alert("x")</script>\'"><img src=x onerror=alert(1)>'


@each(("order", "is_cut"), [("deadline", True), ("first_completed", True), ("oldest", False), ("newest", False)])
def test_a_list_explains_requests_left_out_by_its_order(officer: Browser, order: str, is_cut: bool) -> None:
    """If the chosen order excludes all requests, the list states that none match, not that none exist, and offers to
    show all."""
    page = officer.get(f"/admin/requests?order={order}").text
    assert ("No matching requests" in page) == is_cut
    assert (">Show all</a>" in page) == is_cut
    assert ("No requests yet" in page) != is_cut


def test_headings_sort_the_list(officer: Browser, gateway: TestClient) -> None:
    """Clicking a column heading sorts the list by that column or, if the list is already sorted by that column,
    reverses the order. Filters and page size are kept, and the total counts only the requests that the order includes.
    The date of receipt is not sortable, because it can precede the date of entry."""
    bodies = [{"subject_id": f"q{n}", "identity_verified": n % 2 == 0} for n in range(60)]
    gateway.post("/v1/deletion-requests:batch", json={"requests": bodies}).raise_for_status()
    way = "/admin/requests?regulation=gdpr&size=25"
    for heading, order, sort, total in (
        ("Due", "deadline", "ascending", 30),
        ("Due", "latest_deadline", "descending", 30),
        ("Due", "deadline", "ascending", 30),
    ):
        [way] = re.findall(rf'<a href="([^"]+)">{heading}', officer.get(way).text)
        way = html.unescape(way)
        assert {*way.split("?")[1].split("&")} == {"regulation=gdpr", f"order={order}", "size=25"}
        page = officer.get(way).text
        assert re.findall(r'aria-sort="(\w+)"><a href="[^"]+">(\w+)', page) == [(sort, heading)]
        assert f"1 to 25 of {total} requests" in page
        assert re.search(r'<th scope="col"[^>]*>Received</th>', page)
    assert "1 to 25 of 30 requests" in officer.get("/admin/requests?order=last_completed&size=25").text


def test_columns_are_chosen(officer: Browser, gateway: TestClient) -> None:
    """With any sort order and filter, every page of the table shows the ticked columns, always in the same sequence. If
    no column is ticked, the table shows the default columns. The export contains all columns."""
    gateway.post("/v1/deletion-requests:batch", json={"requests": [{"subject_id": f"q{n}"} for n in range(30)]})
    first = ["Case", "Status", "Due", "Regulation", "Assigned to", "Models done", "Received"]

    def headings(page: str) -> list[str]:
        found = re.findall(r'<th scope="col"[^>]*>(?:<a[^>]*>)?([A-Z][^<]+)', page)
        return [one for one in found if one != "Choose"]

    plain = officer.get("/admin/requests").text
    assert headings(plain) == first
    assert headings(officer.get("/admin/requests?columns=").text) == first
    assert "Completed" in headings(officer.get("/admin/requests?order=last_completed").text)
    page = officer.get("/admin/requests?columns=source&columns=status&columns=completed&size=25").text
    assert headings(page) == ["Case", "Status", "Completed", "Source"]
    assert re.findall(r'name="columns" value="(\w+)" checked', page) == ["status", "completed", "source"]
    onward, sorts = (
        html.unescape(re.findall(one, page)[0]) for one in (r'rel="next" href="([^"]+)', r'<a href="([^"]+)">Completed')
    )
    for path in (onward, sorts):
        assert "columns=status.completed.source" in path
        assert headings(officer.get(path).text) == ["Case", "Status", "Completed", "Source"]
    assert "columns=status.completed.source" in page.partition("Filters")[2].replace('" value="', "=")
    assert 'href="/admin/requests.csv" download' in page
    every = "&".join(f"columns={one}" for one in ("received", "status", "due", "regulation", "assignee", "models"))
    assert "columns=status." not in officer.get(f"/admin/requests?{every}&size=25").text
    wrong = officer.get("/admin/requests?columns=subject_id")
    assert wrong.status_code == 422
    assert "subject_id" not in wrong.text


def test_days_are_in_the_zone_of_the_policy(officer: Browser, gateway: TestClient, forget: Make) -> None:
    """In the list, its export and its bulk decision, a range of days is interpreted in the policy's time zone and
    includes its last day. An invalid day is marked."""
    gateway.patch("/v1/tenant", json={"policy": {"time_zone": "Europe/Berlin"}}).raise_for_status()
    # In Berlin this is the 2nd of January.
    asked = {"identity_verified": False, "submitted_at": "2026-01-01T23:30:00Z"}
    made = forget("p1", **asked)["id"]
    for query, is_found in {
        "received_from=2026-01-02&received_to=2026-01-02": True,
        "received_to=2026-01-01": False,
        "received_from=2026-01-03": False,
        "due_from=2026-02-02&due_to=2026-02-02": True,
        "due_from=2026-02-03": False,
        "completed_from=2026-01-01": False,
        "completed_to=2026-01-01": False,
    }.items():
        for path in ("requests", "requests.csv", "requests/decide"):
            shown = officer.get(f"/admin/{path}?{query}").text
            assert ((made if path != "requests/decide" else "Approve 1 request") in shown) == is_found, (path, query)
    wrong = officer.get("/admin/requests?received_from=2026-02-31&due_to=tomorrow")
    assert wrong.status_code == 422
    assert re.findall(r'name="(\w+)"[^>]*aria-invalid="true"', wrong.text) == ["received_from", "due_to"]
    assert wrong.text.count(">Enter a date.<") == 2


def test_a_long_list_is_paginated(officer: Browser, gateway: TestClient) -> None:
    """Each page shows its range and the total, continues where the previous page ends, and links to its neighbours. A
    page size of 100 shows all 60 requests at once, and a size that is not offered is refused."""
    bodies = [{"subject_id": f"q{n}"} for n in range(60)]
    gateway.post("/v1/deletion-requests:batch", json={"requests": bodies}).raise_for_status()
    way = "/admin/requests?regulation=gdpr&size=25"
    seen, shown = [], []
    for direction in ("next", "next", "prev", "prev", "next"):
        page = officer.get(way).text
        shown.append(set(re.findall(r'href="/admin/requests/(dr_[0-9a-f]+)"', page)))
        seen.append(re.findall(r"<small>([^<]+ of 60 requests)</small>", page))
        [way] = re.findall(rf'rel="{direction}" href="([^"]+)"', page)
        way = html.unescape(way)
        assert "size=25" in way
    first, second, third = (f"{n} to {min(n + 24, 60)} of 60 requests" for n in (1, 26, 51))
    assert seen == [[first], [second], [third], [second], [first]]
    assert [len(ids) for ids in shown] == [25, 25, 10, 25, 25]
    assert (len(set.union(*shown[:3])), shown[:2]) == (60, shown[:2:-1])
    whole = officer.get("/admin/requests?size=100").text
    assert "<small>60 requests</small>" in whole
    assert 'rel="next"' not in whole
    assert officer.get("/admin/requests?size=7").status_code == 422


@each(
    ("by", "sought", "found"),
    [("subject_id", "p1", True), ("subject_id", "P1", False), ("external_id", "case-1", True)],
)
def test_requests_are_searched_by_subject(
    officer: Browser, forget: Make, installation: Installation, by: str, sought: str, found: bool
) -> None:
    """A person's requests are found by the person's id. The form sends the id in the body, and it appears neither in
    the page nor in the address."""
    assert '<form method="post" action="/admin/requests/search"' in officer.get("/admin/requests").text
    made = forget("p1", external_id="case-1")
    answer = officer.post("/admin/requests/search", by=by, sought=sought)
    assert answer.status_code == 200
    assert (f"/admin/requests/{made['id']}" in answer.text) == found
    assert by == "external_id" or f'"{sought}"' not in answer.text
    assert "location" not in answer.headers


def test_requests_are_searched_by_email_or_phone(officer: Browser, forget: Make) -> None:
    """A request that identifies a person by e-mail address or phone number is found by another spelling of the address
    or number, but not by searching for either as a subject id."""
    mail, phone = forget("ada@example.org", kind="email"), forget("+49 30 901820", kind="phone")
    for by, sought, made in (("email", "ada@EXAMPLE.org", mail), ("phone", "+4930901820", phone)):
        answer = officer.post("/admin/requests/search", by=by, sought=sought)
        assert re.findall(r'href="/admin/requests/(dr_[0-9a-f]+)"', answer.text)[:1] == [made["id"]]
        assert sought not in answer.text
    assert mail["id"] not in officer.post("/admin/requests/search", by="subject_id", sought="ada@example.org").text
    answer = officer.post("/admin/requests/search", by="phone", sought="030")
    assert (answer.status_code, "with its country code" in answer.text) == (422, True)


def test_an_invalid_search_is_refused(officer: Browser) -> None:
    """A search for an unknown or malformed value is refused without quoting the value."""
    for by, sought in (("subject_sha256", "not-a-hash"), ("name", "not-a-hash"), ("subject_id", "")):
        answer = officer.post("/admin/requests/search", by=by, sought=sought)
        assert answer.status_code == 422
        assert "not-a-hash" not in answer.text
