"""Inbox: counts, the requests awaiting a decision (most urgent first), and a case next to them.

Overdue requests are the most urgent, followed by those whose clock is running. Requests whose clock is paused come
last, because their deadline is not getting closer. Within each group, the earliest deadline comes first.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Depends, Query, Response

from app.api import deletion_requests
from app.features.desk import case_endpoints, languages, lists, rendering as pages, request_context
from app.features.desk.pages import home, request, requests
from app.features.lists import endpoints as request_lists
from lethe.contract import fields, problems, sets
from lethe.contract.deletion_requests import NOBODY, DeletionRequestOut, OpenClock

router = pages.new_router()

_ROWS = 25
"""Number of requests per page: as many as a laptop shows without scrolling."""
_CLOCKS: Mapping[str, OpenClock] = {"o": sets.ClockState.OVERDUE, "r": "running", "p": sets.ClockState.PAUSED}
"""Clock states, most urgent first, by the first character of a cursor. Every open request is in one of them."""
RequestId = Annotated[str, Query(pattern="^[a-z0-9_]{0,64}$")]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Position in an inbox: queue, page, the id of the case shown next to the queue (or ""), and URL parameters."""

    queue: requests.Queue
    place: lists.PagePosition
    case: str

    @property
    def address(self) -> dict[str, str]:
        return {"queue": self.queue} | self.place.here


def _position(place: lists.ThePlace, queue: requests.Queue = "all", case: RequestId = "") -> Position:
    return Position(queue=queue, place=dataclasses.replace(place, size=_ROWS), case=case)


ThePosition = Annotated[Position, Depends(_position)]


@router.get("")
def show_inbox(
    context: request_context.TheContext,
    position: ThePosition,
    done: request.Done | requests.Done = "",
    decided: int = 0,
    refused: int = 0,
) -> Response:
    """Show the inbox; callers who may not see requests get the overview."""
    if not context.may(deletion_requests.list_deletion_requests):
        return home.show_overview(context)
    return context.page(
        "inbox/inbox.html",
        **_queue(context, position),
        **(request.case_of(context, position.case, done=done) if position.case else {}),
        result=requests.result_of(done, decided, refused) if done in ("approved", "rejected") else None,
        may_enter=context.may(deletion_requests.create_deletion_request),
    )


@router.get("/inbox/live")
def live_inbox(context: request_context.TheContext, position: ThePosition) -> Response:
    """Refresh the counts and the queue of an open inbox."""
    context.require(deletion_requests.list_deletion_requests)
    return context.page("inbox/live.html", **_queue(context, position))


@router.get("/inbox/cases/{request_id}")
def show_case(context: request_context.TheContext, request_id: str, queue: requests.Queue = "all") -> Response:
    """Show a case next to the queue of an open inbox."""
    return context.page("inbox/case.html", **request.case_of(context, request_id), queue=queue)


def _queue(context: request_context.RequestContext, position: Position) -> dict[str, Any]:
    place = position.place
    page = _page(context, position)
    counts = {queue: _count(context, queue) for queue in _queues(context)}
    return {
        "page": page,
        "place": place,
        "queue": position.queue,
        "position": position,
        "counts": counts,
        "titles": {
            "all": languages.gettext("All"),
            "mine": languages.gettext("Mine"),
            "unassigned": languages.gettext("Unassigned"),
        },
        "extent": place.extent(page, "request", "requests", total=counts.get(position.queue)),
        "may_decide": context.may(deletion_requests.approve_deletion_request),
        "may_see_people": context.may(case_endpoints.list_assignees),
        "stated_zone": context.caller.policy.time_zone,
        **home.numbers_of(context),
    }


def _page(context: request_context.RequestContext, position: Position) -> fields.PageOut[DeletionRequestOut]:
    """Return the requests at a position in the queue, most urgent first.

    For each state of the clock, the API lists requests by deadline. An inbox cursor is the character of a state
    followed by a cursor into that state's list, or the character alone at the beginning of the list.
    """
    cursor = position.place.cursor or next(iter(_CLOCKS))
    if cursor[0] not in _CLOCKS:
        raise problems.InputInvalid(
            languages.gettext("Check the filters."),
            [problems.FieldError("cursor", languages.gettext("expected a cursor"))],
        )
    states, items = list(_CLOCKS), list[DeletionRequestOut]()
    after: str | None = cursor[1:] or None
    for state in states[states.index(cursor[0]) :]:
        if len(items) == _ROWS:
            return fields.PageOut(items=items, next_cursor=state)
        page = context.ask(
            deletion_requests.list_deletion_requests,
            **_filters(context, position.queue),
            clock=_CLOCKS[state],
            order=sets.RequestOrder.DEADLINE,
            limit=_ROWS - len(items),
            cursor=after,
        )
        items, after = [*items, *page.items], None
        if page.next_cursor is not None:
            return fields.PageOut(items=items, next_cursor=state + page.next_cursor)
    return fields.PageOut(items=items, next_cursor=None)


def _queues(context: request_context.RequestContext) -> list[requests.Queue]:
    """Return the caller's queues: `unassigned`, and `mine` for a person, require permission to list assignees."""
    if not context.may(case_endpoints.list_assignees):
        return ["all"]
    return ["mine", "unassigned", "all"] if context.caller.is_person else ["unassigned", "all"]


def _filters(context: request_context.RequestContext, queue: requests.Queue) -> Mapping[str, Any]:
    assignees = {"mine": context.caller.id, "unassigned": NOBODY}
    return {"status": sets.RequestStatus.IN_REVIEW} | ({"assignee": assignees[queue]} if queue in assignees else {})


def _count(context: request_context.RequestContext, queue: requests.Queue) -> int:
    return context.ask(request_lists.count_deletion_requests, **_filters(context, queue)).count
