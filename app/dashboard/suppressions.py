"""Suppressions: who asked to be forgotten, and is not taken in again unless they consent anew."""

from fastapi import Response

from app.api import datasets, suppressions
from app.dashboard import pages
from app.dashboard.lists import Place, ThePlace
from app.dashboard.request_context import Form, RequestContext, TheContext
from app.dashboard.requests import checked, text
from lethe.contract.suppressions import ConsentIn

router = pages.new_router()


@router.get("/suppressions")
def list_suppressions(context: TheContext, place: ThePlace) -> Response:
    """List the people who are not taken in again, and where, newest first."""
    return _list(context, place)


@router.post("/suppressions/search")
def search_suppressions(context: TheContext, form: Form) -> Response:
    """Those of a person. Who it is comes in the body, is hashed in memory, and stays nowhere."""
    person = checked(ConsentIn, subject_id=text(form, "subject_id"), reason="consent_given")
    return _list(context, Place(), subject_id=person.subject_id)


@router.post("/suppressions/lift")
def lift_suppressions(context: TheContext, form: Form) -> Response:
    """Take rows of a person again, who has consented to it."""
    body = checked(ConsentIn, subject_id=text(form, "subject_id"), reason="consent_given")
    lifted = context.ask(suppressions.lift_suppressions, body=body).num_lifted
    return _list(context, Place(), lifted=lifted)


def _list(
    context: RequestContext, place: Place, *, subject_id: str | None = None, lifted: int | None = None
) -> Response:
    sought = {} if subject_id is None else {"subject_id": subject_id}
    found = context.ask(suppressions.list_suppressions, **sought, limit=place.size, cursor=place.cursor)
    return context.page(
        "suppressions.html",
        found=found,
        place=place,
        extent=place.extent(found, "suppression", "suppressions"),
        may_lift=context.may(suppressions.lift_suppressions),
        may_open=context.may(datasets.get_dataset),
        is_search=subject_id is not None,
        lifted=lifted,
    )
