"""Accounting: what is left of each dataset's budget, and the ledger of all models."""

from fastapi import Response

from app.api import accounting, datasets, models
from app.features.desk import rendering as pages
from app.features.desk.forms import OptionalPositive, OptionalProbability
from app.features.desk.lists import ThePlace
from app.features.desk.request_context import RequestContext, TheContext

router = pages.new_router()

_PER_PAGE = 10
"""Datasets per page. The browser requests the account of each dataset when it scrolls into view."""


@router.get("/accounting")
def list_accounts(
    context: TheContext, place: ThePlace, epsilon: OptionalPositive = None, delta: OptionalProbability = None
) -> Response:
    """List datasets, each with its account against a budget of `epsilon` and `delta`."""
    page = context.ask_if_allowed(datasets.list_datasets, limit=_PER_PAGE, cursor=place.cursor)
    return context.page("accounting/list.html", page=page, place=place, query=_query(epsilon, delta))


@router.get("/accounting/datasets/{dataset_id}")
def show_account(
    context: TheContext, dataset_id: str, epsilon: OptionalPositive = None, delta: OptionalProbability = None
) -> Response:
    """Show the budget spent on one record, and what is left of a budget."""
    account = context.ask(
        accounting.get_dataset_account, dataset_id=dataset_id, adaptive_epsilon=epsilon, adaptive_delta=delta
    )
    names = {share.model_id: _model_name(context, share.model_id) for share in account.models}
    return context.page("accounting/dataset.html", account=account, names=names, query=_query(epsilon, delta))


def _model_name(context: RequestContext, model_id: str) -> str:
    """Return the name of a model; its id for a caller who may not read models."""
    model = context.ask_if_allowed(models.get_model, model_id=model_id)
    return model.name if model else model_id


def _query(epsilon: float | None, delta: float | None) -> dict[str, float]:
    return {name: value for name, value in (("epsilon", epsilon), ("delta", delta)) if value is not None}


@router.get("/ledger")
def show_ledger(context: TheContext) -> Response:
    """Show the actions on the ledger. Its signed head is not displayed, only downloaded."""
    context.require(accounting.get_ledger_head)
    return context.page("ledger/one.html")


@router.post("/ledger/verify")
def verify_ledger(context: TheContext) -> Response:
    """Recompute the whole ledger."""
    return context.page("ledger/verdict.html", verdict=context.ask(accounting.verify_whole_ledger))


@router.get("/ledger/head.json")
def download_head(context: TheContext) -> Response:
    """Download the signed head of the ledger, to be kept out of reach of anyone who could forge the ledger."""
    return pages.json_file("ledger-head.json", context.ask(accounting.get_ledger_head))


@router.get("/ledger/ledger.jsonl")
def download_ledger(context: TheContext) -> Response:
    """Download the whole ledger, for offline verification."""
    return context.ask(accounting.export_ledger)
