"""Requests: found, listed, and many decided at once."""

import csv
import io
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from typing import Any, Literal, TypeVar

from fastapi import Response
from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData

from app.api import assignees, batches, decisions, deletion_requests, problems, saved_views
from app.dashboard import faults, filters, pages
from app.dashboard.filters import Filters
from app.dashboard.languages import gettext, marked
from app.dashboard.lists import SIZES, Place, ThePlace
from app.dashboard.pages import ROOT
from app.dashboard.request_context import Form, RequestContext, TheContext
from app.dashboard.wording import regulation, sentence, state
from lethe.contract.choices import RequestColumn
from lethe.contract.deletion_requests import NOBODY, DeletionRequestOut, RejectionIn
from lethe.contract.fields import PageOut
from lethe.contract.problems import InputInvalid, Problem, ScopeMissing
from lethe.contract.saved_views import MOST_VIEWS, SavedViewOut
from lethe.contract.sets import Regulation, RequestStatus
from lethe.contract.subjects import SubjectIn

router = pages.new_router()

M = TypeVar("M", bound=BaseModel)
_MOST_CHOSEN = 200
"""Requests on the longest page."""
_MOST_FOUND = 500
_SOUGHT = {
    "subject_id": marked("subject id"),
    "subject_sha256": marked("SHA-256 of the subject id"),
    "external_id": marked("case number"),
}
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""First characters of a cell that a spreadsheet computes instead of showing it."""

UNDECIDED = (RequestStatus.IN_REVIEW, RequestStatus.ACCEPTED)


@router.get("/requests")
def list_requests(
    context: TheContext,
    query: Filters,
    place: ThePlace,
    done: Literal["", "approved", "rejected"] = "",
    decided: int = 0,
    refused: int = 0,
) -> Response:
    """A page of them. What is asked for is in the address: nothing about anybody."""
    told = {"done": done, "decided": decided, "refused": refused} if done else None
    try:
        found = _found(context, query, place)
    except InputInvalid as error:
        if not error.errors or error.errors[0].path == "cursor":
            raise
        return _list(context, PageOut(items=[], next_cursor=None), query=query, place=place, error=error)
    return _list(context, found, query=query, place=place, total=_total(context, found, query, place), told=told)


@router.post("/requests/search")
def search_requests(context: TheContext, form: Form) -> Response:
    """Those about a person. Whom they are about comes in the body, is hashed in memory, and stays nowhere."""
    by, sought = text(form, "by"), text(form, "sought")
    if by not in _SOUGHT or not sought:
        raise InputInvalid(gettext("Choose what to search by, and enter it."))
    if by != "external_id":
        checked(SubjectIn, **{by: sought})
    found = context.ask(deletion_requests.list_deletion_requests, **{by: sought}, limit=_MOST_FOUND)
    return _list(context, found, query={}, sought=gettext(_SOUGHT[by]))


@router.post("/requests/decide")
def decide_requests(context: TheContext, form: Form) -> Response:
    """Approve or reject all that were chosen, each by itself: what cannot be decided holds up no other. What the list
    was filtered by stays, and how long its pages are."""
    endpoint: Callable[..., DeletionRequestOut] = deletion_requests.approve_deletion_request
    done, body = "approved", {}
    if text(form, "decision") == "reject":
        endpoint = deletion_requests.reject_deletion_request
        try:
            done, body = "rejected", {"body": rejection(form)}
        except InputInvalid as error:
            return once_more(context, form, error)
    decided = refused = 0
    for request_id in form.getlist("chosen")[:_MOST_CHOSEN]:
        try:
            context.ask(endpoint, request_id=str(request_id), **body)
            decided += 1
        except ScopeMissing:
            raise
        except Problem:
            refused += 1
    return pages.see(f"{ROOT}/requests", **address(form), done=done, decided=decided, refused=refused)


@router.get("/requests.csv")
def export_requests(context: TheContext, query: Filters) -> Response:
    """Send what the list shows, all pages of it, newest first; for a spreadsheet."""
    asked = filters.listed(query, caller=context.caller)
    found = context.ask(batches.export_deletion_requests, **asked)
    found.body_iterator = _without_formulas(found.body_iterator)
    return found


def text(form: FormData, name: str) -> str:
    """The text in a field; empty if it was not there."""
    found = form.get(name)
    return found.strip() if isinstance(found, str) else ""


def address(form: FormData) -> dict[str, str]:
    """The list from which a form was sent, as its address has it."""
    size = text(form, "size")
    return filters.in_form(form) | ({"size": size} if size in SIZES else {})


def once_more(context: RequestContext, form: FormData, error: Problem) -> Response:
    """The list as it was, with what was chosen, and what is wrong with what was sent about it."""
    size = text(form, "size")
    query, place = filters.in_form(form), Place(size=int(size)) if size in SIZES else Place()
    found, chosen = _found(context, query, place), frozenset(map(str, form.getlist("chosen")))
    total = _total(context, found, query, place)
    return _list(context, found, query=query, place=place, total=total, error=error, chosen=chosen)


def checked(body: type[M], **fields: Any) -> M:
    """Read a form as the API wants it. Raises `InputInvalid`."""
    try:
        return body(**fields)
    except ValidationError as error:
        raise InputInvalid(gettext("Correct what is named, and send it again."), faults.in_words(error)) from None


def everybody(context: RequestContext, *also: str | None) -> list[tuple[str, str]]:
    """The choice of people to assign a request to, by name, after nobody; `also`: the id and the name of a person who
    may be among them no longer. Empty for a caller who may not know them."""
    if not context.may(assignees.list_assignees):
        return []
    found = {one.id: one.name for one in context.ask(assignees.list_assignees, limit=_MOST_FOUND).items}
    if also and also[0] and also[0] not in found:
        found[also[0]] = gettext("{name} (decides no longer)").format(name=also[1] or also[0])
    return [(NOBODY, gettext("Nobody")), *sorted(found.items(), key=lambda one: one[1].casefold())]


def rejection(form: FormData) -> RejectionIn:
    return checked(RejectionIn, ground=text(form, "ground"), explanation=text(form, "explanation"))


async def _without_formulas(parts: AsyncIterable[Any]) -> AsyncIterator[str]:
    """CSV, in parts of whole lines, with an apostrophe before each cell that would be a formula, and all quoted:
    some spreadsheets take a semicolon for the end of a cell."""
    async for part in parts:
        text = io.StringIO()
        lines = csv.reader(io.StringIO(part, newline=""))
        csv.writer(text, quoting=csv.QUOTE_ALL).writerows([_as_text(cell) for cell in line] for line in lines)
        yield text.getvalue()


def _as_text(cell: str) -> str:
    return f"'{cell}" if cell.startswith(_FORMULA) else cell


def _found(context: RequestContext, query: Mapping[str, str], place: Place) -> PageOut[DeletionRequestOut]:
    return context.ask(
        deletion_requests.list_deletion_requests,
        **filters.matching(query, caller=context.caller),
        status=query.get("status"),
        order=query.get("order", "newest"),
        limit=place.size,
        cursor=place.cursor,
    )


def _total(
    context: RequestContext, found: PageOut[DeletionRequestOut], query: Mapping[str, str], place: Place
) -> int | None:
    """Number of requests on all pages; None where one page has them all."""
    if place.has_all(found):
        return None
    asked = filters.listed(query, caller=context.caller)
    return context.ask(decisions.count_deletion_requests, **asked).count


def _matching(context: RequestContext, found: PageOut[DeletionRequestOut], query: Mapping[str, str]) -> int | None:
    """Number of requests on all pages that an officer can decide about; None where one page has them all."""
    if found.next_cursor is None or not context.may(decisions.decide_deletion_requests):
        return None
    if query.get("order") in filters.OF_COMPLETED:
        return None
    return sum(undecided(context, query).values())


def undecided(context: RequestContext, query: Mapping[str, str], **sought: Any) -> dict[RequestStatus, int]:
    """Number of requests that match, by the statuses in which they can still be decided about."""
    wanted = query.get("status", "")
    asked = filters.matching(query, caller=context.caller) | sought
    return {
        status: context.ask(decisions.count_deletion_requests, status=status, **asked).count
        for status in UNDECIDED
        if wanted in ("", status)
    }


def _list(
    context: RequestContext,
    found: PageOut[DeletionRequestOut],
    *,
    query: dict[str, str],
    place: Place | None = None,
    total: int | None = None,
    sought: str | None = None,
    told: dict[str, Any] | None = None,
    error: Problem | None = None,
    chosen: frozenset[str] = frozenset(),
) -> Response:
    people = _whose(context)
    known = dict.fromkeys([*Regulation, *context.caller.policy.regulations])
    return context.page(
        "requests/list.html",
        status=problems.status_of(type(error)) if error else 200,
        error=error,
        chosen=chosen,
        found=found,
        views=_views(context) if place else [],
        query=query,
        filtered=filters.narrowing(query),
        columns=filters.columns_of(query),
        place=place,
        extent=(place or Place(size=_MOST_FOUND)).extent(found, "request", "requests", total=total),
        sought=sought,
        told=told,
        orders=[(order.value, gettext(said)) for order, said in filters.ORDERS.items()],
        statuses=[("", gettext("Any")), *((status.value, state(status).label) for status in RequestStatus)],
        regulations=[("", gettext("Any")), *((name, regulation(name)) for name in known)],
        people=people,
        choice=[
            (column.value, gettext(said))
            for column, said in filters.COLUMNS.items()
            if people or column is not RequestColumn.ASSIGNEE
        ],
        searches=[(name, sentence(gettext(what))) for name, what in _SOUGHT.items()],
        may_enter=context.may(deletion_requests.create_deletion_request),
        may_decide=context.may(deletion_requests.approve_deletion_request),
        matching=None if sought else _matching(context, found, query),
    )


def _views(context: RequestContext) -> list[tuple[SavedViewOut, dict[str, str]]]:
    """The reader's saved views by name, each with what it shows, as an address has it."""
    found = context.ask(saved_views.list_saved_views, limit=MOST_VIEWS).items
    return [(one, filters.of_view(one)) for one in sorted(found, key=lambda one: one.name.casefold())]


def _whose(context: RequestContext) -> list[tuple[str, str]]:
    """The choice of whose cases are listed; empty for a caller who may not know whose they are."""
    people = everybody(context)
    mine = [(filters.ME, gettext("Me"))] if context.caller.is_person else []
    return people and [("", gettext("Anybody or nobody")), *mine, *people]
