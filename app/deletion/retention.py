"""Retention of what a request was about: that somebody asked to be forgotten is personal data too.

`kept` shrinks from `details` (everything) over `request` (not what callers and officers wrote) to `trace` (not whom it
was about either: status, times, counts and certificates remain). Written words end by their key, which is destroyed
before the database hears of it.
"""

import dataclasses
import datetime
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy.orm import Session

from app.access import service as access
from app.audit import service as audit
from app.audit.service import Deed
from app.db import now
from app.db.sealed import Particulars
from app.db.tables import DeletionRequest
from app.deletion import retention_repository as repository
from lethe.contract.policy import Policy
from lethe.contract.problems import DetailsErased


class Kept(StrEnum):
    DETAILS = "details"
    REQUEST = "request"
    TRACE = "trace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """Requests of a tenant of which less is to be kept, and the keys of what was written about them."""

    tenant_id: str
    was_kept: Kept
    now_kept: Kept
    request_ids: Sequence[str]
    keys: Sequence[str]


def kept(particulars: Particulars) -> Kept:
    """The retention of a new request: most callers write nothing of their own."""
    return Kept.REQUEST if particulars == Particulars() else Kept.DETAILS


def add(request: DeletionRequest, **written: str) -> None:
    """Keep what an officer wrote about a request."""
    request.particulars = dataclasses.replace(request.particulars, **written)  # type: ignore[arg-type]  # its fields
    request.kept = Kept.DETAILS


def days_of_details(policy: Policy) -> int:
    """Days from the end of a request until what was written about it goes: at the latest with whom it was about."""
    details, request = policy.retain_details_days, policy.retain_requests_days
    return details if request is None else min(details, request)


def require_kept(session: Session, request: DeletionRequest, *, policy: Policy) -> None:
    """Raises `DetailsErased` where what is written about a request now would be erased at once."""
    days = datetime.timedelta(days=days_of_details(policy))
    is_over = request.ended_at is not None and request.ended_at + days <= now(session)
    if is_over or request.kept == Kept.TRACE:  # whose policy may have been another one
        raise DetailsErased(
            "The policy keeps details of this request no longer, so what is added now would be erased at once. Keep it "
            "in your own files, about the id of the request."
        )


def due(session: Session, *, limit: int) -> list[Due]:
    """The requests that tenants want kept no longer, `limit` of each tenant at most.

    What is still to be sent to a receiver is kept until it was sent or given up.
    """
    at, found = now(session), []
    for tenant_id, policy in access.policies(session).items():
        terms = [(Kept.DETAILS, days_of_details(policy)), (Kept.REQUEST, policy.retain_requests_days)]
        for state, days in terms:
            if days is None:
                continue
            before = at - datetime.timedelta(days=days)
            ended = repository.ended(session, tenant_id=tenant_id, kept=state, before=before, limit=limit)
            if ended:
                keys = [request.particulars.key for request in ended if request.particulars.key is not None]
                ids = [request.id for request in ended]
                keys += [payload.key for payload in repository.payloads(session, request_ids=ids) if payload.key]
                keys += [key for one in repository.keys_beside(session, request_ids=ids).values() for key in one]
                after = Kept.REQUEST if state is Kept.DETAILS else Kept.TRACE
                found.append(Due(tenant_id=tenant_id, was_kept=state, now_kept=after, request_ids=ids, keys=keys))
    return found


def forget(session: Session, found: Sequence[Due]) -> None:
    """Let go of what is due and whose keys have been destroyed, and say so in the tenants' audit logs: of how many, and
    the SHA-256 of their ids in order, by which everybody who knows the ids can tell which they were. A request to
    which somebody has added a note or a file meanwhile is due once more, with its key."""
    done = []
    for one in found:
        beside = repository.keys_beside(session, request_ids=one.request_ids)
        ids = [
            request_id
            for request_id in repository.still(session, request_ids=one.request_ids, kept=one.was_kept)
            if set(beside.get(request_id, ())).issubset(one.keys)
        ]  # others do this job too
        if ids:
            repository.let_go(session, request_ids=ids, trace_only=one.now_kept is Kept.TRACE)
            done.append(dataclasses.replace(one, request_ids=ids))
    audit.record_all(session, [_deed(one) for one in done], at=now(session))


def _deed(one: Due) -> Deed:
    digest = hashlib.sha256("\n".join(sorted(one.request_ids)).encode()).hexdigest()
    detail = {"kept": one.now_kept.value, "requests": len(one.request_ids), "request_ids_sha256": digest}
    return Deed(
        tenant_id=one.tenant_id,
        actor=audit.SERVICE,
        action="deletion_requests.purged",
        object_id=one.tenant_id,
        detail=detail,
    )
