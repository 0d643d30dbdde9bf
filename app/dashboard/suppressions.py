"""Suppressions: who asked to be forgotten, and is not taken in again unless they consent anew."""

from typing import Any

from fastapi import Response

from app.api import datasets, suppressions
from app.api.calls import Cursor
from app.dashboard import pages
from app.dashboard.request_context import Form, RequestContext, TheContext
from app.dashboard.requests import checked, text
from lethe.contract.fields import PageOut
from lethe.contract.suppressions import ConsentIn, SuppressionOut

router = pages.new_router()

_PER_PAGE = 50


@router.get("/suppressions")
def list_suppressions(context: TheContext, cursor: Cursor = None) -> Response:
    """List the people who are not taken in again, and where, newest first."""
    return _list(context, context.ask(suppressions.list_suppressions, limit=_PER_PAGE, cursor=cursor), cursor=cursor)


@router.post("/suppressions/search")
def search_suppressions(context: TheContext, form: Form) -> Response:
    """Those of a person. Who it is comes in the body, is hashed in memory, and stays nowhere."""
    person = checked(ConsentIn, subject_id=text(form, "subject_id"), reason="consent_given")
    found = context.ask(suppressions.list_suppressions, subject_id=person.subject_id, limit=_PER_PAGE)
    return _list(context, found, is_search=True)


@router.post("/suppressions/lift")
def lift_suppressions(context: TheContext, form: Form) -> Response:
    """Take rows of a person again, who has consented to it."""
    body = checked(ConsentIn, subject_id=text(form, "subject_id"), reason="consent_given")
    lifted = context.ask(suppressions.lift_suppressions, body=body).num_lifted
    return _list(context, context.ask(suppressions.list_suppressions, limit=_PER_PAGE), lifted=lifted)


def _list(context: RequestContext, found: PageOut[SuppressionOut], **told: Any) -> Response:
    shown: dict[str, Any] = {
        "found": found,
        "may_lift": context.may(suppressions.lift_suppressions),
        "may_open": context.may(datasets.get_dataset),
        "cursor": None,
        "is_search": False,
        "lifted": None,
    }
    return context.page("suppressions.html", **(shown | told))
