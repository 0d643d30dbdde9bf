"""Suppressions on pages: searched without a trace, and lifted only by admins."""

from collections.abc import Callable
from typing import Any

import pytest

from lethe.contract.sets import Scope
from tests.features.desk.browsing import Browser

Get = Callable[[str], Any]


@pytest.fixture
def forgotten(forget: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Return a request about a person who is suppressed."""
    return forget("ann@example.org")


def test_suppressed_people_are_listed(officer: Browser, forgotten: dict[str, Any]) -> None:
    """Each suppressed person is listed as a hash, together with the person's request. A search by a person's id sends
    the id only in the body."""
    assert forgotten["id"] in officer.get("/admin/suppressions").text
    answer = officer.post("/admin/suppressions/search", subject_id="ann@example.org")
    assert forgotten["id"] in answer.text
    assert "ann@example.org" not in answer.text
    assert (
        "Nothing is suppressed about this person"
        in officer.post("/admin/suppressions/search", subject_id="bob@example.org").text
    )
    assert officer.post("/admin/suppressions/search", subject_id="").status_code == 422


def test_suppressions_are_lifted_on_consent(officer: Browser, forgotten: dict[str, Any], get: Get) -> None:
    """Lifting ends all suppressions of a person. Repeating it changes nothing."""
    assert "1 suppression ended" in officer.post("/admin/suppressions/lift", subject_id="ann@example.org").text
    assert get("/suppressions")["items"] == []
    assert "Nothing is suppressed" in officer.post("/admin/suppressions/lift", subject_id="ann@example.org").text


def test_only_admins_may_lift(somebody_with: Callable[..., Browser], forgotten: dict[str, Any], get: Get) -> None:
    """Only admins see the form for lifting suppressions, and only they can submit it."""
    reader = somebody_with(Scope.REQUESTS_READ)
    page = reader.get("/admin/suppressions").text
    assert forgotten["id"] in page
    assert "Lift suppression" not in page
    assert reader.post("/admin/suppressions/lift", subject_id="ann@example.org").status_code == 403
    assert len(get("/suppressions")["items"]) == 1
