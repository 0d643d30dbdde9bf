"""The reply to a person: what became of their request, in their language, and a page on what was erased.

A reply is composed on demand and stored nowhere. `reply_sentences/<language>.toml` has the sentences of a language.
"""

import datetime
import importlib.resources
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from app.accounting.certificates import require_whole
from app.api.accounting import guarantee_of
from app.features.desk.rounding import at_most
from lethe.contract.certificates import CertificateOut, CertificatesOut, GuaranteeOut
from lethe.contract.deletion_requests import DeletionRequestOut
from lethe.contract.sets import ClockState, Outcome, ReplyLanguage, RequestStatus
from lethe.contract.tenants import Policy
from lethe.proof.guarantees import Notion

_MAX_EXPONENT = 700.0
"""Largest epsilon whose exponential is a finite number."""
Day = Callable[[datetime.datetime | None], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """The sentences of a reply in one language, with placeholders in braces.

    `language` is the language's own name for itself, `months` the names from January on, `day` the form of a date, and
    `signs` the separator of thousands and that of decimals.
    """

    language: str
    controller: str
    subject: str
    greeting: str
    received: str
    forgotten: str
    widened: str
    nothing_held: str
    rejected: str
    complaint: str
    extended: str
    acknowledged: str
    paused: str
    withdrawn: str
    proof: str
    certificate: str
    closing: str
    contact: str
    page: str
    erased: str
    odds: str
    absence: str
    verifying: str
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
    """The parts of a reply.

    `head` names the controller if the policy does, `proofs` has a sentence for each certificate, `closing` the
    signature and the contact, and `page` the paragraphs on what was erased, which is empty if nothing is signed.
    """

    language: ReplyLanguage
    wording: Wording
    head: Sequence[str]
    subject: str
    paragraphs: Sequence[str]
    proofs: Sequence[str]
    closing: Sequence[str]
    page: Sequence[str]


def reply_to(request: DeletionRequestOut, proof: CertificatesOut, language: ReplyLanguage, *, policy: Policy) -> Reply:
    """Compose the reply at the present stage of a request; the controller and the time zone are those of the policy.

    Raises `CertificateDamaged`.
    """
    require_whole(proof.damaged)
    wording, zone = WORDINGS[language], policy.time_zone
    controller, contact = policy.controller, policy.contact
    return Reply(
        language=language,
        wording=wording,
        head=[wording.controller.format(controller=controller)] if controller else [],
        subject=wording.subject.format(case=_case(request)),
        paragraphs=paragraphs(request, language, zone=zone),
        proofs=[_certificate_sentence(certificate, wording) for certificate in proof.certificates],
        closing=[
            "\n".join([wording.closing, *([controller] if controller else [])]),
            *([wording.contact.format(contact=contact)] if contact else []),
        ],
        page=_page(proof, wording, _days(wording, zone)),
    )


def as_text(reply: Reply) -> str:
    """Return a reply as plain text, with an empty line between paragraphs."""
    wording = reply.wording
    proofs = [wording.proof, *(f"- {sentence}" for sentence in reply.proofs)] if reply.proofs else []
    page = [wording.page.upper(), *reply.page] if reply.page else []
    lines = [*reply.head, reply.subject, wording.greeting, *reply.paragraphs, *proofs, *reply.closing, *page]
    return "\n\n".join(lines) + "\n"


def paragraphs(request: DeletionRequestOut, language: ReplyLanguage, *, zone: str) -> list[str]:
    """Return the paragraphs between greeting and proof, with dates in the time zone `zone`."""
    wording = WORDINGS[language]
    day = _days(wording, zone)
    received = wording.received.format(received=day(request.submitted_at))
    match request.status:
        case RequestStatus.COMPLETED:
            outcomes = {
                Outcome.FORGOTTEN: wording.forgotten,
                Outcome.NOTHING_HELD: wording.nothing_held,
                Outcome.TARGET_WIDENED: wording.widened,
            }
            outcome = outcomes[Outcome(request.outcome or "")]
            return [received, outcome.format(completed=day(request.completed_at))]
        case RequestStatus.REJECTED:
            explanation = _normalised((request.rejection and request.rejection.explanation) or "…")
            return [received, wording.rejected.format(explanation=explanation), wording.complaint]
        case RequestStatus.CANCELLED:
            return [received, wording.withdrawn]
        case _ if request.extended_due_at is not None:
            explanation = _normalised(request.extension_reason or "…")
            return [received, wording.extended.format(due=day(request.extended_due_at), explanation=explanation)]
        case _:
            paused = [wording.paused] if request.clock.state is ClockState.PAUSED else []
            return [
                received,
                wording.acknowledged.format(due=day(request.clock.deadline), case=_case(request)),
                *paused,
            ]


def _certificate_sentence(certificate: CertificateOut, wording: Wording) -> str:
    accuracy = _number(100 * _deletion_guarantee(certificate).best_attacker_accuracy, wording)
    return wording.certificate.format(id=certificate.id, accuracy=accuracy)


def _deletion_guarantee(certificate: CertificateOut) -> GuaranteeOut:
    guarantees = map(guarantee_of, certificate.statement["guarantees"])
    return next(guarantee for guarantee in guarantees if guarantee.notion == Notion.DELETION)


def _page(proof: CertificatesOut, wording: Wording, day: Day) -> list[str]:
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
    """Return a function that writes the day of a time in `zone`; "…" for None."""

    def day(at: datetime.datetime | None) -> str:
        if at is None:
            return "…"
        local = at.astimezone(ZoneInfo(zone))
        return wording.day.format(day=local.day, month=wording.months.split()[local.month - 1], year=local.year)

    return day


def _number(value: float, wording: Wording, digits: int = 3) -> str:
    """Write a number rounded up, with the signs of the language."""
    return at_most(value, digits).translate(str.maketrans(",.", wording.signs))


def _normalised(text: str) -> str:
    """Return a text that a person typed with one kind of line end."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _case(request: DeletionRequestOut) -> str:
    return request.external_id or request.id
