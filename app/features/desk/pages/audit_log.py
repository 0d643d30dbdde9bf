"""The audit log: its entries, its verification, and its signed checkpoints."""

from typing import Annotated

from fastapi import Query, Response

from app.api import audit_log
from app.features.desk import rendering as pages
from app.features.desk.lists import ThePlace
from app.features.desk.request_context import TheContext

router = pages.new_router()

_MAX_CHECKPOINTS = 500
Filter = Annotated[str, Query(max_length=200, pattern="^[^\\x00]*$")]


@router.get("/audit-log")
def list_entries(
    context: TheContext, place: ThePlace, object_id: Filter = "", actor: Filter = "", action: Filter = ""
) -> Response:
    """List entries of the audit log, newest first."""
    filters = {"object_id": object_id.strip(), "actor": actor.strip(), "action": action.strip()}
    query = {name: value for name, value in filters.items() if value}
    checkpoints = context.ask(audit_log.list_audit_checkpoints, limit=1).items
    return context.page(
        "audit_log/list.html",
        **context.listing(audit_log.list_audit_entries, place, "entry", "entries", **query),
        query=query,
        checkpoint=checkpoints[0] if checkpoints else None,
    )


@router.post("/audit-log/verify")
def verify_log(context: TheContext) -> Response:
    """Recompute the hash chain of the audit log."""
    return context.page("audit_log/verdict.html", verdict=context.ask(audit_log.verify_audit_log))


@router.get("/audit-log/checkpoints.json")
def download_checkpoints(context: TheContext) -> Response:
    """Download the last signed checkpoints, to be kept out of reach of anyone who could forge the log."""
    checkpoints = context.ask(audit_log.list_audit_checkpoints, limit=_MAX_CHECKPOINTS)
    return pages.json_file("audit-checkpoints.json", checkpoints.items)
