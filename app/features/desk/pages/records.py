"""Records of the service: what is left of each dataset's budget, and the ledger of all models; and suppressions of
people who asked to be forgotten, whose rows are not accepted again unless they consent anew.
"""

from fastapi import Response

from app.api import accounting, datasets, deletion_requests, models
from app.features.desk import rendering as pages
from app.features.desk.forms import OptionalPositive, OptionalProbability, checked, text
from app.features.desk.lists import PagePosition, ThePlace
from app.features.desk.request_context import Form, RequestContext, TheContext
from app.features.insight import endpoints as insight
from lethe.contract.deletion_requests import ConsentIn

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
        insight.get_dataset_account, dataset_id=dataset_id, adaptive_epsilon=epsilon, adaptive_delta=delta
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


@router.get("/suppressions")
def list_suppressions(context: TheContext, place: ThePlace) -> Response:
    """List suppressions with their datasets, newest first."""
    return _list(context, place)


@router.post("/suppressions/search")
def search_suppressions(context: TheContext, form: Form) -> Response:
    """List the suppressions of a person, whose id is sent in the body, hashed in memory, and stored nowhere."""
    return _list(context, PagePosition(), subject_id=_consent(form).subject_id)


@router.post("/suppressions/lift")
def lift_suppressions(context: TheContext, form: Form) -> Response:
    """Lift the suppressions of a person who has consented anew."""
    lifted = context.ask(deletion_requests.lift_suppressions, body=_consent(form)).num_lifted
    return _list(context, PagePosition(), lifted=lifted)


def _consent(form: Form) -> ConsentIn:
    return checked(ConsentIn, subject_id=text(form, "subject_id"), reason="consent_given")


def _list(
    context: RequestContext, place: PagePosition, *, subject_id: str | None = None, lifted: int | None = None
) -> Response:
    filters = {} if subject_id is None else {"subject_id": subject_id}
    return context.page(
        "suppressions.html",
        **context.listing(deletion_requests.list_suppressions, place, "suppression", "suppressions", **filters),
        may_lift=context.may(deletion_requests.lift_suppressions),
        may_open=context.may(datasets.get_dataset),
        is_search=subject_id is not None,
        lifted=lifted,
    )
