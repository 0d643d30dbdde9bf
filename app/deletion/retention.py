"""Retention of ended requests. That a person asked to be forgotten is itself personal data.

The level `kept` falls from `details` (everything) to `request` (without texts by callers and officers) to `trace` (also
without the subject; status, times, counts and certificates remain). Texts are erased by destroying their key before the
change is committed to the database.
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
from app.db import now, sealed, tables
from app.deletion import search_repository
from lethe.contract.tenants import Policy


class RetentionLevel(StrEnum):
    DETAILS = "details"
    REQUEST = "request"
    TRACE = "trace"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionDue:
    """A tenant's requests whose retention level is due to be lowered, and the keys of the texts about them."""

    tenant_id: str
    was_kept: RetentionLevel
    now_kept: RetentionLevel
    request_ids: Sequence[str]
    keys: Sequence[str]


def kept(particulars: sealed.Particulars) -> RetentionLevel:
    """Return the retention level of a new request: `request` unless it has texts, which few callers add."""
    return RetentionLevel.REQUEST if particulars == sealed.Particulars() else RetentionLevel.DETAILS


def add(request: tables.DeletionRequest, **texts: str) -> None:
    """Add texts that an officer wrote about a request, keyed by field of `Particulars`."""
    request.particulars = dataclasses.replace(request.particulars, **texts)  # type: ignore[arg-type]
    request.kept = RetentionLevel.DETAILS


def days_of_details(policy: Policy) -> int:
    """Return how many days after a request's end its texts are erased. They are erased no later than its subject."""
    details, request = policy.retain_details_days, policy.retain_requests_days
    return details if request is None else min(details, request)


def due(session: Session, *, limit: int) -> list[RetentionDue]:
    """Return the requests whose retention period has elapsed, at most `limit` per tenant and level.

    A request with a pending delivery to a receiver is kept until the delivery succeeds or is abandoned.
    """
    at, reductions = now(session), []
    for tenant_id, policy in access.policies(session).items():
        terms = [
            (RetentionLevel.DETAILS, days_of_details(policy)),
            (RetentionLevel.REQUEST, policy.retain_requests_days),
        ]
        for state, days in terms:
            if days is None:
                continue
            before = at - datetime.timedelta(days=days)
            requests = search_repository.due_requests(
                session, tenant_id=tenant_id, kept=state, before=before, limit=limit
            )
            if requests:
                ids = [request.id for request in requests]
                keys = [request.particulars.key for request in requests if request.particulars.key is not None]
                for attached in search_repository.attached_keys(session, request_ids=ids).values():
                    keys += attached
                after = RetentionLevel.REQUEST if state is RetentionLevel.DETAILS else RetentionLevel.TRACE
                reductions.append(
                    RetentionDue(tenant_id=tenant_id, was_kept=state, now_kept=after, request_ids=ids, keys=keys)
                )
    return reductions


def forget(session: Session, due_batches: Sequence[RetentionDue]) -> None:
    """Lower the retention level of due requests whose keys have been destroyed, and record it in the audit logs, with
    the number of requests and the SHA-256 of their sorted ids. Anyone who has the ids can thus check which requests
    they were. A request that has received a note or a file since its keys were read stays due, with the new key."""
    deeds = []
    for batch in due_batches:
        keys = search_repository.attached_keys(session, request_ids=batch.request_ids)
        # Another process may run this job at the same time and have done some of the requests.
        ids = [
            request_id
            for request_id in search_repository.retained_at(session, request_ids=batch.request_ids, kept=batch.was_kept)
            if set(keys.get(request_id, ())).issubset(batch.keys)
        ]
        if ids:
            is_trace = batch.now_kept is RetentionLevel.TRACE
            search_repository.erase_details(session, request_ids=ids, trace_only=is_trace)
            deeds.append(_deed(batch, ids))
    audit.record_all(session, deeds, at=now(session))


def _deed(batch: RetentionDue, request_ids: Sequence[str]) -> audit.Deed:
    digest = hashlib.sha256("\n".join(sorted(request_ids)).encode()).hexdigest()
    detail = {"kept": batch.now_kept.value, "requests": len(request_ids), "request_ids_sha256": digest}
    tenant_id, action = batch.tenant_id, "deletion_requests.purged"
    return audit.Deed(tenant_id=tenant_id, actor=audit.SERVICE, action=action, object_id=tenant_id, detail=detail)
