"""A new model: a form that says what the model would take, before anybody makes it."""

import json
from dataclasses import dataclass
from typing import Any, get_args

from fastapi import Response
from starlette.datastructures import FormData

from app.accounting import runtime_estimates
from app.accounting import service as accounting
from app.accounting.runtime_estimates import RuntimeEstimate
from app.api import datasets, models, networks, previews, problems
from app.catalogue import datasets as registered
from app.catalogue import mechanisms, quality
from app.catalogue.tangents import linearised
from app.dashboard import numbers, pages, plans, wording
from app.dashboard.languages import gettext
from app.dashboard.pages import ROOT
from app.dashboard.quality import ON_BREACH
from app.dashboard.request_context import Form, RequestContext, TheContext
from app.dashboard.requests import checked, text
from app.encoders import service as encoders
from app.unlearning import planner
from lethe.contract.datasets import DatasetOut
from lethe.contract.models import ModelIn, Objective
from lethe.contract.previews import OptionOut
from lethe.contract.problems import Problem
from lethe.contract.sets import Metric, OnBreach
from lethe.proof import accountant
from lethe.proof.accountant import Run
from lethe.proof.mechanism import Mechanism

router = pages.new_router()

_MOST_DATASETS = 500
_SETTINGS = (
    "loss_width",
    "l2",
    "noise_scale",
    "step_size",
    "radius",
    "learn_steps",
    "batch_size",
    "cool_down",
    "second_moment",
)
"""The settings of the mechanism: each has a default."""
_IN_ITS_PART = {
    "epsilon": "target",
    "delta": "target",
    "max_requests": "batching",
    "max_wait_seconds": "batching",
    "lanes": "audit",
    "chains": "audit",
    "threshold": "quality",
    "rank": "tangent",
}
"""Numbers that the API has in a part of their own."""
_AT_FIELD = {"quality": "metric", "tangent": "network_id"}
"""The field at which a fault of a whole part is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The outlook of a model: its mechanism, and what forgetting one record would be once it has learned.

    `room`: records that can be forgotten together before learning again is no dearer; `measured`: on these rows.
    """

    delta: float
    mechanism: Mechanism
    epsilon_without_steps: float
    room: int
    options: list[OptionOut]
    measured: RuntimeEstimate | None


@router.get("/models/new")
def new_model(context: TheContext, dataset_id: str = "") -> Response:
    """The form for a model."""
    context.require(models.create_model)
    return _form(context, {"dataset_id": dataset_id} if dataset_id else {})


@router.post("/models/new/preview")
def preview_model(context: TheContext, form: Form) -> Response:
    """Show what a model would take: the answer alone while somebody types; a page if the form is sent. Makes
    nothing."""
    context.require(models.create_model)
    return _form(context, _written(form), is_preview=True)


@router.post("/models/new")
def create_model(context: TheContext, form: Form) -> Response:
    """Make it, and show it; or say at which field the form is wrong."""
    context.require(models.create_model)
    try:
        answer = context.ask(models.create_model, body=_asked(_written(form)))
    except Problem as error:
        return _form(context, _written(form), error=error)
    made = json.loads(bytes(answer.body))
    return pages.see(f"{ROOT}/models/{made['id']}", done="made")


def _written(form: FormData) -> dict[str, str]:
    return {name: text(form, name) for name in form if name != "csrf"}


def _asked(written: dict[str, str]) -> ModelIn:
    """As the API reads it. Raises `InputInvalid`, whose paths are the names of fields."""
    fields: dict[str, Any] = {"name": written.get("name", ""), "dataset_id": written.get("dataset_id", "")}
    for name in ("evaluation_dataset_id", "objective"):
        fields[name] = written.get(name) or None
    for name in (*_SETTINGS, *_IN_ITS_PART):
        value = numbers.of_field(written.get(name, ""))
        if value is not None:
            part = fields.setdefault(_IN_ITS_PART[name], {}) if name in _IN_ITS_PART else fields
            part[name] = value
    if lines := _lines(written, "class_weights"):
        pairs = [line.rpartition("=") for line in lines]
        fields["class_weights"] = {name.strip(): numbers.read(weight.strip()) for name, _, weight in pairs}
    if written.get("metric") or "quality" in fields:
        gate = {"metric": written.get("metric"), "on_breach": written.get("on_breach") or OnBreach.PUBLISH_DEGRADED}
        fields["quality"] = fields.get("quality", {}) | gate
    layers = _lines(written, "layers")
    if written.get("network_id") or layers or "tangent" in fields:
        moved = {"network_id": written.get("network_id") or None, "layers": layers}
        fields["tangent"] = fields.get("tangent", {}) | moved
    return checked(ModelIn, **fields)


def _lines(written: dict[str, str], name: str) -> list[str]:
    return [line.strip() for line in written.get(name, "").splitlines() if line.strip()]


def _field_of(path: str) -> str:
    """The field that a path of the API is about: of a list or a map all have one."""
    part, *rest = path.removeprefix("tangent.").removeprefix("quality.").split(".")
    return part if part in ("class_weights", "layers") else _AT_FIELD.get(part, part) if not rest else rest[-1]


def _form(
    context: RequestContext, written: dict[str, str], *, is_preview: bool = False, error: Problem | None = None
) -> Response:
    known = context.ask(datasets.list_datasets, limit=_MOST_DATASETS).items
    outlook, drawing, wrong = None, None, error
    if known and error is None:
        try:
            asked = _unnamed({"dataset_id": known[0].id} | written)
            outlook, drawing = _outlook(context, asked), plans.of_new(context, asked)
        except Problem as refusal:
            wrong = refusal
    template = "models/outlook.html" if is_preview and pages.is_fragment(context.request) else "models/new.html"
    return context.page(
        template,
        status=problems.status_of(type(error)) if error else 200,
        written=written,
        objectives=[
            ("", gettext("as the dataset has it")),
            *((one, wording.words(one)) for one in get_args(Objective)),
        ],
        datasets=[(one.id, _title(one)) for one in known],
        networks=_networks(context),
        metrics=[("", gettext("no gate")), *((one.value, wording.words(one)) for one in Metric)],
        on_breach=[(value, gettext(said)) for value, said in ON_BREACH],
        faults={_field_of(one.path): one.message for one in wrong.errors} if wrong else {},
        error=wrong,
        outlook=outlook,
        drawing=drawing,
    )


def _networks(context: RequestContext) -> list[tuple[str, str]]:
    """Those whose weights a model may move, where the caller may see them."""
    if not context.may(networks.list_networks):
        return []
    known = context.ask(networks.list_networks, limit=_MOST_DATASETS).items
    return [
        ("", gettext("none: a linear model")),
        *((one.id, _sized(one.name, wording.count(one.num_parameters, "weight", "weights"))) for one in known),
    ]


def _title(dataset: DatasetOut) -> str:
    of_target = gettext("counts") if dataset.target and dataset.target.counts else gettext("a target")
    learned = of_target if dataset.target else wording.count(dataset.num_classes, "class", "classes")
    rows = wording.count(dataset.num_slots, "row", "rows")
    return _sized(dataset.name, f"{rows}, {learned}")


def _sized(name: str, size: str) -> str:
    return f"{name} ({size})"


def _unnamed(written: dict[str, str]) -> ModelIn:
    """A model that is not named yet. Raises `InputInvalid`."""
    return _asked({"name": "new"} | {name: value for name, value in written.items() if value})


def _outlook(context: RequestContext, asked: ModelIn) -> Outlook:
    """Raises what making the model would raise."""
    with context.call.reading() as session:
        dataset = registered.get(session, asked.dataset_id)
        measured = runtime_estimates.of_dataset(session, dataset.id)
        network = encoders.get(session, asked.tangent.network_id) if asked.tangent else None
        tangent = linearised(dataset, network, asked.tangent) if network and asked.tangent else None
    epsilon, delta = asked.target.epsilon, asked.target.delta or mechanisms.default_delta(dataset)
    mechanism = mechanisms.of(
        dataset,
        epsilon=epsilon,
        delta=delta,
        objective=asked.objective,
        loss_width=asked.loss_width,
        l2=asked.l2,
        noise_scale=asked.noise_scale,
        step_size=asked.step_size,
        radius=asked.radius,
        learn_steps=asked.learn_steps,
        batch_size=asked.batch_size,
        cool_down=asked.cool_down,
        second_moment=asked.second_moment,
        class_weights=asked.class_weights,
        tangent=tangent,
        max_steps=context.call.installation.settings.max_steps,
    )
    quality.stored_gate(asked.quality, mechanism, is_evaluated=asked.evaluation_dataset_id is not None)
    learned = accountant.replay(mechanism, [Run(steps=mechanism.learn_steps)])
    return Outlook(
        delta=delta,
        mechanism=mechanism,
        epsilon_without_steps=accounting.epsilon_without_steps(learned, records=1, delta=delta),
        room=accounting.room(learned, epsilon=epsilon, delta=delta),
        options=previews.options_to_response(
            planner.options(learned, records=1, epsilon=epsilon, delta=delta), measured
        ),
        measured=measured,
    )
