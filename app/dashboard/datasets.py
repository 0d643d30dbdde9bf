"""Datasets: what is held, what is learned from it, and how rows come in."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import Response
from pydantic import BaseModel, Field
from starlette.datastructures import FormData, UploadFile

from app.api import additions, datasets, models, problems
from app.dashboard import numbers, pages
from app.dashboard.languages import gettext
from app.dashboard.lists import ThePlace
from app.dashboard.pages import ROOT
from app.dashboard.request_context import Form, RequestContext, TheContext
from app.dashboard.requests import checked, text
from lethe.contract.fields import Name, Positive
from lethe.contract.problems import FieldError, InputInvalid, NotFound, Problem

router = pages.new_router()

_PER_PAGE = 50
_MOST_MODELS = 500
Done = Literal["", "made", "added", "retired"]


class _Written(BaseModel):
    """The fields of the form for a dataset, besides its files and its classes."""

    name: Name
    adaptive_epsilon: Positive | None = None
    adaptive_delta: Annotated[float, Field(gt=0, lt=1)] | None = None


_BUDGET = ("adaptive_epsilon", "adaptive_delta")
_WRITTEN = ("name", "classes", "target", "network_id", *_BUDGET)


@router.get("/datasets")
def list_datasets(context: TheContext, place: ThePlace) -> Response:
    """List the datasets, newest first."""
    found = context.ask(datasets.list_datasets, limit=place.size, cursor=place.cursor)
    may_upload = context.may(datasets.create_dataset)
    extent = place.extent(found, "dataset", "datasets")
    return context.page("datasets/list.html", found=found, place=place, extent=extent, may_upload=may_upload)


@router.get("/datasets/new")
def new_dataset(context: TheContext) -> Response:
    """The form for a dataset."""
    context.require(datasets.create_dataset)
    return _new(context, written=dict.fromkeys(_WRITTEN, ""))


@router.post("/datasets/new")
def upload_dataset(context: TheContext, form: Form) -> Response:
    """Make a dataset of the rows, and show it; or show which lines are wrong, and what was expected there."""
    context.require(datasets.create_dataset)
    written = {name: text(form, name) for name in _WRITTEN}
    try:
        answer = context.ask(
            datasets.create_dataset,
            file=_file(form),
            **dict(checked(_Written, name=written["name"], **{one: written[one] or None for one in _BUDGET})),
            columns=_chosen(form, "schema"),
            classes=_classes(written["classes"]),
            target=_target(written["target"]),
            network_id=written["network_id"] or None,
            suppressed=_what_of_suppressed(form),
        )
    except Problem as error:
        return _new(context, written=written, error=error)
    made = json.loads(bytes(answer.body))
    return pages.see(
        f"{ROOT}/datasets/{made['id']}", done="made", left_out=made["num_suppressed"], warned=len(made["warnings"])
    )


@router.get("/datasets/{dataset_id}")
def show_dataset(context: TheContext, dataset_id: str, done: Done = "", left_out: int = 0, warned: int = 0) -> Response:
    """One dataset: its counts, its schema, what is learned from it, and what was added."""
    told = {"done": done, "left_out": left_out, "warned": warned} if done else None
    return context.page("datasets/one.html", **_found(context, dataset_id), told=told, error=None)


@router.get("/datasets/{dataset_id}/live")
def live_dataset(context: TheContext, dataset_id: str) -> Response:
    """Show what changes of a dataset, for a page that is open."""
    return context.page("datasets/live.html", **_found(context, dataset_id))


@router.post("/datasets/{dataset_id}/records")
def upload_records(context: TheContext, form: Form, dataset_id: str) -> Response:
    """Add the rows, or show which lines are wrong."""
    context.require(additions.add_records)
    try:
        answer = context.ask(
            additions.add_records, dataset_id=dataset_id, file=_file(form), suppressed=_what_of_suppressed(form)
        )
    except NotFound:
        raise
    except Problem as error:
        status = problems.status_of(type(error))
        return context.page("datasets/one.html", status=status, **_found(context, dataset_id), told=None, error=error)
    left_out = json.loads(bytes(answer.body))["num_suppressed"]
    return pages.see(f"{ROOT}/datasets/{dataset_id}", done="added", left_out=left_out)


@router.post("/datasets/{dataset_id}/retire")
def retire_dataset(context: TheContext, dataset_id: str) -> Response:
    """Let go of it."""
    context.ask(datasets.retire_dataset, dataset_id=dataset_id)
    return pages.see(f"{ROOT}/datasets/{dataset_id}", done="retired")


def _found(context: RequestContext, dataset_id: str) -> dict[str, Any]:
    dataset = context.ask(datasets.get_dataset, dataset_id=dataset_id)
    return {
        "dataset": dataset,
        "learned": context.ask(models.list_models, dataset_id=dataset_id, limit=_MOST_MODELS).items,
        "added": context.ask(additions.list_additions, dataset_id=dataset_id, limit=_PER_PAGE),
        "may_add": context.may(additions.add_records) and not dataset.retired_at,
        "may_learn": context.may(models.create_model) and not dataset.retired_at,
        "may_retire": context.may(datasets.retire_dataset) and not dataset.retired_at,
        "most_bytes": context.call.installation.settings.max_upload_bytes,
    }


def _new(context: RequestContext, *, written: Mapping[str, str], error: Problem | None = None) -> Response:
    status = problems.status_of(type(error)) if error else 200
    most_bytes = context.call.installation.settings.max_upload_bytes
    return context.page("datasets/new.html", status=status, written=written, error=error, most_bytes=most_bytes)


def _classes(written: str) -> str | None:
    """Names that somebody separated by commas, as the API takes them; none if nothing was written."""
    names = [name.strip() for name in written.split(",")]
    return json.dumps(names) if any(names) else None


def _target(written: str) -> str | None:
    """A range, two numbers that somebody separated by a comma, as the API takes it, with a third word of counts; none
    if nothing was written."""
    if not written:
        return None
    parts = [one.strip() for one in written.split(",")]
    counts = {"counts": True} if parts[2:] == ["counts"] else {}
    found = [numbers.read(one) for one in (parts[:2] if counts else parts)]
    if len(found) != 2:
        said = gettext("expected two numbers, such as 0, 100, or 0, 100, counts")
        raise InputInvalid(gettext("A target is a range."), [FieldError("target", said)])
    return json.dumps({"min": found[0], "max": found[1]} | counts)


def _chosen(form: FormData, name: str) -> UploadFile | None:
    """The file that was chosen, if one was."""
    found = form.get(name)
    return found if isinstance(found, UploadFile) and found.filename else None


def _file(form: FormData) -> UploadFile:
    found = _chosen(form, "file")
    if found is None:
        raise InputInvalid(gettext("No file was chosen."), [FieldError("file", gettext("expected a file with rows"))])
    return found


def _what_of_suppressed(form: FormData) -> str:
    return "skip" if text(form, "suppressed") == "skip" else "refuse"
