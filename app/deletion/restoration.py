"""Requests that a restored database does not know, or knows as they were: made again from what was remembered apart.

What callers wrote of their own is not remembered, nor who is called back; only whom it is about, by a keyed hash, and
by when.
"""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

from sqlalchemy.orm import Session

from app.access import service as access
from app.audit import service as audit
from app.db import now
from app.db.sealed import Particulars
from app.db.tables import DeletionRequest
from app.deletion import acceptance, lookup, repository, retention, retention_repository
from app.deletion import service as deletion
from app.deletion.acceptance import Submitted
from app.deletion.history import Change
from app.deletion.status import OPEN
from lethe.contract.problems import TransitionForbidden
from lethe.contract.sets import EventKind, RequestStatus

_RESTORED = "restored"
_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """A request as it stood when something last happened to it."""

    id: str
    tenant_id: str
    subject_ref: str
    alias_refs: list[str] | None = None
    dataset_ids: list[str] | None
    regulation: str
    ground: str | None
    status: str
    discreet: bool
    rejection_ground: str | None
    submitted_at: datetime.datetime
    created_at: datetime.datetime
    due_at: datetime.datetime
    extended_due_at: datetime.datetime | None
    deadline: datetime.datetime
    paused_at: datetime.datetime | None
    held_until: datetime.datetime | None

    @property
    def subject_refs(self) -> tuple[str, ...]:
        return (self.subject_ref, *(self.alias_refs or ()))

    def to_json(self) -> dict[str, Any]:
        values = ((name, getattr(self, name)) for name in REMEMBERED)
        return {name: value.isoformat() if isinstance(value, datetime.datetime) else value for name, value in values}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        given = dict(document)
        for name in _MOMENTS & given.keys():
            given[name] = given[name] and datetime.datetime.fromisoformat(given[name])
        return cls(**given)


REMEMBERED = tuple(one.name for one in fields(Remembered))
"""The columns of `deletion_requests` that are remembered."""
_MOMENTS = {one.name for one in fields(Remembered) if one.type in (datetime.datetime, datetime.datetime | None)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """The result of catching up: requests that were made again, and that were brought to where they stood."""

    made: int
    changed: int


def catch_up(session: Session, remembered: Sequence[Remembered]) -> Again:
    """Bring the requests of this database to where they stood: those it does not know are made again, under their own
    ids and deadlines, unless they were withdrawn.

    What was done about them since is not known here: everybody who was forgotten is to be forgotten again.
    """
    made = changed = 0
    for first in range(0, len(remembered), _AT_ONCE):
        some = remembered[first : first + _AT_ONCE]
        known = repository.requests_by_id(session, {one.id for one in some})
        unknown = [one for one in some if one.id not in known and _asks(one)]
        made += _make_again(session, unknown)
        changed += sum(_bring(session, known[one.id], one) for one in some if one.id in known)
    return Again(made=made, changed=changed)


def _asks(remembered: Remembered) -> bool:
    return (
        remembered.status in OPEN | {RequestStatus.COMPLETED} and remembered.subject_ref != retention_repository.NOBODY
    )


def _make_again(session: Session, remembered: Sequence[Remembered]) -> int:
    at = now(session)
    found = lookup.look_up(session, subject_refs={ref for one in remembered for ref in one.subject_refs})
    made = [_made(session, one, found, at=at) for one in remembered]
    acceptance.store(session, made, at=at, new=True)
    session.flush()
    return len(made)


def _made(session: Session, remembered: Remembered, found: lookup.LookedUp, *, at: datetime.datetime) -> Submitted:
    given = {name: getattr(remembered, name) for name in REMEMBERED if name != "status"}
    request = DeletionRequest(
        **given, status=RequestStatus.RECEIVED, particulars=Particulars(), kept=retention.kept(Particulars())
    )
    created = Change(
        request=request,
        kind=EventKind.RECEIVED,
        status=RequestStatus.RECEIVED,
        actor=audit.SERVICE,
        at=at,
        verb=_RESTORED,
    )
    new = Submitted(actor=audit.SERVICE, request=request, erasures=[], models=[], changes=[created])
    if remembered.status == RequestStatus.IN_REVIEW:
        acceptance.change(new, RequestStatus.IN_REVIEW, at=at)
    else:
        _accept(session, new, found, at=at)
    return new


def _bring(session: Session, request: DeletionRequest, remembered: Remembered) -> bool:
    """A request that is open here to where it stood; what was completed or withdrawn here stays so."""
    if request.status not in OPEN:
        return False
    at = now(session)
    if remembered.status in (RequestStatus.CANCELLED, RequestStatus.REJECTED):
        return _withdraw(session, request, remembered)
    moved = False
    for name in ("due_at", "extended_due_at", "deadline", "paused_at", "held_until"):
        moved |= getattr(request, name) != getattr(remembered, name)
        setattr(request, name, getattr(remembered, name))
    if request.status == RequestStatus.IN_REVIEW and remembered.status != RequestStatus.IN_REVIEW:
        new = Submitted(actor=audit.SERVICE, request=request, erasures=[], models=[], changes=[])
        found = lookup.look_up(session, subject_refs=request.subject_refs)
        _accept(session, new, found, at=at)
        acceptance.store(session, [new], at=at)
        return True
    return moved


def _withdraw(session: Session, request: DeletionRequest, remembered: Remembered) -> bool:
    """Unless the rows have been claimed meanwhile, for another request of the person that still stands."""
    try:
        deletion.withdraw(session, request, RequestStatus(remembered.status), verb=_RESTORED, discreet=False)
    except TransitionForbidden:
        return False
    request.rejection_ground = remembered.rejection_ground
    return True


def _accept(session: Session, new: Submitted, found: lookup.LookedUp, *, at: datetime.datetime) -> None:
    """With the grace time that it had, not a new one."""
    policy = access.policy_of(session, new.request.tenant_id).model_copy(update={"grace_seconds": 0})
    acceptance.accept(new, found, policy=policy, at=at)
