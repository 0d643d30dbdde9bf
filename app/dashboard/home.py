"""The first page: what is late, what waits, what runs, and what is left of anybody."""

from typing import Any

from fastapi import Response

from app.api import deletion_requests, models, overview, runs
from app.dashboard import audits, pages
from app.dashboard.request_context import RequestContext, TheContext

router = pages.new_router()

_MOST = 8
"""Requests and models that are named; the others are a click away."""


@router.get("")
def home(context: TheContext) -> Response:
    """Show how everything stands."""
    return context.page("home/home.html", **_found(context))


@router.get("/")
def home_too(_context: TheContext) -> Response:
    """With a slash behind it, as people type it."""
    return pages.see(pages.ROOT)


@router.get("/live")
def live_home(context: TheContext) -> Response:
    """The same, for a page that is open."""
    return context.page("home/live.html", **_found(context))


def _found(context: RequestContext) -> dict[str, Any]:
    """The parts that the caller may see; None for those that they may not."""

    def asked(endpoint: Any, **arguments: Any) -> Any:
        return context.ask(endpoint, **arguments) if context.may(endpoint) else None

    found = asked(models.list_models, limit=_MOST)
    return {
        "numbers": asked(overview.get_overview),
        "urgent": asked(deletion_requests.list_deletion_requests, order="deadline", limit=_MOST),
        "running": asked(runs.list_runs, status="running", limit=_MOST),
        "models": found,
        "audits": audits.tally(found.items) if found else None,
        "risk_days": context.call.installation.settings.risk_days,
    }
