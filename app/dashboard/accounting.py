"""Accounting: what every dataset's budget has left, and who would make a model learn again."""

from fastapi import Response

from app.api import accounting, datasets, models
from app.dashboard import pages
from app.dashboard.lists import ThePlace
from app.dashboard.numbers import Above, Chance
from app.dashboard.request_context import RequestContext, TheContext

router = pages.new_router()

_PER_PAGE = 10
"""Each is accounted for by itself, when it is looked at."""


@router.get("/accounting")
def list_accounts(context: TheContext, place: ThePlace, epsilon: Above = None, delta: Chance = None) -> Response:
    """Datasets, each with its account; `epsilon` and `delta`: of the budget that they are held against."""
    found = None
    if context.may(datasets.list_datasets):
        found = context.ask(datasets.list_datasets, limit=_PER_PAGE, cursor=place.cursor)
    return context.page("accounting/list.html", found=found, place=place, query=_query(epsilon, delta))


@router.get("/accounting/datasets/{dataset_id}")
def show_account(context: TheContext, dataset_id: str, epsilon: Above = None, delta: Chance = None) -> Response:
    """Show what one record has spent, and what is left of a budget."""
    found = context.ask(
        accounting.get_dataset_account, dataset_id=dataset_id, adaptive_epsilon=epsilon, adaptive_delta=delta
    )
    names = {one.model_id: _name(context, one.model_id) for one in found.models}
    return context.page("accounting/dataset.html", account=found, names=names, query=_query(epsilon, delta))


def _name(context: RequestContext, model_id: str) -> str:
    """The name of a model; its id, if the caller may not look at models."""
    return context.ask(models.get_model, model_id=model_id).name if context.may(models.get_model) else model_id


def _query(epsilon: float | None, delta: float | None) -> dict[str, float]:
    return {name: value for name, value in (("epsilon", epsilon), ("delta", delta)) if value is not None}
