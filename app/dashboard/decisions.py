"""One request: how it stands, what happened to it, and what to decide about it."""

from collections.abc import Callable
from typing import Any, Literal

from fastapi import Response

from app.api import (
    assignees,
    deletion_requests,
    problems,
    replies,
    request_attachments,
    request_notes,
    request_previews,
    runs,
)
from app.api.reply_wordings import LANGUAGES
from app.dashboard import pages
from app.dashboard.case import next_step, waits
from app.dashboard.certificates import in_words
from app.dashboard.pages import ROOT
from app.dashboard.request_context import Form, RequestContext, TheContext
from app.dashboard.requests import checked, everybody, rejection, text
from app.deletion.status import OPEN
from lethe.contract.assignees import AssignmentIn
from lethe.contract.deletion_requests import DeletionRequestOut, ExtensionIn, PauseIn
from lethe.contract.problems import NotFound, Problem
from lethe.contract.request_attachments import AttachmentOut
from lethe.contract.request_notes import MOST_NOTES, NoteIn, NoteOut
from lethe.contract.sets import ClockState, RequestModelStatus, RequestStatus

router = pages.new_router()

Decision = Literal["approve", "reject", "extend", "pause", "resume", "cancel", "assign", "note"]
Done = Decision | Literal["made", "attached", "detached"]
_MOST_FILES = 500
_ENDPOINTS: dict[Decision, Callable[..., Any]] = {
    "approve": deletion_requests.approve_deletion_request,
    "reject": deletion_requests.reject_deletion_request,
    "extend": deletion_requests.extend_deletion_request,
    "pause": deletion_requests.pause_deletion_request,
    "resume": deletion_requests.resume_deletion_request,
    "cancel": deletion_requests.cancel_deletion_request,
    "assign": assignees.assign_deletion_request,
    "note": request_notes.add_request_note,
}


@router.get("/requests/{request_id}")
def show_request(context: TheContext, request_id: str, done: Done | None = None) -> Response:
    """Everything about one request."""
    return page_of(context, request_id, done=done)


@router.get("/requests/{request_id}/live")
def live_request(context: TheContext, request_id: str, offered: str = "") -> Response:
    """The same, for a page that is open and offers these decisions: no words are lost by changing them."""
    found = _found(context, request_id)
    moved_on = set(offered.split(",")) - {""} != found["offered"]
    return context.page("requests/live.html", **found, moved_on=moved_on)


@router.get("/requests/{request_id}/preview")
def preview_request(context: TheContext, request_id: str, deciding: bool = False) -> Response:
    """Show what a request that waits would erase, at what cost, and why it waits; `deciding`: the page has a
    confirmation, which says it in short."""
    found = context.ask(request_previews.preview_deletion_request, request_id=request_id)
    sentences = [waits(one) for one in found.models]
    return context.page("requests/preview.html", preview=found, sentences=sentences, deciding=deciding)


@router.post("/requests/{request_id}/{decision}")
def decide_request(context: TheContext, form: Form, request_id: str, decision: Decision) -> Response:
    """Do it and show what has become of the request; or show that it was not done, and why."""
    try:
        context.ask(_ENDPOINTS[decision], request_id=request_id, **_body(decision, form))
    except NotFound:
        raise
    except Problem as error:
        return page_of(context, request_id, error=error)
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
        case "note":  # browsers send CRLF where they counted one character
            return {"body": checked(NoteIn, text=text(form, "text").replace("\r\n", "\n"))}
        case _:
            return {}


def page_of(
    context: RequestContext, request_id: str, *, done: str | None = None, error: Problem | None = None
) -> Response:
    """The page of a request, after something was done, or was refused."""
    found = _found(context, request_id)
    return context.page(
        "requests/one.html",
        status=problems.status_of(type(error)) if error else 200,
        **found,
        notes=_notes(context, request_id),
        attachments=_attachments(context, request_id),
        may_reply=context.may(replies.get_reply),
        languages=LANGUAGES,
        most_attached=context.call.installation.settings.max_attachment_bytes,
        people=everybody(context, found["request"].assignee, found["request"].assignee_name),
        done=done,
        error=error,
        moved_on=False,
    )


def _notes(context: RequestContext, request_id: str) -> list[NoteOut] | None:
    """The notes about a request; None for a caller who may not read them."""
    if not context.may(request_notes.list_request_notes):
        return None
    return context.ask(request_notes.list_request_notes, request_id=request_id, limit=MOST_NOTES).items


def _attachments(context: RequestContext, request_id: str) -> list[AttachmentOut] | None:
    """The files that are attached to the request; None for a caller who may not have them."""
    endpoint = request_attachments.list_request_attachments
    if not context.may(endpoint):
        return None
    return context.ask(endpoint, request_id=request_id, limit=_MOST_FILES).items


def _found(context: RequestContext, request_id: str) -> dict[str, Any]:
    found = context.ask(deletion_requests.get_deletion_request, request_id=request_id)
    proof = None
    if context.may(deletion_requests.get_certificates):
        proof = context.ask(deletion_requests.get_certificates, request_id=request_id)
    may_see_models = context.may(runs.get_run)
    under_way = {
        one.run_id
        for one in found.models or ()
        if one.run_id and one.status is RequestModelStatus.RUNNING and may_see_models
    }
    return {
        "under_way": {run_id: context.ask(runs.get_run, run_id=run_id) for run_id in sorted(under_way)},
        "request": found,
        "events": context.ask(deletion_requests.list_events, request_id=request_id).items,
        "certificates": [in_words(one) for one in proof.certificates] if proof else [],
        "joint": proof and proof.joint,
        "nothing_held": proof and proof.nothing_held,
        "next_step": next_step(found, zone=context.caller.policy.time_zone, may_reply=proof is not None),
        "may_preview": context.may(request_previews.preview_deletion_request),
        "may_see_models": may_see_models,
        "offered": {one for one in _sensible(found) if context.may(_ENDPOINTS[one])},
    }


def _sensible(request: DeletionRequestOut) -> set[Decision]:
    """The decisions that the law and the life of a request leave; what is refused nevertheless says why."""
    is_paused = request.clock.state is ClockState.PAUSED
    decisions: set[Decision] = set()
    if request.status == RequestStatus.IN_REVIEW:
        decisions |= {"approve", "resume" if is_paused else "pause"}
    if request.status in (RequestStatus.IN_REVIEW, RequestStatus.ACCEPTED):
        decisions |= {"reject", "cancel"}
    if request.status in OPEN and request.extended_due_at is None:
        decisions.add("extend")
    return decisions
