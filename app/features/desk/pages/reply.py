"""Reply to a person, including what an officer enters in it; the evidence pack; and the public certificate check.

The check is the only page that requires no login. Given a certificate's code, it shows the certificate.
"""

import contextlib
import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from app import installations, signing
from app.api import accounting, calls, deletion_requests
from app.features.desk import case_endpoints, forms, languages, rendering as pages, replies, repository, wording
from app.features.desk.request_context import Form, RequestContext, TheContext
from lethe.contract import certificates, problems, sets
from lethe.contract.deletion_requests import DeletionRequestOut
from lethe.features.desk.contract import Addressing, EvidenceFormat, ReplyFormat, ReplyLanguage, ReplyQuery
from lethe.proof.guarantees import Notion
from lethe.verification import certificates as verification

_Code = Annotated[str, Query(max_length=40, description="Code of a certificate, as printed in the letter.")]
router = pages.new_router()
public = APIRouter(prefix="/verify", route_class=pages.PageRoute, include_in_schema=False)


@router.get("/requests/{request_id}/reply")
def show_reply(context: TheContext, request_id: str, language: ReplyLanguage = ReplyLanguage.EN) -> Response:
    """Show the reply to a request, ready to be addressed, copied, printed or saved."""
    context.require(case_endpoints.get_reply)
    return _reply(context, request_id, language)


@router.get("/requests/{request_id}/reply/file")
def save_reply(
    context: TheContext,
    request_id: str,
    language: ReplyLanguage = ReplyLanguage.EN,
    # The API uses this name for the parameter.
    format: ReplyFormat = ReplyFormat.PDF,  # noqa: A002
) -> Response:
    """Download the reply with its annex, without a recipient's address."""
    return context.ask(case_endpoints.get_reply, request_id=request_id, language=language, format=format)


@router.post("/requests/{request_id}/reply/file")
def save_addressed_reply(context: TheContext, form: Form, request_id: str) -> Response:
    """Download the reply with recipient, place, salutation and signature, none of which is stored."""
    context.require(case_endpoints.get_reply)
    query = forms.checked(ReplyQuery, language=forms.text(form, "language"), format=forms.text(form, "format"))
    try:
        names = ("recipient", "place", "salutation", "signed_by")
        addressing = forms.checked(Addressing, **{name: forms.text(form, name) for name in names})
        return case_endpoints.reply_file(context.call, context.intake, request_id, query, addressing)
    except problems.Problem as error:
        return _reply(context, request_id, query.language, error=error)


def _reply(
    context: RequestContext, request_id: str, language: ReplyLanguage, *, error: problems.Problem | None = None
) -> Response:
    request = context.ask(deletion_requests.get_deletion_request, request_id=request_id)
    proof = context.ask(deletion_requests.get_certificates, request_id=request.erased_by or request_id)
    origin = context.call.installation.settings.dashboard_origin
    policy, at = context.caller.policy, datetime.datetime.now(datetime.UTC)
    reply = replies.reply_to(request, proof, language, policy=policy, at=at, origin=origin)
    return context.page(
        "requests/reply.html",
        request=request,
        language=language.value,
        languages=replies.REPLY_LANGUAGES,
        reply=reply,
        warnings=_warnings(request, reply, origin=origin),
        error=error,
    )


def _warnings(request: DeletionRequestOut, reply: replies.Reply, *, origin: str | None) -> list[str]:
    """Return warnings to show the officer before they send the reply."""
    warnings = []
    written = replies.language_of(replies.reason_of(request) or "")
    if written not in (None, reply.language):
        warnings.append(
            languages.gettext(
                "The reason seems to be in another language ({reason}) than the letter ({other})."
            ).format(
                reason=replies.REPLY_LANGUAGES[written or reply.language], other=replies.REPLY_LANGUAGES[reply.language]
            )
        )
    if request.status == sets.RequestStatus.REJECTED and replies.article(request, reply.language) is None:
        warnings.append(
            languages.gettext("The letter names no article: none is known for this regulation and legal basis.")
        )
    if not reply.sender:
        warnings.append(languages.gettext("The letter has no sender: the policy names no controller."))
    if reply.proofs and origin is None:
        warnings.append(languages.gettext("The letter has no link to check certificates: dashboard_origin is not set."))
    return warnings


@router.get("/requests/{request_id}/evidence-pack")
def save_evidence_pack(
    context: TheContext,
    request_id: str,
    language: ReplyLanguage = ReplyLanguage.EN,
    # The API uses this name for the parameter.
    format: EvidenceFormat = EvidenceFormat.ZIP,  # noqa: A002
) -> Response:
    """Download a request's evidence pack."""
    return context.ask(case_endpoints.get_evidence_pack, request_id=request_id, language=language, format=format)


@public.get("")
def check_certificate(request: Request, installation: calls.At, code: _Code = "") -> Response:
    """Look up a certificate by its code, verify its signature, and recompute its guarantees."""
    state: calls.Known = request.app.state.known
    address = calls.address_of(request.scope)
    state.rates.admit(address)
    digits = "".join(char for char in code.lower() if char.isalnum())
    certificate = _certificate_with(installation, digits)
    if code and certificate is None:
        state.rates.failed(address)
    guarantee = None
    with contextlib.suppress(problems.CertificateInvalid):
        if certificate:
            verdict = verification.verify(certificate.jws, signing.public_keys(installation.keys))
            guarantee = wording.of_notion(verdict.guarantees, Notion.DELETION)
    return pages.rendered(
        request,
        "check.html",
        status=404 if code and certificate is None else 200,
        code=code,
        certificate=certificate,
        guarantee=guarantee,
    )


def _certificate_with(installation: installations.Installation, digits: str) -> certificates.CertificateOut | None:
    """Return the certificate, of any tenant, whose code without hyphens is `digits`; None if there is none."""
    if not replies.CODE.fullmatch(digits):
        return None
    with installation.database.reading() as session:
        for row in repository.certificates_with(session, prefix=f"crt_{digits[: replies.CODE_ID]}"):
            if replies.code_of(row.id, row.jws).replace("-", "") == digits:
                return accounting.certificate_to_response(row)
    return None
