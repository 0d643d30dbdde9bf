"""Runs and workers: what is done now, which runs failed and why, and which workers are alive."""

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import Depends, Query, Response

from app.api import overview, runs
from app.dashboard import audits, pages
from app.dashboard.advice import Advice, advice
from app.dashboard.languages import gettext, marked
from app.dashboard.lists import Place, ThePlace
from app.dashboard.pages import ROOT
from app.dashboard.request_context import RequestContext, TheContext
from app.dashboard.wording import state
from lethe.contract.choices import RunOrder
from lethe.contract.runs import RunOut
from lethe.contract.sets import QueueRule, RunKind, RunStatus

router = pages.new_router()

RULES: Mapping[QueueRule, str] = {
    QueueRule.REQUESTED: marked("People asked to be forgotten, and no run has taken up their requests"),
    QueueRule.UNCONFIRMED: marked("A run took up rows to erase and did not come to its end"),
    QueueRule.BEHIND: marked("A live version carries people whose rows are erased"),
    QueueRule.LEARN: marked("A model waits to be learned"),
    QueueRule.ADD: marked("Rows were added and have to be written"),
    QueueRule.LEARN_ADDED: marked("A live version lacks rows that were added"),
    QueueRule.AUDIT: marked("A canary test was asked for"),
    QueueRule.REHEARSAL: marked("A rehearsal was asked for"),
}

_MOST_FAILURES = 200
Wanted: TypeAlias = RunStatus | Literal["", "unresolved"]
ModelId = Annotated[str, Query(pattern="^[a-z0-9_]{0,40}$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Runs that failed for the same reason."""

    error_code: str
    count: int
    last: RunOut
    advice: Advice

    @property
    def last_at(self) -> datetime.datetime:
        return self.last.finished_at or self.last.started_at


def _filters(status: Wanted = "", model_id: ModelId = "", order: RunOrder = RunOrder.NEWEST) -> dict[str, Any]:
    return {"status": status, "model_id": model_id, "order": order}


TheFilters = Annotated[dict[str, Any], Depends(_filters)]
"""Those that the address has, and the order."""


@router.get("/runs")
def list_runs(context: TheContext, place: ThePlace, filters: TheFilters) -> Response:
    """A page of them, and the workers."""
    return context.page("runs/list.html", **_listed(context, place, **filters))


@router.get("/runs/live")
def live_runs(context: TheContext, place: ThePlace, filters: TheFilters) -> Response:
    """The same, for a page that is open."""
    return context.page("runs/live.html", **_listed(context, place, **filters))


@router.get("/runs/queue")
def show_queue(context: TheContext) -> Response:
    """Show what is next and why, and what each worker does."""
    return context.page(
        "runs/queue.html",
        queue=context.ask(runs.get_queue),
        rules={rule: gettext(said) for rule, said in RULES.items()},
    )


@router.get("/runs/queue/live")
def live_queue(context: TheContext) -> Response:
    """The same, for a page that is open."""
    return context.page(
        "runs/live_queue.html",
        queue=context.ask(runs.get_queue),
        rules={rule: gettext(said) for rule, said in RULES.items()},
    )


@router.get("/runs/{run_id}")
def show_run(context: TheContext, run_id: str, done: Literal["", "cancelled"] = "") -> Response:
    """Show how far a run is, or how it ended."""
    return context.page("runs/one.html", done=done, **_found(context, run_id))


@router.post("/runs/{run_id}/cancel")
def cancel_run(context: TheContext, run_id: str) -> Response:
    """Stop it."""
    context.ask(runs.cancel_run, run_id=run_id)
    return pages.see(f"{ROOT}/runs/{run_id}", done="cancelled")


@router.get("/runs/{run_id}/live")
def live_run(context: TheContext, run_id: str) -> Response:
    """The same, for a page that is open."""
    return context.page("runs/live_one.html", **_found(context, run_id))


def failures(ended: Iterable[RunOut]) -> list[Failure]:
    """By their reasons, the last one first."""
    by_code: dict[str, list[RunOut]] = {}
    for run in ended:
        by_code.setdefault(run.error_code or "", []).append(run)
    found = [
        Failure(
            error_code=code,
            count=sum(1 + run.repeated for run in some),
            last=max(some, key=lambda run: run.finished_at or run.started_at),
            advice=advice(code),
        )
        for code, some in by_code.items()
    ]
    return sorted(found, key=lambda failure: failure.last_at, reverse=True)


def _listed(context: RequestContext, place: Place, status: Wanted, model_id: str, order: RunOrder) -> dict[str, Any]:
    query = {"status": status, "model_id": model_id, "order": "" if order is RunOrder.NEWEST else order}
    is_unresolved = status == "unresolved"
    wanted = {
        "status": None if is_unresolved else status or None,
        "unresolved": is_unresolved,
        "model_id": model_id or None,
    }
    ended: list[RunOut] = []
    for ending in (RunStatus.FAILED, RunStatus.ABANDONED):
        ended += context.ask(runs.list_runs, status=ending, limit=_MOST_FAILURES).items
    found = context.ask(runs.list_runs, **wanted, order=order, limit=place.size, cursor=place.cursor)
    numbers = context.ask(overview.get_overview) if context.may(overview.get_overview) else None
    total = sum(numbers.failed_runs.values()) if numbers and is_unresolved and not model_id else None
    return {
        "found": found,
        "extent": place.extent(found, "run", "runs", total=total),
        "failures": failures(ended),
        "may_see_queue": context.may(runs.get_queue),
        "numbers": numbers,
        "query": {name: value for name, value in query.items() if value},
        "place": place,
        "statuses": [
            ("", gettext("Any")),
            ("unresolved", gettext("Failed, not made good")),
            *((one, state(one).label) for one in RunStatus),
        ],
    }


def _found(context: RequestContext, run_id: str) -> dict[str, Any]:
    run = context.ask(runs.get_run, run_id=run_id)
    return {
        "run": run,
        "advice": advice(run.error_code) if run.error_code else None,
        "may_cancel": run.status is RunStatus.RUNNING
        and run.kind in (RunKind.LEARN, RunKind.RELEARN, RunKind.AUDIT, RunKind.REHEARSAL)
        and context.may(runs.cancel_run),
        "in_words": audits.in_words(run.audit) if run.audit else None,
    }
