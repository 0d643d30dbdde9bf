"""Saved views of the list of requests: of each person, or each line of API keys, their own."""

from typing import Any

from sqlalchemy.orm import Session

from app.access import repository
from app.access.service import Caller
from app.audit import service as audit
from app.db import now
from app.db.tables import SavedView, new_id
from lethe.contract.problems import FieldError, InputInvalid, SavedViewExists, SavedViewsFull, SavedViewUnknown
from lethe.contract.saved_views import MOST_VIEWS, SavedViewIn
from lethe.contract.sets import Regulation


def create(session: Session, asked: SavedViewIn, *, by: Caller) -> SavedView:
    """Keep a view for the caller. Raises `InputInvalid` for a regulation that their policy does not know,
    `SavedViewExists`, `SavedViewsFull`."""
    if asked.regulation not in (None, *Regulation, *by.policy.regulations):
        raise InputInvalid(
            "The tenant's policy knows no such regulation.", [FieldError("regulation", "expected one of the policy")]
        )
    theirs = repository.names_of_views(session, by.maker)
    if asked.name in theirs:
        raise SavedViewExists("There is a view of this name already; choose another, or delete it first.")
    if len(theirs) >= MOST_VIEWS:
        raise SavedViewsFull(f"There are {MOST_VIEWS} views already; delete one first.")
    shows: dict[str, Any] = asked.model_dump(mode="json", exclude={"name"}, exclude_defaults=True)
    view = SavedView(
        id=new_id("view"),
        tenant_id=by.tenant_id,
        owner=by.maker,
        name=asked.name,
        shows=shows,
        created_at=now(session),
    )
    session.add(view)
    audit.record(session, "saved_view.created", view.id)
    return view


def delete(session: Session, view_id: str, *, by: Caller) -> None:
    """Forget one of the caller's own. Raises `SavedViewUnknown`."""
    view = repository.saved_view(session, view_id, owner=by.maker)
    if view is None:
        raise SavedViewUnknown("There is no such view of yours.")
    session.delete(view)
    audit.record(session, "saved_view.deleted", view_id)


def is_anything_to_purge(session: Session) -> bool:
    return repository.is_any_view_without_owner(session, at=now(session))


def purge(session: Session, *, limit: int) -> int:
    """Forget views of keys that have expired; returns how many."""
    return repository.drop_views_without_owner(session, at=now(session), limit=limit)
