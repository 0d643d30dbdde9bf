"""Requests: the list, search and export, and decisions on selected requests or on all that match."""

import csv
import datetime
import io
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from typing import Any, Literal, get_args

from fastapi import Response
from pydantic import BaseModel
from starlette.datastructures import FormData

from app.api import deletion_requests
from app.features.desk import case_endpoints, filters, glossary, languages, lists, rendering as pages
from app.features.desk.filters import Filters, RequestColumn
from app.features.desk.forms import checked, text
from app.features.desk.request_context import Form, RequestContext, TheContext
from app.features.desk.wording import regulation, sentence, state, words
from app.features.lists import endpoints as request_lists
from lethe.contract import problems, sets
from lethe.contract.deletion_requests import NOBODY, DeletionRequestOut, RejectionIn
from lethe.contract.fields import Moment, PageOut, SubjectIn
from lethe.features.identities.contract import EMAIL, PHONE
from lethe.features.lists.contract import DecisionsIn

router = pages.new_router()

_MAX_CHOSEN_REQUESTS = 200
"""Maximum number of requests on a page."""
_MAX_MATCHES = 500
_BATCH_SIZE = 100
"""Number of requests per transaction, which holds the write lock."""
_MAX_SECONDS = 20.0
"""Time after which a decision on all requests shows its progress and offers to continue."""
_SEARCHES = {
    "subject_id": languages.marked("subject id"),
    "subject_sha256": languages.marked("SHA-256 of the subject id"),
    "external_id": languages.marked("case number"),
    EMAIL: languages.marked("e-mail address"),
    PHONE: languages.marked("phone number"),
}
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""First characters of cells that spreadsheets would evaluate as formulas."""
_DUE = {
    "soon": languages.marked("Due soon"),
    "overdue": languages.marked("Overdue"),
    "paused": languages.marked("Clock paused"),
    "running": languages.marked("Neither paused nor overdue"),
}
_UNDECIDED = (sets.RequestStatus.IN_REVIEW, sets.RequestStatus.ACCEPTED)
_RESULTS = {sets.Decision.APPROVE: "approved", sets.Decision.REJECT: "rejected"}
Done = Literal["", "approved", "rejected"]
Queue = Literal["all", "mine", "unassigned"]
QUEUES = get_args(Queue)
"""Queues of the inbox, to which forms submitted from there return."""


class _SeenBefore(BaseModel):
    """Time at which the user was shown the number of matching requests."""

    before: Moment


@router.get("/requests")
def list_requests(
    context: TheContext, query: Filters, place: lists.ThePlace, done: Done = "", decided: int = 0, refused: int = 0
) -> Response:
    """List requests. The URL contains the filters, but no personal data."""
    try:
        return _list(context, query, place, result=result_of(done, decided, refused))
    except problems.InputInvalid as error:
        if not error.errors or error.errors[0].path == "cursor":
            raise
        return _list(context, query, place, page=PageOut(items=[], next_cursor=None), error=error)


@router.post("/requests/search")
def search_requests(context: TheContext, form: Form) -> Response:
    """List the requests about a person. The id is sent in the body, hashed in memory, and stored nowhere."""
    field, value = text(form, "by"), text(form, "sought")
    if field not in _SEARCHES or not value:
        raise problems.InputInvalid(languages.gettext("Choose what to search by, and enter it."))
    sought = {"subject_id": value, "kind": field} if field in (EMAIL, PHONE) else {field: value}
    if field != "external_id":
        checked(SubjectIn, **sought)
    page = context.ask(deletion_requests.list_deletion_requests, **sought, limit=_MAX_MATCHES)
    return _list(context, {}, None, page=page, criterion=languages.gettext(_SEARCHES[field]))


@router.post("/requests/decide")
def decide_requests(context: TheContext, form: Form) -> Response:
    """Approve or reject each selected request separately, and show the list again with the same filters and page size.

    Requests that can no longer be decided do not affect the others.
    """
    endpoint: Callable[..., DeletionRequestOut] = deletion_requests.approve_deletion_request
    done, body = "approved", {}
    if text(form, "decision") == "reject":
        endpoint = deletion_requests.reject_deletion_request
        try:
            done, body = "rejected", {"body": rejection(form)}
        except problems.InputInvalid as error:
            chosen = frozenset(map(str, form.getlist("chosen")))
            return _list(context, filters.in_form(form), _place_in(form), error=error, chosen=chosen)
    decided = refused = 0
    for request_id in form.getlist("chosen")[:_MAX_CHOSEN_REQUESTS]:
        try:
            context.ask(endpoint, request_id=str(request_id), **body)
            decided += 1
        except problems.ScopeMissing:
            raise
        except problems.Problem:
            refused += 1
    if (queue := text(form, "inbox")) in QUEUES:
        return pages.see(pages.ROOT, queue=queue, done=done, decided=decided, refused=refused)
    position = filters.in_form(form) | _place_in(form).settings
    return pages.see(f"{pages.ROOT}/requests", **position, done=done, decided=decided, refused=refused)


@router.get("/requests.csv")
def export_requests(context: TheContext, query: Filters) -> Response:
    """Download all listed requests as CSV for a spreadsheet, newest first."""
    export = context.ask(request_lists.export_deletion_requests, **filters.listed(query, caller=context.caller))
    export.body_iterator = _without_formulas(export.body_iterator)
    return export


@router.get("/requests/decide")
def ask_about_all(
    context: TheContext,
    query: Filters,
    before: Moment | None = None,
    done: Done = "",
    decided: int = 0,
    refused: int = 0,
) -> Response:
    """Show how many requests created before `before` (default: now) match, and offer to decide on them."""
    context.require(request_lists.decide_deletion_requests)
    result = result_of(done, decided, refused)
    return _confirmation(context, query, before or datetime.datetime.now(datetime.UTC), result=result)


@router.post("/requests/decide-all")
def decide_about_all(context: TheContext, form: Form) -> Response:
    """Decide on all matching requests, in many transactions, by the same rules as for a single request."""
    decision = sets.Decision.REJECT if text(form, "decision") == sets.Decision.REJECT else sets.Decision.APPROVE
    query, before = filters.in_form(form), checked(_SeenBefore, before=text(form, "before")).before
    try:
        decided, refused, is_finished = _decide(context, decision, query, before, form)
    except problems.InputInvalid as error:
        return _confirmation(context, query, before, error=error)
    result: dict[str, Any] = {"done": _RESULTS[decision], "decided": decided, "refused": refused}
    if is_finished:
        return pages.see(f"{pages.ROOT}/requests", **query, **result)
    return pages.see(f"{pages.ROOT}/requests/decide", **filters.narrowing(query), before=before.isoformat(), **result)


def possible_assignees(context: RequestContext, *also: str | None) -> list[tuple[str, str]]:
    """Return the options for the assignee: unassigned, then people by name; empty if the caller may not list people.

    `also`: id and name of the current assignee, who is added even if they can no longer decide on requests.
    """
    page = context.ask_if_allowed(case_endpoints.list_assignees, limit=_MAX_MATCHES)
    if page is None:
        return []
    names = {assignee.id: assignee.name for assignee in page.items}
    if also and also[0] and also[0] not in names:
        names[also[0]] = languages.gettext("{name} (decides no longer)").format(name=also[1] or also[0])
    return [(NOBODY, languages.gettext("Nobody")), *sorted(names.items(), key=lambda item: item[1].casefold())]


def rejection(form: FormData) -> RejectionIn:
    return checked(RejectionIn, ground=text(form, "ground"), explanation=text(form, "explanation"))


def result_of(done: str, decided: int, refused: int) -> dict[str, Any] | None:
    """Return the outcome of a decision on selected requests; None if `done` is empty (no decision was made)."""
    return {"done": done, "decided": decided, "refused": refused} if done else None


def _place_in(form: FormData) -> lists.PagePosition:
    """Return the position of the first page of the list from which a form was submitted, with the same page size."""
    size = text(form, "size")
    return lists.PagePosition(size=int(size)) if size in lists.SIZES else lists.PagePosition()


async def _without_formulas(parts: AsyncIterable[Any]) -> AsyncIterator[str]:
    """Put an apostrophe before each CSV cell that would be a formula. Each part must consist of whole lines.

    All cells are quoted, because some spreadsheets split cells at semicolons.
    """
    async for part in parts:
        text = io.StringIO()
        lines = csv.reader(io.StringIO(part, newline=""))
        csv.writer(text, quoting=csv.QUOTE_ALL).writerows([_as_text(cell) for cell in line] for line in lines)
        yield text.getvalue()


def _as_text(cell: str) -> str:
    return f"'{cell}" if cell.startswith(_FORMULA) else cell


def _page(context: RequestContext, query: Mapping[str, str], place: lists.PagePosition) -> PageOut[DeletionRequestOut]:
    return context.ask(
        deletion_requests.list_deletion_requests,
        **filters.matching(query, caller=context.caller),
        status=query.get("status"),
        order=query.get("order", "newest"),
        limit=place.size,
        cursor=place.cursor,
    )


def _total(
    context: RequestContext, page: PageOut[DeletionRequestOut], query: Mapping[str, str], place: lists.PagePosition
) -> int | None:
    """Return the number of requests across all pages; None if there is only one page."""
    if place.has_all(page):
        return None
    return context.ask(request_lists.count_deletion_requests, **filters.listed(query, caller=context.caller)).count


def _num_undecided(context: RequestContext, page: PageOut[DeletionRequestOut], query: Mapping[str, str]) -> int | None:
    """Return how many requests across all pages the caller can decide on; None if there is only one page."""
    if page.next_cursor is None or not context.may(request_lists.decide_deletion_requests):
        return None
    if query.get("order") in filters.OF_COMPLETED:
        return None
    return sum(_undecided(context, query).values())


def _undecided(context: RequestContext, query: Mapping[str, str], **more: Any) -> dict[sets.RequestStatus, int]:
    """Count the matching requests by status, for each status that allows a decision."""
    parameters = filters.matching(query, caller=context.caller) | more
    return {
        status: context.ask(request_lists.count_deletion_requests, status=status, **parameters).count
        for status in _UNDECIDED
        if query.get("status", "") in ("", status)
    }


def _list(
    context: RequestContext,
    query: dict[str, str],
    place: lists.PagePosition | None,
    *,
    page: PageOut[DeletionRequestOut] | None = None,
    criterion: str | None = None,
    result: dict[str, Any] | None = None,
    error: problems.Problem | None = None,
    chosen: frozenset[str] = frozenset(),
) -> Response:
    total = None
    if page is None:
        place = place or lists.PagePosition()
        page = _page(context, query, place)
        total = _total(context, page, query, place)
    people = _assigned_choices(context)
    regulations = dict.fromkeys([*sets.Regulation, *context.caller.policy.regulations])
    return context.page(
        "requests/list.html",
        error=error,
        chosen=chosen,
        page=page,
        query=query,
        filtered=filters.narrowing(query),
        columns=filters.columns_of(query),
        place=place,
        extent=(place or lists.PagePosition(size=_MAX_MATCHES)).extent(page, "request", "requests", total=total),
        criterion=criterion,
        result=result,
        orders=list(glossary.labels("orders").items()),
        statuses=[
            ("", languages.gettext("Any")),
            *((status.value, state(status).label) for status in sets.RequestStatus),
        ],
        regulations=[("", languages.gettext("Any")), *((name, regulation(name)) for name in regulations)],
        people=people,
        choice=[
            (column, label)
            for column, label in glossary.labels("columns").items()
            if people or column != RequestColumn.ASSIGNEE
        ],
        searches=[(field, sentence(languages.gettext(label))) for field, label in _SEARCHES.items()],
        may_enter=context.may(deletion_requests.create_deletion_request),
        may_decide=context.may(deletion_requests.approve_deletion_request),
        matching=None if criterion else _num_undecided(context, page, query),
        chips=_chips(context, query),
        stated_zone=context.caller.policy.time_zone,
    )


def _chips(context: RequestContext, query: Mapping[str, str]) -> list[tuple[str, dict[str, str]]]:
    """Return each active filter's label, paired with the query parameters that remain if the filter is removed."""
    return [
        (sentence(_filter_label(context, name, value)), {key: query[key] for key in query if key != name})
        for name, value in filters.narrowing(query).items()
    ]


def _assigned_choices(context: RequestContext) -> list[tuple[str, str]]:
    """Return the options of the assignee filter; empty if the caller may not list people."""
    people = possible_assignees(context)
    mine = [(filters.ME, languages.gettext("Me"))] if context.caller.is_person else []
    return people and [("", languages.gettext("Anyone")), *mine, *people]


def _decide(
    context: RequestContext, decision: sets.Decision, query: dict[str, str], before: datetime.datetime, form: FormData
) -> tuple[int, int, bool]:
    """Decide matching requests. Return how many were decided and how many could not be, and True if none remain."""
    parameters = filters.matching(query, caller=context.caller)
    if {parameters.pop("completed_from"), parameters.pop("completed_before")} != {None}:
        # Completed requests cannot be decided.
        return 0, 0, True
    body: dict[str, Any] = {"decision": decision, "made_before": before, "limit": _BATCH_SIZE} | parameters
    if decision is sets.Decision.REJECT:
        body["rejection"] = {"ground": text(form, "ground"), "explanation": text(form, "explanation")}
    ends, decided, refused = time.monotonic() + _MAX_SECONDS, 0, 0
    for status in _UNDECIDED if decision is sets.Decision.REJECT else _UNDECIDED[:1]:
        if query.get("status", status) != status:
            continue
        cursor = None
        while True:
            batch = checked(DecisionsIn, **body, status=status, cursor=cursor)
            outcome = context.ask(request_lists.decide_deletion_requests, body=batch)
            decided, refused, cursor = decided + outcome.decided, refused + outcome.refused, outcome.next_cursor
            if cursor is None:
                break
            if time.monotonic() > ends:
                return decided, refused, False
    return decided, refused, True


def _confirmation(
    context: RequestContext,
    query: dict[str, str],
    before: datetime.datetime,
    *,
    result: dict[str, Any] | None = None,
    error: problems.Problem | None = None,
) -> Response:
    counts = _undecided(context, query, made_before=before)
    return context.page(
        "requests/decide.html",
        query=query,
        words=[_filter_label(context, name, value) for name, value in filters.narrowing(query).items()],
        before=before,
        can_approve=counts.get(sets.RequestStatus.IN_REVIEW, 0),
        can_reject=sum(counts.values()),
        result=result,
        error=error,
    )


def _filter_label(context: RequestContext, name: str, value: str) -> str:
    match name:
        case "status":
            return state(value).label
        case "regulation":
            return regulation(value)
        case "due":
            return languages.gettext(_DUE[value])
        case "assigned":
            name = dict(_assigned_choices(context)).get(value, value)
            return languages.gettext("assigned to {name}").format(name=name)
        case _:
            return f"{languages.inside(words(name))} {value}"
