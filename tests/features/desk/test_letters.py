"""Letters as an office sends them: address, article, signature, warnings, and the public check of a certificate."""

import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pypdf import PdfReader

from app.config import Settings
from app.features.desk.replies import article, code_of, language_of
from app.installations import Installation
from app.main import create_app
from lethe.contract.deletion_requests import DeletionRequestOut
from lethe.contract.sets import RejectionGround
from lethe.features.desk.contract import ReplyLanguage
from tests.features.desk.browsing import Browser
from tests.tables import each

PLACE = "/v1/deletion-requests"
Make = Callable[..., dict[str, Any]]
TYPED = {
    "recipient": "Erika Mustermann\r\nHeidestraße 17\r\n51147 Köln",
    "place": "Berlin",
    "salutation": "Sehr geehrte Frau Mustermann,",
    "signed_by": "Jana Groß, Datenschutzbeauftragte",
}


@pytest.fixture
def rejected(gateway: TestClient, forget: Make) -> Callable[..., str]:
    """Return a function that creates a request under a regulation, rejects it on a ground and returns its id."""

    def reject(explanation: str, *, ground: str = "legal_claims", regulation: str = "gdpr") -> str:
        made = forget("p1", identity_verified=False, regulation=regulation)
        path = f"{PLACE}/{made['id']}"
        gateway.post(f"{path}/reject", json={"ground": ground, "explanation": explanation}).raise_for_status()
        return str(made["id"])

    return reject


@pytest.fixture
def forgotten(gateway: TestClient, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]) -> str:
    """Return the id of a request about a person whom a model has forgotten."""
    new_model(new_dataset()["id"])
    work()
    made = forget("p1", external_id="2026-17")
    work()
    return str(made["id"])


def positions(content: bytes) -> dict[str, tuple[float, float]]:
    """Return the distances from the left and top edges, in mm, of each piece of text on a PDF's first page."""
    found: dict[str, tuple[float, float]] = {}

    def visit(text: str, _user: Any, matrix: list[float], _font: Any, _size: float) -> None:
        if text.strip():
            found.setdefault(text.strip(), (matrix[4] / 72 * 25.4, 297 - matrix[5] / 72 * 25.4))

    PdfReader(io.BytesIO(content)).pages[0].extract_text(visitor_text=visit)
    return found


def test_a_letter_fits_the_window_of_an_envelope(
    gateway: TestClient, officer: Browser, forgotten: str, installation: Installation
) -> None:
    """The address is in the field defined by DIN 5008, with the sender above it. Place, date, salutation and signature
    appear as typed. The PDF states its language and title and embeds its font. No typed word is stored."""
    gateway.patch("/v1/tenant", json={"policy": {"controller": "Grüne Wiese GmbH"}}).raise_for_status()
    path = f"/admin/requests/{forgotten}/reply/file"
    answer = officer.post(path, language="de", format="pdf", **TYPED)
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    placed = positions(answer.content)
    for line in TYPED["recipient"].split("\r\n"):
        left, top = placed[line]
        assert 20 <= left <= 105
        assert 45 + 12.7 <= top <= 90
    document = PdfReader(io.BytesIO(answer.content))
    assert document.trailer["/Root"]["/Lang"] == "de"
    assert document.metadata is not None
    assert "2026-17" in (document.metadata.title or "")
    fonts = [font.get_object() for font in document.pages[0]["/Resources"]["/Font"].values()]  # type: ignore[index]
    assert all("/FontFile2" in font["/DescendantFonts"][0].get_object()["/FontDescriptor"] for font in fonts)
    text = officer.post(path, language="de", format="text", **TYPED).text
    assert re.search(r"^Berlin, \d+\. \w+ \d{4}$", text, re.M)
    assert "Sehr geehrte Frau Mustermann,\n" in text
    assert "Mit freundlichen Grüßen\nJana Groß, Datenschutzbeauftragte\nGrüne Wiese GmbH" in text
    assert "Anlage:" in text
    stored = [file for file in installation.settings.data_dir.rglob("*") if file.is_file()]
    assert stored
    assert not [file for file in stored if b"Mustermann" in file.read_bytes()]


def test_equal_letters_have_equal_bytes(gateway: TestClient, forgotten: str) -> None:
    """Two PDFs of the same letter on the same day are byte-identical."""
    path = f"{PLACE}/{forgotten}/reply?format=pdf"
    assert gateway.get(path).content == gateway.get(path).content


def test_an_invalid_recipient_is_refused(officer: Browser, forgotten: str) -> None:
    """A recipient address that is too long is refused, and the page keeps the other input."""
    typed = TYPED | {"recipient": "x" * 501}
    page = officer.post(f"/admin/requests/{forgotten}/reply/file", language="de", format="pdf", **typed)
    assert page.status_code == 422
    assert TYPED["place"] in page.text


@each(
    ("regulation", "ground", "language", "cited"),
    [
        ("gdpr", "free_expression", "en", "Article 17(3)(a) GDPR"),
        ("gdpr", "legal_obligation", "de", "Art. 17 Abs. 3 Buchst. b DSGVO"),
        ("gdpr", "legal_claims", "fr", "article 17, paragraphe 3, point e), du RGPD"),
        ("gdpr", "manifestly_unfounded", "es", "artículo 12, apartado 5, letra b), del RGPD"),
        ("gdpr", "identity_not_established", "de", "Art. 12 Abs. 2 DSGVO"),
        ("ccpa", "legal_obligation", "en", "Cal. Civ. Code § 1798.105(d)(8)"),
        ("ccpa", "identity_not_established", "en", "Cal. Code Regs. tit. 11, § 7022(a)"),
        ("ccpa", "public_health", "en", None),
        ("other", "legal_claims", "en", None),
    ],
)
def test_a_rejection_cites_its_provision(
    gateway: TestClient,
    officer: Browser,
    rejected: Callable[..., str],
    regulation: str,
    ground: str,
    language: str,
    cited: str | None,
) -> None:
    """A letter cites the provision and the remedies of the law that applies to the request, in the form customary in
    the letter's language. If no provision is known, the letter cites none and the officer is informed."""
    request_id = rejected("…", ground=ground, regulation=regulation)
    text = gateway.get(f"{PLACE}/{request_id}/reply?language={language}").text
    page = officer.get(f"/admin/requests/{request_id}/reply?language={language}").text
    if cited is None:
        assert not re.search("Article|Civ. Code", text)
    else:
        assert cited in text
    assert ("names no article" in page) == (cited is None)
    assert ("California Privacy Protection Agency" in text) == (regulation == "ccpa")
    if language == "en":
        assert ("supervisory authority" in text) == (regulation == "gdpr")


def test_every_ground_is_cited_under_the_gdpr() -> None:
    """Under the GDPR, letters in each language cite a provision for each ground of rejection."""
    for language in ReplyLanguage:
        for ground in RejectionGround:
            rejection = {"ground": ground, "explanation": "…"}
            request = DeletionRequestOut.model_construct(regulation="gdpr", rejection=_rejection(**rejection))
            assert article(request, language)


def _rejection(**fields: Any) -> Any:
    return DeletionRequestOut.model_fields["rejection"].annotation.__args__[0](**fields)  # type: ignore[union-attr]


ENGLISH = "We keep the records because they are needed for a claim that is before the court."
GERMAN = "Wir benötigen die Daten, weil sie für einen Anspruch gebraucht werden und der Prozess nicht zu Ende ist."


def test_a_reason_in_another_language_causes_a_warning(officer: Browser, rejected: Callable[..., str]) -> None:
    """The page warns of an English reason in a German letter, but not of a German reason or of one too short to
    identify its language."""
    warning = "The reason seems to be in another language (English) than the letter (Deutsch)."
    for explanation, language, warned in ((ENGLISH, "de", True), (ENGLISH, "en", False), (GERMAN, "de", False)):
        page = officer.get(f"/admin/requests/{rejected(explanation)}/reply?language={language}").text
        assert (warning in page) is warned
    assert (language_of(ENGLISH), language_of(GERMAN)) == (ReplyLanguage.EN, ReplyLanguage.DE)
    assert language_of("Claim pending.") is None
    assert language_of("the court, der Prozess, die Akte und of and") is None


def test_a_certificate_is_verified_by_its_code(gateway: TestClient, settings: Settings, forgotten: str) -> None:
    """The reply's link opens a page that verifies the certificate from the code in the reply, however the code is
    typed, without a login and without naming the person. A code with a wrong digit is not found. The link uses the
    configured public address. If none is configured, the reply contains only the code."""
    [certificate] = gateway.get(f"{PLACE}/{forgotten}/certificate").json()["certificates"]
    code = code_of(certificate["id"], certificate["jws"])
    text = gateway.get(f"{PLACE}/{forgotten}/reply").text
    assert f"Its code is {code}" in text
    assert "pip install" not in text
    assert "http" not in text
    with TestClient(create_app(settings.model_copy(update={"dashboard_origin": "https://wiese.example"}))) as public:
        headers = dict(gateway.headers)
        linked = public.get(f"{PLACE}/{forgotten}/reply", headers=headers).text
        assert f"open https://wiese.example/verify and enter the code {code}" in linked
        for typed in (code, code.upper().replace("-", " ")):
            page = public.get("/verify", params={"code": typed})
            assert page.status_code == 200
            assert "This certificate is genuine." in page.text
            assert certificate["id"] in page.text
            assert forgotten not in page.text
            assert "2026-17" not in page.text
        wrong = code[:-1] + ("0" if code[-1] != "0" else "1")
        answer = public.get("/verify", params={"code": wrong})
        assert answer.status_code == 404
        assert "No certificate has this code" in answer.text
        assert public.get("/verify").status_code == 200


@pytest.mark.usefixtures("minute")
def test_wrong_codes_are_rate_limited(gateway: TestClient, settings: Settings) -> None:
    """Wrong certificate codes are rate-limited like wrong keys."""
    assert gateway.get("/verify").status_code == 200
    with TestClient(create_app(settings.model_copy(update={"failed_calls_per_minute": 3}))) as public:
        statuses = [public.get("/verify", params={"code": "0" * 20}).status_code for _ in range(5)]
    assert statuses[:3] == [404] * 3
    assert statuses[-1] == 429
