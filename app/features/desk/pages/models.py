"""Models: their guarantees, versions, exports and ledgers, and the cost of further forgetting."""

import contextlib
from typing import Any, Literal

from fastapi import Response

from app.api import models
from app.features.canary_tests import endpoints as canary_tests
from app.features.custody import endpoints as custody
from app.features.desk import languages, lists, rendering as pages, request_context
from app.features.insight import endpoints as insight
from app.features.insight.pages import first_what_if
from app.features.lineage import endpoints as lineage
from app.features.overview import endpoints as overview
from app.features.rehearsals import endpoints as rehearsals
from app.features.rehearsals.pages import may_rehearse
from lethe.contract import fields, problems, sets
from lethe.contract.models import ModelOut
from lethe.proof.guarantees import Notion

router = pages.new_router()

_MAX_NEWEST = 5
"""Number of versions, exports and rehearsals shown on a model's page, which links to the full lists."""

Done = Literal["", "made", "relearn", "audit", "rehearsal", "retired"]

QUESTIONS: dict[str, str] = {
    Notion.UNLEARNING: languages.marked("Residual influence of erased people"),
    Notion.RELEASE: languages.marked("Leakage of this version about remaining people"),
    Notion.ADAPTIVE: languages.marked("Cumulative leakage of all versions"),
}
"""Question about a model that each notion of guarantee answers."""


@router.get("/models")
def list_models(
    context: request_context.TheContext,
    place: lists.ThePlace,
    order: sets.ModelOrder = sets.ModelOrder.NEWEST,
    danger: sets.ModelDanger | Literal[""] = "",
) -> Response:
    """List models by age, or only those in service by urgency."""
    page = context.ask(models.list_models, order=order, danger=danger or None, limit=place.size, cursor=place.cursor)
    query = {name: value for name, value in {"order": order, "danger": danger}.items() if value not in ("", "newest")}
    titles = {
        sets.ModelOrder.NEWEST: languages.gettext("Newest first"),
        sets.ModelOrder.OLDEST: languages.gettext("Oldest first"),
        sets.ModelOrder.RISK: languages.gettext("Most urgent first"),
    }
    return context.page(
        "models/list.html",
        page=page,
        place=place,
        extent=place.extent(page, "model", "models", total=_total(context, page, order, danger, place)),
        query=query,
        titles=titles,
        may_rank=context.may(insight.get_account),
        may_make=context.may(models.create_model),
    )


@router.get("/models/{model_id}")
def show_model(context: request_context.TheContext, model_id: str, done: Done = "") -> Response:
    """Show a model. The page loads the model's curve separately, because it takes longer to compute."""
    standing = _standing(context, model_id)
    model: ModelOut = standing["model"]
    return context.page(
        "models/one.html",
        **standing,
        versions=context.ask(models.list_versions, model_id=model_id, limit=_MAX_NEWEST),
        exports=context.ask(lineage.list_exports, model_id=model_id, limit=_MAX_NEWEST),
        what_if=first_what_if(context, model),
        may_account=context.may(custody.get_ledger),
        may_relearn=context.may(models.relearn) and not model.retired_at,
        may_retire=context.may(models.retire_model) and not model.retired_at,
        may_test=context.may(canary_tests.audit) and model.live_version and model.audit.lanes,
        may_rehearse=may_rehearse(context, live=bool(model.live_version)),
        rehearsals=context.ask_if_allowed(rehearsals.list_rehearsals, model_id=model_id, limit=_MAX_NEWEST),
        done=done,
    )


@router.get("/models/{model_id}/live")
def live_model(context: request_context.TheContext, model_id: str) -> Response:
    """Refresh the live part of an open model page."""
    return context.page("models/live.html", **_standing(context, model_id))


@router.post("/models/{model_id}/relearn")
def relearn_model(context: request_context.TheContext, model_id: str) -> Response:
    """Request that a model be retrained on the current data."""
    context.ask(models.relearn, model_id=model_id)
    return pages.see(f"{pages.ROOT}/models/{model_id}", done="relearn")


@router.post("/models/{model_id}/retire")
def retire_model(context: request_context.TheContext, model_id: str) -> Response:
    """Retire a model."""
    context.ask(models.retire_model, model_id=model_id)
    return pages.see(f"{pages.ROOT}/models/{model_id}", done="retired")


@router.get("/models/{model_id}/versions")
def list_versions(context: request_context.TheContext, model_id: str, place: lists.ThePlace) -> Response:
    """List all versions of a model, including destroyed ones."""
    model = context.ask(models.get_model, model_id=model_id)
    listing = context.listing(models.list_versions, place, "version", "versions", model_id=model_id)
    return context.page("models/versions.html", model=model, **listing)


@router.get("/models/{model_id}/exports")
def list_exports(context: request_context.TheContext, model_id: str, place: lists.ThePlace) -> Response:
    """List all downloads of a model's weights."""
    model = context.ask(models.get_model, model_id=model_id)
    listing = context.listing(lineage.list_exports, place, "copy", "copies", model_id=model_id)
    return context.page("models/exports.html", model=model, **listing)


@router.get("/models/{model_id}/ledger")
def show_ledger(context: request_context.TheContext, model_id: str, place: lists.ThePlace) -> Response:
    """List a model's ledger entries, oldest first. All of the model's figures are derived from them."""
    listing = context.listing(custody.get_ledger, place, "entry", "entries", model_id=model_id)
    return context.page("models/ledger.html", model_id=model_id, **listing)


@router.post("/models/{model_id}/ledger/verify")
def verify_ledger(context: request_context.TheContext, model_id: str) -> Response:
    """Recompute every hash and number in a model's ledger."""
    verdict = context.ask(custody.verify_ledger, model_id=model_id)
    return context.page("models/verdict.html", model_id=model_id, verdict=verdict)


def _total(
    context: request_context.RequestContext,
    page: fields.PageOut[ModelOut],
    order: sets.ModelOrder,
    danger: sets.ModelDanger | Literal[""],
    place: lists.PagePosition,
) -> int | None:
    """Return the number of models across all pages; None if there is only one page or the overview lacks the number."""
    if place.has_all(page) or (order is not sets.ModelOrder.RISK and danger == ""):
        return None
    numbers = context.ask_if_allowed(overview.get_overview)
    if numbers is None:
        return None
    match danger:
        case sets.ModelDanger.WAITING:
            return numbers.models.waiting
        case sets.ModelDanger.FAILED:
            return numbers.models.failed
        case sets.ModelDanger.AUDIT_REFUSED:
            return numbers.models.audits_refused
        case sets.ModelDanger.DEGRADED:
            return numbers.models.degraded
        case sets.ModelDanger.HELD:
            return numbers.models.held
        case "":
            return numbers.models.total


def _standing(context: request_context.RequestContext, model_id: str) -> dict[str, Any]:
    model = context.ask(models.get_model, model_id=model_id)
    account = None
    with contextlib.suppress(problems.ModelNotLive, problems.ModelRetired):
        account = context.ask_if_allowed(
            insight.get_account, model_id=model_id, adaptive_epsilon=None, adaptive_delta=None
        )
    return {
        "model": model,
        "account": account,
        "questions": {notion: languages.gettext(question) for notion, question in QUESTIONS.items()},
    }
