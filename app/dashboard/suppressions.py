"""Suppressions: who asked to be forgotten, and is not taken in again unless they consent anew."""

from typing import Any

from fastapi import Response

from app.api import datasets, suppressions
from app.api.calls import Cursor
from app.api.schemas import PageOut
from app.api.suppressions import ConsentIn, SuppressionOut
from app.dashboard import pages
from app.dashboard.requests import checked, text
from app.dashboard.visits import Form, TheVisit, Visit

router = pages.new_router()

_PER_PAGE = 50


@router.get("/suppressions")
def list_suppressions(visit: TheVisit, cursor: Cursor = None) -> Response:
    """Who is not taken in again, and where, newest first."""
    return _list(visit, visit.ask(suppressions.list_suppressions, limit=_PER_PAGE, cursor=cursor), cursor=cursor)


@router.post("/suppressions/search")
def search_suppressions(visit: TheVisit, form: Form) -> Response:
    """Those of a person. Who it is comes in the body, is hashed in memory, and stays nowhere."""
    person = checked(ConsentIn, subject_id=text(form, "subject_id"), reason="consent_given")
    found = visit.ask(suppressions.list_suppressions, subject_id=person.subject_id, limit=_PER_PAGE)
    return _list(visit, found, is_search=True)


@router.post("/suppressions/lift")
def lift_suppressions(visit: TheVisit, form: Form) -> Response:
    """Take rows of a person again, who has consented to it."""
    body = checked(ConsentIn, subject_id=text(form, "subject_id"), reason="consent_given")
    lifted = visit.ask(suppressions.lift_suppressions, body=body).num_lifted
    return _list(visit, visit.ask(suppressions.list_suppressions, limit=_PER_PAGE), lifted=lifted)


def _list(visit: Visit, found: PageOut[SuppressionOut], **told: Any) -> Response:
    shown: dict[str, Any] = {
        "found": found,
        "may_lift": visit.may(suppressions.lift_suppressions),
        "may_open": visit.may(datasets.get_dataset),
        "cursor": None,
        "is_search": False,
        "lifted": None,
    }
    return visit.page("suppressions.html", **(shown | told))
