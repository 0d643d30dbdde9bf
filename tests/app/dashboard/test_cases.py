"""Pages: whose case a request is, and the cases of one person in the list."""

import re
from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from lethe.contract.sets import Scope
from tests.app.dashboard.browsing import Browser
from tests.app.dashboard.test_people import EMAIL, beside, invitation_of, welcomed

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


def listed(page: str) -> list[str]:
    return re.findall(r'<th scope="row">.*?(dr_[0-9a-f]{20})', page)


def test_my_cases(officer: Browser, gateway: TestClient, forget: Make, get: Get) -> None:
    """An officer takes a request, finds it among theirs, and lets go of it: then it is nobody's."""
    mine, other = (forget(f"p{number}", identity_verified=False)["id"] for number in range(2))
    maria = beside(gateway)
    welcomed(maria, invitation_of(officer))
    [user] = get("/users")["items"]
    page = maria.get(f"/admin/requests/{mine}").text
    assert '<option value="nobody" selected>Nobody</option>' in page
    answer = maria.post(f"/admin/requests/{mine}/assign", assignee=user["id"])
    page = maria.get(answer.headers["location"]).text
    assert "The request is assigned." in page
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


def test_somebody_who_decides_no_longer(officer: Browser, gateway: TestClient, forget: Make, get: Get) -> None:
    """A case keeps its person when they leave, and the page says that they decide no longer; nobody else gets it by
    accident, and who chose them on an old page is told."""
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


def test_who_only_reads(officer: Browser, somebody_with: Callable[..., Browser], forget: Make) -> None:
    """Somebody who may not decide is offered none of it; a key that may has no cases of its own."""
    request_id = forget("p1")["id"]
    viewer = somebody_with(Scope.REQUESTS_READ, Scope.ACCOUNTING_READ)
    for path in (f"/admin/requests/{request_id}", "/admin/requests"):
        assert "Assigned to" not in viewer.get(path).text
    assert viewer.get("/admin/requests?assigned=nobody").status_code == 403
    assert viewer.post(f"/admin/requests/{request_id}/assign", assignee="nobody").status_code == 403
    assert "Me</option>" not in officer.get("/admin/requests").text
