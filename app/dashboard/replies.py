"""The reply to a person: what became of their request, in their language, with the certificate in plain words."""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from zoneinfo import ZoneInfo

from fastapi import Response

from app.api import deletion_requests
from app.api.certificates import guarantee_of
from app.dashboard import pages
from app.dashboard.request_context import TheContext
from app.dashboard.wording import at_most
from lethe.contract.certificates import CertificateOut
from lethe.contract.deletion_requests import DeletionRequestOut
from lethe.contract.problems import NotFound
from lethe.contract.sets import Outcome, RequestStatus
from lethe.proof.certificate import FORMAT
from lethe.proof.guarantees import Notion

router = pages.new_router()

Language = Literal["en", "de", "fr"]
LANGUAGES: Mapping[Language, str] = {"en": "English", "de": "Deutsch", "fr": "Français"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """The sentences of a reply in one language; `{...}` is filled in. `months`: from January on; `day`: a date."""

    subject: str
    greeting: str
    received: str
    forgotten: str
    widened: str
    nothing_held: str
    rejected: str
    complaint: str
    extended: str
    proof: str
    certificate: str
    closing: str
    months: str
    day: str


WORDINGS: Mapping[Language, Wording] = {
    "en": Wording(
        subject="Your request to be forgotten: case {case}",
        greeting="Dear Sir or Madam,",
        received="we received your request on {received}.",
        forgotten="On {completed} we completed it. Your records were erased, and every machine-learning model that had "
        "learned from them was updated so that it no longer depends on them beyond the bound below.",
        widened="On {completed} we completed it. Your records were erased. At least one model that had learned from "
        "them was updated to a bound that is weaker than what we would call forgotten; it is stated below.",
        nothing_held="On {completed} we completed it. We held no records about you.",
        rejected="We do not act on it, for this reason: {explanation}",
        complaint="You may lodge a complaint with a supervisory authority, and seek a judicial remedy.",
        extended="We need more time, and will answer by {due}, for this reason: {explanation}",
        proof="What was done can be checked by anybody, from these signed certificates alone:",
        certificate="Certificate {id}: an attacker who sees the published model and knows everything but its random "
        "noise can tell whether your records were ever used in at most {accuracy} % of all cases. A coin is right in "
        "50 %.",
        closing="Yours faithfully,",
        months="January February March April May June July August September October November December",
        day="{day} {month} {year}",
    ),
    "de": Wording(
        subject="Ihr Antrag auf Löschung: Vorgang {case}",
        greeting="Sehr geehrte Damen und Herren,",
        received="Ihr Antrag ist am {received} bei uns eingegangen.",
        forgotten="Wir haben ihn am {completed} abgeschlossen. Ihre Datensätze wurden gelöscht, und jedes Modell des "
        "maschinellen Lernens, das aus ihnen gelernt hatte, wurde so angepasst, dass es über die unten genannte "
        "Schranke hinaus nicht mehr von ihnen abhängt.",
        widened="Wir haben ihn am {completed} abgeschlossen. Ihre Datensätze wurden gelöscht. Mindestens ein Modell, "
        "das aus ihnen gelernt hatte, wurde nur bis zu einer Schranke angepasst, die schwächer ist als das, was wir "
        "Vergessen nennen würden; sie ist unten angegeben.",
        nothing_held="Wir haben ihn am {completed} abgeschlossen. Über Sie waren keine Datensätze gespeichert.",
        rejected="Wir kommen ihm aus folgendem Grund nicht nach: {explanation}",
        complaint="Sie können bei einer Aufsichtsbehörde Beschwerde einlegen und einen gerichtlichen Rechtsbehelf "
        "einlegen.",
        extended="Wir brauchen mehr Zeit und antworten Ihnen bis zum {due}, aus folgendem Grund: {explanation}",
        proof="Was geschehen ist, lässt sich allein anhand dieser signierten Bescheinigungen nachprüfen:",
        certificate="Bescheinigung {id}: Wer das veröffentlichte Modell sieht und alles außer dem zufälligen Rauschen "
        "kennt, kann in höchstens {accuracy} % aller Fälle sagen, ob Ihre Datensätze je verwendet wurden. Ein "
        "Münzwurf trifft in 50 % zu.",
        closing="Mit freundlichen Grüßen",
        months="Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
        day="{day}. {month} {year}",
    ),
    "fr": Wording(
        subject="Votre demande d'effacement : dossier {case}",
        greeting="Madame, Monsieur,",
        received="nous avons reçu votre demande le {received}.",
        forgotten="Nous l'avons menée à bien le {completed}. Vos données ont été effacées, et chaque modèle "
        "d'apprentissage automatique qui en avait appris a été mis à jour de sorte qu'il n'en dépend plus au-delà de "
        "la borne indiquée ci-dessous.",
        widened="Nous l'avons menée à bien le {completed}. Vos données ont été effacées. Au moins un modèle qui en "
        "avait appris n'a été mis à jour que jusqu'à une borne plus faible que ce que nous appellerions un oubli ; "
        "elle est indiquée ci-dessous.",
        nothing_held="Nous l'avons menée à bien le {completed}. Nous ne détenions aucune donnée vous concernant.",
        rejected="Nous n'y donnons pas suite, pour la raison suivante : {explanation}",
        complaint="Vous pouvez introduire une réclamation auprès d'une autorité de contrôle et former un recours "
        "juridictionnel.",
        extended="Il nous faut plus de temps ; nous vous répondrons au plus tard le {due}, pour la raison suivante : "
        "{explanation}",
        proof="Chacun peut vérifier ce qui a été fait, à partir de ces seuls certificats signés :",
        certificate="Certificat {id} : quiconque voit le modèle publié et connaît tout sauf son bruit aléatoire peut "
        "dire si vos données ont un jour été utilisées dans {accuracy} % des cas au plus. Une pièce de monnaie a "
        "raison dans 50 % des cas.",
        closing="Veuillez agréer, Madame, Monsieur, nos salutations distinguées.",
        months="janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
        day="{day} {month} {year}",
    ),
}


@router.get("/requests/{request_id}/reply")
def show_reply(context: TheContext, request_id: str, language: Language = "en") -> Response:
    """Show the reply, to be copied or printed. Raises `NotFound` while there is nothing to tell."""
    certificates = context.ask(deletion_requests.get_certificates, request_id=request_id).certificates
    request = context.ask(deletion_requests.get_deletion_request, request_id=request_id)
    paragraphs = written(request, language, zone=context.caller.policy.time_zone)
    if not paragraphs:
        raise NotFound("There is nothing to tell the person yet.")
    wording = WORDINGS[language]
    return context.page(
        "requests/reply.html",
        request=request,
        language=language,
        languages=LANGUAGES,
        wording=wording,
        subject=wording.subject.format(case=request.external_id or request.id),
        paragraphs=paragraphs,
        proofs=[line for one in certificates if (line := in_words(one, wording))],
    )


def has_news(request: DeletionRequestOut) -> bool:
    """Return True if there is something to tell the person."""
    is_over = request.status in (RequestStatus.COMPLETED, RequestStatus.REJECTED)
    return is_over or (request.extended_due_at is not None and request.status != RequestStatus.CANCELLED)


def written(request: DeletionRequestOut, language: Language, *, zone: str) -> list[str]:
    """The paragraphs between greeting and proof; none while there is nothing to tell. Dates are those of `zone`."""
    wording = WORDINGS[language]
    if not has_news(request):
        return []

    def day(at: datetime.datetime | None) -> str:
        if at is None:
            return "…"
        there = at.astimezone(ZoneInfo(zone))
        return wording.day.format(day=there.day, month=wording.months.split()[there.month - 1], year=there.year)

    paragraphs = [wording.received.format(received=day(request.submitted_at))]
    if request.status == RequestStatus.COMPLETED:
        told = {
            Outcome.FORGOTTEN: wording.forgotten,
            Outcome.NOTHING_HELD: wording.nothing_held,
            Outcome.TARGET_WIDENED: wording.widened,
        }
        done = told[Outcome(request.outcome or "")]
        return [*paragraphs, done.format(completed=day(request.completed_at))]
    if request.status == RequestStatus.REJECTED:
        why = (request.rejection and request.rejection.explanation) or "…"
        return [*paragraphs, wording.rejected.format(explanation=why), wording.complaint]
    why = request.extension_reason or "…"
    return [*paragraphs, wording.extended.format(due=day(request.extended_due_at), explanation=why)]


def in_words(certificate: CertificateOut, wording: Wording) -> str | None:
    """A certificate in a sentence; None for one of an earlier format, which is not read."""
    if certificate.statement["format"] != FORMAT:
        return None
    guarantees = [guarantee_of(one) for one in certificate.statement["guarantees"]]
    deletion = next(one for one in guarantees if one.notion == Notion.DELETION)
    accuracy = at_most(100 * deletion.best_attacker_accuracy, 3)
    return wording.certificate.format(id=certificate.id, accuracy=accuracy)
