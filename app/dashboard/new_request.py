"""A request that came by post or by phone, entered by hand."""

import datetime
import json
from typing import Any
from zoneinfo import ZoneInfo

from fastapi import Response
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import FormData

from app.api import deletion_requests, problems
from app.dashboard import pages
from app.dashboard.languages import gettext, marked
from app.dashboard.pages import ROOT
from app.dashboard.request_context import Form, RequestContext, TheContext
from app.dashboard.requests import checked, text
from app.dashboard.wording import regulation
from lethe.contract.choices import ErasureGround
from lethe.contract.deletion_requests import DeletionRequestIn
from lethe.contract.problems import FieldError, InputInvalid, Problem
from lethe.contract.sets import Regulation

router = pages.new_router()

_CAME_BY = {
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


@router.get("/requests/new")
def new_request(context: TheContext) -> Response:
    """Show the form."""
    context.require(deletion_requests.create_deletion_request)
    return _form(context)


@router.post("/requests/new")
async def enter_request(context: TheContext, form: Form) -> Response:
    """Make the request that the form describes, as the API makes one."""
    try:
        body = checked(DeletionRequestIn, **_asked(form, zone=context.caller.policy.time_zone))
        made = await context.ask(deletion_requests.create_deletion_request, body=body)
    except Problem as error:
        return await run_in_threadpool(_form, context, error)
    return pages.see(f"{ROOT}/requests/{json.loads(bytes(made.body))['id']}", done="made")


def _asked(form: FormData, *, zone: str) -> dict[str, Any]:
    """The body of the call. A day begins at midnight in the zone of the policy. Raises `InputInvalid`."""
    came_by = text(form, "came_by")
    asked: dict[str, Any] = {
        "subject_id": text(form, "subject_id"),
        "aliases": [line.strip() for line in text(form, "aliases").splitlines() if line.strip()],
        "regulation": text(form, "regulation"),
        "ground": text(form, "ground") or None,
        "external_id": text(form, "external_id") or None,
        "identity_verified": text(form, "identity_verified") == "yes",
        "metadata": {"came_by": came_by} if came_by in _CAME_BY else {},
    }
    if received := text(form, "received"):
        try:
            day = datetime.date.fromisoformat(received)
        except ValueError:
            fault = FieldError("received", gettext("expected a date"))
            raise InputInvalid(gettext("Correct what is named, and send it again."), [fault]) from None
        asked["submitted_at"] = datetime.datetime.combine(day, datetime.time(), ZoneInfo(zone))
    return asked


def _form(context: RequestContext, error: Problem | None = None) -> Response:
    policy = context.caller.policy
    known = dict.fromkeys([*Regulation, *policy.regulations])
    return context.page(
        "requests/new.html",
        status=problems.status_of(type(error)) if error else 200,
        error=error,
        ways=[(way, gettext(said)) for way, said in _CAME_BY.items()],
        grounds_asked=[("", gettext("Not given")), *((ground, gettext(said)) for ground, said in _GROUNDS.items())],
        regulations=[(name, regulation(name)) for name in known],
        today=datetime.datetime.now(ZoneInfo(policy.time_zone)).date(),
        zone=policy.time_zone,
    )
