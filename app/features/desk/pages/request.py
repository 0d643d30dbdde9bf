"""The page of one request: its state and history, its next step, decisions, notes, attachments and the reply.

Requests that arrive by post or by phone are entered by hand.
"""

import datetime
import json
from collections.abc import Callable
from typing import Any, Literal
from zoneinfo import ZoneInfo

from fastapi import Response
from fastapi.concurrency import run_in_threadpool
from markupsafe import Markup
from starlette.datastructures import FormData

from app.api import deletion_requests, runs
from app.deletion.status import OPEN
from app.features.desk import case_endpoints
from app.features.desk import rendering as pages
from app.features.desk.forms import checked, file_in, text
from app.features.desk.languages import gettext, marked
from app.features.desk.pages.evidence import certificate_in_words
from app.features.desk.pages.requests import everybody, rejection
from app.features.desk.rendering import ROOT
from app.features.desk.replies import REPLY_LANGUAGES, reply_to
from app.features.desk.request_context import Form, RequestContext, TheContext
from app.features.desk.wording import duration, legal, moment, number, regulation
from app.features.insight import endpoints as previews
from lethe.contract.deletion_requests import DeletionRequestIn, DeletionRequestOut, ExtensionIn, PauseIn
from lethe.contract.fields import ErasureGround
from lethe.contract.problems import FieldError, InputInvalid, NotFound, Problem
from lethe.contract.sets import (
    ClockState,
    Regulation,
    ReplyFormat,
    ReplyLanguage,
    RequestModelStatus,
    RequestStatus,
    WaitReason,
)
from lethe.features.desk.contract import MAX_NOTES, AssignmentIn, NoteIn
from lethe.features.insight.contract import ModelToForgetOut

router = pages.new_router()

Decision = Literal["approve", "reject", "extend", "pause", "resume", "cancel", "assign", "note"]
Done = Decision | Literal["made", "attached", "detached"]
_MAX_FILES = 500
_ENDPOINTS: dict[Decision, Callable[..., Any]] = {
    "approve": deletion_requests.approve_deletion_request,
    "reject": deletion_requests.reject_deletion_request,
    "extend": deletion_requests.extend_deletion_request,
    "pause": deletion_requests.pause_deletion_request,
    "resume": deletion_requests.resume_deletion_request,
    "cancel": deletion_requests.cancel_deletion_request,
    "assign": case_endpoints.assign_deletion_request,
    "note": case_endpoints.add_request_note,
}
_CHANNELS = {
    "letter": marked("Letter"),
    "phone": marked("Phone"),
    "email": marked("E-mail"),
    "in_person": marked("In person"),
    "other": marked("Other"),
}
_GROUNDS: dict[ErasureGround, str] = {
    ErasureGround.NOT_NECESSARY: marked("No longer necessary (Art. 17(1)(a))"),
    ErasureGround.CONSENT_WITHDRAWN: marked("Consent withdrawn (Art. 17(1)(b))"),
    ErasureGround.OBJECTION: marked("Objection (Art. 17(1)(c))"),
    ErasureGround.UNLAWFUL_PROCESSING: marked("Unlawful processing (Art. 17(1)(d))"),
    ErasureGround.LEGAL_OBLIGATION: marked("A legal obligation to erase (Art. 17(1)(e))"),
    ErasureGround.CHILD_SERVICES: marked("Services offered to a child (Art. 17(1)(f))"),
}
_REASONS: dict[WaitReason | None, str] = {
    None: marked("nothing holds it up"),
    WaitReason.IN_REVIEW: marked("waits for the decision"),
    WaitReason.GRACE: marked("may still be cancelled"),
    WaitReason.BATCH: marked("waits for a batch: {waiting} requests so far"),
    WaitReason.QUEUED: marked("is next for a worker"),
    WaitReason.RUN_UNDER_WAY: marked("waits for the run under way"),
    WaitReason.DELAYED: marked("waits for another attempt, because a run failed"),
    WaitReason.BUDGET_SPENT: marked("waits for room in the budget of the dataset: retire the model"),
    WaitReason.DAMAGED: marked("waits until damaged rows of the dataset are repaired"),
}


@router.get("/requests/new")
def new_request(context: TheContext) -> Response:
    """Show the form for a request."""
    context.require(deletion_requests.create_deletion_request)
    return _entry_form(context)


@router.post("/requests/new")
async def enter_request(context: TheContext, form: Form) -> Response:
    """Create the request of the form, as the API creates requests."""
    try:
        body = checked(DeletionRequestIn, **_request_body(form, zone=context.caller.policy.time_zone))
        answer = await context.ask(deletion_requests.create_deletion_request, body=body)
    except Problem as error:
        return await run_in_threadpool(_entry_form, context, error)
    return pages.see(f"{ROOT}/requests/{json.loads(bytes(answer.body))['id']}", done="made")


def _request_body(form: FormData, *, zone: str) -> dict[str, Any]:
    """Return the body of the call. The day of receipt begins at midnight in `zone`. Raises `InputInvalid`."""
    channel = text(form, "came_by")
    body: dict[str, Any] = {
        "subject_id": text(form, "subject_id"),
        "aliases": [line.strip() for line in text(form, "aliases").splitlines() if line.strip()],
        "regulation": text(form, "regulation"),
        "ground": text(form, "ground") or None,
        "external_id": text(form, "external_id") or None,
        "identity_verified": text(form, "identity_verified") == "yes",
        "metadata": {"came_by": channel} if channel in _CHANNELS else {},
    }
    if received := text(form, "received"):
        try:
            day = datetime.date.fromisoformat(received)
        except ValueError:
            fault = FieldError("received", gettext("expected a date"))
            raise InputInvalid(gettext("Correct what is named, and send it again."), [fault]) from None
        body["submitted_at"] = datetime.datetime.combine(day, datetime.time(), ZoneInfo(zone))
    return body


def _entry_form(context: RequestContext, error: Problem | None = None) -> Response:
    policy = context.caller.policy
    regulations = dict.fromkeys([*Regulation, *policy.regulations])
    return context.page(
        "requests/new.html",
        error=error,
        ways=[(channel, gettext(label)) for channel, label in _CHANNELS.items()],
        grounds_asked=[("", gettext("Not given")), *((ground, gettext(label)) for ground, label in _GROUNDS.items())],
        regulations=[(name, regulation(name)) for name in regulations],
        today=datetime.datetime.now(ZoneInfo(policy.time_zone)).date(),
        zone=policy.time_zone,
    )


@router.get("/requests/{request_id}/reply")
def show_reply(context: TheContext, request_id: str, language: ReplyLanguage = ReplyLanguage.EN) -> Response:
    """Show the reply to the person, to be copied, printed or saved."""
    proof = context.ask(deletion_requests.get_certificates, request_id=request_id)
    request = context.ask(deletion_requests.get_deletion_request, request_id=request_id)
    return context.page(
        "requests/reply.html",
        request=request,
        language=language.value,
        languages=REPLY_LANGUAGES,
        reply=reply_to(request, proof, language, policy=context.caller.policy),
        may_save=context.may(case_endpoints.get_reply),
    )


@router.get("/requests/{request_id}/reply/file")
def save_reply(
    context: TheContext,
    request_id: str,
    language: ReplyLanguage = ReplyLanguage.EN,
    # The name of the parameter of the API.
    format: ReplyFormat = ReplyFormat.PDF,  # noqa: A002
) -> Response:
    """Download the reply with the page on what was erased."""
    return context.ask(case_endpoints.get_reply, request_id=request_id, language=language, format=format)


@router.post("/requests/{request_id}/attachments")
def attach_file(context: TheContext, form: Form, request_id: str) -> Response:
    """Attach the chosen file, or show why it is refused."""
    context.require(case_endpoints.add_request_attachment)
    try:
        file = file_in(form, "file")
        if file is None:
            raise InputInvalid(gettext("No file was chosen."), [FieldError("file", gettext("expected a file"))])
        context.ask(case_endpoints.add_request_attachment, request_id=request_id, file=file)
    except NotFound:
        raise
    except Problem as error:
        return _show(context, request_id, error=error)
    return pages.see(f"{ROOT}/requests/{request_id}", done="attached")


@router.get("/requests/{request_id}/attachments/{attachment_id}")
def save_attachment(context: TheContext, request_id: str, attachment_id: str) -> Response:
    """Download an attachment; its headers keep browsers from showing it."""
    return context.ask(case_endpoints.get_request_attachment, request_id=request_id, attachment_id=attachment_id)


@router.post("/requests/{request_id}/attachments/{attachment_id}/delete")
def delete_attachment(context: TheContext, request_id: str, attachment_id: str) -> Response:
    """Erase an attachment."""
    context.ask(case_endpoints.delete_request_attachment, request_id=request_id, attachment_id=attachment_id)
    return pages.see(f"{ROOT}/requests/{request_id}", done="detached")


@router.get("/requests/{request_id}")
def show_request(context: TheContext, request_id: str, done: Done | None = None) -> Response:
    """Show one request."""
    return _show(context, request_id, done=done)


@router.get("/requests/{request_id}/live")
def live_request(context: TheContext, request_id: str, offered: str = "") -> Response:
    """Refresh the changing part of an open page of a request.

    The decisions that the page offers, which are `offered`, are not replaced, so that nothing typed there is lost.
    """
    details = _details(context, request_id)
    moved_on = set(offered.split(",")) - {""} != details["offered"]
    return context.page("requests/live.html", **details, moved_on=moved_on)


@router.get("/requests/{request_id}/preview")
def preview_request(context: TheContext, request_id: str, deciding: bool = False) -> Response:
    """Show what a waiting request would erase, at what cost, and what it waits for.

    `deciding`: whether the page has a dialog to approve the request, which shows a summary.
    """
    preview = context.ask(previews.preview_deletion_request, request_id=request_id)
    sentences = [waits(model) for model in preview.models]
    return context.page("requests/preview.html", preview=preview, sentences=sentences, deciding=deciding)


@router.post("/requests/{request_id}/{decision}")
def decide_request(context: TheContext, form: Form, request_id: str, decision: Decision) -> Response:
    """Carry out a decision and show the request, or show why it was refused."""
    try:
        context.ask(_ENDPOINTS[decision], request_id=request_id, **_body(decision, form))
    except NotFound:
        raise
    except Problem as error:
        return _show(context, request_id, error=error)
    return pages.see(f"{ROOT}/requests/{request_id}", done=decision)


def _body(decision: Decision, form: Form) -> dict[str, Any]:
    match decision:
        case "reject":
            return {"body": rejection(form)}
        case "extend":
            return {"body": checked(ExtensionIn, reason=text(form, "reason"))}
        case "pause":
            return {"body": PauseIn(reason="identity")}
        case "assign":
            return {"body": checked(AssignmentIn, assignee=text(form, "assignee"))}
        case "note":
            # Browsers send CRLF where they counted one character.
            return {"body": checked(NoteIn, text=text(form, "text").replace("\r\n", "\n"))}
        case _:
            return {}


def _show(
    context: RequestContext, request_id: str, *, done: str | None = None, error: Problem | None = None
) -> Response:
    details = _details(context, request_id)
    notes = context.ask_if_allowed(case_endpoints.list_request_notes, request_id=request_id, limit=MAX_NOTES)
    files = context.ask_if_allowed(case_endpoints.list_request_attachments, request_id=request_id, limit=_MAX_FILES)
    return context.page(
        "requests/one.html",
        **details,
        notes=notes and notes.items,
        attachments=files and files.items,
        may_reply=context.may(case_endpoints.get_reply),
        languages=REPLY_LANGUAGES,
        most_attached=context.call.installation.settings.max_attachment_bytes,
        people=everybody(context, details["request"].assignee, details["request"].assignee_name),
        done=done,
        error=error,
        moved_on=False,
    )


def _details(context: RequestContext, request_id: str) -> dict[str, Any]:
    request = context.ask(deletion_requests.get_deletion_request, request_id=request_id)
    proof = context.ask_if_allowed(deletion_requests.get_certificates, request_id=request_id)
    may_see_models = context.may(runs.get_run)
    running = {
        model.run_id
        for model in request.models or ()
        if model.run_id and model.status is RequestModelStatus.RUNNING and may_see_models
    }
    return {
        "under_way": {run_id: context.ask(runs.get_run, run_id=run_id) for run_id in sorted(running)},
        "request": request,
        "events": context.ask(deletion_requests.list_events, request_id=request_id).items,
        "certificates": [certificate_in_words(certificate) for certificate in proof.certificates] if proof else [],
        "damaged_certificates": proof.damaged if proof else [],
        "joint": proof and proof.joint,
        "nothing_held": proof and proof.nothing_held,
        "next_step": next_step(request, zone=context.caller.policy.time_zone, may_reply=proof is not None),
        "may_preview": context.may(previews.preview_deletion_request),
        "may_see_models": may_see_models,
        "offered": {decision for decision in _sensible(request) if context.may(_ENDPOINTS[decision])},
    }


def _sensible(request: DeletionRequestOut) -> set[Decision]:
    """Return the decisions that the state of a request allows. The API may still refuse one, with a reason."""
    is_paused = request.clock.state is ClockState.PAUSED
    decisions: set[Decision] = set()
    if request.status == RequestStatus.IN_REVIEW:
        decisions |= {"approve", "resume" if is_paused else "pause"}
    if request.status in (RequestStatus.IN_REVIEW, RequestStatus.ACCEPTED):
        decisions |= {"reject", "cancel"}
    if request.status in OPEN and request.extended_due_at is None:
        decisions.add("extend")
    return decisions


def next_step(request: DeletionRequestOut, *, zone: str, may_reply: bool) -> Markup:
    """Return the officer's next step, or that there is none, as a sentence.

    Dates are in `zone`, the time zone of the policy. `may_reply`: whether the reply is shown to the officer.
    """
    reply = Markup("")
    if may_reply:
        link = Markup('<a href="{}/requests/{}/reply">{}</a>')
        reply = link.format(ROOT, request.id, gettext("Draft the reply"))
    match request.status:
        case RequestStatus.RECEIVED | RequestStatus.IN_REVIEW if request.clock.state is ClockState.PAUSED:
            text = gettext("establish who the person is; then approve or reject. The clock is paused.")
        case RequestStatus.RECEIVED | RequestStatus.IN_REVIEW:
            text = gettext("approve or reject it; it is due {due}.")
        case RequestStatus.ACCEPTED if request.held_until and not request.completed_at:
            text = gettext("none. It can be cancelled until {until}; a worker takes it up after that. It is due {due}.")
        case RequestStatus.ACCEPTED:
            text = gettext("none. A worker takes it up by itself; it is due {due}.")
        case RequestStatus.RUNNING:
            text = gettext("none. The rows are being erased, and models forget them; it is due {due}.")
        case RequestStatus.COMPLETED:
            text = gettext("tell the person what was done. {reply}")
        case RequestStatus.REJECTED:
            text = gettext("tell the person why, and that they may complain. {reply}")
        case _:
            text = gettext("none. The request has ended.")
    deadline, until = legal(request.clock.deadline, zone), moment(request.held_until)
    return _sentence(text, due=deadline, until=until, reply=reply)


def waits(model: ModelToForgetOut) -> Markup:
    """Describe what a model waits for before it forgets, the latest end of the wait, and the duration of the run."""
    reason = gettext(_REASONS[model.reason]) if model.reason in _REASONS else str(model.reason)
    if model.reason == WaitReason.BATCH:
        of_batch = gettext("waits for a batch: {waiting} of {batch} requests so far")
        text = reason if model.batch is None else of_batch
        reason = text.format(waiting=number(model.waiting), batch=number(model.batch or 0))
    until, seconds = Markup(""), ""
    if model.until:
        until = _sentence(gettext(", at the latest {until}"), until=moment(model.until))
    if model.seconds is not None:
        seconds = gettext("; a run takes about {duration}").format(duration=duration(model.seconds))
    return Markup("{}{}{}").format(reason, until, seconds)


def _sentence(text: str, **values: Markup) -> Markup:
    """Fill markup into a text of the catalogue, whose own tags are escaped."""
    return Markup.escape(text).format(**values)
