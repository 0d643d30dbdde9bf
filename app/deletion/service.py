"""Deletion requests: submit them, cancel them."""

import datetime
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from app.access import service as access
from app.db import Actor, bulk, now
from app.db.sealed import Particulars
from app.db.tables import OWED, DeletionRequest, new_id
from app.deletion import (
    acceptance,
    completion,
    deadlines,
    history,
    identity,
    issuers,
    lookup,
    repository,
    retention,
    suppression,
    views,
)
from app.deletion.acceptance import Submitted as Submitted
from app.deletion.history import Change
from app.deletion.identity import Statement
from app.deletion.lookup import LookedUp
from lethe.contract.policy import Policy
from lethe.contract.problems import (
    DatasetUnknown,
    FieldError,
    IdentityStatementRequired,
    InputInvalid,
    Problem,
    RequestOpen,
    RequestUnknown,
    SubjectUnknown,
    TransitionForbidden,
)
from lethe.contract.sets import EventKind, RequestModelStatus, RequestStatus

_CLOCKS_DIFFER_BY = datetime.timedelta(minutes=5)
_due_at = functools.lru_cache(maxsize=100)(deadlines.due_at)
"""Requests that come in together are mostly due together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as somebody asks for it. `by`: who asks, for which tenant, whose `policy` holds; `maker`: the line of
    their key; `own_only`: they may refer to requests of that line alone; `discreet`: they may not learn if anything is
    held. `dataset_ids`: where to forget the person; None: in all that hold them. `refers_to`: an ended request about
    the same person. `statement`: about the person's identity, or why it is not believed."""

    by: Actor
    policy: Policy
    discreet: bool
    subject_ref: str
    dataset_ids: Sequence[str] | None
    regulation: str
    ground: str | None
    submitted_at: datetime.datetime | None
    external_id: str | None
    metadata: dict[str, Any]
    callback_urls: Sequence[str] = ()
    source: str | None = None
    refers_to: str | None = None
    identity_verified: bool = True  # False: it waits in review
    statement: Statement | Problem | None = None
    maker: str | None = None
    own_only: bool = False
    strict: bool = False  # make no request if nothing is held
    alias_refs: Sequence[str] = ()  # other identifiers of the same person

    @property
    def subject_refs(self) -> tuple[str, ...]:
        return (self.subject_ref, *self.alias_refs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """Facts by which requests that come in together are judged."""

    at: datetime.datetime
    found: LookedUp
    rules: dict[str, str]  # of tenants, for subject ids
    earlier: dict[str, DeletionRequest]  # those that are referred to
    issuers: set[str]  # of the statements: those that are still registered
    used: set[str] = field(default_factory=set)  # hashes of statements


def submit(session: Session, asked: Asked) -> Submitted:
    """Record a request. Raises what `submit_all` returns."""
    [found] = submit_all(session, [asked])
    if isinstance(found, Problem):
        raise found
    return found


def submit_all(session: Session, asked: Sequence[Asked]) -> list[Submitted | Problem]:
    """Record requests, and accept them unless they must be reviewed; one about somebody of whom nothing is held
    completes at once, or after its grace time.

    A request for a person who is being forgotten follows the first. In place of a request that cannot be made there is
    the reason, and nothing of it is stored: `DatasetUnknown`, `InputInvalid`, `SubjectUnknown`, `RequestUnknown`,
    `RequestOpen`, `IdentityStatementRequired`, `IdentityStatementInvalid`.
    """
    known = _look_up(session, asked)
    made = [_made(one, known) for one in asked]
    submitted = [one for one in made if isinstance(one, Submitted)]
    acceptance.store(session, submitted, at=known.at, new=True)
    used = [one.statement for one, new in zip(asked, made, strict=True) if isinstance(new, Submitted)]
    identity.use(session, [statement for statement in used if isinstance(statement, Statement)])
    return made


def get(session: Session, request_id: str) -> DeletionRequest:
    """Raises `RequestUnknown`."""
    request = repository.request(session, request_id)
    if request is None:
        raise RequestUnknown(f"There is no deletion request {request_id!r}.")
    return request


def cancel(session: Session, request: DeletionRequest, *, discreet: bool) -> None:
    """Withdraw a request for a caller, who may be `discreet`. Raises `TransitionForbidden`."""
    withdraw(session, request, RequestStatus.CANCELLED, verb="cancelled", discreet=discreet or request.discreet)


def withdraw(session: Session, request: DeletionRequest, wanted: RequestStatus, *, verb: str, discreet: bool) -> None:
    """End a request without erasing anything: until a worker has claimed its rows, because erasing has no way back.
    To a reader who may not learn whether anything is held (`discreet`), only while it is in review or its
    grace time lasts: what can be ended later depends on that. Raises `TransitionForbidden`."""
    at = now(session)
    if discreet and not (request.status == RequestStatus.IN_REVIEW or completion.is_held(request, at=at)):
        raise TransitionForbidden(
            "It is too late: a request of an app's key can be ended while it is in review or its grace time lasts."
        )
    if not completion.is_held(request, at=at) and any(
        erasure.revision is not None for erasure in repository.erasures(session, request_id=request.id)
    ):
        raise TransitionForbidden("The person's rows are being erased or are gone: it is too late.")
    was_accepted = request.status == RequestStatus.ACCEPTED
    run_on(request, at=at)
    request.ended_at = at
    history.move(session, request, wanted, at=at, verb=verb)
    for owed in repository.request_models(session, request_id=request.id):
        if owed.status in OWED:  # else it followed another request, whose certificate holds
            owed.status = RequestModelStatus.CANCELLED
    if was_accepted:
        suppression.withdraw(session, request)


def run_on(request: DeletionRequest, *, at: datetime.datetime) -> None:
    """Let a paused clock run again: every deadline moves by the time it stood still."""
    if request.paused_at is None:
        return
    stood = at - request.paused_at
    request.due_at += stood
    request.deadline += stood
    if request.extended_due_at is not None:
        request.extended_due_at += stood
    request.paused_at, request.alerted = None, None


def _look_up(session: Session, asked: Sequence[Asked]) -> _Known:
    found = lookup.look_up(
        session,
        subject_refs={ref for one in asked for ref in one.subject_refs},
        tenant_ids={one.by.tenant_id for one in asked if one.dataset_ids},
    )
    tenant_ids = {one.by.tenant_id for one in asked}
    referred = {one.refers_to for one in asked if one.refers_to is not None}
    statements = [one.statement for one in asked if isinstance(one.statement, Statement)]
    return _Known(
        at=now(session),
        found=found,
        rules={tenant_id: access.subject_rule_of(session, tenant_id) for tenant_id in tenant_ids},
        earlier=repository.requests_by_id(session, referred) if referred else {},
        issuers=issuers.existing(session, {one.issuer_id for one in statements}) if statements else set(),
        used=issuers.used(session, {one.hash for one in statements}) if statements else set(),
    )


def _made(asked: Asked, known: _Known) -> Submitted | Problem:
    wrong = _refusal(asked, known)
    if wrong is not None:
        return wrong
    at, policy = known.at, asked.policy
    limit = deadlines.limits(policy)[asked.regulation]
    due_at = _due_at(limit, asked.submitted_at or at, zone=policy.time_zone)
    particulars = Particulars(
        external_id=asked.external_id, metadata=asked.metadata, callback_urls=list(asked.callback_urls)
    )
    request = bulk.new(
        DeletionRequest,
        id=new_id("dr"),
        tenant_id=asked.by.tenant_id,
        subject_ref=asked.subject_ref,
        alias_refs=list(asked.alias_refs) or None,
        dataset_ids=None if asked.dataset_ids is None else sorted(set(asked.dataset_ids)),
        regulation=asked.regulation,
        ground=asked.ground,
        status=RequestStatus.RECEIVED,
        external_ref=asked.external_id,
        source=asked.source,
        refers_to=asked.refers_to,
        particulars=particulars,
        kept=retention.kept(particulars),
        maker=asked.maker,
        discreet=asked.discreet,
        submitted_at=asked.submitted_at or at,
        due_at=due_at,
        deadline=due_at,
        created_at=at,
    )
    in_doubt = completion.is_in_doubt(request, known.found.doubtful)
    if asked.strict and not in_doubt and not acceptance.is_anything_held(request, known.found):
        return SubjectUnknown("Nothing is held about this subject; no request was made.")
    if isinstance(asked.statement, Statement):
        known.used.add(asked.statement.hash)
    by = asked.by.name
    created = Change(
        request=request, kind=EventKind.RECEIVED, status=RequestStatus.RECEIVED, actor=by, at=at, verb="created"
    )
    new = Submitted(actor=by, request=request, erasures=[], models=[], changes=[created])
    if policy.auto_accept and asked.identity_verified:
        acceptance.accept(new, known.found, policy=policy, at=at)
        return new
    acceptance.change(new, RequestStatus.IN_REVIEW, at=at)
    if limit.may_pause and not asked.identity_verified:
        request.paused_at = at
        new.changes.append(Change(request=request, kind=EventKind.PAUSED, status=request.status, actor=by, at=at))
    return new


def _refusal(asked: Asked, known: _Known) -> Problem | None:
    """The reason why no request is made of this, about anybody."""
    if known.rules[asked.by.tenant_id] != asked.policy.subject_rule:
        return access.rule_changed()
    for dataset_id in asked.dataset_ids or ():
        if known.found.datasets.get(dataset_id) != asked.by.tenant_id:
            return DatasetUnknown(f"There is no dataset {dataset_id!r}; GET /v1/datasets lists them.")
    if asked.submitted_at and asked.submitted_at > known.at + _CLOCKS_DIFFER_BY:
        return _malformed("submitted_at", "expected a past time")
    named = deadlines.limits(asked.policy)
    if asked.regulation not in named:
        return _malformed("regulation", f"expected one of {', '.join(named)}")
    if asked.refers_to is not None:
        earlier = known.earlier.get(asked.refers_to)
        if earlier is None or (earlier.tenant_id, earlier.subject_ref) != (asked.by.tenant_id, asked.subject_ref):
            return RequestUnknown("refers_to names no deletion request about this subject.")
        if asked.own_only and earlier.maker != asked.maker:
            return RequestUnknown("refers_to names no deletion request about this subject.")
        if views.View(discreet=asked.discreet, at=known.at).is_open(earlier):
            return RequestOpen("The request in refers_to has not ended; wait for it, or cancel it.")
    if asked.alias_refs and asked.policy.identity == "statement":
        return IdentityStatementRequired(
            "A statement is about one identifier: make a request for each, with a statement of its own.",
            [FieldError("aliases", "expected none where each request must carry a statement")],
        )
    match asked.statement:
        case None if asked.policy.identity == "statement":
            return IdentityStatementRequired(
                "Each request must carry a signed statement about its subject's identity.",
                [FieldError("identity_statement", "expected a JWT of a registered issuer")],
            )
        case Problem() as refusal:
            return refusal
        case Statement(issuer_id=issuer_id, hash=used) if issuer_id not in known.issuers or used in known.used:
            return identity.refusal()
    return None


def _malformed(path: str, expected: str) -> InputInvalid:
    return InputInvalid("The request cannot be made as it is.", [FieldError(path, expected)])
