"""Replies over HTTP: their content, in the person's language, as text and as a PDF; neither is stored."""

import datetime
import io
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pypdf import PdfReader

from app.features.desk.replies import REPLY_LANGUAGES, WORDINGS, Wording
from app.installations import Installation
from lethe.features.desk.contract import ReplyLanguage
from tests.tables import each

PLACE = "/v1/deletion-requests"
Make = Callable[..., dict[str, Any]]
Refused = Callable[..., dict[str, Any]]


@pytest.fixture
def world(gateway: TestClient, new_dataset: Make, work: Callable[[], int]) -> Callable[..., str]:
    """Return a function that creates a request about a stranger, or about a person no model was trained on, and lets it
    end."""
    new_dataset()

    def ended(subject_id: str, **asked: Any) -> str:
        made = gateway.post(PLACE, json={"subject_id": subject_id} | asked).raise_for_status().json()
        work()
        return str(made["id"])

    return ended


@pytest.fixture
def forgotten(new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]) -> str:
    """Return the id of a request about a person whom a model has forgotten."""
    new_model(new_dataset()["id"])
    work()
    made = forget("p1", external_id="Fall Žofie/7")
    work()
    return str(made["id"])


def text_of(gateway: TestClient, request_id: str, **query: str) -> str:
    answer = gateway.get(f"{PLACE}/{request_id}/reply", params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    return answer.text


def pages_of(gateway: TestClient, request_id: str, **query: str) -> Iterator[str]:
    """Return the text of each page of the PDF, in one line."""
    answer = gateway.get(f"{PLACE}/{request_id}/reply", params=query | {"format": "pdf"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/pdf")
    for page in PdfReader(io.BytesIO(answer.content)).pages:
        yield " ".join(page.extract_text().split())


def today(wording: Wording) -> str:
    """Return the date of a letter written now."""
    at = datetime.datetime.now(datetime.UTC)
    return wording.day.format(day=at.day, month=wording.months.split()[at.month - 1], year=at.year)


def parts(sentence: str) -> list[str]:
    """Return the words of a template between its placeholders."""
    return [one.strip() for one in re.split(r"{\w+}", sentence) if one.strip(" .:,")]


def test_every_language_has_every_sentence() -> None:
    """Each language has every sentence in its own wording with the same placeholders, and twelve month names."""
    english = WORDINGS[ReplyLanguage.EN]
    for language in ReplyLanguage:
        wording = WORDINGS[language]
        for name in english.__slots__:
            placed = [set(re.findall(r"{(\w+)}", getattr(one, name))) for one in (english, wording)]
            assert placed[0] == placed[1], (language, name)
            assert (
                language is ReplyLanguage.EN
                or name in ("day", "signs")
                or getattr(wording, name) != getattr(english, name)
            )
        assert len(wording.months.split()) == 12
    assert REPLY_LANGUAGES.keys() == WORDINGS.keys() == set(ReplyLanguage)


@each("language", ReplyLanguage)
def test_the_reply_to_a_forgotten_person_is_complete(
    gateway: TestClient, forgotten: str, language: ReplyLanguage
) -> None:
    """The text and the PDF agree in each language. They state the case number, what was done and, on a separate page,
    what was erased and how to verify it. Each certificate's id, epsilon and attacker accuracy are given, with numbers
    in the language's format."""
    wording = WORDINGS[language]
    [certificate] = gateway.get(f"{PLACE}/{forgotten}/certificate").json()["certificates"]
    text = text_of(gateway, forgotten, language=language)
    first, second = pages_of(gateway, forgotten, language=language)
    line = " ".join(text.split())
    for said in (line, first):
        assert wording.subject.format(case="Fall Žofie/7") in said
        assert all(one in said for one in parts(wording.forgotten))
        assert certificate["id"] in said
        assert wording.closing in said
        assert re.search(rf"\b\d\d{re.escape(wording.signs[1])}\d %", said)
    assert wording.page.upper() in line
    for said in (line, second):
        assert certificate["id"] in said
        assert certificate["model_id"] in said
        assert all(one in said for sentence in (wording.odds, wording.erased) for one in parts(sentence))
        assert "lethe certificate verify" in said
    month = wording.months.split()[datetime.datetime.now(datetime.UTC).month - 1]
    assert month in first


def test_each_outcome_has_its_own_reply(gateway: TestClient, world: Callable[..., str]) -> None:
    """Received, extended, rejected and withdrawn requests, and requests for which no data was held, each have their own
    text. The reply to a received request states the case number and the deadline. A reply without a certificate fits on
    one page."""
    wording = WORDINGS[ReplyLanguage.EN]
    request_id = world("p2", identity_verified=False)
    path = f"{PLACE}/{request_id}"
    assert wording.paused in text_of(gateway, request_id)
    gateway.post(f"{path}/resume").raise_for_status()
    said = text_of(gateway, request_id)
    assert f"Your case number is {request_id}." in said
    assert wording.paused not in said
    gateway.post(f"{path}/extend", json={"reason": "There are many."}).raise_for_status()
    assert "for the following reason: There are many." in text_of(gateway, request_id)
    rejection = {"ground": "legal_claims", "explanation": "A claim of {due}\r\nis before court."}
    gateway.post(f"{path}/reject", json=rejection).raise_for_status()
    reason = "for the following reason (Article 17(3)(e) GDPR): A claim of {due}\nis before court."
    assert reason in text_of(gateway, request_id)
    assert wording.complaint in text_of(gateway, request_id)
    assert len(list(pages_of(gateway, request_id))) == 1
    withdrawn = world("p3", identity_verified=False)
    gateway.post(f"{PLACE}/{withdrawn}/cancel").raise_for_status()
    assert wording.withdrawn in text_of(gateway, withdrawn)
    nothing, absent = pages_of(gateway, world("stranger"))
    assert all(one in nothing for one in parts(wording.nothing_held))
    assert wording.absence in absent


@each("language", ReplyLanguage)
def test_controller_and_contact_sign_the_reply(
    gateway: TestClient, world: Callable[..., str], language: ReplyLanguage
) -> None:
    """In both text and PDF, the policy's controller is named at the top of the reply and in its signature, and the
    contact at its end. If neither is set, the reply has no empty line in their place."""
    gateway.patch("/v1/tenant", json={"policy": {"controller": None, "contact": None}}).raise_for_status()
    request_id, wording = world("stranger"), WORDINGS[language]
    before = text_of(gateway, request_id, language=language)
    assert before.startswith(f"{today(wording)}\n\n{wording.subject.partition('{')[0]}")
    named = {"controller": "Grüne Wiese GmbH & Co. KG", "contact": "datenschutz@wiese.example, Weg 1"}
    gateway.patch("/v1/tenant", json={"policy": named}).raise_for_status()
    head, contact = wording.controller.format(**named), wording.contact.format(**named)
    text = text_of(gateway, request_id, language=language)
    assert text.startswith(f"{head}\n\n{today(wording)}\n\n{wording.subject.partition('{')[0]}")
    assert f"{wording.closing}\n{named['controller']}\n\n{contact}\n" in text
    for one in (f"{head}\n\n", f"\n{named['controller']}", f"\n\n{contact}"):
        text = text.replace(one, "", 1)
    assert text == before
    first, _ = pages_of(gateway, request_id, language=language)
    assert first.startswith(head)
    numbered = wording.numbered.format(page=1, pages=2)
    assert first.endswith(f"{wording.closing} {named['controller']} {contact} {wording.enclosure} {numbered}")


@each("value", ["", " ", "a\nb", "a\r", "<b>a</b>", "a\u202eb", "\u202eab", "a\x00", "\x00a", "a" * 301])
@each("field", ["controller", "contact"])
def test_controller_and_contact_are_single_lines(gateway: TestClient, refused: Refused, field: str, value: str) -> None:
    """Controller and contact must be short and contain no line breaks, tags or invisible characters."""
    refused(gateway.patch("/v1/tenant", json={"policy": {field: value}}), 422, "input_invalid")
    assert gateway.get("/v1/tenant").json()["policy"][field] is None


def test_a_pdf_with_characters_missing_in_the_font_is_refused(
    gateway: TestClient, world: Callable[..., str], refused: Refused
) -> None:
    """If the font lacks characters of a reply, the PDF is refused without quoting them, and the text is still
    available."""
    request_id = world("stranger", external_id="案件 7")
    answer = gateway.get(f"{PLACE}/{request_id}/reply?format=pdf")
    assert "案" not in str(refused(answer, 409, "reply_unprintable"))
    assert "案件 7" in text_of(gateway, request_id)
    greek = world("stranger", external_id="Υπόθεση Жалоба Łódź ñ 7")
    assert "Υπόθεση Жалоба Łódź ñ 7" in next(pages_of(gateway, greek))


def test_a_reply_is_a_download(
    gateway: TestClient, world: Callable[..., str], refused: Refused, installation: Installation
) -> None:
    """A request for a reply in an unknown language or format is refused. A reply is sent as a download and is not
    written to any file."""
    path = f"{PLACE}/{world('stranger')}/reply"
    for query in ("language=nl", "format=html", "lang=de"):
        refused(gateway.get(f"{path}?{query}"), 422, "input_invalid")
    answer = gateway.get(f"{path}?language=es&format=pdf")
    assert answer.headers["content-disposition"].startswith('attachment; filename="reply-dr_')
    assert (answer.headers["content-language"], answer.headers["cache-control"]) == ("es", "no-store")
    assert list((installation.settings.data_dir / "tmp").iterdir()) == []


def test_a_reply_is_recorded_as_sent(gateway: TestClient, world: Callable[..., str], refused: Refused) -> None:
    """An officer records when and how a reply was sent. The audit log and the history each record it once."""
    request = world("p2", identity_verified=False)
    path = f"{PLACE}/{request}/sent-replies"
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    sent = {"sent_on": today, "channel": "letter"}
    answers = [gateway.post(path, json=sent) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    gateway.post(path, json=sent | {"channel": "email"})
    listed = gateway.get(path, params={"limit": 1}).json()
    assert [(one["sent_on"], one["channel"]) for one in listed["items"]] == [(today, "email")]
    rest = gateway.get(path, params={"cursor": listed["next_cursor"]}).json()["items"]
    assert rest == [answers[0].json()]
    log = gateway.get("/v1/audit-log", params={"action": "deletion_request.reply_sent"}).json()["items"]
    assert [(entry["object_id"], entry["detail"]) for entry in log] == [
        (request, sent | {"channel": "email"}),
        (request, sent),
    ]
    for day in ("2001-01-01", "2999-01-01"):
        refused(gateway.post(path, json=sent | {"sent_on": day}), 422, "input_invalid")
