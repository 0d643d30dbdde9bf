"""Pages: assignment of requests, the cases of one person in the list, and notes of colleagues."""

import re
from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from lethe.contract.sets import Scope
from tests.features.desk.browsing import Browser
from tests.features.people.test_people import EMAIL, beside, invitation_of, welcomed

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


def listed(page: str) -> list[str]:
    return re.findall(r'<th scope="row">.*?(dr_[0-9a-f]{20})', page)


def test_an_officer_takes_and_releases_a_request(officer: Browser, gateway: TestClient, forget: Make, get: Get) -> None:
    """An officer takes a request, finds it in their own list, and releases it. The request is then unassigned."""
    mine, other = (forget(f"p{number}", identity_verified=False)["id"] for number in range(2))
    maria = beside(gateway)
    welcomed(maria, invitation_of(officer))
    [user] = get("/users")["items"]
    page = maria.get(f"/admin/requests/{mine}").text
    assert '<option value="nobody" selected>Nobody</option>' in page
    answer = maria.post(f"/admin/requests/{mine}/assign", assignee=user["id"])
    page = maria.get(answer.headers["location"]).text
    assert "Request assigned." in page
    assert "<dt>Assigned to</dt>" in page
    assert f'<option value="{user["id"]}" selected>Maria Lopez</option>' in page
    for wanted, found in (("me", [mine]), ("nobody", [other]), (user["id"], [mine])):
        assert listed(maria.get(f"/admin/requests?assigned={wanted}").text) == found
    assert "Me</option>" in maria.get("/admin/requests").text
    assert mine in maria.get("/admin/requests.csv?assigned=me").text
    assert "assigned to Maria Lopez" in maria.get(f"/admin/requests/decide?assigned={user['id']}").text
    assert maria.get("/admin/requests?assigned=somebody").status_code == 422
    maria.post(f"/admin/requests/{mine}/assign", assignee="nobody")
    assert listed(maria.get("/admin/requests?assigned=nobody").text) == [other, mine]
    assert EMAIL not in maria.get("/admin/requests").text


def test_a_request_stays_assigned_to_a_disabled_user(
    officer: Browser, gateway: TestClient, forget: Make, get: Get
) -> None:
    """A request stays assigned to a disabled user, and the page marks the user as disabled. Assigning another request
    to that user is refused with an explanation."""
    request_id = forget("p1")["id"]
    welcomed(beside(gateway), invitation_of(officer))
    [user] = get("/users")["items"]
    officer.post(f"/admin/requests/{request_id}/assign", assignee=user["id"])
    officer.post(f"/admin/people/{user['id']}/disable")
    page = officer.get(f"/admin/requests/{request_id}").text
    assert f'<option value="{user["id"]}" selected>Maria Lopez (decides no longer)</option>' in page
    answer = officer.post(f"/admin/requests/{forget('p2')['id']}/assign", assignee=user["id"])
    assert (answer.status_code, 'data-code="' in answer.text) == (409, False)
    assert "Requests cannot be assigned to this person" in answer.text


def test_assignments_are_hidden_from_readers(
    officer: Browser, somebody_with: Callable[..., Browser], forget: Make
) -> None:
    """Readers who may not decide do not see assignees. An API key that may decide has no queue of assigned cases."""
    request_id = forget("p1")["id"]
    viewer = somebody_with(Scope.REQUESTS_READ, Scope.ACCOUNTING_READ)
    for path in (f"/admin/requests/{request_id}", "/admin/requests"):
        assert "Assigned to" not in viewer.get(path).text
    assert viewer.get("/admin/requests?assigned=nobody").status_code == 403
    assert viewer.post(f"/admin/requests/{request_id}/assign", assignee="nobody").status_code == 403
    assert "Me</option>" not in officer.get("/admin/requests").text


def test_notes_are_added_and_shown(
    officer: Browser, somebody_with: Callable[..., Browser], forget: Make, get: Get
) -> None:
    """A note is added through a plain form and shown as it was written, with its author and time. Users who may not
    decide cannot see it. A line break sent by a browser counts as one character."""
    request_id = forget("p1", identity_verified=False)["id"]
    place, text = f"/admin/requests/{request_id}", "Jane <b>wrote</b>\r\nthat she moved."
    answer = officer.post(f"{place}/note", text=text)
    page = officer.get(answer.headers["location"]).text
    assert "Note added." in page
    assert "Jane &lt;b&gt;wrote&lt;/b&gt;\nthat she moved." in page
    assert re.search(r'<time datetime="[^"]+" data-local="minute"[^>]*>[^<]+</time> by <span title="key_', page)
    assert officer.post(f"{place}/note", text="\r\n".join("x" * 1999 for _ in range(2))).status_code == 303
    assert "Jane" not in officer.get(f"{place}/live").text
    viewer = somebody_with(Scope.REQUESTS_READ, Scope.ACCOUNTING_READ)
    assert "Internal notes" not in viewer.get(place).text
    assert viewer.post(f"{place}/note", text="x").status_code == 403
    assert officer.post(f"{place}/note", csrf="0" * 64, text="x").status_code == 403
    assert len(get(f"/deletion-requests/{request_id}/notes")["items"]) == 2


def test_a_refused_note_keeps_its_text(officer: Browser, forget: Make) -> None:
    """A note that is empty or too long is shown again with an error, so that it can be corrected."""
    place = f"/admin/requests/{forget('p1', identity_verified=False)['id']}/note"
    answer = officer.post(place, text="y" * 4001)
    assert answer.status_code == 422
    assert "y" * 4001 + "</textarea>" in answer.text
    assert 'aria-invalid="true"' in answer.text
    assert officer.post(place, text=" ").status_code == 422
