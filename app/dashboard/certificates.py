"""Certificates in plain words: what one proves, what it does not, and whether it holds."""

import json
import math
from dataclasses import dataclass
from typing import Any

from fastapi import Response

from app.api import certificates
from app.api.certificates import guarantee_of
from app.dashboard import audits, pages
from app.dashboard.languages import gettext, marked
from app.dashboard.request_context import TheContext
from app.dashboard.wording import at_most, count, given, number
from lethe.contract.certificates import CertificateIn, CertificateOut
from lethe.contract.guarantees import GuaranteeOut
from lethe.contract.problems import CertificateInvalid
from lethe.contract.runs import AuditOut
from lethe.proof.certificate import FORMAT
from lethe.proof.guarantees import Notion

router = pages.new_router()

_MEANS = {
    Notion.UNLEARNING: marked("against a model learned without everybody who had been forgotten by then"),
    Notion.DELETION: marked("against the same history without this person"),
    Notion.ADAPTIVE: marked("the same, for somebody who also kept every version published before"),
    Notion.RELEASE: marked("of anybody who is still in the data, from one version to the next"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateInWords:
    """A certificate and what it says. `numbers`: each guarantee and what it is about. `is_weak`: its target is beyond
    the default bounds."""

    certificate: CertificateOut
    headline: str
    proves: list[str]
    does_not: list[str]
    numbers: list[tuple[GuaranteeOut, str]]
    is_weak: bool


def in_words(certificate: CertificateOut) -> CertificateInWords:
    statement = certificate.statement
    if statement["format"] != FORMAT:
        return _of_earlier_form(certificate)
    guarantees = [guarantee_of(one) for one in statement["guarantees"]]
    unlearning = next(one for one in guarantees if one.notion == Notion.UNLEARNING)
    records, steps = statement["request"]["records"], statement["run"]["steps"]
    version = gettext("Version {number} of {model_id}").format(
        number=certificate.version, model_id=certificate.model_id
    )
    factor = math.exp(unlearning.epsilon) if unlearning.epsilon < 700 else math.inf
    odds, chance = at_most(factor, 3), at_most(unlearning.delta, 3)
    proves = [
        count(
            records,
            "row of this person was sealed anew as empty and read back so before the first step, and the keys to what "
            "was there before were destroyed.",
            "rows of this person were sealed anew as empty and read back so before the first step, and the keys to "
            "what was there before were destroyed.",
        ),
        gettext("{version} came out of {steps} on the data without the person.").format(
            version=version, steps=count(steps, "step", "steps")
        ),
        gettext(
            "Whoever looks at that version can hardly tell it from one learned without everybody who had been "
            "forgotten by then: anything that it may show is at most {odds} times as probable as there, plus {chance}. "
            "This counts requests that were not chosen by what published versions look like."
        ).format(odds=odds, chance=chance),
        gettext(
            "The best attacker, who knows everything but the noise and has to say which of the two was published, is "
            "right in at most {share} of all cases; a coin is in 50 %."
        ).format(share=accuracy(unlearning)),
        *([audits.of_certified_run(AuditOut(**statement["audit"]))] if statement["audit"] else []),
        gettext(
            "The service checked its own conditions in that run, and signed all of this. Every number follows from "
            "what the certificate itself contains, and anybody can compute it again."
        ),
    ]
    reached = gettext("ε ≤ {epsilon} at δ = {delta}").format(epsilon=at_most(unlearning.epsilon), delta=chance)
    target = statement["target"]
    weak = target.get("widened", False)
    headline = gettext("{version} has forgotten this person: {reached}").format(version=version, reached=reached)
    if weak:
        headline = gettext("{version} meets a target too weak to be called forgetting: {reached}").format(
            version=version, reached=reached
        )
    return CertificateInWords(
        certificate=certificate,
        headline=headline,
        is_weak=weak,
        proves=proves,
        does_not=[*([_beyond(statement["target"])] if weak else []), *map(gettext, statement["limits"])],
        numbers=[(one, gettext(_MEANS[Notion(one.notion)])) for one in guarantees],
    )


def accuracy(guarantee: GuaranteeOut) -> str:
    """The best attacker's accuracy, rounded up."""
    return f"{at_most(100 * guarantee.best_attacker_accuracy, 3)} %"


def _beyond(target: dict[str, Any]) -> str:
    return gettext(
        "That the person is forgotten: this tenant's policy was widened, and lets the model's target be ε = {epsilon} "
        "at δ = {delta}, beyond ε = {largest_epsilon} at δ = {largest_delta} (one over the dataset's slots)."
    ).format(
        epsilon=given(target["epsilon"]),
        delta=given(target["delta"]),
        largest_epsilon=given(target["largest_epsilon"]),
        largest_delta=number(target["largest_delta"]),
    )


def _of_earlier_form(certificate: CertificateOut) -> CertificateInWords:
    form = certificate.statement["format"]
    return CertificateInWords(
        certificate=certificate,
        headline=gettext("Signed in an earlier form ({form}), which only releases that signed so read").format(
            form=form
        ),
        proves=[],
        does_not=[],
        numbers=[],
        is_weak=False,
    )


@router.get("/certificates/{certificate_id}.json")
def download_certificate(context: TheContext, certificate_id: str) -> Response:
    """All of it, as the API gives it out."""
    found = context.ask(certificates.get_certificate, certificate_id=certificate_id)
    return pages.file(f"{found.id}.json", json.dumps(found.model_dump(mode="json"), indent=1), "application/json")


@router.get("/certificates/{certificate_id}.jws")
def download_jws(context: TheContext, certificate_id: str) -> Response:
    """Send what was signed, as it was signed."""
    found = context.ask(certificates.get_certificate, certificate_id=certificate_id)
    return pages.file(f"{found.id}.jws", found.jws, "application/jose")


@router.post("/certificates/{certificate_id}/verify")
def verify_certificate(context: TheContext, certificate_id: str) -> Response:
    """Check the signature and compute every number again, now."""
    found = context.ask(certificates.get_certificate, certificate_id=certificate_id)
    try:
        verdict = context.ask(certificates.verify_certificate, body=CertificateIn(jws=found.jws))
    except CertificateInvalid as error:
        return context.page("requests/verdict.html", certificate=found, verdict=None, error=error)
    return context.page("requests/verdict.html", certificate=found, verdict=verdict, error=None)
