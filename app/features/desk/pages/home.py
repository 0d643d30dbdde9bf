"""Overview: what needs attention, deadlines, runs and models; the calendar; and the search box shown on every page."""

import datetime
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Response

from app.api import accounting, datasets, deletion_requests, models, runs
from app.features.custody import endpoints as custody
from app.features.desk import forms, languages, rendering as pages, request_context
from app.features.desk.rendering import ROOT
from app.features.desk.wording import count, duration, number
from app.features.insight import endpoints, pages as insight
from app.features.overview import endpoints as overview
from lethe.contract import problems, sets
from lethe.features.overview.contract import COUNTED, OverviewOut
from lethe.features.webhooks.contract import DeliveryStatus

router = pages.new_router()

_MAX_LINES = 8
"""Maximum number of requests, runs and models on the overview, which links to the full lists."""
_MAX_MATCHES = 20
"""Maximum number of search results of each kind."""
_MAX_QUERY_LENGTH = 200
_PAGES: Mapping[str, str] = {
    "dr": "requests",
    "mdl": "models",
    "ds": "datasets",
    "net": "networks",
    "run": "runs",
    "key": "keys",
    "whd": "deliveries",
}
"""Paths of lists, by id prefix."""


@router.get("/overview")
def show_overview(context: request_context.TheContext) -> Response:
    """Show the status of everything that the caller may see."""
    return context.page("home/home.html", **_sections(context))


@router.get("/")
def redirect_home(_context: request_context.TheContext) -> Response:
    """Redirect the dashboard's root URL with a trailing slash to the overview."""
    return pages.see(ROOT)


@router.get("/live")
def live_overview(context: request_context.TheContext) -> Response:
    """Refresh the live part of an open overview."""
    return context.page("home/live.html", **_sections(context))


@router.get("/calendar")
def show_calendar(context: request_context.TheContext) -> Response:
    """Show how many requests are due each day, and how many were received and completed each week."""
    context.require(endpoints.summarise_deletion_requests)
    return context.page("home/calendar.html", outlook=_outlook(context))


@router.get("/outlook")
def live_outlook(context: request_context.TheContext) -> Response:
    """Refresh an open calendar, which changes slowly and is therefore refreshed rarely."""
    return context.page("home/outlook.html", outlook=_outlook(context))


@router.post("/find")
def find(context: request_context.TheContext, form: request_context.Form) -> Response:
    """Redirect to the page for an id, a case number or part of a name, or list the matches.

    The input is sent in the body, so that no case number appears in a URL.
    """
    query = forms.text(form, "anything")
    if not 0 < len(query) <= _MAX_QUERY_LENGTH or "\x00" in query:
        raise problems.InputInvalid(
            languages.gettext("Nothing was sought."),
            [problems.FieldError("anything", languages.gettext("Enter an ID, a case number or a name."))],
        )
    if path := _page_of_id(context, query):
        return pages.see(path)
    matches = {
        "requests": _newest(context, deletion_requests.list_deletion_requests, external_id=query),
        "models": _newest(context, models.list_models, name=query),
        "datasets": _newest(context, datasets.list_datasets, name=query),
    }
    paths = [f"{ROOT}/{kind}/{match.id}" for kind, of_kind in matches.items() for match in of_kind]
    if len(paths) == 1:
        return pages.see(paths[0])
    return context.page("find/found.html", matches=matches, most=_MAX_MATCHES)


def _outlook(context: request_context.RequestContext) -> insight.WeeklyOutlook | None:
    summary = context.ask_if_allowed(endpoints.summarise_deletion_requests)
    return insight.weekly_outlook(summary) if summary else None


def numbers_of(context: request_context.RequestContext) -> dict[str, Any]:
    """Return the overview's numbers and list of problems; None and an empty list if the caller may not read them."""
    numbers = context.ask_if_allowed(overview.get_overview)
    risk_days, at = context.call.installation.settings.risk_days, datetime.datetime.now(datetime.UTC)
    return {
        "at": at,
        "numbers": numbers,
        "counted": COUNTED,
        "dangers": dangers(numbers, at=at, risk_days=risk_days) if numbers else [],
        "risk_days": risk_days,
        "may_see_log": context.may(custody.list_audit_entries),
    }


def _sections(context: request_context.RequestContext) -> dict[str, Any]:
    """Return the sections of the overview; those that the caller may not see are None."""
    numbers = numbers_of(context)
    order = sets.ModelOrder.RISK if numbers["numbers"] else sets.ModelOrder.NEWEST
    return numbers | {
        "urgent": context.ask_if_allowed(
            deletion_requests.list_deletion_requests, order=sets.RequestOrder.DEADLINE, limit=_MAX_LINES
        ),
        "running": context.ask_if_allowed(runs.list_runs, status=sets.RunStatus.RUNNING, limit=_MAX_LINES),
        "models": context.ask_if_allowed(models.list_models, order=order, limit=_MAX_LINES),
    }


def _page_of_id(context: request_context.RequestContext, query: str) -> str | None:
    """Return the page for an id; None if the text is not an id, or if the object has no page."""
    if not re.fullmatch(r"[a-z]{2,3}_[0-9a-f]{6,64}", query):
        return None
    kind = query.partition("_")[0]
    if kind == "crt":
        certificate = context.ask(accounting.get_certificate, certificate_id=query)
        return f"{ROOT}/requests/{certificate.request_id}#{query}"
    return f"{ROOT}/{_PAGES[kind]}/{query}" if kind in _PAGES else None


def _newest(context: request_context.RequestContext, endpoint: Callable[..., Any], **filters: str) -> list[Any]:
    """Return the newest items that `endpoint` lists; an empty list if the caller may not call it."""
    page = context.ask_if_allowed(endpoint, **filters, limit=_MAX_MATCHES)
    return list(page.items) if page else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Danger:
    """Sentence about a problem. Its subject links to `path`; `tone` is "bad" or "warn". `is_counted`: whether the inbox
    already shows the number."""

    subject: str
    predicate: str
    path: str
    tone: str = "bad"
    is_counted: bool = False


def dangers(numbers: OverviewOut, *, at: datetime.datetime, risk_days: float) -> list[Danger]:
    """Return the problems that need attention, most urgent first."""
    return [
        *_of_workers(numbers),
        *_of_requests(numbers, risk_days),
        *_of_models(numbers),
        *_of_runs(numbers),
        *_of_deliveries(numbers),
        *_of_backups(numbers, at),
    ]


def _of_workers(numbers: OverviewOut) -> Iterator[Danger]:
    if numbers.workers is sets.WorkerState.SILENT:
        predicate = languages.gettext(
            "has responded for a minute: erasures are on hold. Start a worker, or check its log."
        )
        yield Danger(subject=languages.gettext("No worker"), predicate=predicate, path=f"{ROOT}/runs")
    elif numbers.workers is sets.WorkerState.FAILING:
        path = f"{ROOT}/runs?status=unresolved"
        yield Danger(subject=languages.gettext("The last runs"), predicate=languages.gettext("all failed."), path=path)
    silent = [host.name for host in numbers.hosts if host.workers is sets.WorkerState.SILENT]
    if silent and numbers.workers is not sets.WorkerState.SILENT:
        predicate = languages.gettext("of {hosts} with workers sent no heartbeat for a minute: {silent}.").format(
            hosts=number(len(numbers.hosts)), silent=", ".join(silent)
        )
        yield Danger(subject=count(len(silent), "host", "hosts"), predicate=predicate, path=f"{ROOT}/runs", tone="warn")


def _of_requests(numbers: OverviewOut, risk_days: float) -> Iterator[Danger]:
    if numbers.overdue:
        predicate = languages.ngettext("is past its legal deadline.", "are past their legal deadline.", numbers.overdue)
        path = f"{ROOT}/requests?due=overdue&order=deadline"
        subject = count(numbers.overdue, "request", "requests")
        yield Danger(subject=subject, predicate=predicate, path=path, is_counted=True)
    if numbers.at_risk:
        path = f"{ROOT}/requests?due=soon&order=deadline"
        predicate = languages.ngettext(
            "is due in the next {days} days.", "are due in the next {days} days.", numbers.at_risk
        )
        predicate = predicate.format(days=f"{risk_days:.0f}")
        subject = count(numbers.at_risk, "request", "requests")
        yield Danger(subject=subject, predicate=predicate, path=path, tone="warn", is_counted=True)


def _of_models(numbers: OverviewOut) -> Iterator[Danger]:
    models = numbers.models
    if models.failed:
        predicate = languages.ngettext(
            "could not be learned, and will not be retried automatically.",
            "could not be learned, and will not be retried automatically.",
            models.failed,
        )
        yield Danger(
            subject=count(models.failed, "model", "models"), predicate=predicate, path=f"{ROOT}/models?danger=failed"
        )
    if models.audits_refused:
        predicate = languages.gettext("had the last canary test refute a run, which published nothing.")
        path = f"{ROOT}/models?danger=audit_refused"
        yield Danger(subject=count(models.audits_refused, "model", "models"), predicate=predicate, path=path)
    if models.held:
        predicate = languages.ngettext(
            "missed the quality gate and is not served: release the version or apply a remedy.",
            "missed their quality gates and are not served: release the versions or apply remedies.",
            models.held,
        )
        yield Danger(
            subject=count(models.held, "model", "models"), predicate=predicate, path=f"{ROOT}/models?danger=held"
        )
    below_gate = models.degraded - models.held
    if below_gate > 0:
        predicate = languages.ngettext(
            "is served although it misses the quality gate.", "are served below their quality gates.", below_gate
        )
        path = f"{ROOT}/models?danger=degraded"
        yield Danger(subject=count(below_gate, "model", "models"), predicate=predicate, path=path, tone="warn")


def _of_runs(numbers: OverviewOut) -> Iterator[Danger]:
    if numbers.failed_runs:
        predicate = languages.gettext("failed and have not been retried successfully: {runs}.").format(
            runs=_by_number(numbers.failed_runs)
        )
        total = sum(numbers.failed_runs.values())
        yield Danger(subject=count(total, "run", "runs"), predicate=predicate, path=f"{ROOT}/runs?status=unresolved")


def _of_deliveries(numbers: OverviewOut) -> Iterator[Danger]:
    if dead := numbers.undelivered.get(DeliveryStatus.DEAD, 0):
        predicate = languages.ngettext(
            "failed permanently: the receiver was not reached for three days.",
            "failed permanently: the receiver was not reached for three days.",
            dead,
        )
        subject = count(dead, "webhook delivery", "webhook deliveries")
        yield Danger(subject=subject, predicate=predicate, path=f"{ROOT}/deliveries?status=dead")
    if pending := numbers.undelivered.get(DeliveryStatus.PENDING, 0):
        predicate = languages.ngettext(
            "has not arrived yet, and is sent automatically.",
            "have not arrived yet, and are sent automatically.",
            pending,
        )
        subject = count(pending, "webhook delivery", "webhook deliveries")
        yield Danger(subject=subject, predicate=predicate, path=f"{ROOT}/deliveries?status=undelivered", tone="warn")


def _of_backups(numbers: OverviewOut, at: datetime.datetime) -> Iterator[Danger]:
    if not numbers.backups.is_late:
        return
    last_at = numbers.backups.last_at
    subject, predicate = languages.gettext("No backup"), languages.gettext("was ever made.")
    if last_at is not None:
        subject = languages.gettext("The last backup")
        predicate = languages.gettext("was finished {duration} ago.").format(
            duration=duration((at - last_at).total_seconds())
        )
    yield Danger(
        subject=subject, predicate=predicate, path=f"{ROOT}/audit-log?action=installation.backed_up", tone="warn"
    )


def _by_number(counts: Mapping[str, int]) -> str:
    names = sorted(counts, key=lambda name: (-counts[name], name))
    return ", ".join(f"{number(counts[name])} × {name}" for name in names)
