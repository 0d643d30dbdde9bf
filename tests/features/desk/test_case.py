"""A request as a case: named, entered by hand, with its next step, its effect, and a reply to the person."""

import datetime
import html
import re
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from fastapi.testclient import TestClient

from app.features.desk.pages.request import waits
from app.features.desk.replies import WORDINGS, paragraphs
from lethe.contract.deletion_requests import DeletionRequestOut
from lethe.contract.sets import Scope, WaitReason
from lethe.features.desk.contract import ReplyLanguage
from lethe.features.insight.contract import ModelToForgetOut
from tests.features.desk.browsing import Browser

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
ENTERED = {"subject_id": "p1", "regulation": "gdpr", "identity_verified": "no", "came_by": "letter"}


def test_the_form_creates_a_case(officer: Browser, get: Get, new_dataset: Make) -> None:
    """The form creates the same request as the API, with the entered date as its date of receipt. The case's title is
    its case number, and no page shows the person's id."""
    new_dataset()
    received = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=3)
    form = ENTERED | {"external_id": "2026-0815", "received": received.isoformat(), "ground": "objection"}
    answer = officer.post("/admin/requests/new", **form)
    assert answer.status_code == 303
    page = officer.get(answer.headers["location"]).text
    assert "<h1>2026-0815</h1>" in page
    assert "Request created." in page
    assert "establish who the person is" in page
    history = re.sub(r"<[^>]+>", "", page[page.index('class="timeline"') :])
    assert f"received {received.day} {received:%b %Y}, entered " in history
    [made] = get("/deletion-requests")["items"]
    assert made["submitted_at"].startswith(received.isoformat())
    assert (made["ground"], made["metadata"], made["status"]) == ("objection", {"came_by": "letter"}, "in_review")
    assert ">2026-0815</a>" in officer.get("/admin/requests").text
    assert ">2026-0815</a>" in officer.get("/admin").text


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"subject_id": ""}, "Data subject"),
        ({"received": "yesterday"}, "received"),
        ({"received": "2999-01-01"}, "expected a past time"),
        ({"regulation": "none_such"}, "regulation"),
    ],
)
def test_an_incomplete_form_is_shown_again(officer: Browser, get: Get, wrong: dict[str, str], said: str) -> None:
    """An incomplete form is shown again with its errors and its input, and no request is created."""
    answer = officer.post("/admin/requests/new", **ENTERED | {"external_id": "kept"} | wrong)
    assert answer.status_code == 422
    assert 'value="kept"' in answer.text
    assert get("/deletion-requests")["items"] == []


def test_readers_cannot_enter_requests(somebody_with: Callable[..., Browser]) -> None:
    """A key that may only read is not offered the form, and submitting it is refused."""
    reader = somebody_with(Scope.REQUESTS_READ)
    assert "New request" not in reader.get("/admin/requests").text
    assert reader.get("/admin/requests/new").status_code == 403
    assert reader.post("/admin/requests/new", **ENTERED).status_code == 403


def test_an_approval_states_what_it_erases(
    officer: Browser, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]
) -> None:
    """The approval must be confirmed in a dialog that states the affected rows, the version and the cost."""
    new_model(new_dataset()["id"])
    work()
    made = forget("p1", identity_verified=False)
    path = f"/admin/requests/{made['id']}"
    page = officer.get(path).text
    assert f'hx-get="{path}/preview?deciding=true"' in page
    assert page.index('id="in-short"') < page.index("Approve the request")
    assert "it cannot be undone" in page.lower()
    part = officer.get(f"{path}/preview?deciding=true", **{"HX-Request": "true"}).text
    in_short = re.sub(r"<[^>]+>", "", part[part.index('id="in-short"') :])
    assert "It erases 1 row, and the live versions" in in_short
    assert re.search(r"model, version 1: \d\S* passes, about \d", in_short)
    shown = officer.get(f"{path}/preview").text
    assert "in-short" not in shown
    assert "version 1" in shown
    assert "awaits a decision" in shown
    assert "This cannot be undone" in shown


def test_impossible_decisions_are_not_offered(officer: Browser, gateway: TestClient, forget: Make) -> None:
    """Pausing and extending are offered only if the request's regulation permits them. The approval dialog does not
    mention rows if there are none."""
    limits = {"short": {"days": 10}}
    gateway.patch("/v1/tenant", json={"policy": {"regulations": limits}}).raise_for_status()
    offered = {
        name: [word for word in ("Pause …", "Resume the clock", "Extend …") if word in officer.get(path).text]
        for name in ("gdpr", "ccpa", "short")
        for path in [f"/admin/requests/{forget(f'q{name}', regulation=name, identity_verified=False)['id']}"]
    }
    assert offered == {"gdpr": ["Resume the clock", "Extend …"], "ccpa": ["Extend …"], "short": []}
    path = f"/admin/requests/{forget('stranger', identity_verified=False)['id']}"
    assert "erased permanently" not in officer.get(path).text


def test_completion_is_in_the_zone_of_the_policy(
    officer: Browser, gateway: TestClient, get: Get, forget: Make, work: Callable[[], int]
) -> None:
    """Like other dates, the completion time is shown in the policy's time zone, which is named at the top of the page.
    A later change of the policy's zone does not change the dates of existing requests, on pages or in replies."""
    policy = gateway.get("/v1/tenant").json()["policy"] | {"time_zone": "Pacific/Kiritimati"}
    gateway.patch("/v1/tenant", json={"policy": policy}).raise_for_status()
    made = forget("stranger")
    completed = datetime.datetime.fromisoformat(get(f"/deletion-requests/{made['id']}")["completed_at"])
    there = completed.astimezone(ZoneInfo("Pacific/Kiritimati"))
    page = officer.get(f"/admin/requests/{made['id']}").text
    said = re.sub(r"<[^>]+>", "", page[page.index("<dt>Completed") :])
    assert said.startswith(f"Completed{there.day} {there:%b %Y}")
    assert "Pacific/Kiritimati" not in said
    assert page.count("Dates in Pacific/Kiritimati") == 1
    reply = gateway.get(f"/v1/deletion-requests/{made['id']}/reply?format=text&language=en").text
    gateway.patch("/v1/tenant", json={"policy": policy | {"time_zone": "Pacific/Pago_Pago"}}).raise_for_status()
    assert get(f"/deletion-requests/{made['id']}")["time_zone"] == "Pacific/Kiritimati"
    page = officer.get(f"/admin/requests/{made['id']}").text
    assert re.sub(r"<[^>]+>", "", page[page.index("<dt>Completed") :])[: len(said)] == said
    assert "Dates in Pacific/Kiritimati" in page
    assert f"On {there.day} {there:%B %Y} we completed it" in reply
    assert gateway.get(f"/v1/deletion-requests/{made['id']}/reply?format=text&language=en").text == reply


def _model(**of: Any) -> ModelToForgetOut:
    known: dict[str, Any] = {
        **{"model_id": "mdl_1", "name": "m", "version": 1, "rows": 1, "kind": "unlearn", "steps": 10, "passes": 0.1},
        **{"seconds": 7.0, "reason": None, "waiting": 150, "batch": 200, "until": None},
    }
    return ModelToForgetOut(**known | of)


def test_the_reason_for_waiting_is_shown() -> None:
    """The page states how full the batch is, the latest time at which it will start, and how long a run takes. Every
    reason for waiting is explained in words."""
    until = datetime.datetime(2026, 12, 3, tzinfo=datetime.UTC)
    said = waits(_model(reason=WaitReason.BATCH, until=until))
    assert "waits for a batch: 150 of 200 requests so far, at the latest <time" in said
    assert said.endswith("; a run takes about 7 s")
    assert len({waits(_model(reason=reason)) for reason in WaitReason}) == len(WaitReason)


def test_a_reply_is_shown_in_the_chosen_language(
    officer: Browser, gateway: TestClient, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]
) -> None:
    """The reply page is shown in the chosen language. Depending on the outcome, it reports the deletion with its
    certificate, the ground for a rejection, or that no data was held. Until there is an outcome, it confirms
    receipt."""
    language = ReplyLanguage.FR
    new_model(new_dataset()["id"])
    work()
    done, none = forget("p1", external_id="case-7"), forget("stranger")
    work()
    letter = WORDINGS[language]
    found = gateway.get(f"/v1/deletion-requests/{done['id']}/certificate").json()["certificates"][0]
    page = html.unescape(officer.get(f"/admin/requests/{done['id']}/reply?language={language}").text)
    assert letter.subject.format(case="case-7") in page
    assert letter.forgotten.split("{completed}")[1] in page
    assert found["id"] in page
    assert f'lang="{language}"' in page
    page = html.unescape(officer.get(f"/admin/requests/{none['id']}/reply?language={language}").text)
    assert letter.nothing_held.split("{completed}")[1] in page
    waits = forget("p2", identity_verified=False)
    path = f"/admin/requests/{waits['id']}"
    page = html.unescape(officer.get(f"{path}/reply?language={language}").text)
    assert letter.paused in page
    officer.post(f"{path}/reject", ground="legal_claims", explanation="<b>A claim</b> is before court.")
    page = officer.get(f"{path}/reply?language={language}").text
    assert "&lt;b&gt;A claim&lt;/b&gt; is before court." in page
    assert html.escape(letter.complaint, quote=False) in page.replace("&#39;", "'")


def test_the_reply_is_hidden_without_the_scope(
    somebody_with: Callable[..., Browser], forget: Make, new_dataset: Make
) -> None:
    """Only users who may decide about requests see the reply, because it reveals whether any data was held."""
    new_dataset()
    done = forget("stranger")
    reader = somebody_with(Scope.REQUESTS_READ)
    assert reader.get(f"/admin/requests/{done['id']}/reply").status_code == 403
    assert reader.get(f"/admin/requests/{done['id']}/reply/file").status_code == 403
    assert "Draft the reply" not in reader.get(f"/admin/requests/{done['id']}").text
    viewer = somebody_with(Scope.REQUESTS_READ, Scope.ACCOUNTING_READ)
    assert viewer.get(f"/admin/requests/{done['id']}/reply").status_code == 403
    assert "Draft the reply" not in viewer.get(f"/admin/requests/{done['id']}").text
    assert "Preview reply" not in viewer.get(f"/admin/requests/{done['id']}").text
    assert viewer.get(f"/admin/requests/{done['id']}/reply/file").status_code == 403


def test_the_reply_is_saved(officer: Browser, forget: Make, new_dataset: Make) -> None:
    """An officer saves the reply in the language in which it is shown, as PDF or text."""
    new_dataset()
    place = f"/admin/requests/{forget('stranger')['id']}"
    assert '<option value="fr">Français</option>' in officer.get(place).text
    page = officer.get(f"{place}/reply?language=fr").text
    assert f'action="{place}/reply/file"' in page
    assert '<input type="hidden" name="language" value="fr">' in page
    for said, marks in (("pdf", b"%PDF-"), ("text", b"\n\nVotre demande d'effacement")):
        assert f'name="format" value="{said}"' in page
        assert marks in officer.get(f"{place}/reply/file?language=fr&format={said}").content
        assert marks in officer.post(f"{place}/reply/file", language="fr", format=said).content


def test_no_reply_claims_an_unknown_outcome() -> None:
    """No reply is written for a completed request whose outcome is unknown."""
    at = datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC)
    unknown = DeletionRequestOut.model_construct(
        id="dr_1", status="completed", outcome=None, submitted_at=at, completed_at=at, extended_due_at=None
    )
    with pytest.raises(ValueError, match="not a valid Outcome"):
        paragraphs(unknown, ReplyLanguage.EN, zone="UTC")


def test_a_reply_names_the_request_that_erased_the_rows(
    gateway: TestClient, officer: Browser, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]
) -> None:
    """If another request by the same person erased the rows, the reply names that request and its certificates and does
    not claim that nothing was held. The two cases link to each other."""
    new_model(new_dataset()["id"])
    work()
    first, second = (forget("p1", identity_verified=False, external_id=name)["id"] for name in ("A-1", "B-2"))
    for request_id in (second, first):
        assert gateway.post(f"/v1/deletion-requests/{request_id}/approve").status_code == 200
        work()
    text = gateway.get(f"/v1/deletion-requests/{first}/reply?format=text&language=en").text
    assert f"for another request of yours ({second})" in text
    assert "Certificate crt_" in text
    assert "no records" not in text
    page = officer.get(f"/admin/requests/{first}").text
    assert "Other requests of this person" in page
    assert f'href="/admin/requests/{second}">B-2</a>' in page
    assert f'href="/admin/requests/{first}">A-1</a>' in officer.get(f"/admin/requests/{second}").text


def test_a_late_reply_promises_no_past_day(gateway: TestClient, officer: Browser, forget: Make) -> None:
    """A reply that is written after the deadline apologises instead of promising an answer by a date in the past. The
    officer sees a warning above the reply. A request that was paused after its deadline stays overdue on the list and
    on its page."""
    received = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=60)
    request = forget("p1", identity_verified=False, submitted_at=received.isoformat())
    assert request["clock"]["state"] == "overdue"
    assert request["clock"]["paused_since"] is not None
    text = gateway.get(f"/v1/deletion-requests/{request['id']}/reply?format=text&language=en").text
    assert "We will answer you by" not in text
    assert "apologise" in text
    page = officer.get(f"/admin/requests/{request['id']}/reply").text
    assert "The deadline has passed" in page
    assert request["id"] in officer.get("/admin/requests?due=overdue").text
    assert request["id"] not in officer.get("/admin/requests?due=paused").text
    assert "/extend" not in officer.get(f"/admin/requests/{request['id']}").text


def test_irreversible_entries_are_confirmed(officer: Browser, get: Get, new_dataset: Make) -> None:
    """The form asks for confirmation if the erasure would start at once or if the person or case number already has a
    request. Nothing is created before the confirmation, which is valid only for that person and number. "Identity
    verified" is not preselected."""
    new_dataset()
    assert re.search(r'<option value="no"[^>]*>Not yet verified', officer.get("/admin/requests/new").text)
    assert officer.post("/admin/requests/new", **ENTERED | {"external_id": "C-3"}).status_code == 303
    form = ENTERED | {"external_id": "C-3", "identity_verified": "yes"}
    page = officer.post("/admin/requests/new", **form)
    assert page.status_code == 200
    for warning in ("the erasure starts", "a request of this person", "with this case number"):
        assert warning in page.text
    assert len(get("/deletion-requests")["items"]) == 1
    [confirmed] = re.findall(r'name="confirmed" value="([^"]*)"', page.text)
    assert officer.post("/admin/requests/new", **form | {"subject_id": "p2"}, confirmed=confirmed).status_code == 200
    assert officer.post("/admin/requests/new", **form, confirmed=html.unescape(confirmed)).status_code == 303
    assert len(get("/deletion-requests")["items"]) == 2


def test_a_request_by_email_address_is_entered(officer: Browser, get: Get, new_dataset: Make) -> None:
    """The form accepts the kind of the person's identifier and refuses an unknown kind. It warns of an earlier request
    in which the identifier was spelled differently."""
    new_dataset()
    form = ENTERED | {"subject_id": "ada@example.org", "kind": "email"}
    assert officer.post("/admin/requests/new", **form).status_code == 303
    [made] = get("/deletion-requests?kind=email&subject_id=ada%40EXAMPLE.org")["items"]
    assert made["identity_unknown"] is True
    again = officer.post("/admin/requests/new", **form | {"subject_id": "ada@Example.org"})
    assert (again.status_code, "a request of this person" in again.text) == (200, True)
    assert officer.post("/admin/requests/new", **form | {"kind": "badge"}).status_code == 422
    assert len(get("/deletion-requests")["items"]) == 1
