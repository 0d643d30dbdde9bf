"""Saved views of the list of requests: its address under a name, for the reader who saved it."""

import html
import re
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.db.tables import SavedView
from app.installations import Installation
from lethe.contract.saved_views import MOST_VIEWS
from lethe.contract.sets import Scope
from tests.app.dashboard.browsing import Browser
from tests.app.dashboard.test_people import beside, invitation_of, welcomed

SHOWN = {"filter_status": "in_review", "filter_due": "soon", "filter_assigned": "me", "filter_columns": "due.source"}
ADDRESS = "/admin/requests?status=in_review&due=soon&assigned=me&columns=due.source&size=25"


def saved(page: str) -> dict[str, str]:
    """The names of the views on a page and where each leads."""
    [row] = re.findall(r'<nav class="choices" aria-label="Saved views">(.*?)</nav>', page, re.S) or [""]
    return {name: html.unescape(path) for path, name in re.findall(r'href="([^"]+)"[^>]*>([^<]+)</a>', row)}


def test_a_view_is_saved_opened_and_deleted(officer: Browser) -> None:
    """What the list shows is saved under a name; its link leads there from everywhere, and where it leads it is marked
    as the one that is shown, and can be deleted."""
    answer = officer.post("/admin/requests/views", name="Mine, due soon", size="25", **SHOWN)
    assert (answer.status_code, answer.headers["location"]) == (303, ADDRESS)
    elsewhere = officer.get("/admin/requests?order=deadline").text
    assert saved(elsewhere) == {"Mine, due soon": ADDRESS}
    assert 'aria-current="page">Mine' not in elsewhere
    assert "Save this view" in elsewhere
    page = officer.get(ADDRESS).text
    assert 'aria-current="page">Mine, due soon</a>' in page
    assert "Save this view" not in page
    [path] = re.findall(r'action="(/admin/requests/views/view_[0-9a-f]+/delete)"', page)
    answer = officer.post(path, size="25", **SHOWN)
    assert (answer.status_code, answer.headers["location"]) == (303, ADDRESS)
    assert saved(officer.get(ADDRESS).text) == {}
    assert officer.post(path).status_code == 404


def test_the_list_as_everybody_has_it_may_be_saved(officer: Browser) -> None:
    """Without filters a view leads to the plain list, and the order that it has anyway makes no difference."""
    officer.post("/admin/requests/views", name="All")
    assert saved(officer.get("/admin/requests?order=newest&size=50").text) == {"All": "/admin/requests"}
    assert 'aria-current="page">All</a>' in officer.get("/admin/requests?order=newest").text


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 61}, "name"),
        ({"name": "Mine", "filter_regulation": "case_4711"}, "regulation"),
        ({"name": "Mine", "filter_order": "case_4711"}, "order"),
        ({"name": "Mine", "filter_columns": "case_4711"}, "columns"),
    ],
)
def test_what_cannot_be_saved(officer: Browser, sent: dict[str, str], fault: str) -> None:
    """The page says what is wrong with it."""
    answer = officer.post("/admin/requests/views", **sent)
    assert answer.status_code == 422
    assert f'title="{fault}' in answer.text
    assert saved(officer.get("/admin/requests").text) == {}


def test_a_name_that_is_taken(officer: Browser) -> None:
    """The form is open again with the name, beside the list as it was, however long its pages."""
    officer.post("/admin/requests/views", name="Mine")
    answer = officer.post("/admin/requests/views", name="Mine", size="100", filter_status="rejected")
    assert answer.status_code == 409
    assert re.search(r'<details class="decision" open><summary class="button">Save this view', answer.text)
    assert 'name="name" type="text" value="Mine"' in answer.text
    assert '<input type="hidden" name="size" value="100">' in answer.text
    assert '<option value="rejected" selected>' in answer.text


def test_refusals_in_german(officer: Browser) -> None:
    """What a view is refused for is said in the reader's language, all of it."""
    for number in range(MOST_VIEWS):
        officer.post("/admin/requests/views", name=f"View {number}")
    officer.post("/admin/language", language="de", next="/admin")
    for sent, said in (
        ({"name": "View 1"}, "Eine Ansicht dieses Namens gibt es schon"),
        ({"name": "New"}, f"Es gibt schon {MOST_VIEWS} Ansichten"),
        ({"name": "New", "filter_regulation": "case_4711"}, "Erwartet wird eine aus der Richtlinie"),
        ({"name": "New", "filter_columns": "case_4711"}, "Erwartet werden Namen von Spalten"),
    ):
        page = officer.post("/admin/requests/views", **sent).text
        assert said in page
        assert '<span lang="en">' not in page
    assert "Sie haben keine solche Ansicht." in officer.post("/admin/requests/views/view_0/delete").text


def test_views_are_of_one_reader(officer: Browser, somebody_with: Callable[..., Browser]) -> None:
    """Whoever logs in with another key sees none of them, nor does a search show any."""
    officer.post("/admin/requests/views", name="Mine")
    assert saved(somebody_with(Scope.REQUESTS_READ).get("/admin/requests").text) == {}
    assert "Save this view" not in officer.post("/admin/requests/search", by="subject_id", sought="p1").text


def test_views_end_with_their_person(officer: Browser, gateway: TestClient, installation: Installation) -> None:
    """Somebody who logs in as themselves has views of their own, of which none is left once they are disabled."""
    maria = beside(gateway)
    welcomed(maria, invitation_of(officer))
    maria.post("/admin/requests/views", name="Mine", filter_assigned="me")
    assert saved(maria.get("/admin/requests").text) == {"Mine": "/admin/requests?assigned=me"}
    assert saved(officer.get("/admin/requests").text) == {}
    [user] = gateway.get("/v1/users").json()["items"]
    officer.post(f"/admin/people/{user['id']}/disable")
    with installation.database.reading() as session:
        assert session.scalars(sa.select(SavedView)).all() == []
