"""The identity map on pages: counts by kind, and on the page of a case the kinds that led to rows."""

from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from tests.features.desk.browsing import Browser

Make = Callable[..., dict[str, Any]]
LINKS = [{"identifiers": [{"id": "p1"}, {"kind": "email", "id": "ada@example.org"}]}]


def test_the_page_counts_identifiers_by_kind(
    gateway: TestClient, officer: Browser, forget: Make, live: dict[str, Any]
) -> None:
    """The page counts identifiers by kind and requests of unknown identity, and shows no identifier."""
    assert gateway.post("/v1/identities", json={"links": LINKS}).status_code == 200
    forget("stranger@example.org", kind="email")
    page = officer.get("/admin/identities").text
    assert "people in the map: 1" in page
    assert "Requests whose identifier leads nowhere: 1" in page
    assert "example.org" not in page


def test_a_case_shows_which_kinds_it_covers(
    gateway: TestClient, officer: Browser, forget: Make, live: dict[str, Any]
) -> None:
    """The page of a request by e-mail address shows that the request covers the kind customer id. The page of a request
    with an unknown identity shows advice and offers approval."""
    gateway.post("/v1/identities", json={"links": LINKS})
    known = officer.get(f"/admin/requests/{forget('ada@example.org', kind='email')['id']}").text
    assert "Kinds of identifiers that the request covers" in known
    assert "<code>customer_id</code>" in known
    unknown = officer.get(f"/admin/requests/{forget('x@example.org', kind='email')['id']}").text
    assert "no identity map leads from it" in unknown
    assert "Approve the request" in unknown
    assert "Kinds of identifiers" not in officer.get(f"/admin/requests/{forget('p2')['id']}").text
