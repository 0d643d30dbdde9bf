"""Models: how much of anybody is left in each, which versions there were, and what it would take to forget more."""

import contextlib
from typing import Any, Literal

from fastapi import Response

from app.api import accounting, models, overview, rehearsals
from app.dashboard import pages, what_if
from app.dashboard.languages import gettext, marked
from app.dashboard.lists import Place, ThePlace
from app.dashboard.pages import ROOT
from app.dashboard.rehearsals import may_rehearse
from app.dashboard.request_context import RequestContext, TheContext
from lethe.contract.choices import ModelDanger, ModelOrder
from lethe.contract.fields import PageOut
from lethe.contract.models import ModelOut
from lethe.contract.problems import ModelNotLive, ModelRetired
from lethe.proof.guarantees import Notion

router = pages.new_router()

_NEWEST = 5
"""Versions and copies that a model's own page names; the others are a click away."""

Done = Literal["", "made", "relearn", "audit", "rehearsal", "retired"]

ASKS: dict[str, str] = {
    Notion.UNLEARNING: marked("How far is the live version from one learned without those whom it was made to forget?"),
    Notion.RELEASE: marked("What can the live version show about somebody who stays, to whoever has the one before?"),
    Notion.ADAPTIVE: marked("What can all versions together show about somebody, to whoever kept them all?"),
}
"""The question that a guarantee of each notion answers, of a model."""


@router.get("/models")
def list_models(
    context: TheContext,
    place: ThePlace,
    order: ModelOrder = ModelOrder.NEWEST,
    danger: ModelDanger | Literal[""] = "",
) -> Response:
    """All of them, newest first; or those in service, in most danger first."""
    found = context.ask(models.list_models, order=order, danger=danger or None, limit=place.size, cursor=place.cursor)
    query = {name: value for name, value in {"order": order, "danger": danger}.items() if value not in ("", "newest")}
    titles = {
        ModelOrder.NEWEST: gettext("Newest first"),
        ModelOrder.OLDEST: gettext("Oldest first"),
        ModelOrder.RISK: gettext("In most danger first"),
    }
    return context.page(
        "models/list.html",
        found=found,
        place=place,
        extent=place.extent(found, "model", "models", total=_total(context, found, order, danger, place)),
        query=query,
        titles=titles,
        may_rank=context.may(accounting.get_account),
        may_make=context.may(models.create_model),
    )


@router.get("/models/{model_id}")
def show_model(context: TheContext, model_id: str, done: Done = "") -> Response:
    """Everything about one model. What takes longer, its curve, is asked for by the page."""
    shown: dict[str, Any] = _standing(context, model_id)
    return context.page(
        "models/one.html",
        **shown,
        versions=context.ask(models.list_versions, model_id=model_id, limit=_NEWEST),
        exports=context.ask(models.list_exports, model_id=model_id, limit=_NEWEST),
        what_if=what_if.first(context, shown["model"]),
        may_account=context.may(accounting.get_ledger),
        may_relearn=context.may(models.relearn) and not shown["model"].retired_at,
        may_retire=context.may(models.retire_model) and not shown["model"].retired_at,
        may_audit=context.may(models.audit) and shown["model"].live_version and shown["model"].audit.lanes,
        may_rehearse=may_rehearse(context, live=bool(shown["model"].live_version)),
        rehearsals=context.ask(rehearsals.list_rehearsals, model_id=model_id, limit=_NEWEST)
        if context.may(rehearsals.list_rehearsals)
        else None,
        done=done,
    )


@router.get("/models/{model_id}/live")
def live_model(context: TheContext, model_id: str) -> Response:
    """Show how a model stands, for a page that is open."""
    return context.page("models/live.html", **_standing(context, model_id))


@router.post("/models/{model_id}/relearn")
def relearn_model(context: TheContext, model_id: str) -> Response:
    """Have it learned again, on the data as they are now."""
    context.ask(models.relearn, model_id=model_id)
    return pages.see(f"{ROOT}/models/{model_id}", done="relearn")


@router.post("/models/{model_id}/retire")
def retire_model(context: TheContext, model_id: str) -> Response:
    """Take it out of service for good."""
    context.ask(models.retire_model, model_id=model_id)
    return pages.see(f"{ROOT}/models/{model_id}", done="retired")


@router.get("/models/{model_id}/versions")
def list_versions(context: TheContext, model_id: str, place: ThePlace) -> Response:
    """Every version there was, destroyed ones among them."""
    model = context.ask(models.get_model, model_id=model_id)
    found = context.ask(models.list_versions, model_id=model_id, limit=place.size, cursor=place.cursor)
    extent = place.extent(found, "version", "versions")
    return context.page("models/versions.html", model=model, versions=found, place=place, extent=extent)


@router.get("/models/{model_id}/exports")
def list_exports(context: TheContext, model_id: str, place: ThePlace) -> Response:
    """Every copy that was handed out."""
    model = context.ask(models.get_model, model_id=model_id)
    found = context.ask(models.list_exports, model_id=model_id, limit=place.size, cursor=place.cursor)
    extent = place.extent(found, "copy", "copies")
    return context.page("models/exports.html", model=model, exports=found, place=place, extent=extent)


@router.get("/models/{model_id}/ledger")
def show_ledger(context: TheContext, model_id: str, place: ThePlace) -> Response:
    """The entries that every number of a model follows from, oldest first."""
    found = context.ask(accounting.get_ledger, model_id=model_id, limit=place.size, cursor=place.cursor)
    extent = place.extent(found, "entry", "entries")
    return context.page("models/ledger.html", model_id=model_id, ledger=found, place=place, extent=extent)


@router.post("/models/{model_id}/ledger/verify")
def verify_ledger(context: TheContext, model_id: str) -> Response:
    """Recompute all of it, now."""
    verdict = context.ask(accounting.verify_ledger, model_id=model_id)
    return context.page("models/verdict.html", model_id=model_id, verdict=verdict)


def _total(
    context: RequestContext,
    found: PageOut[ModelOut],
    order: ModelOrder,
    danger: ModelDanger | Literal[""],
    place: Place,
) -> int | None:
    """Number of models on all pages, where the overview counts them: those in service, and those in danger."""
    if (
        place.has_all(found)
        or not context.may(overview.get_overview)
        or (order is not ModelOrder.RISK and danger == "")
    ):
        return None
    counted = context.ask(overview.get_overview).models
    match danger:
        case ModelDanger.WAITING:
            return counted.waiting
        case ModelDanger.FAILED:
            return counted.failed
        case ModelDanger.AUDIT_REFUSED:
            return counted.audits_refused
        case ModelDanger.DEGRADED:
            return counted.degraded
        case ModelDanger.HELD:
            return counted.held
        case "":
            return counted.total


def _standing(context: RequestContext, model_id: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "model": context.ask(models.get_model, model_id=model_id),
        "account": None,
        "asks": {notion: gettext(said) for notion, said in ASKS.items()},
    }
    if context.may(accounting.get_account):
        with contextlib.suppress(ModelNotLive, ModelRetired):
            found["account"] = context.ask(
                accounting.get_account, model_id=model_id, adaptive_epsilon=None, adaptive_delta=None
            )
    return found
