"""Datasets: their rows and schema, the models that learn from them, and uploads."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import Response
from pydantic import BaseModel, Field
from starlette.datastructures import FormData, UploadFile

from app.api import datasets, models
from app.features.additions import endpoints as additions
from app.features.desk import rendering as pages
from app.features.desk.forms import checked, file_in, parse_number, text
from app.features.desk.languages import gettext
from app.features.desk.lists import ThePlace
from app.features.desk.rendering import ROOT
from app.features.desk.request_context import Form, RequestContext, TheContext
from lethe.contract.fields import Name, Positive
from lethe.contract.problems import FieldError, InputInvalid, NotFound, Problem

router = pages.new_router()

_PER_PAGE = 50
_MAX_MODELS = 500
Done = Literal["", "made", "added", "retired"]


class _DatasetForm(BaseModel):
    """Fields of the dataset form that are passed to the API unchanged."""

    name: Name
    adaptive_epsilon: Positive | None = None
    adaptive_delta: Annotated[float, Field(gt=0, lt=1)] | None = None


_BUDGET = ("adaptive_epsilon", "adaptive_delta")
_FIELDS = ("name", "classes", "target", "network_id", "subject_kind", *_BUDGET)


@router.get("/datasets")
def list_datasets(context: TheContext, place: ThePlace) -> Response:
    """List datasets, newest first."""
    listing = context.listing(datasets.list_datasets, place, "dataset", "datasets")
    return context.page("datasets/list.html", **listing, may_upload=context.may(datasets.create_dataset))


@router.get("/datasets/new")
def new_dataset(context: TheContext) -> Response:
    """Show the form for a dataset."""
    context.require(datasets.create_dataset)
    return _form(context, values=dict.fromkeys(_FIELDS, ""))


@router.post("/datasets/new")
def upload_dataset(context: TheContext, form: Form) -> Response:
    """Create a dataset and show it, or show which lines of the file are wrong and what was expected there."""
    context.require(datasets.create_dataset)
    values = {name: text(form, name) for name in _FIELDS}
    try:
        answer = context.ask(
            datasets.create_dataset,
            file=_file(form),
            **dict(checked(_DatasetForm, name=values["name"], **{name: values[name] or None for name in _BUDGET})),
            schema_=file_in(form, "schema"),
            classes=_classes(values["classes"]),
            target=_target(values["target"]),
            network_id=values["network_id"] or None,
            subject_kind=values["subject_kind"] or None,
            suppressed=_suppressed(form),
        )
    except Problem as error:
        return _form(context, values=values, error=error)
    dataset = json.loads(bytes(answer.body))
    return pages.see(
        f"{ROOT}/datasets/{dataset['id']}",
        done="made",
        left_out=dataset["num_suppressed"],
        warned=len(dataset["warnings"]),
    )


@router.get("/datasets/{dataset_id}")
def show_dataset(context: TheContext, dataset_id: str, done: Done = "", left_out: int = 0, warned: int = 0) -> Response:
    """Show a dataset: its counts, its schema, its models and its additions."""
    result = {"done": done, "left_out": left_out, "warned": warned} if done else None
    return context.page("datasets/one.html", **_details(context, dataset_id), result=result)


@router.get("/datasets/{dataset_id}/live")
def live_dataset(context: TheContext, dataset_id: str) -> Response:
    """Refresh the changing part of an open page of a dataset."""
    return context.page("datasets/live.html", **_details(context, dataset_id))


@router.post("/datasets/{dataset_id}/records")
def upload_records(context: TheContext, form: Form, dataset_id: str) -> Response:
    """Add rows to a dataset, or show which lines of the file are wrong."""
    context.require(additions.add_records)
    try:
        answer = context.ask(
            additions.add_records, dataset_id=dataset_id, file=_file(form), suppressed=_suppressed(form)
        )
    except NotFound:
        raise
    except Problem as error:
        return context.page("datasets/one.html", **_details(context, dataset_id), result=None, error=error)
    left_out = json.loads(bytes(answer.body))["num_suppressed"]
    return pages.see(f"{ROOT}/datasets/{dataset_id}", done="added", left_out=left_out)


@router.post("/datasets/{dataset_id}/retire")
def retire_dataset(context: TheContext, dataset_id: str) -> Response:
    """Retire a dataset."""
    context.ask(datasets.retire_dataset, dataset_id=dataset_id)
    return pages.see(f"{ROOT}/datasets/{dataset_id}", done="retired")


def _details(context: RequestContext, dataset_id: str) -> dict[str, Any]:
    dataset = context.ask(datasets.get_dataset, dataset_id=dataset_id)
    return {
        "dataset": dataset,
        "models": context.ask(models.list_models, dataset_id=dataset_id, limit=_MAX_MODELS).items,
        "additions": context.ask(additions.list_additions, dataset_id=dataset_id, limit=_PER_PAGE),
        "may_add": context.may(additions.add_records) and not dataset.retired_at,
        "may_learn": context.may(models.create_model) and not dataset.retired_at,
        "may_retire": context.may(datasets.retire_dataset) and not dataset.retired_at,
        "max_bytes": context.call.installation.settings.max_upload_bytes,
    }


def _form(context: RequestContext, *, values: Mapping[str, str], error: Problem | None = None) -> Response:
    max_bytes = context.call.installation.settings.max_upload_bytes
    return context.page("datasets/new.html", written=values, error=error, max_bytes=max_bytes)


def _classes(text: str) -> str | None:
    """Parse class names separated by commas; None if the field is empty."""
    names = [name.strip() for name in text.split(",")]
    return json.dumps(names) if any(names) else None


def _target(text: str) -> str | None:
    """Parse a target's range: two numbers, optionally followed by "counts". Return None if the field is empty."""
    if not text:
        return None
    parts = [part.strip() for part in text.split(",")]
    counts = {"counts": True} if parts[2:] == ["counts"] else {}
    ends = [parse_number(part) for part in (parts[:2] if counts else parts)]
    if len(ends) != 2:
        expected = gettext("expected two numbers, such as 0, 100, or 0, 100, counts")
        raise InputInvalid(gettext("A target is a range."), [FieldError("target", expected)])
    return json.dumps({"min": ends[0], "max": ends[1]} | counts)


def _file(form: FormData) -> UploadFile:
    file = file_in(form, "file")
    if file is None:
        raise InputInvalid(gettext("No file was chosen."), [FieldError("file", gettext("expected a file with rows"))])
    return file


def _suppressed(form: FormData) -> str:
    """Return how the form treats rows of suppressed people."""
    return "skip" if text(form, "suppressed") == "skip" else "refuse"
