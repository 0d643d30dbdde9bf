"""Form for a new model, with a forecast of the model's cost before it is created."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, get_args

from fastapi import Response
from starlette.datastructures import FormData

from app.accounting import repository, runtime_estimates
from app.api import datasets, models, problems
from app.catalogue import datasets as registered, mechanisms, service
from app.features.desk import forms, languages, rendering as pages, request_context, wording
from app.features.insight import costs, endpoints as previews
from app.features.insight.pages import plan_of_new
from app.features.networks import endpoints as networks
from app.features.quality.pages import ON_BREACH
from lethe.contract.datasets import DatasetOut
from lethe.contract.models import ModelIn, Objective
from lethe.contract.problems import Problem
from lethe.contract.sets import Metric, OnBreach
from lethe.features.insight.contract import EXPECTED_REQUESTS, OptionOut
from lethe.proof import accountant, calibration, methods
from lethe.proof.mechanism import Mechanism

router = pages.new_router()

_MAX_DATASETS = 500
_SETTINGS = tuple(field.name for field in fields(calibration.ModelSettings) if field.name in ModelIn.model_fields)
"""Settings of the mechanism, all of which have defaults."""
_PARTS = {
    "epsilon": "target",
    "delta": "target",
    "max_requests": "batching",
    "max_wait_seconds": "batching",
    "lanes": "audit",
    "chains": "audit",
    "threshold": "quality",
    "rank": "tangent",
}
"""Number fields, each with the object that contains it in the API request body."""
_FIELDS_OF_PARTS = {"quality": "metric", "tangent": "network_id"}
"""Field that shows an error concerning a whole object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelForecast:
    """A model's mechanism, and the cost of forgetting one record once the model has been trained.

    `room` is the number of records that can be forgotten together at a lower cost than retraining. `measured` is the
    running time measured on the dataset's models; None if there is no measurement.
    """

    delta: float
    mechanism: Mechanism
    epsilon_without_steps: float
    room: int
    options: list[OptionOut]
    measured: runtime_estimates.RuntimeEstimate | None


@router.get("/models/new")
def new_model(context: request_context.TheContext, dataset_id: str = "") -> Response:
    """Show the form for creating a model."""
    context.require(models.create_model)
    return _form(context, {"dataset_id": dataset_id} if dataset_id else {})


@router.post("/models/new/preview")
def preview_model(context: request_context.TheContext, form: request_context.Form) -> Response:
    """Forecast a model without creating it. An open form gets only the forecast, a submitted form the whole page."""
    context.require(models.create_model)
    return _form(context, _written(form), is_preview=True)


@router.post("/models/new")
def create_model(context: request_context.TheContext, form: request_context.Form) -> Response:
    """Create a model and show it, or show which form field is invalid."""
    context.require(models.create_model)
    try:
        answer = context.ask(models.create_model, body=_body(_written(form)))
    except Problem as error:
        return _form(context, _written(form), error=error)
    model = json.loads(bytes(answer.body))
    return pages.see(f"{pages.ROOT}/models/{model['id']}", done="made")


def _written(form: FormData) -> dict[str, str]:
    return {name: forms.text(form, name) for name in form if name != "csrf"}


def _body(values: Mapping[str, str]) -> ModelIn:
    """Return the API call's body. Raises `InputInvalid` with errors that name form fields."""
    fields: dict[str, Any] = {"name": values.get("name", ""), "dataset_id": values.get("dataset_id", "")}
    for name in ("evaluation_dataset_id", "objective"):
        fields[name] = values.get(name) or None
    if method := values.get("method"):
        fields["method"] = method
    for name in (*_SETTINGS, *_PARTS):
        value = forms.parse_optional_number(values.get(name, ""))
        if value is not None:
            part = fields.setdefault(_PARTS[name], {}) if name in _PARTS else fields
            part[name] = value
    if lines := _lines(values, "class_weights"):
        pairs = [line.rpartition("=") for line in lines]
        fields["class_weights"] = {name.strip(): forms.parse_number(weight.strip()) for name, _, weight in pairs}
    if values.get("metric") or "quality" in fields:
        gate = {"metric": values.get("metric"), "on_breach": values.get("on_breach") or OnBreach.PUBLISH_DEGRADED}
        fields["quality"] = fields.get("quality", {}) | gate
    layers = _lines(values, "layers")
    if values.get("network_id") or layers or "tangent" in fields:
        tangent = {"network_id": values.get("network_id") or None, "layers": layers}
        fields["tangent"] = fields.get("tangent", {}) | tangent
    return forms.checked(ModelIn, **fields)


def _lines(values: Mapping[str, str], name: str) -> list[str]:
    return [line.strip() for line in values.get(name, "").splitlines() if line.strip()]


def _field_of(path: str) -> str:
    """Return the form field for a path in the request body. All items of a list or map share one field."""
    part, *rest = path.removeprefix("tangent.").removeprefix("quality.").split(".")
    return part if part in ("class_weights", "layers") else _FIELDS_OF_PARTS.get(part, part) if not rest else rest[-1]


def _form(
    context: request_context.RequestContext,
    values: Mapping[str, str],
    *,
    is_preview: bool = False,
    error: Problem | None = None,
) -> Response:
    choices = context.ask(datasets.list_datasets, limit=_MAX_DATASETS).items
    forecast, drawing, fault = None, None, error
    if choices and error is None:
        filled = {"dataset_id": choices[0].id} | dict(values)
        try:
            body = _body({"name": "new"} | {name: value for name, value in filled.items() if value})
            forecast, drawing = _forecast(context, body), plan_of_new(context, body)
        except Problem as refusal:
            fault = refusal
    template = "models/outlook.html" if is_preview and pages.is_fragment(context.request) else "models/new.html"
    return context.page(
        template,
        status=problems.status_of(type(error)) if error else 200,
        written=values,
        methods=[(name if place else "", wording.words(name)) for place, name in enumerate(methods.all_methods())],
        objectives=[
            ("", languages.gettext("as the dataset has it")),
            *((objective, wording.words(objective)) for objective in get_args(Objective)),
        ],
        datasets=[(dataset.id, _title(dataset)) for dataset in choices],
        networks=_networks(context),
        metrics=[("", languages.gettext("no gate")), *((metric.value, wording.words(metric)) for metric in Metric)],
        on_breach=[(value, languages.gettext(label)) for value, label in ON_BREACH],
        faults={_field_of(error.path): error.message for error in fault.errors} if fault else {},
        error=fault,
        outlook=forecast,
        drawing=drawing,
    )


def _networks(context: request_context.RequestContext) -> list[tuple[str, str]]:
    """Return the network field's options, including "none"; an empty list if the caller may not see networks."""
    page = context.ask_if_allowed(networks.list_networks, limit=_MAX_DATASETS)
    if page is None:
        return []
    return [
        ("", languages.gettext("none: a linear model")),
        *(
            (network.id, _sized(network.name, wording.count(network.num_parameters, "weight", "weights")))
            for network in page.items
        ),
    ]


def _title(dataset: DatasetOut) -> str:
    of_target = (
        languages.gettext("counts") if dataset.target and dataset.target.counts else languages.gettext("a target")
    )
    learned = of_target if dataset.target else wording.count(dataset.num_classes, "class", "classes")
    rows = wording.count(dataset.num_slots, "row", "rows")
    return _sized(dataset.name, f"{rows}, {learned}")


def _sized(name: str, size: str) -> str:
    return f"{name} ({size})"


def _forecast(context: request_context.RequestContext, body: ModelIn) -> ModelForecast:
    """Forecast a model. Raises the same errors as creating it."""
    with context.call.reading() as session:
        dataset = registered.get(session, body.dataset_id)
        # A model of the dataset with as many parameters takes as long per step; the newest ran on today's machines.
        models = sorted(
            repository.models_of(session, dataset_id=dataset.id), key=lambda model: model.created_at, reverse=True
        )
        estimates = (runtime_estimates.of_model(session, model) for model in models)
        measured = next((estimate for estimate in estimates if estimate), None)
        tangent = registered.network_keeper().linearised(session, dataset, body.tangent) if body.tangent else None
    epsilon, delta = body.target.epsilon, mechanisms.delta_of(dataset, body.target)
    max_steps = context.call.installation.settings.max_steps
    mechanism = mechanisms.of(dataset, body, tangent=tangent, max_steps=max_steps)
    service.stored_gate(body.quality, mechanism, is_evaluated=body.evaluation_dataset_id is not None)
    learned = methods.replay(mechanism, [accountant.Run(steps=mechanism.learn_steps)])
    return ModelForecast(
        delta=delta,
        mechanism=mechanism,
        epsilon_without_steps=costs.epsilon_without_steps(learned, records=1, delta=delta),
        room=costs.room(learned, epsilon=epsilon, delta=delta),
        options=previews.options_to_response(
            costs.options(learned, records=1, epsilon=epsilon, delta=delta, expected_requests=EXPECTED_REQUESTS),
            measured,
        ),
        measured=measured,
    )
