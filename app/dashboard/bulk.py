"""One decision about all requests that match: how many they are is said first, and each is decided by the rules for
one."""

import datetime
import time
from typing import Any, Literal

from fastapi import Response
from pydantic import BaseModel
from starlette.datastructures import FormData

from app.api import decisions, problems
from app.dashboard import filters, pages
from app.dashboard.filters import Filters
from app.dashboard.languages import gettext, inside, marked
from app.dashboard.pages import ROOT
from app.dashboard.request_context import Form, RequestContext, TheContext
from app.dashboard.requests import UNDECIDED, checked, everybody, text, undecided
from app.dashboard.wording import regulation, state, words
from lethe.contract.choices import Decision
from lethe.contract.decisions import DecisionsIn
from lethe.contract.fields import Moment
from lethe.contract.problems import InputInvalid, Problem
from lethe.contract.sets import RequestStatus

router = pages.new_router()

_AT_ONCE = 100
"""Requests in one transaction: nobody else waits long for the write lock."""
_SECONDS = 20.0
"""After so long the page is shown again, with how far it came."""
_DUE = {"soon": marked("Due soon"), "overdue": marked("Overdue"), "paused": marked("Clock paused")}

_ENDS = {Decision.APPROVE: "approved", Decision.REJECT: "rejected"}


class _Seen(BaseModel):
    """The time at which somebody was shown what matches."""

    before: Moment


@router.get("/requests/decide")
def ask_about_all(
    context: TheContext,
    query: Filters,
    before: Moment | None = None,
    done: Literal["", "approved", "rejected"] = "",
    decided: int = 0,
    refused: int = 0,
) -> Response:
    """Say how many requests match, and ask what to decide. Those that come in later are not among them."""
    context.require(decisions.decide_deletion_requests)
    told = {"done": done, "decided": decided, "refused": refused} if done else None
    return _asked(context, query, before or datetime.datetime.now(datetime.UTC), told=told)


@router.post("/requests/decide-all")
def decide_about_all(context: TheContext, form: Form) -> Response:
    """Decide in many transactions, one after the other; what was decided before is not decided again."""
    decision = Decision.REJECT if text(form, "decision") == Decision.REJECT else Decision.APPROVE
    query, before = filters.in_form(form), checked(_Seen, before=text(form, "before")).before
    try:
        decided, refused, is_done = _decide(context, decision, query, before, form)
    except InputInvalid as error:
        return _asked(context, query, before, error=error)
    told: dict[str, Any] = {"done": _ENDS[decision], "decided": decided, "refused": refused}
    if is_done:
        return pages.see(f"{ROOT}/requests", **query, **told)
    return pages.see(f"{ROOT}/requests/decide", **filters.narrowing(query), before=before.isoformat(), **told)


def _decide(
    context: RequestContext, decision: Decision, query: dict[str, str], before: datetime.datetime, form: FormData
) -> tuple[int, int, bool]:
    """Returns how many were decided, how many could not be, and True if nothing is left."""
    body: dict[str, Any] = {"decision": decision, "made_before": before, "limit": _AT_ONCE}
    sought = filters.matching(query, caller=context.caller)
    if {sought.pop("completed_from"), sought.pop("completed_before")} != {None}:
        return 0, 0, True  # what is completed cannot be decided
    body |= sought
    if decision is Decision.REJECT:
        body["rejection"] = {"ground": text(form, "ground"), "explanation": text(form, "explanation")}
    ends, decided, refused = time.monotonic() + _SECONDS, 0, 0
    for status in UNDECIDED if decision is Decision.REJECT else UNDECIDED[:1]:
        if query.get("status", status) != status:
            continue
        cursor = None
        while True:
            asked = checked(DecisionsIn, **body, status=status, cursor=cursor)
            found = context.ask(decisions.decide_deletion_requests, body=asked)
            decided, refused, cursor = decided + found.decided, refused + found.refused, found.next_cursor
            if cursor is None:
                break
            if time.monotonic() > ends:
                return decided, refused, False
    return decided, refused, True


def _asked(
    context: RequestContext,
    query: dict[str, str],
    before: datetime.datetime,
    *,
    told: dict[str, Any] | None = None,
    error: Problem | None = None,
) -> Response:
    counts = undecided(context, query, made_before=before)
    return context.page(
        "requests/decide.html",
        status=problems.status_of(type(error)) if error else 200,
        query=query,
        words=[_word(context, name, value) for name, value in filters.narrowing(query).items()],
        before=before,
        can_approve=counts.get(RequestStatus.IN_REVIEW, 0),
        can_reject=sum(counts.values()),
        told=told,
        error=error,
    )


def _word(context: RequestContext, name: str, value: str) -> str:
    match name:
        case "status":
            return state(value).label
        case "regulation":
            return regulation(value)
        case "due":
            return gettext(_DUE[value])
        case "assigned":
            name = dict(everybody(context)).get(value, value)
            return gettext("assigned to {name}").format(name=name)
        case _:
            return f"{inside(words(name))} {value}"
