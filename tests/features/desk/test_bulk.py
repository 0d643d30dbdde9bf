"""A decision about all matching requests: counted first, then made in batches, once."""

import html
import re
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.features.desk.pages import requests
from tests.features.desk.browsing import Browser

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


@pytest.fixture
def many(gateway: TestClient) -> None:
    """Create sixty requests in review under one regulation, and one under another."""
    bodies = [{"subject_id": f"q{n}", "identity_verified": False, "regulation": "ccpa"} for n in range(60)]
    bodies.append({"subject_id": "other", "identity_verified": False})
    assert gateway.post("/v1/deletion-requests:batch", json={"requests": bodies}).json()["accepted"] == 61


def fields(page: str) -> dict[str, str]:
    """Return the hidden fields of the page's last form."""
    form = page.rpartition("<form")[2]
    found = re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form)
    return {name: html.unescape(value) for name, value in found}


@pytest.mark.usefixtures("many")
def test_all_matching_requests_are_approved(officer: Browser, get: Get) -> None:
    """On a list of more than one page, an officer can decide all matching requests at once, and the confirmation page
    states how many there are. The list keeps its filters afterwards, and submitting the form twice does not decide any
    request twice."""
    page = officer.get("/admin/requests?regulation=ccpa&order=deadline").text
    assert "Select all 60 that match" in page
    [path] = re.findall(r'href="(/admin/requests/decide[^"]*)"', page)
    page = officer.get(html.unescape(path)).text
    assert "Approve 60 requests" in page
    assert "Reject 60 requests" in page
    for decided in (60, 0):
        answer = officer.post("/admin/requests/decide-all", decision="approve", **fields(page))
        assert answer.headers["location"].startswith("/admin/requests?regulation=ccpa&")
        assert f"decided={decided}&" in answer.headers["location"]
    assert {one["regulation"] for one in get("/deletion-requests?status=in_review")["items"]} == {"gdpr"}


@pytest.mark.usefixtures("many")
def test_a_long_decision_continues_with_the_next_call(officer: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bulk decision that takes too long for one response reports its progress and continues with the next call."""
    monkeypatch.setattr(requests, "_MAX_SECONDS", 0.0)
    monkeypatch.setattr(requests, "_BATCH_SIZE", 40)
    page = officer.get("/admin/requests/decide?regulation=ccpa").text
    said = {"decision": "reject", "ground": "legal_claims", "explanation": "A case is before court."}
    answer = officer.post("/admin/requests/decide-all", **said, **fields(page))
    page = officer.get(answer.headers["location"]).text
    assert "40 requests rejected so far" in page
    assert "Reject 20 requests" in page
    answer = officer.post("/admin/requests/decide-all", **said, **fields(page))
    assert "decided=20&" in answer.headers["location"]


@pytest.mark.usefixtures("many")
def test_a_rejection_without_an_explanation_is_refused(officer: Browser) -> None:
    """A bulk rejection without an explanation is refused, an error is shown at the field, and no request is decided."""
    page = officer.get("/admin/requests/decide").text
    answer = officer.post("/admin/requests/decide-all", decision="reject", ground="legal_claims", **fields(page))
    assert answer.status_code == 422
    assert "Reject 61 requests" in answer.text


def test_a_decision_about_selected_requests_keeps_the_filters(officer: Browser, forget: Make) -> None:
    """After a decision about selected requests, the list keeps its filters and page size."""
    made = forget("p1", identity_verified=False, regulation="ccpa")["id"]
    page = officer.get("/admin/requests?regulation=ccpa&status=in_review&size=100").text
    form = page[page.index('<form id="decide"') :].partition("</form>")[0]
    kept = dict(re.findall(r'name="(filter_[a-z]+|size)" value="([^"]*)"', form))
    answer = officer.post("/admin/requests/decide", decision="approve", chosen=made, **kept)
    where = answer.headers["location"]
    assert "regulation=ccpa" in where
    assert "status=in_review" in where
    assert "size=100" in where


@pytest.mark.usefixtures("many")
def test_completed_requests_are_not_decided(officer: Browser, get: Get) -> None:
    """If requests are filtered by their completion time, the bulk decision has no request to decide."""
    page = officer.get("/admin/requests/decide?completed_from=2020-01-01").text
    assert "Nothing left to approve" in page
    given = {"filter_completed_from": "2020-01-01", "before": "2999-01-01T00:00:00Z"}
    answer = officer.post("/admin/requests/decide-all", decision="approve", **given)
    assert "decided=0&" in answer.headers["location"]
    assert get("/deletion-requests:count?status=in_review")["count"] == 61
