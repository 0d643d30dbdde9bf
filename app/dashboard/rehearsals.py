"""Rehearsals of a model: ask for one, watch it, and read its report beside its curves."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastapi import Response

from app.api import models, problems, rehearsals
from app.dashboard import numbers, pages
from app.dashboard.advice import advice
from app.dashboard.languages import gettext, marked
from app.dashboard.lists import Place, ThePlace
from app.dashboard.pages import ROOT
from app.dashboard.request_context import Form, RequestContext, TheContext
from app.dashboard.requests import checked, text
from lethe.contract.problems import Problem
from lethe.contract.rehearsals import LIMITS, MeasuredOut, RehearsalIn, RehearsalOut, RehearsalReport

router = pages.new_router()

_MODELS = (
    ("before", marked("Live version before")),
    ("forgotten", marked("Copy that forgot them")),
    ("relearned", marked("Copy that learned without them")),
)
_SETS = (("forget", marked("Forget set")), ("retain", marked("Retain set")), ("test", marked("Test set")))
_NUMBERS = (
    ("accuracy", marked("Accuracy")),
    ("loss", marked("Loss")),
    ("mean_absolute_error", marked("Mean absolute error")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One number of all models on all sets. `sets`: names and numbers of rows; `lines`: a model and its numbers;
    `is_share`: they are shares."""

    name: str
    is_share: bool
    sets: list[tuple[str, int]]
    lines: list[tuple[str, list[float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A number along the steps of forgetting, as `macros.html` plots it."""

    id: str
    title: str
    columns: list[str]
    rows: list[list[float | None]]


@router.get("/models/{model_id}/rehearsals")
def list_rehearsals(context: TheContext, model_id: str, place: ThePlace) -> Response:
    """All of a model, newest first, and the form for another."""
    return _list(context, model_id, place)


@router.post("/models/{model_id}/rehearsals")
def rehearse(context: TheContext, model_id: str, form: Form) -> Response:
    """Have people drawn and forgotten on a copy; or say why not."""
    context.require(rehearsals.rehearse)
    may_read = context.may(rehearsals.list_rehearsals)
    try:
        people = numbers.of_field(text(form, "people"))
        body = checked(RehearsalIn, **({} if people is None else {"people": people}))
        context.ask(rehearsals.rehearse, model_id=model_id, body=body)
    except Problem as error:
        if not may_read:
            raise
        return _list(context, model_id, Place(), error=error)
    if not may_read:
        return pages.see(f"{ROOT}/models/{model_id}", done="rehearsal")
    [newest] = context.ask(rehearsals.list_rehearsals, model_id=model_id, limit=1).items
    return pages.see(f"{ROOT}/models/{model_id}/rehearsals/{newest.id}")


@router.get("/models/{model_id}/rehearsals/{rehearsal_id}")
def show_rehearsal(context: TheContext, model_id: str, rehearsal_id: str) -> Response:
    """One rehearsal: how far it is, or what it showed."""
    return context.page("rehearsals/one.html", **_found(context, model_id, rehearsal_id))


@router.get("/models/{model_id}/rehearsals/{rehearsal_id}/live")
def live_rehearsal(context: TheContext, model_id: str, rehearsal_id: str) -> Response:
    """The same, for a page that is open."""
    return context.page("rehearsals/live.html", **_found(context, model_id, rehearsal_id))


def tables(report: RehearsalReport) -> list[Table]:
    """The numbers that its task has, one table each."""
    found = []
    sets = [(name, title) for name, title in _SETS if getattr(report.before.sets, name) is not None]
    for number, title in _NUMBERS:
        if getattr(report.before.sets.forget, number) is None:
            continue
        lines = []
        for model, said in _MODELS:
            measured = getattr(report, model).sets
            lines.append((gettext(said), [getattr(getattr(measured, name), number) for name, _ in sets]))
        rows = [(gettext(said), getattr(report.before.sets, name).rows) for name, said in sets]
        found.append(Table(name=gettext(title), is_share=number == "accuracy", sets=rows, lines=lines))
    return found


def drawings(report: RehearsalReport) -> list[Drawing]:
    """Loss, and accuracy or error, along the steps, beside what learning again reached on the forget set."""
    return [
        _drawn(report, number, title)
        for number, title in _NUMBERS
        if getattr(report.before.sets.forget, number) is not None
    ]


def _drawn(report: RehearsalReport, number: str, title: str) -> Drawing:
    of: Callable[[MeasuredOut], float] = lambda measured: float(getattr(measured, number))  # noqa: E731
    again = of(report.relearned.sets.forget)
    return Drawing(
        id=number.replace("_", "-"),
        title=gettext("{title} while the copy forgets").format(title=gettext(title)),
        columns=[
            gettext("steps"),
            gettext("forget set"),
            gettext("retain set"),
            gettext("forget set, learned again"),
        ],
        rows=[[float(one.steps), of(one.forget), of(one.retain), again] for one in report.curve],
    )


def _list(context: RequestContext, model_id: str, place: Place, *, error: Problem | None = None) -> Response:
    model = context.ask(models.get_model, model_id=model_id)
    found = context.ask(rehearsals.list_rehearsals, model_id=model_id, limit=place.size, cursor=place.cursor)
    return context.page(
        "rehearsals/list.html",
        status=problems.status_of(type(error)) if error else 200,
        model=model,
        found=found,
        place=place,
        extent=place.extent(found, "rehearsal", "rehearsals"),
        may_rehearse=may_rehearse(context, live=bool(model.live_version)),
        limits=gettext(LIMITS),
        error=error,
    )


def may_rehearse(context: RequestContext, *, live: bool) -> bool:
    return live and context.may(rehearsals.rehearse)


def _found(context: RequestContext, model_id: str, rehearsal_id: str) -> dict[str, Any]:
    found: RehearsalOut = context.ask(rehearsals.get_rehearsal, model_id=model_id, rehearsal_id=rehearsal_id)
    report = found.report
    return {
        "model": context.ask(models.get_model, model_id=model_id),
        "rehearsal": found,
        "report": report,
        "tables": tables(report) if report else [],
        "drawings": drawings(report) if report else [],
        "efforts": [(gettext(said), getattr(report, name)) for name, said in _MODELS] if report else [],
        "advice": advice(found.error_code) if found.error_code else None,
    }
