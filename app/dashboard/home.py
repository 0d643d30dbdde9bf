"""The first page: what is in danger and why, what waits, what runs, and the models in most danger."""

import datetime
from typing import Any

from fastapi import Response

from app.api import audit_log, decisions, deletion_requests, models, overview, runs
from app.dashboard import outlook, pages
from app.dashboard.dangers import dangers
from app.dashboard.request_context import RequestContext, TheContext
from lethe.contract.choices import ModelOrder, RequestOrder
from lethe.contract.overview import COUNTED
from lethe.contract.sets import RunStatus

router = pages.new_router()

_MOST = 8
"""Requests, runs and models that are named; all of them are a click away."""


@router.get("")
def home(context: TheContext) -> Response:
    """Show how everything stands, and what is owed by when."""
    return context.page("home/home.html", outlook=_outlook(context), **_found(context))


@router.get("/")
def home_too(_context: TheContext) -> Response:
    """With a slash behind it, as people type it."""
    return pages.see(pages.ROOT)


@router.get("/live")
def live_home(context: TheContext) -> Response:
    """The same, for a page that is open."""
    return context.page("home/live.html", **_found(context))


@router.get("/outlook")
def live_outlook(context: TheContext) -> Response:
    """Show what is owed by when, for a page that is open; it changes slowly, and is asked for seldom."""
    return context.page("home/outlook.html", outlook=_outlook(context))


def _outlook(context: RequestContext) -> outlook.Outlook | None:
    may_sum_up = context.may(decisions.summarise_deletion_requests)
    return outlook.of(context.ask(decisions.summarise_deletion_requests)) if may_sum_up else None


def _found(context: RequestContext) -> dict[str, Any]:
    """The parts that the caller may see; None for those that they may not."""

    def asked(endpoint: Any, **arguments: Any) -> Any:
        return context.ask(endpoint, **arguments) if context.may(endpoint) else None

    numbers = asked(overview.get_overview)
    risk_days, at = context.call.installation.settings.risk_days, datetime.datetime.now(datetime.UTC)
    return {
        "at": at,
        "numbers": numbers,
        "counted": COUNTED,
        "dangers": dangers(numbers, at=at, risk_days=risk_days) if numbers else [],
        "urgent": asked(deletion_requests.list_deletion_requests, order=RequestOrder.DEADLINE, limit=_MOST),
        "running": asked(runs.list_runs, status=RunStatus.RUNNING, limit=_MOST),
        "models": asked(models.list_models, order=ModelOrder.RISK if numbers else ModelOrder.NEWEST, limit=_MOST),
        "risk_days": risk_days,
        "may_see_log": context.may(audit_log.list_audit_entries),
    }
