"""Filters, sort order and columns of the request list, translated from the page's URL into API parameters.

Dates are days in the time zone of the tenant's policy.
"""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from fastapi import Depends, Query
from pydantic import ValidationError, validate_call
from starlette.datastructures import FormData

from app.access.service import Caller
from app.deletion import deadlines
from app.features.desk import forms, languages
from lethe.contract import problems, sets


class RequestColumn(sets.ClosedSet):
    """Optional column of the request list, shown next to the case itself."""

    STATUS = "status"
    DUE = "due"
    REGULATION = "regulation"
    ASSIGNEE = "assignee"
    MODELS = "models"
    RECEIVED = "received"
    COMPLETED = "completed"
    SOURCE = "source"


ByStatus = sets.RequestStatus | Literal[""]
ByRegulation = Annotated[str, Query(pattern="^[a-z0-9_]{0,31}$")]
Due = Literal["", "soon", "overdue", "paused", "running"]
Assigned = Annotated[str, Query(pattern=r"^(|me|nobody|usr_[0-9a-f]{1,40})$")]
Day = Annotated[str, Query(max_length=10)]
CLOCKS: Mapping[str, str | None] = {name: name for name in get_args(Due)} | {"": None, "soon": "at_risk"}
_DAYS = {
    "received_from": ("received_from", 0),
    "received_to": ("received_before", 1),
    "due_from": ("due_from", 0),
    "due_to": ("due_before", 1),
    "completed_from": ("completed_from", 0),
    "completed_to": ("completed_before", 1),
}
"""API filter of each date field, and the days to add: the page includes a period's last day, the API does not."""
_NARROWING = ("status", "regulation", "due", "assigned", *_DAYS)
NAMES = (*_NARROWING, "order", "columns")
_DEFAULT_COLUMNS = [column for column in RequestColumn if column not in (RequestColumn.COMPLETED, RequestColumn.SOURCE)]
OF_COMPLETED = (sets.RequestOrder.LAST_COMPLETED, sets.RequestOrder.FIRST_COMPLETED)
_FAR_FUTURE = datetime.datetime(9000, 1, 1, tzinfo=datetime.UTC)
"""Upper bound that selects all open requests by deadline, and all completed requests by completion time."""
ME = "me"
"""Value of the assignee filter that stands for the reader."""


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
    order: sets.RequestOrder | Literal[""] = "",
    columns: Annotated[Sequence[str], Query(max_length=20)] = (),
) -> dict[str, str]:
    days = (received_from, received_to, due_from, due_to, completed_from, completed_to)
    order = "" if order == sets.RequestOrder.NEWEST else order
    values = (str(status), regulation, due, assigned, *days, order, _joined(columns))
    return {name: value for name, value in zip(NAMES, values, strict=True) if value}


_parse = validate_call(_filters)

Filters = Annotated[dict[str, str], Depends(_filters)]
"""Filters, sort order and columns from the URL's query string, by parameter name."""


def _joined(columns: Iterable[str]) -> str:
    """Join column names for a URL; return "" for the default columns. Raises `InputInvalid`.

    A form sends each column separately; a URL has all of them, joined by periods.
    """
    try:
        chosen = {RequestColumn(name) for names in columns for name in names.split(".") if name}
    except ValueError:
        raise problems.InputInvalid(
            languages.gettext("Check the filters."),
            [problems.FieldError("columns", languages.gettext("expected names of columns"))],
        ) from None
    return "" if chosen == set(_DEFAULT_COLUMNS) else ".".join(column for column in RequestColumn if column in chosen)


def columns_of(query: Mapping[str, str]) -> list[RequestColumn]:
    """Return the columns that the request list shows for a query."""
    if "columns" in query:
        return [RequestColumn(name) for name in query["columns"].split(".")]
    return [*_DEFAULT_COLUMNS, *([RequestColumn.COMPLETED] if query.get("order") in OF_COMPLETED else [])]


def narrowing(query: Mapping[str, str]) -> dict[str, str]:
    """Return the query parameters that filter the list, leaving out its order and columns."""
    return {name: value for name, value in query.items() if name in _NARROWING}


def in_form(form: FormData) -> dict[str, str]:
    """Return the query parameters of the list page from which a form was submitted. Raises `InputInvalid`."""
    fields = {name: form.get(f"filter_{name}") for name in NAMES}
    query: dict[str, Any] = {name: value.strip() for name, value in fields.items() if isinstance(value, str)}
    try:
        return _parse(**query | {"columns": [query.get("columns", "")]})
    except ValidationError as error:
        raise problems.InputInvalid(languages.gettext("Check the filters."), forms.in_words(error)) from None


def matching(query: Mapping[str, str], *, caller: Caller) -> dict[str, Any]:
    """Return the filters as API parameters for `caller`, without status and order. Raises `InputInvalid`."""
    zone, assignee = caller.policy.time_zone, query.get("assigned")
    parameters: dict[str, Any] = {
        "regulation": query.get("regulation"),
        "clock": CLOCKS.get(query.get("due", "")),
        "assignee": caller.id if assignee == ME else assignee,
    }
    faults = []
    for name, (parameter, days) in _DAYS.items():
        try:
            parameters[parameter] = _midnight(query[name], days, zone) if name in query else None
        except ValueError:
            faults.append(problems.FieldError(name, languages.gettext("Enter a date.")))
    if faults:
        raise problems.InputInvalid(languages.gettext("Check the filters."), faults)
    return parameters


def listed(query: Mapping[str, str], *, caller: Caller) -> dict[str, Any]:
    """Return the filters as API parameters that select every request shown in the list, given its order.

    Some orders omit requests: a list by deadline has only open requests, and a list by completion only completed ones.
    """
    parameters = matching(query, caller=caller) | {"status": query.get("status")}
    order = query.get("order")
    if order in (sets.RequestOrder.DEADLINE, sets.RequestOrder.LATEST_DEADLINE):
        parameters["due_before"] = parameters["due_before"] or _FAR_FUTURE
    if order in OF_COMPLETED:
        parameters["completed_before"] = parameters["completed_before"] or _FAR_FUTURE
    return parameters


def _midnight(day: str, days: int, zone: str) -> datetime.datetime:
    """Return the start of the day that is `days` days after `day` in time zone `zone`. Raises `ValueError`."""
    date = datetime.date.fromisoformat(day) + datetime.timedelta(days=days)
    if not 1971 <= date.year < 9000:
        raise ValueError(day)
    return deadlines.midnight(date, zone=zone)
