"""Audit log: entries filtered by actor, action, object and day, with totals and an export; and signed checkpoints."""

import csv
import datetime
import io
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Response

from app.access import service as access
from app.api.calls import number_in
from app.deletion import deadlines
from app.features.custody import endpoints as custody
from app.features.desk import lists, rendering as pages, repository, request_context
from lethe.features.custody.contract import AuditEntryOut, AuditPageOut

router = pages.new_router()

MAX_EXPORTED = 100_000
"""Maximum number of entries in an export and in the totals; only the newest matching entries are used."""
_MAX_CHECKPOINTS = 500
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_Filter = Annotated[str, Query(max_length=200, pattern="^[^\\x00]*$")]
_Day = Annotated[str, Query(pattern=r"^(\d{4}-\d{2}-\d{2})?$")]


def _filters(
    object_id: _Filter = "", actor: _Filter = "", action: _Filter = "", since: _Day = "", until: _Day = ""
) -> dict[str, str]:
    fields = {"object_id": object_id, "actor": actor, "action": action, "since": since, "until": until}
    return {name: value.strip() for name, value in fields.items() if value.strip()}


TheFilters = Annotated[dict[str, str], Depends(_filters)]


@router.get("/audit-log")
def list_entries(context: request_context.TheContext, place: lists.ThePlace, query: TheFilters) -> Response:
    """List audit log entries, newest first."""
    page = _entries(context, query, limit=place.size, cursor=place.cursor)
    checkpoints = context.ask(custody.list_audit_checkpoints, limit=1).items
    return context.page(
        "audit_log/list.html",
        page=page,
        place=place,
        extent=place.extent(page, "entry", "entries"),
        query=query,
        zone=context.caller.policy.time_zone,
        checkpoint=checkpoints[0] if checkpoints else None,
    )


@router.get("/audit-log/totals")
def show_totals(context: request_context.TheContext, query: TheFilters) -> Response:
    """Show the number of matching entries for each action."""
    context.require(custody.list_audit_entries)
    with context.call.reading() as session:
        totals = repository.audit_totals(
            session, tenant_id=context.caller.tenant_id, at_most=MAX_EXPORTED, **_matching(context, query)
        )
    is_cut = sum(totals.values()) >= MAX_EXPORTED
    return context.page("audit_log/totals.html", totals=totals, query=query, is_cut=is_cut, at_most=MAX_EXPORTED)


@router.get("/audit-log/export")
def export_entries(
    context: request_context.TheContext,
    query: TheFilters,
    # Other downloads use the same name for this parameter.
    format: Literal["csv", "json"] = "csv",  # noqa: A002
) -> Response:
    """Download the newest matching entries, with names alongside ids."""
    page = _entries(context, query, limit=MAX_EXPORTED)
    lines = [
        entry.model_dump(mode="json")
        | {"actor_name": page.names.get(entry.actor), "object_name": page.names.get(entry.object_id)}
        for entry in page.items
    ]
    if format == "json":
        return pages.file("audit-log.json", json.dumps(lines, indent=1), "application/json")
    text = io.StringIO()
    columns = [*AuditEntryOut.model_fields, "actor_name", "object_name"]
    writer = csv.DictWriter(text, columns, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in line.items()} for line in lines)
    return pages.file("audit-log.csv", text.getvalue(), "text/csv; charset=utf-8")


@router.post("/audit-log/verify")
def verify_log(context: request_context.TheContext) -> Response:
    """Recompute the audit log's hash chain."""
    return context.page("audit_log/verdict.html", verdict=context.ask(custody.verify_audit_log))


@router.get("/audit-log/checkpoints.json")
def download_checkpoints(context: request_context.TheContext) -> Response:
    """Download the latest signed checkpoints, to be stored out of reach of anyone who could forge the log."""
    checkpoints = context.ask(custody.list_audit_checkpoints, limit=_MAX_CHECKPOINTS)
    return pages.json_file("audit-checkpoints.json", checkpoints.items)


def _entries(
    context: request_context.RequestContext, query: Mapping[str, str], *, limit: int, cursor: str | None = None
) -> AuditPageOut:
    """Return a page of matching entries in the API's format. Days begin at midnight in the tenant's time zone."""
    context.require(custody.list_audit_entries)
    with context.call.reading() as session:
        rows = repository.audit_entries(
            session,
            tenant_id=context.caller.tenant_id,
            before=number_in(cursor),
            limit=limit + 1,
            **_matching(context, query),
        )
        names = access.names_of(session, {id_ for row in rows for id_ in (row.actor, row.object_id)})
    items = [AuditEntryOut.of(row, at=row.at.astimezone(datetime.UTC).isoformat()) for row in rows[:limit]]
    next_cursor = str(items[-1].sequence) if len(rows) > limit else None
    return AuditPageOut(items=items, next_cursor=next_cursor, names=names)


def _matching(context: request_context.RequestContext, query: Mapping[str, str]) -> dict[str, Any]:
    """Return a query's filters as keyword arguments. Invalid dates are ignored."""
    zone = context.caller.policy.time_zone
    matching: dict[str, Any] = {name: query[name] for name in ("object_id", "actor", "action") if name in query}
    for name, days in (("since", 0), ("until", 1)):
        try:
            day = datetime.date.fromisoformat(query.get(name, "")) + datetime.timedelta(days=days)
            matching[name] = deadlines.midnight(day, zone=zone)
        except (ValueError, OverflowError):
            continue
    return matching


def _cell(value: Any) -> str:
    """Return a cell that spreadsheets do not interpret as a formula."""
    text = "" if value is None else json.dumps(value, sort_keys=True) if isinstance(value, dict) else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text
