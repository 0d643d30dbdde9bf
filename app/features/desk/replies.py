"""Reply to a person: the outcome of their request, in their language, with an annex about the erasure.

Replies are composed on demand and never stored, nor are the recipient, place, salutation and signature, which an
officer enters for a single reply. Each language's sentences are in `reply_sentences/<language>.toml`.
"""

import datetime
import hashlib
import importlib.resources
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from app.accounting.certificates import require_whole
from app.deletion.deadlines import zone_named
from app.features.desk.rounding import at_most
from app.features.insight.endpoints import guarantee_of
from lethe.contract import certificates, deletion_requests, sets, tenants
from lethe.features.desk.contract import Addressing, ReplyLanguage
from lethe.proof.guarantees import Notion

_MAX_EXPONENT = 700.0
"""Largest epsilon whose exponential does not overflow."""
Day = Callable[[datetime.datetime | None], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """Sentences of a reply in one language, with placeholders in braces.

    `language` is the language's own name for itself, `common_words` its most frequent function words that are rare or
    absent in other languages, `months` the names of the months from January, `day` the date format, and `signs` the
    thousands and decimal separators.
    """

    language: str
    controller: str
    reference: str
    subject: str
    greeting: str
    received: str
    forgotten: str
    widened: str
    nothing_held: str
    erased_already: str
    rejected: str
    rejected_under: str
    complaint: str
    complaint_ccpa: str
    complaint_other: str
    extended: str
    acknowledged: str
    late: str
    paused: str
    withdrawn: str
    proof: str
    certificate: str
    link: str
    code: str
    closing: str
    closing_named: str
    contact: str
    enclosure: str
    numbered: str
    page: str
    erased: str
    odds: str
    absence: str
    verifying: str
    common_words: str
    months: str
    day: str
    signs: str


def _wording(language: ReplyLanguage) -> Wording:
    path = importlib.resources.files("app.features.desk") / "reply_sentences" / f"{language.value}.toml"
    return Wording(**tomllib.loads(path.read_text(encoding="utf8")))


WORDINGS: Mapping[ReplyLanguage, Wording] = {language: _wording(language) for language in ReplyLanguage}
REPLY_LANGUAGES: Mapping[ReplyLanguage, str] = {language: wording.language for language, wording in WORDINGS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Parts of a reply.

    If the policy names a controller, `head` contains the labelled name, and `sender` the name alone. `recipient`
    contains the address lines, `dated` the place and date, `proofs` one sentence per certificate, `closing` the
    signature and contact, and `page` the paragraphs of the annex about the erasure (empty if there is no certificate).
    """

    language: ReplyLanguage
    wording: Wording
    head: Sequence[str]
    sender: str
    recipient: Sequence[str]
    case: str
    dated: str
    on: datetime.date
    salutation: str
    subject: str
    paragraphs: Sequence[str]
    proofs: Sequence[str]
    closing: Sequence[str]
    page: Sequence[str]


def reply_to(
    request: deletion_requests.DeletionRequestOut,
    proof: certificates.CertificatesOut,
    language: ReplyLanguage,
    *,
    policy: tenants.Policy,
    at: datetime.datetime,
    origin: str | None = None,
    addressing: Addressing | None = None,
) -> Reply:
    """Compose the reply for a request's current stage, dated `at`. The controller is the one named in the policy.

    If another request erased the person's rows, `proof` comes from that request. `origin` is the installation's public
    address, which the reply uses to link to each certificate's check; if None, the reply has only the codes.

    Raises `CertificateDamaged`.
    """
    require_whole(proof.damaged)
    wording, zone = WORDINGS[language], request.time_zone
    controller, contact = policy.controller, policy.contact
    typed = addressing or Addressing()
    day = _days(wording, zone)
    page = _page(proof, wording, day)
    closing = wording.closing_named if typed.salutation else wording.closing
    signature = [closing, *(line for line in (typed.signed_by, controller) if line)]
    return Reply(
        language=language,
        wording=wording,
        head=[wording.controller.format(controller=controller)] if controller else [],
        sender=controller or "",
        recipient=[line.strip() for line in _normalised(typed.recipient).split("\n") if line.strip()],
        case=_case(request),
        dated=", ".join(part for part in (typed.place, day(at)) if part),
        on=at.astimezone(zone_named(zone)).date(),
        salutation=typed.salutation or wording.greeting,
        subject=wording.subject.format(case=_case(request)),
        paragraphs=paragraphs(request, language, zone=zone),
        proofs=[
            f"{_certificate_sentence(certificate, wording)} {_check_sentence(certificate, wording, origin)}"
            for certificate in proof.certificates
        ],
        closing=[
            "\n".join(signature),
            *([wording.contact.format(contact=contact)] if contact else []),
            *([wording.enclosure] if page else []),
        ],
        page=page,
    )


def as_text(reply: Reply) -> str:
    """Return a reply as plain text, with a blank line between paragraphs."""
    wording = reply.wording
    proofs = [wording.proof, *(f"- {sentence}" for sentence in reply.proofs)] if reply.proofs else []
    page = [wording.page.upper(), *reply.page] if reply.page else []
    recipient = ["\n".join(reply.recipient)] if reply.recipient else []
    opening = [*reply.head, *recipient, reply.dated, reply.subject, reply.salutation]
    lines = [*opening, *reply.paragraphs, *proofs, *reply.closing, *page]
    return "\n\n".join(lines) + "\n"


def paragraphs(request: deletion_requests.DeletionRequestOut, language: ReplyLanguage, *, zone: str) -> list[str]:
    """Return the paragraphs between the greeting and the proofs, with dates in the time zone `zone`."""
    wording = WORDINGS[language]
    day = _days(wording, zone)
    received = wording.received.format(received=day(request.submitted_at))
    match request.status:
        case sets.RequestStatus.COMPLETED:
            outcomes = {
                sets.Outcome.FORGOTTEN: wording.forgotten,
                sets.Outcome.NOTHING_HELD: wording.nothing_held,
                sets.Outcome.ERASED_ALREADY: wording.erased_already,
                sets.Outcome.TARGET_WIDENED: wording.widened,
            }
            outcome = outcomes[sets.Outcome(request.outcome or "")]
            return [received, outcome.format(completed=day(request.completed_at), case=request.erased_by)]
        case sets.RequestStatus.REJECTED:
            explanation = _normalised((request.rejection and request.rejection.explanation) or "…")
            cited = article(request, language)
            refusal = wording.rejected_under if cited else wording.rejected
            complaints: Mapping[str, str] = {
                sets.Regulation.GDPR: wording.complaint,
                sets.Regulation.CCPA: wording.complaint_ccpa,
            }
            complaint = complaints.get(request.regulation, wording.complaint_other)
            return [received, refusal.format(article=cited, explanation=explanation), complaint]
        case sets.RequestStatus.CANCELLED:
            return [received, wording.withdrawn]
        case _ if request.clock.state is sets.ClockState.OVERDUE:
            return [received, wording.late.format(due=day(request.clock.deadline), case=_case(request))]
        case _ if request.extended_due_at is not None:
            explanation = _normalised(request.extension_reason or "…")
            return [received, wording.extended.format(due=day(request.extended_due_at), explanation=explanation)]
        case _:
            paused = [wording.paused] if request.clock.state is sets.ClockState.PAUSED else []
            return [
                received,
                wording.acknowledged.format(due=day(request.clock.deadline), case=_case(request)),
                *paused,
            ]


_GDPR: Mapping[sets.RejectionGround, tuple[int, tuple[str, ...]]] = {
    sets.RejectionGround.FREE_EXPRESSION: (17, ("3", "a")),
    sets.RejectionGround.LEGAL_OBLIGATION: (17, ("3", "b")),
    sets.RejectionGround.PUBLIC_HEALTH: (17, ("3", "c")),
    sets.RejectionGround.ARCHIVING_RESEARCH: (17, ("3", "d")),
    sets.RejectionGround.LEGAL_CLAIMS: (17, ("3", "e")),
    sets.RejectionGround.MANIFESTLY_UNFOUNDED: (12, ("5", "b")),
    sets.RejectionGround.IDENTITY_NOT_ESTABLISHED: (12, ("2",)),
}
_GDPR_FORMS: Mapping[ReplyLanguage, tuple[str, str]] = {
    ReplyLanguage.EN: ("Article {0}({1}) GDPR", "Article {0}({1})({2}) GDPR"),
    ReplyLanguage.DE: ("Art. {0} Abs. {1} DSGVO", "Art. {0} Abs. {1} Buchst. {2} DSGVO"),
    ReplyLanguage.FR: ("article {0}, paragraphe {1}, du RGPD", "article {0}, paragraphe {1}, point {2}), du RGPD"),
    ReplyLanguage.ES: ("artículo {0}, apartado {1}, del RGPD", "artículo {0}, apartado {1}, letra {2}), del RGPD"),
}
_CCPA: Mapping[sets.RejectionGround, str] = {
    sets.RejectionGround.FREE_EXPRESSION: "Cal. Civ. Code § 1798.105(d)(4)",
    sets.RejectionGround.LEGAL_OBLIGATION: "Cal. Civ. Code § 1798.105(d)(8)",
    sets.RejectionGround.ARCHIVING_RESEARCH: "Cal. Civ. Code § 1798.105(d)(6)",
    # The paragraph on legal claims was renumbered, so the reply cites the subdivision.
    sets.RejectionGround.LEGAL_CLAIMS: "Cal. Civ. Code § 1798.145(a)",
    sets.RejectionGround.MANIFESTLY_UNFOUNDED: "Cal. Civ. Code § 1798.145(h)(3)",
    sets.RejectionGround.IDENTITY_NOT_ESTABLISHED: "Cal. Code Regs. tit. 11, § 7022(a)",
}
"""Provisions for each ground of rejection. The CCPA has none on public health."""


def article(request: deletion_requests.DeletionRequestOut, language: ReplyLanguage) -> str | None:
    """Return the legal provision behind a request's rejection, as cited in `language`; None if the request was not
    rejected, or if no provision of its regulation is known for the ground."""
    if request.rejection is None:
        return None
    ground = request.rejection.ground
    match request.regulation:
        case sets.Regulation.GDPR if ground in _GDPR:
            number, parts = _GDPR[ground]
            return _GDPR_FORMS[language][len(parts) - 1].format(number, *parts)
        case sets.Regulation.CCPA:
            return _CCPA.get(ground)
        case _:
            return None


def language_of(text: str) -> ReplyLanguage | None:
    """Guess the language of a free-text reason from its function words; return None unless one language clearly leads.

    A language leads if the text has at least three of its words, and at least twice as many as any other language's.
    """
    words = re.findall(r"[^\W\d_]+", text.lower())
    counts = {
        language: sum(word in wording.common_words.split() for word in words) for language, wording in WORDINGS.items()
    }
    first, second = sorted(counts, key=counts.__getitem__, reverse=True)[:2]
    return first if counts[first] >= 3 and counts[first] >= 2 * counts[second] else None


def reason_of(request: deletion_requests.DeletionRequestOut) -> str | None:
    """Return the free text quoted in the reply for a request's current stage; None if no text is quoted."""
    if request.status == sets.RequestStatus.REJECTED:
        return request.rejection.explanation if request.rejection else None
    is_quoted = request.completed_at is None and request.clock.state not in (
        sets.ClockState.OVERDUE,
        sets.ClockState.ENDED,
    )
    return request.extension_reason if is_quoted else None


CODE = re.compile("[0-9a-f]{20}")
CODE_ID, _CODE_DIGEST = 12, 8


def code_of(certificate_id: str, jws: str) -> str:
    """Return a certificate's code for the public check: five groups of four hexadecimal digits.

    The first twelve digits come from the certificate's id, the other eight from the SHA-256 of its signed text. If the
    text is replaced, the old code therefore finds nothing.
    """
    digits = certificate_id.rpartition("_")[2][:CODE_ID] + hashlib.sha256(jws.encode()).hexdigest()[:_CODE_DIGEST]
    return "-".join(digits[start : start + 4] for start in range(0, len(digits), 4))


def _check_sentence(certificate: certificates.CertificateOut, wording: Wording, origin: str | None) -> str:
    code = code_of(certificate.id, certificate.jws)
    if origin is None:
        return wording.code.format(code=code)
    return wording.link.format(link=f"{origin}/verify", code=code)


def _certificate_sentence(certificate: certificates.CertificateOut, wording: Wording) -> str:
    accuracy = _number(100 * _deletion_guarantee(certificate).best_attacker_accuracy, wording)
    return wording.certificate.format(id=certificate.id, accuracy=accuracy)


def _deletion_guarantee(certificate: certificates.CertificateOut) -> certificates.GuaranteeOut:
    guarantees = map(guarantee_of, certificate.statement["guarantees"])
    return next(guarantee for guarantee in guarantees if guarantee.notion == Notion.DELETION)


def _page(proof: certificates.CertificatesOut, wording: Wording, day: Day) -> list[str]:
    lines: list[str] = []
    for certificate in proof.certificates:
        deletion = _deletion_guarantee(certificate)
        epsilon, delta = _number(deletion.epsilon, wording, digits=4), _number(deletion.delta, wording)
        factor = _number(math.exp(deletion.epsilon) if deletion.epsilon < _MAX_EXPONENT else math.inf, wording)
        lines += [
            _certificate_sentence(certificate, wording),
            wording.erased.format(
                records=certificate.statement["request"]["records"],
                model=certificate.model_id,
                version=certificate.version,
                issued=day(certificate.issued_at),
            ),
            wording.odds.format(epsilon=epsilon, delta=delta, factor=factor),
        ]
    if proof.nothing_held is not None:
        lines.append(wording.absence)
    return [*lines, wording.verifying] if lines else []


def _days(wording: Wording, zone: str) -> Day:
    """Return a function that formats the date of a time in time zone `zone`, or returns "…" for None."""

    def day(at: datetime.datetime | None) -> str:
        if at is None:
            return "…"
        local = at.astimezone(zone_named(zone))
        return wording.day.format(day=local.day, month=wording.months.split()[local.month - 1], year=local.year)

    return day


def _number(value: float, wording: Wording, digits: int = 3) -> str:
    """Format a number, rounded up, with the language's separators."""
    return at_most(value, digits).translate(str.maketrans(",.", wording.signs))


def _normalised(text: str) -> str:
    """Return entered text with uniform line endings."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _case(request: deletion_requests.DeletionRequestOut) -> str:
    return request.external_id or request.id
