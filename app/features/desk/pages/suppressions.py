"""Suppressions: people who asked to be forgotten, whose rows are not accepted again unless they consent anew."""

from fastapi import Response

from app.api import datasets, deletion_requests
from app.features.desk import rendering as pages
from app.features.desk.forms import checked, text
from app.features.desk.lists import PagePosition, ThePlace
from app.features.desk.request_context import Form, RequestContext, TheContext
from lethe.contract.deletion_requests import ConsentIn

router = pages.new_router()


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
