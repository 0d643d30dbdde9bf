"""Models: how much of anybody is left in each, which versions there were, and what it would take to forget more."""

import contextlib
from typing import Any, Literal

from fastapi import Response

from app.api import accounting, models
from app.api.calls import Cursor
from app.dashboard import pages, what_if
from app.dashboard.pages import ROOT
from app.dashboard.visits import TheVisit, Visit
from app.errors import ModelNotLive, ModelRetired
from lethe.proof.guarantees import Notion

router = pages.new_router()

_PER_PAGE = 50
_NEWEST = 5
"""Versions and copies that a model's own page names; the others are a click away."""

Done = Literal["", "made", "relearn", "audit", "retired"]

ASKS: dict[str, str] = {
    Notion.UNLEARNING: "How far is the live version from one learned without everybody who has asked?",
    Notion.RELEASE: "What can the live version show about somebody who stays, to whoever has the one before?",
    Notion.ADAPTIVE: "What can all versions together show about somebody, to whoever kept them all?",
}
"""The question that a guarantee of each notion answers, of a model."""


@router.get("/models")
def list_models(visit: TheVisit, cursor: Cursor = None) -> Response:
    """All of them, newest first."""
    found = visit.ask(models.list_models, limit=_PER_PAGE, cursor=cursor)
    return visit.page("models/list.html", found=found, cursor=cursor, may_make=visit.may(models.create_model))


@router.get("/models/{model_id}")
def show_model(visit: TheVisit, model_id: str, done: Done = "") -> Response:
    """Everything about one model. What takes longer, its curve, is asked for by the page."""
    shown: dict[str, Any] = _standing(visit, model_id)
    return visit.page(
        "models/one.html",
        **shown,
        versions=visit.ask(models.list_versions, model_id=model_id, limit=_NEWEST),
        exports=visit.ask(models.list_exports, model_id=model_id, limit=_NEWEST),
        what_if=what_if.first(visit, shown["model"]),
        may_account=visit.may(accounting.get_ledger),
        may_relearn=visit.may(models.relearn) and not shown["model"].retired_at,
        may_retire=visit.may(models.retire_model) and not shown["model"].retired_at,
        may_audit=visit.may(models.audit) and shown["model"].live_version and shown["model"].audit.lanes,
        done=done,
    )


@router.get("/models/{model_id}/live")
def live_model(visit: TheVisit, model_id: str) -> Response:
    """How it stands, for a page that is open."""
    return visit.page("models/live.html", **_standing(visit, model_id))


@router.post("/models/{model_id}/relearn")
def relearn_model(visit: TheVisit, model_id: str) -> Response:
    """Have it learned again, on the data as they are now."""
    visit.ask(models.relearn, model_id=model_id)
    return pages.see(f"{ROOT}/models/{model_id}", done="relearn")


@router.post("/models/{model_id}/retire")
def retire_model(visit: TheVisit, model_id: str) -> Response:
    """Take it out of service for good."""
    visit.ask(models.retire_model, model_id=model_id)
    return pages.see(f"{ROOT}/models/{model_id}", done="retired")


@router.get("/models/{model_id}/versions")
def list_versions(visit: TheVisit, model_id: str, cursor: Cursor = None) -> Response:
    """Every version there was, destroyed ones among them."""
    model = visit.ask(models.get_model, model_id=model_id)
    found = visit.ask(models.list_versions, model_id=model_id, limit=_PER_PAGE, cursor=cursor)
    return visit.page("models/versions.html", model=model, versions=found, cursor=cursor)


@router.get("/models/{model_id}/exports")
def list_exports(visit: TheVisit, model_id: str, cursor: Cursor = None) -> Response:
    """Every copy that was handed out."""
    model = visit.ask(models.get_model, model_id=model_id)
    found = visit.ask(models.list_exports, model_id=model_id, limit=_PER_PAGE, cursor=cursor)
    return visit.page("models/exports.html", model=model, exports=found, cursor=cursor)


@router.get("/models/{model_id}/ledger")
def show_ledger(visit: TheVisit, model_id: str, cursor: Cursor = None) -> Response:
    """The entries that every number of a model follows from, oldest first."""
    found = visit.ask(accounting.get_ledger, model_id=model_id, limit=_PER_PAGE, cursor=cursor)
    return visit.page("models/ledger.html", model_id=model_id, ledger=found, cursor=cursor)


@router.post("/models/{model_id}/ledger/verify")
def verify_ledger(visit: TheVisit, model_id: str) -> Response:
    """Recompute all of it, now."""
    verdict = visit.ask(accounting.verify_ledger, model_id=model_id)
    return visit.page("models/verdict.html", model_id=model_id, verdict=verdict)


def _standing(visit: Visit, model_id: str) -> dict[str, Any]:
    found: dict[str, Any] = {"model": visit.ask(models.get_model, model_id=model_id), "account": None, "asks": ASKS}
    if visit.may(accounting.get_account):
        with contextlib.suppress(ModelNotLive, ModelRetired):
            found["account"] = visit.ask(
                accounting.get_account, model_id=model_id, adaptive_epsilon=None, adaptive_delta=None
            )
    return found
