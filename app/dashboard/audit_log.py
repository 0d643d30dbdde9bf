"""The audit log: who did what, whether the chain holds, and what was signed about it."""

import json
from typing import Annotated

from fastapi import Query, Response

from app.api import audit_log
from app.dashboard import pages
from app.dashboard.lists import ThePlace
from app.dashboard.request_context import TheContext

router = pages.new_router()

_MOST_CHECKPOINTS = 500
Sought = Annotated[str, Query(max_length=200, pattern="^[^\\x00]*$")]


@router.get("/audit-log")
def list_entries(
    context: TheContext, place: ThePlace, object_id: Sought = "", actor: Sought = "", action: Sought = ""
) -> Response:
    """A page of it, newest first."""
    query = {"object_id": object_id.strip(), "actor": actor.strip(), "action": action.strip()}
    query = {name: value for name, value in query.items() if value}
    found = context.ask(audit_log.list_audit_entries, **query, limit=place.size, cursor=place.cursor)
    signed = context.ask(audit_log.list_audit_checkpoints, limit=1).items
    return context.page(
        "audit_log/list.html",
        found=found,
        query=query,
        place=place,
        extent=place.extent(found, "entry", "entries"),
        signed=signed[0] if signed else None,
    )


@router.post("/audit-log/verify")
def verify_log(context: TheContext) -> Response:
    """Recompute all of it, now."""
    return context.page("audit_log/verdict.html", verdict=context.ask(audit_log.verify_audit_log))


@router.get("/audit-log/checkpoints.json")
def download_checkpoints(context: TheContext) -> Response:
    """The last of what was signed, newest first: to be kept where nobody who could forge the log reaches it."""
    found = context.ask(audit_log.list_audit_checkpoints, limit=_MOST_CHECKPOINTS).items
    content = json.dumps([one.model_dump(mode="json") for one in found], indent=1)
    return pages.file("audit-checkpoints.json", content, "application/json")
