"""The reply to a person, made when it is asked for and kept nowhere: what became of their request, in their language,
and a page on what was erased, with the certificates in plain words."""

import datetime
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from app.api.certificates import guarantee_of
from app.api.reply_wordings import WORDINGS, Wording
from app.api.rounding import at_most
from lethe.contract.certificates import CertificateOut, CertificatesOut
from lethe.contract.deletion_requests import DeletionRequestOut
from lethe.contract.policy import Policy
from lethe.contract.sets import ClockState, Outcome, ReplyLanguage, RequestStatus
from lethe.proof.certificate import FORMAT
from lethe.proof.guarantees import Notion

_LARGEST_EXPONENT = 700.0
Day = Callable[[datetime.datetime | None], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Everything that a person is told. `head`: who answers, if the policy says so; `proofs`: each certificate in a
    sentence; `closing`: with who signs, and how to reach them; `page`: the paragraphs of the page on what was erased,
    none where nothing is signed."""

    language: ReplyLanguage
    wording: Wording
    head: Sequence[str]
    subject: str
    paragraphs: Sequence[str]
    proofs: Sequence[str]
    closing: Sequence[str]
    page: Sequence[str]


def reply_to(request: DeletionRequestOut, found: CertificatesOut, language: ReplyLanguage, *, policy: Policy) -> Reply:
    """The reply as the request stands now, with the dates and from the controller of the policy."""
    wording, zone = WORDINGS[language], policy.time_zone
    controller, contact = policy.controller, policy.contact
    return Reply(
        language=language,
        wording=wording,
        head=[wording.controller.format(controller=controller)] if controller else [],
        subject=wording.subject.format(case=_case(request)),
        paragraphs=written(request, language, zone=zone),
        proofs=[line for one in found.certificates if (line := in_words(one, wording))],
        closing=[
            "\n".join([wording.closing, *([controller] if controller else [])]),
            *([wording.contact.format(contact=contact)] if contact else []),
        ],
        page=_page(found, wording, _days(wording, zone)),
    )


def as_text(reply: Reply) -> str:
    """Plain text, a paragraph a line."""
    wording = reply.wording
    proofs = [wording.proof, *(f"- {one}" for one in reply.proofs)] if reply.proofs else []
    page = [wording.page.upper(), *reply.page] if reply.page else []
    lines = [*reply.head, reply.subject, wording.greeting, *reply.paragraphs, *proofs, *reply.closing, *page]
    return "\n\n".join(lines) + "\n"


def written(request: DeletionRequestOut, language: ReplyLanguage, *, zone: str) -> list[str]:
    """The paragraphs between greeting and proof. Dates are those of `zone`."""
    wording = WORDINGS[language]
    day = _days(wording, zone)
    received = wording.received.format(received=day(request.submitted_at))
    match request.status:
        case RequestStatus.COMPLETED:
            told = {
                Outcome.FORGOTTEN: wording.forgotten,
                Outcome.NOTHING_HELD: wording.nothing_held,
                Outcome.TARGET_WIDENED: wording.widened,
            }
            done = told[Outcome(request.outcome or "")]
            return [received, done.format(completed=day(request.completed_at))]
        case RequestStatus.REJECTED:
            why = _lines_of((request.rejection and request.rejection.explanation) or "…")
            return [received, wording.rejected.format(explanation=why), wording.complaint]
        case RequestStatus.CANCELLED:
            return [received, wording.withdrawn]
        case _ if request.extended_due_at is not None:
            why = _lines_of(request.extension_reason or "…")
            return [received, wording.extended.format(due=day(request.extended_due_at), explanation=why)]
        case _:
            paused = [wording.paused] if request.clock.state is ClockState.PAUSED else []
            due = day(request.clock.deadline)
            return [received, wording.acknowledged.format(due=due, case=_case(request)), *paused]


def in_words(certificate: CertificateOut, wording: Wording) -> str | None:
    """A certificate in a sentence; None for one of an earlier format, which is not read."""
    if certificate.statement["format"] != FORMAT:
        return None
    guarantees = [guarantee_of(one) for one in certificate.statement["guarantees"]]
    deletion = next(one for one in guarantees if one.notion == Notion.DELETION)
    accuracy = _number(100 * deletion.best_attacker_accuracy, wording)
    return wording.certificate.format(id=certificate.id, accuracy=accuracy)


def _page(found: CertificatesOut, wording: Wording, day: Day) -> list[str]:
    lines: list[str] = []
    for one in found.certificates:
        in_short = in_words(one, wording)
        if in_short is None:
            continue
        guarantees = [guarantee_of(stated) for stated in one.statement["guarantees"]]
        deletion = next(guarantee for guarantee in guarantees if guarantee.notion == Notion.DELETION)
        epsilon, delta = _number(deletion.epsilon, wording, digits=4), _number(deletion.delta, wording)
        factor = _number(math.exp(deletion.epsilon) if deletion.epsilon < _LARGEST_EXPONENT else math.inf, wording)
        records = one.statement["request"]["records"]
        erased = {"records": records, "model": one.model_id, "version": one.version, "issued": day(one.issued_at)}
        lines += [
            in_short,
            wording.erased.format(**erased),
            wording.odds.format(epsilon=epsilon, delta=delta, factor=factor),
        ]
    if found.nothing_held is not None:
        lines.append(wording.absence)
    return [*lines, wording.verifying] if lines else []


def _days(wording: Wording, zone: str) -> Day:
    def day(at: datetime.datetime | None) -> str:
        if at is None:
            return "…"
        there = at.astimezone(ZoneInfo(zone))
        return wording.day.format(day=there.day, month=wording.months.split()[there.month - 1], year=there.year)

    return day


def _number(value: float, wording: Wording, digits: int = 3) -> str:
    """No less than the value, with the signs of the language."""
    return at_most(value, digits).translate(str.maketrans(",.", wording.signs))


def _lines_of(words: str) -> str:
    """Somebody's words, as browsers and people end lines, with one end of lines."""
    return words.replace("\r\n", "\n").replace("\r", "\n")


def _case(request: DeletionRequestOut) -> str:
    return request.external_id or request.id
