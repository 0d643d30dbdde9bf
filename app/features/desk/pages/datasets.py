"""Datasets: their rows and schema, the models trained on them, and uploads."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import Response
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from starlette.datastructures import FormData, UploadFile

from app.api import datasets, models
from app.features.additions import endpoints as additions
from app.features.desk import lists, rendering as pages, request_context
from app.features.desk.forms import checked, file_in, in_words, parse_number, text
from app.features.desk.languages import gettext, marked
from app.features.networks import endpoints as networks
from lethe.contract.fields import Name, Positive
from lethe.contract.problems import FieldError, InputInvalid, NotFound, Problem
from lethe.features.identities.contract import ADDRESSES, ROUNDED
from lethe.features.tables.inferring import parse_range

router = pages.new_router()

_PER_PAGE = 50
_MAX_MODELS = 500
_MAX_NETWORKS = 500
_MAX_SCHEMAS = 25
"""Number of most recent datasets whose columns are proposed for reuse."""
COLUMN_KINDS = {
    "number": marked("number"),
    "category": marked("category"),
    "date": marked("date"),
    "text": marked("free text"),
    "code": marked("code or id, hashed"),
    "subject": marked("the person"),
    "label": marked("predicted: class"),
    "target": marked("predicted: number"),
    "counts": marked("predicted: count"),
    "ignored": marked("not used"),
}
"""Kinds that a CSV column can have, by their values in the form."""
_WITHOUT_FACTS: dict[str, dict[str, Any]] = {
    "text": {"kind": "text", "features": 4096, "words": [1, 2], "unknown": "null"},
    "code": {"kind": "hashed", "features": 256, "unknown": "null"},
    "subject": {"role": "subject"},
    "ignored": {"role": "ignored"},
}
"""Settings of the column kinds that need neither a range nor values, as proposed by `lethe dataset infer`."""
Done = Literal["", "made", "added", "retired"]


class _DatasetForm(BaseModel):
    """Fields of the dataset form that are passed to the API unchanged."""

    name: Name
    adaptive_epsilon: Positive | None = None
    adaptive_delta: Annotated[float, Field(gt=0, lt=1)] | None = None


_BUDGET = ("adaptive_epsilon", "adaptive_delta")
_FIELDS = ("name", "classes", "target", "network_id", "subject_kind", *_BUDGET)


@router.get("/datasets")
def list_datasets(context: request_context.TheContext, place: lists.ThePlace) -> Response:
    """List datasets, newest first."""
    listing = context.listing(datasets.list_datasets, place, "dataset", "datasets")
    return context.page("datasets/list.html", **listing, may_upload=context.may(datasets.create_dataset))


@router.get("/datasets/new")
def new_dataset(context: request_context.TheContext) -> Response:
    """Show the form for creating a dataset."""
    context.require(datasets.create_dataset)
    return _form(context, values=dict.fromkeys(_FIELDS, ""))


@router.post("/datasets/new")
def upload_dataset(context: request_context.TheContext, form: request_context.Form) -> Response:
    """Create a dataset and show it, or show the file's faulty lines and the expected values."""
    context.require(datasets.create_dataset)
    values = {name: text(form, name) for name in _FIELDS}
    try:
        answer = context.ask(
            datasets.create_dataset,
            file=_file(form),
            **dict(checked(_DatasetForm, name=values["name"], **{name: values[name] or None for name in _BUDGET})),
            schema_=file_in(form, "schema") or _schema(form),
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
        f"{pages.ROOT}/datasets/{dataset['id']}",
        done="made",
        left_out=dataset["num_suppressed"],
        warned=len(set(dataset["warnings"]) - {ADDRESSES, ROUNDED}),
        addresses=int(ADDRESSES in dataset["warnings"]),
        rounded=int(ROUNDED in dataset["warnings"]),
    )


@router.get("/datasets/{dataset_id}")
def show_dataset(
    context: request_context.TheContext,
    dataset_id: str,
    done: Done = "",
    left_out: int = 0,
    warned: int = 0,
    addresses: int = 0,
    rounded: int = 0,
) -> Response:
    """Show a dataset: its counts, its schema, its models and its additions."""
    result = {"done": done, "left_out": left_out, "warned": warned, "addresses": addresses, "rounded": rounded}
    return context.page("datasets/one.html", **_details(context, dataset_id), result=result if done else None)


@router.get("/datasets/{dataset_id}/live")
def live_dataset(context: request_context.TheContext, dataset_id: str) -> Response:
    """Refresh the live part of an open dataset page."""
    return context.page("datasets/live.html", **_details(context, dataset_id))


@router.post("/datasets/{dataset_id}/records")
def upload_records(context: request_context.TheContext, form: request_context.Form, dataset_id: str) -> Response:
    """Add rows to a dataset, or show the file's faulty lines."""
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
    return pages.see(f"{pages.ROOT}/datasets/{dataset_id}", done="added", left_out=left_out)


@router.post("/datasets/{dataset_id}/retire")
def retire_dataset(context: request_context.TheContext, dataset_id: str) -> Response:
    """Retire a dataset."""
    context.ask(datasets.retire_dataset, dataset_id=dataset_id)
    return pages.see(f"{pages.ROOT}/datasets/{dataset_id}", done="retired")


def _details(context: request_context.RequestContext, dataset_id: str) -> dict[str, Any]:
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


def _form(
    context: request_context.RequestContext, *, values: Mapping[str, str], error: Problem | None = None
) -> Response:
    offered = context.ask_if_allowed(networks.list_networks, limit=_MAX_NETWORKS)
    return context.page(
        "datasets/new.html",
        written=values,
        error=error,
        max_bytes=context.call.installation.settings.max_upload_bytes,
        networks=[(network.id, network.name) for network in offered.items] if offered else [],
        column_kinds=[(kind, gettext(label)) for kind, label in COLUMN_KINDS.items()],
        known_columns=_known_columns(context),
    )


def _known_columns(context: request_context.RequestContext) -> dict[str, list[str]]:
    """Map the column names in the newest schemas to the kind and public facts that the form shows for them."""
    known: dict[str, list[str]] = {}
    for dataset in context.ask(datasets.list_datasets, limit=_MAX_SCHEMAS).items:
        for name, settings in (dataset.schema_ or {"columns": {}})["columns"].items():
            known.setdefault(name, _stated(settings))
    return known


def _stated(settings: Mapping[str, Any]) -> list[str]:
    """Return a column's kind and public facts (range or values); the kind is empty if the form does not offer it."""
    kinds = {"numeric": "number", "datetime": "date", "categorical": "category", "hashed": "code", "text": "text"}
    kind = kinds.get(settings["kind"], "") if "kind" in settings else settings["role"]
    kind = "counts" if settings.get("counts") else kind if kind in COLUMN_KINDS else ""
    if "values" in settings:
        return [kind, ", ".join(settings["values"])]
    return [kind, f"{settings['min']}..{settings['max']}" if kind and "min" in settings else ""]


_COLUMNS = TypeAdapter(list[tuple[str, str, str]])


def _schema(form: FormData) -> str | None:
    """Return the schema of the columns in the form, each given by name, kind and facts; None if there are no columns.

    The form sends the columns in one JSON field, because the number of fields in a form with files is limited. Raises
    `InputInvalid`, which names the columns that lack the range or values required by their kind.
    """
    try:
        columns = _COLUMNS.validate_json(text(form, "columns") or "[]")
    except ValidationError as error:
        raise InputInvalid(gettext("Check the marked fields, and send the form again."), in_words(error)) from None
    stated = {name: _settings(kind, facts.strip()) for name, kind, facts in columns}
    expected = gettext("expected a public range, such as 17..90, or values, such as no, yes")
    faults = [
        FieldError(gettext("column {name}").format(name=name), expected)
        for name, settings in stated.items()
        if settings is None
    ]
    if faults:
        raise InputInvalid(gettext("A column needs public facts, which are never read from the rows."), faults)
    return json.dumps({"columns": stated}) if stated else None


def _settings(kind: str, facts: str) -> dict[str, Any] | None:
    """Return a column's settings; None if its facts do not suit its kind."""
    if kind in _WITHOUT_FACTS:
        return _WITHOUT_FACTS[kind]
    if kind in ("category", "label"):
        names = [name.strip() for name in facts.split(",") if name.strip()]
        role = {"role": "label"} if kind == "label" else {"kind": "categorical", "unknown": "null"}
        return role | {"values": names} if names else None
    ends = parse_range(facts)
    if ends is None or (ends["kind"] == "datetime") != (kind == "date"):
        return None
    if kind in ("number", "date"):
        return ends
    del ends["kind"]
    return {"role": "target"} | ends | ({"counts": True} if kind == "counts" else {})


def _classes(text: str) -> str | None:
    """Parse class names separated by commas. Return None if the field is empty."""
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
    """Return the form's choice for rows of suppressed people: "skip" or "refuse"."""
    return "skip" if text(form, "suppressed") == "skip" else "refuse"
