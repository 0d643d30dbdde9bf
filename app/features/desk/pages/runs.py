"""Runs and workers: runs in progress, failed runs and why they failed, the queue, and the workers."""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import Depends, Query, Response

from app.api import runs
from app.features.desk import languages, lists, rendering as pages, request_context, wording
from app.features.desk.glossary import Advice, advice, labels
from app.features.desk.pages import evidence
from app.features.overview import endpoints as overview
from app.features.queue.endpoints import get_queue
from lethe.contract.runs import RunOut
from lethe.contract.sets import RunKind, RunOrder, RunStatus

router = pages.new_router()


_MAX_FAILURES = 200
StatusFilter: TypeAlias = RunStatus | Literal["", "unresolved"]
ModelId = Annotated[str, Query(pattern="^[a-z0-9_]{0,40}$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Failed runs with the same error code."""

    error_code: str
    count: int
    last: RunOut
    advice: Advice

    @property
    def last_at(self) -> datetime.datetime:
        return self.last.finished_at or self.last.started_at


def _filters(status: StatusFilter = "", model_id: ModelId = "", order: RunOrder = RunOrder.NEWEST) -> dict[str, Any]:
    return {"status": status, "model_id": model_id, "order": order}


TheFilters = Annotated[dict[str, Any], Depends(_filters)]
"""Filters and sort order from the URL."""


@router.get("/runs")
def list_runs(context: request_context.TheContext, place: lists.ThePlace, filters: TheFilters) -> Response:
    """List runs, failures and workers."""
    return context.page("runs/list.html", **_listing(context, place, **filters))


@router.get("/runs/live")
def live_runs(context: request_context.TheContext, place: lists.ThePlace, filters: TheFilters) -> Response:
    """Refresh an open list of runs."""
    return context.page("runs/live.html", **_listing(context, place, **filters))


@router.get("/runs/queue")
def show_queue(context: request_context.TheContext) -> Response:
    """Show the next runs, why each is due, and what each worker is currently doing."""
    return context.page("runs/queue.html", **_queue(context))


@router.get("/runs/queue/live")
def live_queue(context: request_context.TheContext) -> Response:
    """Refresh an open queue page."""
    return context.page("runs/live_queue.html", **_queue(context))


@router.get("/runs/{run_id}")
def show_run(context: request_context.TheContext, run_id: str, done: Literal["", "cancelled"] = "") -> Response:
    """Show a run's progress or outcome."""
    return context.page("runs/one.html", done=done, **_details(context, run_id))


@router.post("/runs/{run_id}/cancel")
def cancel_run(context: request_context.TheContext, run_id: str) -> Response:
    """Cancel a run."""
    context.ask(runs.cancel_run, run_id=run_id)
    return pages.see(f"{pages.ROOT}/runs/{run_id}", done="cancelled")


@router.get("/runs/{run_id}/live")
def live_run(context: request_context.TheContext, run_id: str) -> Response:
    """Refresh an open run page."""
    return context.page("runs/live_one.html", **_details(context, run_id))


def failures(runs: Iterable[RunOut]) -> list[Failure]:
    """Group failed runs by error code, most recent failure first."""
    by_code: dict[str, list[RunOut]] = {}
    for run in runs:
        by_code.setdefault(run.error_code or "", []).append(run)
    groups = [
        Failure(
            error_code=code,
            count=sum(1 + run.repeated for run in group),
            last=max(group, key=lambda run: run.finished_at or run.started_at),
            advice=advice(code),
        )
        for code, group in by_code.items()
    ]
    return sorted(groups, key=lambda failure: failure.last_at, reverse=True)


def _listing(
    context: request_context.RequestContext,
    place: lists.PagePosition,
    status: StatusFilter,
    model_id: str,
    order: RunOrder,
) -> dict[str, Any]:
    query = {"status": status, "model_id": model_id, "order": "" if order is RunOrder.NEWEST else order}
    is_unresolved = status == "unresolved"
    page = context.ask(
        runs.list_runs,
        status=None if is_unresolved else status or None,
        unresolved=is_unresolved,
        model_id=model_id or None,
        order=order,
        limit=place.size,
        cursor=place.cursor,
    )
    context.read_names(page.items)
    failed: list[RunOut] = []
    for ending in (RunStatus.FAILED, RunStatus.ABANDONED):
        failed += context.ask(runs.list_runs, status=ending, limit=_MAX_FAILURES).items
    numbers = context.ask_if_allowed(overview.get_overview)
    total = sum(numbers.failed_runs.values()) if numbers and is_unresolved and not model_id else None
    return {
        "page": page,
        "extent": place.extent(page, "run", "runs", total=total),
        "failures": failures(failed),
        "may_see_queue": context.may(get_queue),
        "numbers": numbers,
        "query": {name: value for name, value in query.items() if value},
        "place": place,
        "statuses": [
            ("", languages.gettext("Any")),
            ("unresolved", languages.gettext("Failed, unresolved")),
            *((status, wording.state(status).label) for status in RunStatus),
        ],
    }


def _queue(context: request_context.RequestContext) -> dict[str, Any]:
    return {"queue": context.ask(get_queue), "rules": labels("queue_rules")}


def _details(context: request_context.RequestContext, run_id: str) -> dict[str, Any]:
    run = context.ask(runs.get_run, run_id=run_id)
    return {
        "run": run,
        "advice": advice(run.error_code) if run.error_code else None,
        "may_cancel": run.status is RunStatus.RUNNING
        and run.kind in (RunKind.LEARN, RunKind.RELEARN, RunKind.AUDIT, RunKind.REHEARSAL)
        and context.may(runs.cancel_run),
        "in_words": evidence.canary_test_in_words(run.audit) if run.audit else None,
    }
