"""Requests on pages: found, listed, decided, and limited to what the key may see."""

import csv
import html
import io
import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.access.subjects import IN_WORDS
from app.db.tables import Certificate
from app.features.desk.pages import evidence
from app.features.desk.wording import at_most
from app.installations import Installation
from lethe.contract.certificates import CertificateOut
from lethe.contract.runs import AuditOut
from lethe.contract.sets import Scope
from tests.features.desk.browsing import Browser
from tests.tables import each

Make = Callable[..., dict[str, Any]]
HOSTILE = '<script>alert("x")</script>\'"><img src=x onerror=alert(1)>'


@pytest.fixture
def forgotten(new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]) -> dict[str, Any]:
    """Return a completed request about a person whom one model has forgotten."""
    new_model(new_dataset()["id"])
    work()
    made = forget("p1", external_id="case-1")
    work()
    return made


def test_an_empty_installation_is_explained(officer: Browser) -> None:
    """In an empty installation, the pages state that there are no requests, models or workers yet."""
    assert "No requests yet" in officer.get("/admin/requests").text
    assert "Nothing awaits a decision" in officer.get("/admin").text
    home = officer.get("/admin/overview").text
    assert "No open requests" in home
    assert "No models yet" in home
    assert "No worker" in home


def test_home_shows_numbers_deadlines_and_models(officer: Browser, forgotten: dict[str, Any], forget: Make) -> None:
    """The overview shows the key figures, the next deadlines and the models, each with a link."""
    made = forget("p2", identity_verified=False, submitted_at="2026-01-01T00:00:00Z", regulation="ccpa")
    for path in ("/admin", "/admin/overview"):
        page = officer.get(path).text
        assert f'href="/admin/requests/{made["id"]}"' in page
        assert "days overdue" in page
    assert "within the target" in page
    part = officer.get("/admin/live", **{"HX-Request": "true"}).text
    assert "<html" not in part
    assert made["id"] in part


def test_text_of_callers_is_escaped(officer: Browser, forget: Make) -> None:
    """Text that an application or an officer writes into a request is escaped on every page."""
    made = forget("p1", external_id=HOSTILE, metadata={HOSTILE: HOSTILE}, identity_verified=False)
    officer.post(f"/admin/requests/{made['id']}/extend", reason=HOSTILE)
    officer.post(f"/admin/requests/{made['id']}/reject", ground="legal_claims", explanation=HOSTILE)
    for path in ("/admin", "/admin/requests", f"/admin/requests/{made['id']}"):
        page = officer.get(path).text
        assert "<script>" not in page
        assert "<img src=x" not in page
    assert page.count("&lt;script&gt;") >= 4


@each(
    ("decision", "fields", "shown"),
    [
        ("approve", {}, "Completed"),
        ("resume", {}, "Clock resumed."),
        ("cancel", {}, "Cancelled"),
        ("reject", {"ground": "legal_claims", "explanation": "A case is before court."}, "A case is before court."),
        ("extend", {"reason": "Very many have asked."}, "Very many have asked."),
    ],
)
def test_an_officer_decides_about_a_request(
    officer: Browser, gateway: TestClient, forget: Make, decision: str, fields: dict[str, str], shown: str
) -> None:
    """An officer decides about a request and sees the result, and the audit log names the officer."""
    made = forget("p1", identity_verified=False)
    answer = officer.post(f"/admin/requests/{made['id']}/{decision}", **fields)
    assert answer.headers["location"] == f"/admin/requests/{made['id']}?done={decision}"
    assert shown in officer.get(answer.headers["location"]).text
    newest = gateway.get("/v1/audit-log").json()["items"][0]
    assert newest["object_id"] == made["id"]
    assert newest["actor"].startswith("key_")


def test_a_cancelled_request_is_withdrawn_in_german(officer: Browser, forget: Make) -> None:
    """On German pages, a cancelled request is shown as withdrawn, not with the word for aborted work. English uses one
    word for both."""
    path = f"/admin/requests/{forget('p1', identity_verified=False)['id']}"
    officer.post(f"{path}/cancel")
    assert ">Zurückgenommen<" in officer.get(path, **{"Accept-Language": "de"}).text


def test_a_clock_is_paused_and_resumed(officer: Browser, forget: Make) -> None:
    """A request's clock is paused and resumed. Actions that no longer apply are not offered."""
    made = forget("p1", identity_verified=False)
    path = f"/admin/requests/{made['id']}"
    officer.post(f"{path}/resume")
    page = officer.get(path).text
    assert f"{path}/pause" in page
    assert f"{path}/resume" not in page
    officer.post(f"{path}/pause")
    assert f"{path}/resume" in officer.get(path).text


def test_an_open_page_reports_outdated_actions(officer: Browser, forget: Make) -> None:
    """If a request changes while its page is open and the page's actions no longer apply, the page reports this."""
    path = f"/admin/requests/{forget('p1', identity_verified=False)['id']}"
    [live] = re.findall(r'hx-get="(/admin/requests/[^"]*/live[^"]*)"', officer.get(path).text)
    assert "has changed" not in officer.get(live).text
    officer.post(f"{path}/cancel")
    assert "has changed" in officer.get(live).text


def test_a_refused_decision_is_explained(officer: Browser, forget: Make) -> None:
    """If a decision is refused, the page shows the current state of the request and the reason."""
    made = forget("stranger")
    answer = officer.post(f"/admin/requests/{made['id']}/cancel")
    assert answer.status_code == 409
    assert 'role="alert"' in answer.text
    assert made["id"] in answer.text
    empty = officer.post(f"/admin/requests/{made['id']}/reject", ground="legal_claims", explanation=" ")
    assert empty.status_code == 422
    assert "explanation" in empty.text


def test_selected_requests_are_decided(officer: Browser, gateway: TestClient, forget: Make) -> None:
    """Each selected request is decided individually, and the page shows how many decisions failed."""
    made = [forget(f"p{n}", identity_verified=False)["id"] for n in range(3)]
    answer = officer.post("/admin/requests/decide", decision="approve", chosen=[*made[:2], "dr_none"])
    assert answer.headers["location"] == "/admin/requests?done=approved&decided=2&refused=1"
    page = officer.get(answer.headers["location"]).text
    assert "2 requests approved. 1 request could not be" in page
    answer = officer.post(
        "/admin/requests/decide", decision="reject", chosen=made, ground="legal_claims", explanation="A case."
    )
    assert "decided=1&refused=2" in answer.headers["location"]
    assert gateway.get(f"/v1/deletion-requests/{made[2]}").json()["status"] == "rejected"


def test_the_certificate_is_explained(officer: Browser, forgotten: dict[str, Any]) -> None:
    """The page explains in words, with the certificate's numbers, what the certificate proves and what it does not
    prove."""
    page = officer.get(f"/admin/requests/{forgotten['id']}").text
    assert "has forgotten this person" in page
    assert "What this proves" in page
    assert "What it does not prove" in page
    assert "Copies of weights made before the deletion still carry the person" in page


def test_a_certificate_is_verified(
    officer: Browser, gateway: TestClient, installation: Installation, forgotten: dict[str, Any]
) -> None:
    """The certificate's signature and numbers are verified with a button, and the page shows the result. A changed
    certificate is reported as invalid."""
    [found] = gateway.get(f"/v1/deletion-requests/{forgotten['id']}/certificate").json()["certificates"]
    path = f"/admin/certificates/{found['id']}"
    assert "Verified." in officer.post(f"{path}/verify").text
    downloaded = officer.get(f"{path}.json")
    assert json.loads(downloaded.content) == found
    assert "attachment" in downloaded.headers["content-disposition"]
    assert officer.get(f"{path}.jws").text == found["jws"]
    head, body, signature = found["jws"].split(".")
    forged = ".".join([head, body, signature[::-1]])
    with installation.database.writing() as session:
        session.execute(sa.update(Certificate).values(jws=forged))
    assert "Not valid." in officer.post(f"{path}/verify").text


def test_a_canary_test_adds_a_lower_bound(officer: Browser, gateway: TestClient, forgotten: dict[str, Any]) -> None:
    """The page shows the lower bound that the canary test measured next to the certified bound. Without a canary test
    no lower bound is shown."""
    [found] = gateway.get(f"/v1/deletion-requests/{forgotten['id']}/certificate").json()["certificates"]
    audit = found["statement"]["audit"]
    page = html.unescape(officer.get(f"/admin/requests/{forgotten['id']}").text)
    assert f"attacked the run with {audit['guesses']['members']} " in page
    assert f"ε ≤ {at_most(audit['epsilon'], 3)}" in evidence.of_certified_run(AuditOut(**audit))
    assert evidence.of_certified_run(AuditOut(**audit)) in page
    certificate = CertificateOut.model_validate(found)
    unlike = certificate.model_copy(update={"statement": found["statement"] | {"audit": None}})
    assert (
        len(evidence.certificate_in_words(certificate).proves) == len(evidence.certificate_in_words(unlike).proves) + 1
    )
    assert not any("audit" in line for line in evidence.certificate_in_words(unlike).proves)


def _rows(answer: httpx.Response) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(answer.text, newline="")))


def test_the_list_is_exported(officer: Browser, forget: Make) -> None:
    """The list's export link keeps the filters and returns the listed requests as CSV."""
    waits = forget("p1", identity_verified=False)["id"]
    late = forget("p2", identity_verified=False, submitted_at="2026-01-01T00:00:00Z", regulation="ccpa")["id"]
    done = forget("p3", regulation="other")["id"]
    for query, found in {
        "": {waits, late, done},
        "status=in_review": {waits, late},
        "regulation=other": {done},
        "due=overdue": {late},
        "due=paused": {waits},
        "status=in_review&regulation=other": set(),
        "order=deadline": {waits, late},
        "order=newest": {waits, late, done},
    }.items():
        page = officer.get(f"/admin/requests?{query}").text
        assert {one for one in (waits, late, done) if f'href="/admin/requests/{one}"' in page} == found, query
        [link] = re.findall(r'href="(/admin/requests\.csv[^"]*)"', page)
        answer = officer.get(html.unescape(link))
        assert answer.headers["content-type"].startswith("text/csv")
        assert {row["id"] for row in _rows(answer)} == found, query
    assert "requests.csv" not in officer.post("/admin/requests/search", by="subject_id", sought="p1").text
    assert officer.get("/admin/requests.csv?status=nonsense").status_code == 422


def test_formulas_are_escaped_in_exports(officer: Browser, gateway: TestClient, forget: Make) -> None:
    """In the CSV export, a cell that a spreadsheet would evaluate is prefixed with an apostrophe. Other cells, and all
    values in the API, are as the caller wrote them."""
    formulas = ["=1+1", '=HYPERLINK("https://a.example","open")', "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1"]
    harmless = ["case-1", "'=1", " =1", "1=1", "a,b;=1\nc"]
    for n, external_id in enumerate([*formulas, *harmless]):
        forget(f"p{n}", external_id=external_id)
    answer = officer.get("/admin/requests.csv")
    assert {row["external_id"] for row in _rows(answer)} == {*(f"'{one}" for one in formulas), *harmless}
    assert ',"a,b;=1\nc",' in answer.text
    assert {row["external_id"] for row in _rows(gateway.get("/v1/deletion-requests.csv"))} == {*formulas, *harmless}


def test_readers_cannot_decide(somebody_with: Callable[..., Browser], officer: Browser, forget: Make) -> None:
    """A reader sees no decision buttons, and a form submitted anyway is refused."""
    made = forget("p1", identity_verified=False)
    reader = somebody_with(Scope.REQUESTS_READ)
    path = f"/admin/requests/{made['id']}"
    page = reader.get(path).text
    assert f'action="{path}' not in page
    listed = reader.get("/admin/requests").text
    assert "Choose all" not in listed
    assert "requests/decide" not in listed
    assert reader.post(f"{path}/approve").status_code == 403
    answer = reader.post("/admin/requests/decide", decision="approve", chosen=[made["id"]])
    assert answer.status_code == 403


def test_an_app_learns_nothing_from_pages(
    somebody_with: Callable[..., Browser], officer: Browser, forgotten: dict[str, Any], forget: Make
) -> None:
    """An application that may not know whether data is held sees the same page for a forgotten person and for a
    stranger. The page contains no numbers."""
    app = somebody_with(Scope.REQUESTS_READ, Scope.REQUESTS_WRITE)
    stranger = forget("stranger", external_id="case-2")
    pages = [
        app.get(f"/admin/requests/{one['id']}").text.replace(one["id"], "ID").replace(one["external_id"], "CASE")
        for one in (forgotten, stranger)
    ]
    for page in pages:
        assert "Certificates" not in page
        assert "Models" not in page
    home = app.get("/admin").text
    assert "Overdue" not in home
    assert "Awaiting decision" in home
    assert "Assigned to" not in home


def test_tenants_see_only_their_own_requests(gateway: TestClient, browser: Browser, forget: Make) -> None:
    """An officer of another tenant sees neither the request nor its buttons."""
    made = forget("p1", identity_verified=False)
    key = gateway.post("/v1/tenants", json={"name": "other"}).json()["admin_key"]
    other = Browser(client=browser.client, key=key)
    other.log_in()
    assert made["id"] not in other.get("/admin/requests").text
    assert other.get(f"/admin/requests/{made['id']}").status_code == 404
    assert other.post(f"/admin/requests/{made['id']}/approve").status_code == 404
    assert made["id"] not in other.post("/admin/requests/search", by="subject_id", sought="p1").text


def test_nothing_held_is_shown_only_with_the_scope(
    officer: Browser, somebody_with: Callable[..., Browser], forget: Make, new_dataset: Make
) -> None:
    """If no data was held, the request's page contains a signed statement saying so. An application's key cannot see
    it."""
    dataset, request = new_dataset()["id"], forget("nobody")
    path = f"/admin/requests/{request['id']}"
    page = officer.get(path).text
    assert "nothing-held" in page
    assert IN_WORDS["text"] in html.unescape(page)
    app = somebody_with(Scope.REQUESTS_READ).get(path).text
    assert "nothing-held" not in app
    assert IN_WORDS["text"] not in html.unescape(app)
    assert dataset not in app


def test_several_models_have_a_joint_bound(
    officer: Browser, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]
) -> None:
    """If a request affected two models, its page shows their joint bound and the attacker's accuracy."""
    dataset = new_dataset()["id"]
    for name in ("a", "b"):
        new_model(dataset, name=name)
    work()
    request = forget("p1")
    work()
    page = officer.get(f"/admin/requests/{request['id']}").text
    assert "All models together" in page
    assert page.count("Best possible attack") == 3


def test_a_widened_target_is_stated(
    gateway: TestClient, officer: Browser, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]
) -> None:
    """If the certificate's target exceeds the default bounds, the page states that the policy was widened and that the
    result should not be called forgetting."""
    gateway.patch("/v1/tenant", json={"policy": {"max_epsilon": 100.0, "max_delta": 0.99}}).raise_for_status()
    new_model(new_dataset()["id"], target={"epsilon": 100.0, "delta": 0.99}, noise_scale=0.01)
    work()
    request = forget("p1")
    work()
    page = officer.get(f"/admin/requests/{request['id']}").text
    assert "meets a target too weak to be called forgetting" in page
    assert "has forgotten this person" not in page
    assert "policy was widened" in page
    assert "should not be called forgotten" in page
