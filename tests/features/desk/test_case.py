"""A request as a case: named, entered by hand, with the next step, what it erases, and a reply to the person."""

import datetime
import html
import re
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from fastapi.testclient import TestClient

from app.features.desk.pages.request import waits
from app.features.desk.replies import REPLY_LANGUAGES, WORDINGS, paragraphs
from lethe.contract.deletion_requests import DeletionRequestOut
from lethe.contract.sets import ReplyLanguage, Scope, WaitReason
from lethe.features.insight.contract import ModelToForgetOut
from tests.features.desk.browsing import Browser

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
ENTERED = {"subject_id": "p1", "regulation": "gdpr", "identity_verified": "no", "came_by": "letter"}


def test_a_letter_becomes_a_case(officer: Browser, get: Get, new_dataset: Make) -> None:
    """A form makes the request that an application would have made, from the day on which the letter came; the case has
    the file's number as its title, and no page has whom it is about."""
    new_dataset()
    received = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=3)
    form = ENTERED | {"external_id": "2026-0815", "received": received.isoformat(), "ground": "objection"}
    answer = officer.post("/admin/requests/new", **form)
    assert answer.status_code == 303
    page = officer.get(answer.headers["location"]).text
    assert "<h1>2026-0815</h1>" in page
    assert "Request created." in page
    assert "establish who the person is" in page
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
def test_what_cannot_be_entered(officer: Browser, get: Get, wrong: dict[str, str], said: str) -> None:
    """A form that is not whole is shown again with what is wrong, and with what was written; nothing is made."""
    answer = officer.post("/admin/requests/new", **ENTERED | {"external_id": "kept"} | wrong)
    assert answer.status_code == 422
    assert 'value="kept"' in answer.text
    assert get("/deletion-requests")["items"] == []


def test_who_enters_nothing(somebody_with: Callable[..., Browser]) -> None:
    """A key that may only read is offered no form, and is refused."""
    reader = somebody_with(Scope.REQUESTS_READ)
    assert "New request" not in reader.get("/admin/requests").text
    assert reader.get("/admin/requests/new").status_code == 403
    assert reader.post("/admin/requests/new", **ENTERED).status_code == 403


def test_what_approving_erases_is_shown_before(
    officer: Browser, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]
) -> None:
    """The case asks for a confirmation, and says which rows, which version and what cost."""
    new_model(new_dataset()["id"])
    work()
    made = forget("p1", identity_verified=False)
    path = f"/admin/requests/{made['id']}"
    page = officer.get(path).text
    assert page.index(f'hx-get="{path}/preview?deciding=true"') < page.index("Approve the request")
    assert "it cannot be undone" in page.lower()
    part = officer.get(f"{path}/preview?deciding=true", **{"HX-Request": "true"}).text
    in_short = re.sub(r"<[^>]+>", "", part[part.index('id="in-short"') :])
    assert "It erases 1 row, and the live versions" in in_short
    assert re.search(r"model, version 1: \d\S* passes, about \d", in_short)
    shown = officer.get(f"{path}/preview").text
    assert "in-short" not in shown
    assert "version 1" in shown
    assert "waits for the decision" in shown
    assert "This cannot be undone" in shown


def test_the_day_of_completion_is_the_policys(
    officer: Browser, gateway: TestClient, get: Get, forget: Make, work: Callable[[], int]
) -> None:
    """When a request was completed is said on the policy's clock, with its zone, as its other days are."""
    policy = gateway.get("/v1/tenant").json()["policy"] | {"time_zone": "Pacific/Kiritimati"}
    gateway.patch("/v1/tenant", json={"policy": policy}).raise_for_status()
    made = forget("stranger")
    completed = datetime.datetime.fromisoformat(get(f"/deletion-requests/{made['id']}")["completed_at"])
    there = completed.astimezone(ZoneInfo("Pacific/Kiritimati"))
    page = officer.get(f"/admin/requests/{made['id']}").text
    said = re.sub(r"<[^>]+>", "", page[page.index("<dt>Completed") :])
    assert said.startswith(f"Completed{there.day} {there:%b %Y} Pacific/Kiritimati")


def _model(**of: Any) -> ModelToForgetOut:
    known: dict[str, Any] = {
        **{"model_id": "mdl_1", "name": "m", "version": 1, "rows": 1, "kind": "unlearn", "steps": 10, "passes": 0.1},
        **{"seconds": 7.0, "reason": None, "waiting": 150, "batch": 200, "until": None},
    }
    return ModelToForgetOut(**known | of)


def test_why_a_request_waits_in_words() -> None:
    """A batch says how full it is, when it runs at the latest, and how long a run takes; every reason has words."""
    until = datetime.datetime(2026, 12, 3, tzinfo=datetime.UTC)
    said = waits(_model(reason=WaitReason.BATCH, until=until))
    assert "waits for a batch: 150 of 200 requests so far, at the latest <time" in said
    assert said.endswith("; a run takes about 7 s")
    assert len({waits(_model(reason=reason)) for reason in WaitReason}) == len(WaitReason)


@pytest.mark.parametrize("language", REPLY_LANGUAGES)
def test_the_reply(
    officer: Browser, gateway: TestClient, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int],
    language: ReplyLanguage,
) -> None:  # fmt: skip
    """In each language it says what was done and how often an attacker is right, as the certificate has it; why a
    request was rejected; and that nothing was held. Before that it says that the request was received."""
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


def test_the_reply_is_for_who_may_know(somebody_with: Callable[..., Browser], forget: Make, new_dataset: Make) -> None:
    """A key that may not learn whether anything was held sees no reply, which says so."""
    new_dataset()
    done = forget("stranger")
    reader = somebody_with(Scope.REQUESTS_READ)
    assert reader.get(f"/admin/requests/{done['id']}/reply").status_code == 403
    assert reader.get(f"/admin/requests/{done['id']}/reply/file").status_code == 403
    assert "Draft the reply" not in reader.get(f"/admin/requests/{done['id']}").text
    viewer = somebody_with(Scope.REQUESTS_READ, Scope.ACCOUNTING_READ)
    assert "Save as PDF" not in viewer.get(f"/admin/requests/{done['id']}/reply").text
    assert "Preview reply" not in viewer.get(f"/admin/requests/{done['id']}").text
    assert viewer.get(f"/admin/requests/{done['id']}/reply/file").status_code == 403


def test_the_reply_is_saved(officer: Browser, forget: Make, new_dataset: Make) -> None:
    """Who decides saves it in the language that they read it in, as a PDF or as text."""
    new_dataset()
    place = f"/admin/requests/{forget('stranger')['id']}"
    assert '<option value="fr">Français</option>' in officer.get(place).text
    page = officer.get(f"{place}/reply?language=fr").text
    for said, begins in (("pdf", b"%PDF-"), ("text", b"Votre demande d'effacement")):
        assert f'href="{place}/reply/file?language=fr&amp;format={said}"' in page
        assert officer.get(f"{place}/reply/file?language=fr&format={said}").content.startswith(begins)


def test_replies_say_nothing_of_an_outcome_that_is_not_known() -> None:
    """A completed request without an outcome has no reply that claims one."""
    at = datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC)
    unknown = DeletionRequestOut.model_construct(
        id="dr_1", status="completed", outcome=None, submitted_at=at, completed_at=at, extended_due_at=None
    )
    with pytest.raises(ValueError, match="not a valid Outcome"):
        paragraphs(unknown, ReplyLanguage.EN, zone="UTC")
