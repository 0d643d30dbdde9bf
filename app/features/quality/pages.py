"""Page about a model's quality: its gate, the version that the gate holds back, and remedies."""

from typing import Literal

from fastapi import Response

from app.api import models
from app.features.desk import forms, languages, rendering as pages, request_context, wording
from app.features.quality import endpoints as quality
from lethe.contract import problems, sets
from lethe.contract.models import ModelOut
from lethe.features.quality.contract import ModelChangeIn

router = pages.new_router()

Done = Literal["", "set", "removed", "released"]
ON_BREACH = [
    (sets.OnBreach.PUBLISH_DEGRADED.value, languages.marked("Serve it with a warning")),
    (sets.OnBreach.HOLD.value, languages.marked("Hold it back from serving")),
]


@router.get("/models/{model_id}/quality")
def show_quality(context: request_context.TheContext, model_id: str, done: Done = "") -> Response:
    """Show a model's gate, the metric's value for the live version, and remedies."""
    return _page(context, model_id, done=done)


@router.post("/models/{model_id}/quality")
def set_gate(context: request_context.TheContext, model_id: str, form: request_context.Form) -> Response:
    """Set or replace the gate. If it is refused, show the form again with the error."""
    context.require(quality.update_model)
    gate = {
        "metric": forms.text(form, "metric"),
        "threshold": forms.parse_optional_number(forms.text(form, "threshold")),
        "on_breach": forms.text(form, "on_breach"),
    }
    try:
        context.ask(quality.update_model, model_id=model_id, body=forms.checked(ModelChangeIn, quality=gate))
    except problems.Problem as error:
        return _page(context, model_id, error=error)
    return _back(model_id, "set")


@router.post("/models/{model_id}/quality/remove")
def remove_gate(context: request_context.TheContext, model_id: str) -> Response:
    """Remove the model's gate."""
    context.ask(quality.remove_gate, model_id=model_id)
    return _back(model_id, "removed")


@router.post("/models/{model_id}/versions/{number}/release")
def release_version(context: request_context.TheContext, model_id: str, number: models.Number) -> Response:
    """Allow the version that is held back to be served."""
    context.ask(quality.release_version, model_id=model_id, number=number)
    return _back(model_id, "released")


def _back(model_id: str, done: Done) -> Response:
    return pages.see(f"{pages.ROOT}/models/{model_id}/quality", done=done)


def _page(
    context: request_context.RequestContext, model_id: str, *, done: Done = "", error: problems.Problem | None = None
) -> Response:
    model = context.ask(models.get_model, model_id=model_id)
    return context.page(
        "models/quality.html",
        model=model,
        metrics=[(metric.value, wording.words(metric)) for metric in _offered(model)],
        on_breach=[(value, languages.gettext(label)) for value, label in ON_BREACH],
        remedies=None if model.retired_at else context.ask(quality.list_remedies, model_id=model_id),
        may_change=context.may(quality.update_model) and not model.retired_at,
        error=error,
        done=done,
    )


def _offered(model: ModelOut) -> list[sets.Metric]:
    """Return the metrics of the live version, or all metrics if it has none."""
    return [metric for metric in sets.Metric if metric in model.metrics] or list(sets.Metric)


PAGES = (router,)
