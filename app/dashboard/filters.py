"""Filters of the list of requests: in the address, as days of the policy, and as the API takes them; and its order and
columns."""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import Depends, Query
from pydantic import ValidationError, validate_call
from starlette.datastructures import FormData

from app.access.service import Caller
from app.dashboard import faults
from app.dashboard.languages import gettext, marked
from app.deletion import deadlines
from lethe.contract.choices import RequestColumn, RequestOrder
from lethe.contract.problems import FieldError, InputInvalid
from lethe.contract.saved_views import SavedViewOut
from lethe.contract.sets import RequestStatus

ByStatus = RequestStatus | Literal[""]
ByRegulation = Annotated[str, Query(pattern="^[a-z0-9_]{0,31}$")]
Due = Literal["", "soon", "overdue", "paused"]
Assigned = Annotated[str, Query(pattern=r"^(|me|nobody|usr_[0-9a-f]{1,40})$")]
Day = Annotated[str, Query(max_length=10)]
CLOCKS: Mapping[str, str | None] = {"": None, "soon": "at_risk", "overdue": "overdue", "paused": "paused"}
_DAYS = {
    "received_from": ("received_from", 0),
    "received_to": ("received_before", 1),
    "due_from": ("due_from", 0),
    "due_to": ("due_before", 1),
    "completed_from": ("completed_from", 0),
    "completed_to": ("completed_before", 1),
}
"""Fields of the page, each with the filter of the API and the days after that it means: the last day is within."""
_NARROWING = ("status", "regulation", "due", "assigned", *_DAYS)
NAMES = (*_NARROWING, "order", "columns")
_KEPT_AS = {name: name for name in NAMES} | {"due": "clock", "assigned": "assignee", "size": "page_size"}
"""Names in an address, each with that in a saved view."""
COLUMNS: Mapping[RequestColumn, str] = {
    RequestColumn.STATUS: marked("Status"),
    RequestColumn.DUE: marked("Due"),
    RequestColumn.REGULATION: marked("Regulation"),
    RequestColumn.ASSIGNEE: marked("Assigned to"),
    RequestColumn.MODELS: marked("Models done"),
    RequestColumn.RECEIVED: marked("Received"),
    RequestColumn.COMPLETED: marked("Completed"),
    RequestColumn.SOURCE: marked("Source"),
}
_SHOWN = [one for one in COLUMNS if one not in (RequestColumn.COMPLETED, RequestColumn.SOURCE)]
"""Columns of a list of which nobody chose any."""
ORDERS: Mapping[RequestOrder, str] = {
    RequestOrder.NEWEST: marked("Newest first"),
    RequestOrder.OLDEST: marked("Oldest first"),
    RequestOrder.DEADLINE: marked("Open requests, most urgent first"),
    RequestOrder.LATEST_DEADLINE: marked("Open requests, most urgent last"),
    RequestOrder.LAST_COMPLETED: marked("Completed requests, latest first"),
    RequestOrder.FIRST_COMPLETED: marked("Completed requests, earliest first"),
}
OF_COMPLETED = (RequestOrder.LAST_COMPLETED, RequestOrder.FIRST_COMPLETED)
_EVER = datetime.datetime(9000, 1, 1, tzinfo=datetime.UTC)
"""After every deadline and completion: open requests alone are due before, and completed ones alone were completed."""
ME = "me"
"""Stands for the reader of the list."""


def _filters(
    status: ByStatus = "",
    regulation: ByRegulation = "",
    due: Due = "",
    assigned: Assigned = "",
    received_from: Day = "",
    received_to: Day = "",
    due_from: Day = "",
    due_to: Day = "",
    completed_from: Day = "",
    completed_to: Day = "",
    order: RequestOrder | Literal[""] = "",
    columns: Annotated[Sequence[str], Query(max_length=20)] = (),
) -> dict[str, str]:
    days = (received_from, received_to, due_from, due_to, completed_from, completed_to)
    ordered = "" if order == RequestOrder.NEWEST else order
    given = (str(status), regulation, due, assigned, *days, ordered, _joined(columns))
    return {name: value for name, value in zip(NAMES, given, strict=True) if value}


_read = validate_call(_filters)

Filters = Annotated[dict[str, str], Depends(_filters)]
"""Those that the address has, by the names it has for them."""


def _joined(columns: Iterable[str]) -> str:
    """Columns as an address has them: one by one from a form, or joined; empty for those that are shown anyway. Raises
    `InputInvalid`."""
    try:
        chosen = {RequestColumn(name) for some in columns for name in some.split(".") if name}
    except ValueError:
        raise InputInvalid(
            gettext("Correct what is named."), [FieldError("columns", gettext("expected names of columns"))]
        ) from None
    return "" if chosen == set(_SHOWN) else ".".join(one for one in COLUMNS if one in chosen)


def columns_of(query: Mapping[str, str]) -> list[RequestColumn]:
    """The columns that a list has."""
    if "columns" in query:
        return [RequestColumn(name) for name in query["columns"].split(".")]
    return [*_SHOWN, *([RequestColumn.COMPLETED] if query.get("order") in OF_COMPLETED else [])]


def narrowing(query: Mapping[str, str]) -> dict[str, str]:
    """Those that say which requests are listed, not how."""
    return {name: value for name, value in query.items() if name in _NARROWING}


def of_view(view: SavedViewOut) -> dict[str, str]:
    """Read what a saved view shows as an address has it, with the length of a page."""
    found: dict[str, Any] = view.model_dump(mode="json", exclude_defaults=True, include={*_KEPT_AS.values()})
    if view.clock is not None:
        found["clock"] = next(name for name, clock in CLOCKS.items() if clock == view.clock)
    if view.columns:
        found["columns"] = _joined(view.columns)
    return {name: str(found[kept]) for name, kept in _KEPT_AS.items() if found.get(kept)}


def to_keep(query: Mapping[str, str]) -> dict[str, Any]:
    """The same for the API, as it keeps a view."""
    found: dict[str, Any] = {kept: query[name] for name, kept in _KEPT_AS.items() if name in query}
    if "due" in query:
        found["clock"] = CLOCKS.get(query["due"], query["due"])
    if "columns" in query:
        found["columns"] = query["columns"].split(".")
    if "size" in query:
        found["page_size"] = int(query["size"])
    return found


def in_form(form: FormData) -> dict[str, str]:
    """Filters of the list from which a form was sent, as an address has them. Raises `InputInvalid`."""
    given = {name: form.get(f"filter_{name}") for name in NAMES}
    found: dict[str, Any] = {name: value.strip() for name, value in given.items() if isinstance(value, str)}
    try:
        return _read(**found | {"columns": [found.get("columns", "")]})
    except ValidationError as error:
        raise InputInvalid(gettext("Correct what is named."), faults.in_words(error)) from None


def matching(query: Mapping[str, str], *, caller: Caller) -> dict[str, Any]:
    """The same filters for the API, but for the status and the order, as `caller` means them: days are those of their
    policy. Raises `InputInvalid`."""
    zone, assignee = caller.policy.time_zone, query.get("assigned")
    found: dict[str, Any] = {"regulation": query.get("regulation"), "clock": CLOCKS.get(query.get("due", ""))}
    found["assignee"] = caller.id if assignee == ME else assignee
    faults = []
    for name, (wanted, days) in _DAYS.items():
        try:
            found[wanted] = _midnight(query[name], days, zone) if name in query else None
        except ValueError:
            faults.append(FieldError(name, gettext("Write a date.")))
    if faults:
        raise InputInvalid(gettext("Correct what is named."), faults)
    return found


def listed(query: Mapping[str, str], *, caller: Caller) -> dict[str, Any]:
    """The same and the status, for all that the list has in its order, which may leave some out."""
    found = matching(query, caller=caller) | {"status": query.get("status")}
    order = query.get("order")
    if order in (RequestOrder.DEADLINE, RequestOrder.LATEST_DEADLINE):
        found["due_before"] = found["due_before"] or _EVER
    if order in OF_COMPLETED:
        found["completed_before"] = found["completed_before"] or _EVER
    return found


def _midnight(day: str, days: int, zone: str) -> datetime.datetime:
    """The beginning of the day that comes so many days after. Raises `ValueError`."""
    found = datetime.date.fromisoformat(day) + datetime.timedelta(days=days)
    if not 1971 <= found.year < 9000:
        raise ValueError(day)
    return deadlines.midnight(found, zone=zone)
