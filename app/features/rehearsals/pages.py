"""Pages for a model's rehearsals: the list with a form to start one, and each rehearsal's progress or report."""

from dataclasses import dataclass
from typing import Any

from fastapi import Response

from app.api import models
from app.features.desk import forms, lists, rendering as pages, request_context
from app.features.desk.glossary import advice
from app.features.desk.languages import gettext, marked
from app.features.rehearsals import endpoints as rehearsals
from lethe.contract.problems import Problem
from lethe.features.rehearsals.contract import LIMITS, MeasuredOut, RehearsalIn, RehearsalOut, RehearsalReport

router = pages.new_router()

_MODELS = (
    ("before", marked("Live version before")),
    ("forgotten", marked("Copy that forgot them")),
    ("relearned", marked("Copy that learned without them")),
)
_SETS = (("forget", marked("Forget set")), ("retain", marked("Retain set")), ("test", marked("Test set")))
_METRICS = (
    ("accuracy", marked("Accuracy")),
    ("loss", marked("Loss")),
    ("mean_absolute_error", marked("Mean absolute error")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalTable:
    """Table of one metric for all models on all sets. `sets`: name and number of rows of each set. `lines`: name and
    values of each model. `is_share`: True if the values are shares."""

    name: str
    is_share: bool
    sets: list[tuple[str, int]]
    lines: list[tuple[str, list[float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgettingPlot:
    """Plot of a metric over the forgetting steps, in the form that `macros.html` draws."""

    id: str
    title: str
    columns: list[str]
    rows: list[list[float | None]]


@router.get("/models/{model_id}/rehearsals")
def list_rehearsals(context: request_context.TheContext, model_id: str, place: lists.ThePlace) -> Response:
    """List a model's rehearsals, newest first, with the form for requesting another."""
    return _list(context, model_id, place)


@router.post("/models/{model_id}/rehearsals")
def rehearse(context: request_context.TheContext, model_id: str, form: request_context.Form) -> Response:
    """Request a rehearsal. If it is refused, show the list again with the error."""
    context.require(rehearsals.rehearse)
    may_read = context.may(rehearsals.list_rehearsals)
    try:
        people = forms.parse_optional_number(forms.text(form, "people"))
        body = forms.checked(RehearsalIn, **({} if people is None else {"people": people}))
        context.ask(rehearsals.rehearse, model_id=model_id, body=body)
    except Problem as error:
        if not may_read:
            raise
        return _list(context, model_id, lists.PagePosition(), error=error)
    if not may_read:
        return pages.see(f"{pages.ROOT}/models/{model_id}", done="rehearsal")
    [newest] = context.ask(rehearsals.list_rehearsals, model_id=model_id, limit=1).items
    return pages.see(f"{pages.ROOT}/models/{model_id}/rehearsals/{newest.id}")


@router.get("/models/{model_id}/rehearsals/{rehearsal_id}")
def show_rehearsal(context: request_context.TheContext, model_id: str, rehearsal_id: str) -> Response:
    """Show the progress or the report of a rehearsal."""
    return context.page("rehearsals/one.html", **_variables(context, model_id, rehearsal_id))


@router.get("/models/{model_id}/rehearsals/{rehearsal_id}/live")
def live_rehearsal(context: request_context.TheContext, model_id: str, rehearsal_id: str) -> Response:
    """Show the current state of a rehearsal, to update an open page."""
    return context.page("rehearsals/live.html", **_variables(context, model_id, rehearsal_id))


def tables(report: RehearsalReport) -> list[RehearsalTable]:
    """Return one table for each metric that applies to the model's task."""
    metric_tables = []
    sets = [(name, title) for name, title in _SETS if getattr(report.before.sets, name) is not None]
    rows = [(gettext(label), getattr(report.before.sets, name).rows) for name, label in sets]
    for metric, title in _metrics(report):
        lines = []
        for model, label in _MODELS:
            measured = getattr(report, model).sets
            lines.append((gettext(label), [getattr(getattr(measured, name), metric) for name, _ in sets]))
        metric_tables.append(RehearsalTable(name=gettext(title), is_share=metric == "accuracy", sets=rows, lines=lines))
    return metric_tables


def drawings(report: RehearsalReport) -> list[ForgettingPlot]:
    """Return one plot per metric over the forgetting steps, with the retrained copy's value on the forget set."""
    return [_plot(report, metric, title) for metric, title in _metrics(report)]


def _metrics(report: RehearsalReport) -> list[tuple[str, str]]:
    """Return the name and title of each metric that applies to the model's task."""
    return [(metric, title) for metric, title in _METRICS if getattr(report.before.sets.forget, metric) is not None]


def _plot(report: RehearsalReport, metric: str, title: str) -> ForgettingPlot:
    def value(measured: MeasuredOut) -> float:
        return float(getattr(measured, metric))

    relearned = value(report.relearned.sets.forget)
    return ForgettingPlot(
        id=metric.replace("_", "-"),
        title=gettext("{title} while the copy forgets").format(title=gettext(title)),
        columns=[gettext("steps"), gettext("forget set"), gettext("retain set"), gettext("forget set, learned again")],
        rows=[[float(point.steps), value(point.forget), value(point.retain), relearned] for point in report.curve],
    )


def _list(
    context: request_context.RequestContext, model_id: str, place: lists.PagePosition, *, error: Problem | None = None
) -> Response:
    model = context.ask(models.get_model, model_id=model_id)
    listing = context.listing(rehearsals.list_rehearsals, place, "rehearsal", "rehearsals", model_id=model_id)
    return context.page(
        "rehearsals/list.html",
        model=model,
        **listing,
        may_rehearse=may_rehearse(context, live=bool(model.live_version)),
        limits=gettext(LIMITS),
        error=error,
    )


def may_rehearse(context: request_context.RequestContext, *, live: bool) -> bool:
    return live and context.may(rehearsals.rehearse)


def _variables(context: request_context.RequestContext, model_id: str, rehearsal_id: str) -> dict[str, Any]:
    """Return the template variables for one rehearsal."""
    rehearsal: RehearsalOut = context.ask(rehearsals.get_rehearsal, model_id=model_id, rehearsal_id=rehearsal_id)
    report = rehearsal.report
    return {
        "model": context.ask(models.get_model, model_id=model_id),
        "rehearsal": rehearsal,
        "report": report,
        "tables": tables(report) if report else [],
        "drawings": drawings(report) if report else [],
        "efforts": [(gettext(label), getattr(report, name)) for name, label in _MODELS] if report else [],
        "advice": advice(rehearsal.error_code) if rehearsal.error_code else None,
    }


PAGES = (router,)
