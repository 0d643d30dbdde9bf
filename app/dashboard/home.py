"""The first page: what is late, what waits, what runs, and what is left of anybody."""

from typing import Any

from fastapi import Response

from app.api import deletion_requests, models, overview, runs
from app.dashboard import audits, pages
from app.dashboard.visits import TheVisit, Visit

router = pages.new_router()

_MOST = 8
"""Requests and models that are named; the others are a click away."""


@router.get("")
def home(visit: TheVisit) -> Response:
    """How everything stands."""
    return visit.page("home/home.html", **_found(visit))


@router.get("/")
def home_too(_visit: TheVisit) -> Response:
    """With a slash behind it, as people type it."""
    return pages.see(pages.ROOT)


@router.get("/live")
def live_home(visit: TheVisit) -> Response:
    """The same, for a page that is open."""
    return visit.page("home/live.html", **_found(visit))


def _found(visit: Visit) -> dict[str, Any]:
    """What the caller may see; None for what they may not."""

    def asked(endpoint: Any, **arguments: Any) -> Any:
        return visit.ask(endpoint, **arguments) if visit.may(endpoint) else None

    found = asked(models.list_models, limit=_MOST)
    return {
        "numbers": asked(overview.get_overview),
        "urgent": asked(deletion_requests.list_deletion_requests, order="deadline", limit=_MOST),
        "running": asked(runs.list_runs, status="running", limit=_MOST),
        "models": found,
        "audits": audits.tally(found.items) if found else None,
        "risk_days": visit.call.at.settings.risk_days,
    }
