"""A request's page: state, history, next step, decisions, notes, attachments and reply.

Requests that arrive by post or phone are entered by hand.
"""

import datetime
import json
from collections.abc import Callable, Sequence
from typing import Any, Literal

from fastapi import Response
from fastapi.concurrency import run_in_threadpool
from markupsafe import Markup
from starlette.datastructures import FormData

from app.api import deletion_requests, intake, runs
from app.deletion import deadlines, retention, status
from app.features.desk import case_endpoints, glossary, rendering as pages, repository
from app.features.desk.forms import checked, file_in, text
from app.features.desk.languages import gettext, inside
from app.features.desk.pages import evidence, requests
from app.features.desk.replies import REPLY_LANGUAGES
from app.features.desk.request_context import Form, RequestContext, TheContext
from app.features.desk.wording import duration, legal, moment, number, regulation, state
from app.features.identities import endpoints as identities
from app.features.insight import endpoints as previews
from lethe.contract import deletion_requests as contract, problems, sets, tenants
from lethe.features.desk.contract import MAX_NOTES, AssignmentIn, NoteIn, SentReplyIn, SentReplyOut
from lethe.features.insight.contract import ModelToForgetOut

router = pages.new_router()

Decision = Literal["approve", "reject", "extend", "pause", "resume", "cancel", "assign", "note", "replied"]
Done = Literal[
    "approve",
    "reject",
    "extend",
    "pause",
    "resume",
    "cancel",
    "assign",
    "note",
    "replied",
    "made",
    "attached",
    "detached",
]
_MAX_FILES = 500
_MAX_OTHERS = 20
_ENDPOINTS: dict[Decision, Callable[..., Any]] = {
    "approve": deletion_requests.approve_deletion_request,
    "reject": deletion_requests.reject_deletion_request,
    "extend": deletion_requests.extend_deletion_request,
    "pause": deletion_requests.pause_deletion_request,
    "resume": deletion_requests.resume_deletion_request,
    "cancel": deletion_requests.cancel_deletion_request,
    "assign": case_endpoints.assign_deletion_request,
    "note": case_endpoints.add_request_note,
    "replied": case_endpoints.record_sent_reply,
}


@router.get("/requests/new")
def new_request(context: TheContext) -> Response:
    """Show the form for a new request."""
    context.require(deletion_requests.create_deletion_request)
    return _entry_form(context)


@router.post("/requests/new")
async def enter_request(context: TheContext, form: Form) -> Response:
    """Create the request entered in the form, as the API would."""
    try:
        body = checked(contract.DeletionRequestIn, **_request_body(form, zone=context.caller.policy.time_zone))
        is_confirmed = text(form, "confirmed") == _to_confirm(form)
        if not is_confirmed and (doubts := await run_in_threadpool(_doubts, context, body)):
            return await run_in_threadpool(_entry_form, context, doubts=doubts, to_confirm=_to_confirm(form))
        answer = await context.ask(deletion_requests.create_deletion_request, body=body)
    except problems.Problem as error:
        return await run_in_threadpool(_entry_form, context, error)
    return pages.see(f"{pages.ROOT}/requests/{json.loads(bytes(answer.body))['id']}", done="made")


def _request_body(form: FormData, *, zone: str) -> dict[str, Any]:
    """Return the body of the API call. The day of receipt begins at midnight in `zone`. Raises `InputInvalid`."""
    channel = text(form, "came_by")
    body: dict[str, Any] = {
        "subject_id": text(form, "subject_id"),
        "kind": text(form, "kind") or None,
        "aliases": [line.strip() for line in text(form, "aliases").splitlines() if line.strip()],
        "regulation": text(form, "regulation"),
        "ground": text(form, "ground") or None,
        "external_id": text(form, "external_id") or None,
        "identity_verified": text(form, "identity_verified") == "yes",
        "metadata": {"came_by": channel} if channel in glossary.labels("channels") else {},
    }
    if received := text(form, "received"):
        try:
            day = datetime.date.fromisoformat(received)
        except ValueError:
            fault = problems.FieldError("received", gettext("expected a date"))
            raise problems.InputInvalid(gettext("Check the marked fields, and send the form again."), [fault]) from None
        body["submitted_at"] = deadlines.midnight(day, zone=zone)
    return body


def _to_confirm(form: FormData) -> str:
    """Return, as text, the form entries that a confirmation covers. If one changes, the user must confirm again."""
    return " ".join(text(form, name) for name in ("identity_verified", "external_id", "kind", "subject_id"))


def _doubts(context: RequestContext, body: contract.DeletionRequestIn) -> list[Markup]:
    """Return the points to confirm before a request is created: that erasure starts immediately, or that other requests
    have the same person or case number."""
    doubts = []
    policy = context.caller.policy
    if body.identity_verified and policy.auto_accept and not policy.grace_seconds:
        doubts.append(Markup.escape(gettext("No review follows: the erasure starts, and cannot be undone.")))
    same = {
        gettext("There is a request of this person: {request}"): {"subject_id": body.subject_id, "kind": body.kind},
        gettext("There is a request with this case number: {request}"): {"external_id": body.external_id},
    }
    for sentence, filters in same.items():
        if any(filters.values()):
            page = context.ask_if_allowed(deletion_requests.list_deletion_requests, **filters, limit=5)
            doubts += [Markup.escape(sentence).format(request=_link(other)) for other in page.items] if page else []
    return doubts


def _link(request: contract.DeletionRequestOut) -> Markup:
    link = Markup('<a href="{}/requests/{}">{}</a>').format(pages.ROOT, request.id, request.external_id or request.id)
    return Markup("{} ({})").format(link, inside(state(request.status).label))


def _entry_form(
    context: RequestContext,
    error: problems.Problem | None = None,
    *,
    doubts: Sequence[Markup] = (),
    to_confirm: str = "",
) -> Response:
    policy = context.caller.policy
    regulations = dict.fromkeys([*sets.Regulation, *policy.regulations])
    return context.page(
        "requests/new.html",
        error=error,
        doubts=doubts,
        to_confirm=to_confirm,
        ways=list(glossary.labels("channels").items()),
        grounds_asked=[("", gettext("Not given")), *glossary.labels("grounds").items()],
        regulations=[(name, regulation(name)) for name in regulations],
        today=datetime.datetime.now(deadlines.zone_named(policy.time_zone)).date(),
        zone=policy.time_zone,
    )


@router.post("/requests/{request_id}/attachments")
def attach_file(context: TheContext, form: Form, request_id: str) -> Response:
    """Attach the chosen file, or show why it was refused."""
    context.require(case_endpoints.add_request_attachment)
    try:
        file = file_in(form, "file")
        if file is None:
            raise problems.InputInvalid(
                gettext("No file was chosen."), [problems.FieldError("file", gettext("expected a file"))]
            )
        context.ask(case_endpoints.add_request_attachment, request_id=request_id, file=file)
    except problems.NotFound:
        raise
    except problems.Problem as error:
        return _show(context, request_id, error=error)
    return _see(form, request_id, "attached")


@router.get("/requests/{request_id}/attachments/{attachment_id}")
def save_attachment(context: TheContext, request_id: str, attachment_id: str) -> Response:
    """Download an attachment. The headers prevent browsers from displaying it."""
    return context.ask(case_endpoints.get_request_attachment, request_id=request_id, attachment_id=attachment_id)


@router.post("/requests/{request_id}/attachments/{attachment_id}/delete")
def delete_attachment(context: TheContext, form: Form, request_id: str, attachment_id: str) -> Response:
    """Erase an attachment."""
    context.ask(case_endpoints.delete_request_attachment, request_id=request_id, attachment_id=attachment_id)
    return _see(form, request_id, "detached")


@router.get("/requests/{request_id}")
def show_request(context: TheContext, request_id: str, done: Done | None = None) -> Response:
    """Show one request."""
    return _show(context, request_id, done=done)


@router.get("/requests/{request_id}/live")
def live_request(context: TheContext, request_id: str, offered: str = "") -> Response:
    """Refresh the live part of an open request page.

    The decision forms that the page already shows (`offered`) are not replaced, so that no typed text is lost.
    """
    details = _details(context, request_id)
    moved_on = set(offered.split(",")) - {""} != details["offered"]
    return context.page("requests/live.html", **details, moved_on=moved_on)


@router.get("/requests/{request_id}/preview")
def preview_request(context: TheContext, request_id: str, deciding: bool = False) -> Response:
    """Show a waiting request's impact, cost and expected wait.

    `deciding`: whether the page has an approval dialog, which shows a summary.
    """
    preview = context.ask(previews.preview_deletion_request, request_id=request_id)
    sentences = [waits(model) for model in preview.models]
    return context.page("requests/preview.html", preview=preview, sentences=sentences, deciding=deciding)


@router.post("/requests/{request_id}/{decision}")
def decide_request(context: TheContext, form: Form, request_id: str, decision: Decision) -> Response:
    """Carry out a decision and show the request, or show why it was refused."""
    try:
        context.ask(_ENDPOINTS[decision], request_id=request_id, **_body(decision, form))
    except problems.NotFound:
        raise
    except problems.Problem as error:
        return _show(context, request_id, error=error)
    return _see(form, request_id, decision)


def _see(form: FormData, request_id: str, done: str) -> Response:
    """Redirect to the page from which the form was submitted: the request's page or the inbox."""
    if (queue := text(form, "inbox")) in requests.QUEUES:
        return pages.see(pages.ROOT, queue=queue, case=request_id, done=done)
    return pages.see(f"{pages.ROOT}/requests/{request_id}", done=done)


def _body(decision: Decision, form: Form) -> dict[str, Any]:
    match decision:
        case "reject":
            return {"body": requests.rejection(form)}
        case "extend":
            return {"body": checked(contract.ExtensionIn, reason=text(form, "reason"))}
        case "pause":
            return {"body": contract.PauseIn(reason="identity")}
        case "assign":
            return {"body": checked(AssignmentIn, assignee=text(form, "assignee"))}
        case "note":
            # Browsers send CRLF for a line break, which they counted as one character.
            return {"body": checked(NoteIn, text=text(form, "text").replace("\r\n", "\n"))}
        case "replied":
            return {"body": checked(SentReplyIn, sent_on=text(form, "sent_on"), channel=text(form, "channel"))}
        case _:
            return {}


def _show(
    context: RequestContext, request_id: str, *, done: str | None = None, error: problems.Problem | None = None
) -> Response:
    return context.page("requests/one.html", **case_of(context, request_id, done=done), error=error)


def case_of(context: RequestContext, request_id: str, *, done: str | None = None) -> dict[str, Any]:
    """Return the template context of a request's page. `done` names the action that a notice confirms."""
    details = _details(context, request_id)
    request = details["request"]
    notes = context.ask_if_allowed(case_endpoints.list_request_notes, request_id=request_id, limit=MAX_NOTES)
    files = context.ask_if_allowed(case_endpoints.list_request_attachments, request_id=request_id, limit=_MAX_FILES)
    people = requests.possible_assignees(context, request.assignee, request.assignee_name)
    return details | {
        "notes": notes and notes.items,
        "attachments": files and files.items,
        "identities": context.ask_if_allowed(identities.get_request_identities, request_id=request_id),
        "languages": REPLY_LANGUAGES,
        "most_attached": context.call.installation.settings.max_attachment_bytes,
        "people": people,
        "today": datetime.datetime.now(deadlines.zone_named(request.time_zone)).date().isoformat(),
        "may_take": request.assignee != context.caller.id and context.caller.id in dict(people),
        "done": done,
        "moved_on": False,
    }


def _details(context: RequestContext, request_id: str) -> dict[str, Any]:
    request = context.ask(deletion_requests.get_deletion_request, request_id=request_id)
    proof = context.ask_if_allowed(deletion_requests.get_certificates, request_id=request_id)
    may_see_models, may_reply = context.may(runs.get_run), context.may(case_endpoints.get_reply)
    running = {
        model.run_id
        for model in request.models or ()
        if model.run_id and model.status is sets.RequestModelStatus.RUNNING and may_see_models
    }
    return {
        "under_way": {run_id: context.ask(runs.get_run, run_id=run_id) for run_id in sorted(running)},
        "request": request,
        "others": _others(context, request),
        "history": _history(context, request_id),
        "channels": glossary.labels("channels"),
        "certificates": [
            evidence.certificate_in_words(certificate, model=context.name_of(certificate.model_id))
            for certificate in (proof.certificates if proof else ())
        ],
        "damaged_certificates": proof.damaged if proof else [],
        "joint": proof and proof.joint,
        "nothing_held": proof and proof.nothing_held,
        "may_reply": may_reply,
        "next_step": next_step(request, may_reply=may_reply),
        "may_preview": context.may(previews.preview_deletion_request),
        "may_see_models": may_see_models,
        "offered": {
            decision for decision in _sensible(request, context.caller.policy) if context.may(_ENDPOINTS[decision])
        },
    }


def _history(context: RequestContext, request_id: str) -> list[contract.RequestEventOut | SentReplyOut]:
    """Return a request's events and the replies sent, in the order in which they were recorded."""
    events = context.ask(deletion_requests.list_events, request_id=request_id).items
    replies = context.ask_if_allowed(case_endpoints.list_sent_replies, request_id=request_id)
    return sorted([*events, *(replies.items if replies else ())], key=lambda entry: entry.at)


def _others(context: RequestContext, request: contract.DeletionRequestOut) -> list[contract.DeletionRequestOut]:
    """Return the person's other requests that the reader may see, newest first."""
    refs = [request.subject_ref, *request.alias_refs] if request.kept != retention.RetentionLevel.TRACE else []
    with context.call.reading() as session:
        view, horizon = deletion_requests.view_of(session, context.call), deletion_requests.horizon_of(context.call)
        others = repository.requests_about(session, refs, at_most=_MAX_OTHERS) if refs else []
        return [intake.to_response(other, (), view=view, horizon=horizon) for other in others if other.id != request.id]


def _sensible(request: contract.DeletionRequestOut, policy: tenants.Policy) -> set[Decision]:
    """Return the decisions that a request's state and regulation allow. The API may still refuse a decision and give a
    reason."""
    limit = deadlines.limits(policy).get(request.regulation, tenants.TimeLimit())
    decisions: set[Decision] = set()
    if request.status in status.OPEN and request.identity_unknown:
        decisions.add("approve")
    if request.status == sets.RequestStatus.IN_REVIEW:
        decisions.add("approve")
        if request.clock.paused_since is not None:
            decisions.add("resume")
        elif limit.may_pause:
            decisions.add("pause")
    if request.status in (sets.RequestStatus.IN_REVIEW, sets.RequestStatus.ACCEPTED):
        decisions |= {"reject", "cancel"}
    is_late = request.extended_due_at is not None or request.clock.state is sets.ClockState.OVERDUE
    if request.status in status.OPEN and not is_late and (limit.extension_months or limit.extension_days):
        decisions.add("extend")
    return decisions


def next_step(request: contract.DeletionRequestOut, *, may_reply: bool) -> Markup:
    """Return a sentence that states the officer's next step, or that there is none.

    `may_reply`: whether the officer may draft the reply to the person.
    """
    reply = Markup("")
    if may_reply:
        link = Markup('<a href="{}/requests/{}/reply">{}</a>')
        reply = link.format(pages.ROOT, request.id, gettext("Draft the reply"))
    match request.status:
        case sets.RequestStatus.RECEIVED | sets.RequestStatus.IN_REVIEW if request.clock.paused_since:
            text = gettext("establish who the person is; then approve or reject. The clock is paused.")
        case sets.RequestStatus.RECEIVED | sets.RequestStatus.IN_REVIEW:
            text = gettext("approve or reject it; it is due {due}.")
        case sets.RequestStatus.ACCEPTED if request.held_until and request.held_until > datetime.datetime.now(
            datetime.UTC
        ):
            text = gettext("none. It can be cancelled until {until}; a worker takes it up after that. It is due {due}.")
        case sets.RequestStatus.ACCEPTED:
            text = gettext("none. It goes on by itself; it is due {due}.")
        case sets.RequestStatus.RUNNING if {model.status for model in request.models} == {
            sets.RequestModelStatus.COMPLETED
        }:
            text = gettext("none. All models have forgotten; it ends when nothing else is open. It is due {due}.")
        case sets.RequestStatus.RUNNING:
            text = gettext("none. The rows are being erased, and models forget them; it is due {due}.")
        case sets.RequestStatus.COMPLETED:
            text = gettext("tell the person what was done. {reply}")
        case sets.RequestStatus.REJECTED:
            text = gettext("tell the person why, and that they may complain. {reply}")
        case _:
            text = gettext("none. The request has ended.")
    deadline = legal(request.clock.deadline, request.time_zone, stated=request.time_zone)
    until = moment(request.held_until)
    return _sentence(text, due=deadline, until=until, reply=reply)


def waits(model: ModelToForgetOut) -> Markup:
    """Describe what a model is waiting for before it forgets, the latest end of that wait, and its run's duration."""
    reason = glossary.labels("reasons").get(model.reason or "none", str(model.reason))
    if model.reason == sets.WaitReason.BATCH:
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
    """Insert markup at the placeholders of a catalogue text. Tags in the text itself are escaped."""
    return Markup.escape(text).format(**values)
