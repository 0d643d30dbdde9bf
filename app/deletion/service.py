"""Submission and withdrawal of deletion requests, and a privacy officer's decisions about them.

Repeating a decision is a no-op: approving an accepted request, rejecting a rejected request on the same ground, pausing
a paused clock or resuming a running one. A second extension is an error.
"""

import datetime
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from app.access import service as access
from app.audit import service as audit
from app.db import Actor, bulk, now, sealed, tables
from app.deletion import admission, completion, deadlines, history, repository, retention, status, suppression, views
from app.deletion.completion import Submitted as Submitted
from app.deletion.history import Change
from lethe import sockets
from lethe.contract import problems, tenants
from lethe.contract.sets import ClockState, EventKind, RejectionGround, RequestModelStatus, RequestStatus

_CLOCKS_DIFFER_BY = datetime.timedelta(minutes=5)
_OF_THE_DRAFT = ("subject_ref", "resolution", "regulation", "ground", "source", "refers_to", "maker", "discreet")
_due_at = functools.lru_cache(maxsize=100)(deadlines.due_at)
"""`deadlines.due_at` with a cache, because most requests in a batch have the same deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDraft:
    """Request as submitted by a caller. `by` is the caller with their tenant, whose `policy` applies. `maker` is the
    lineage of the caller's key; with `own_only` they may refer only to requests of that lineage, and with `discreet`
    they must not learn whether rows are held. `dataset_ids` restricts the request; None covers all datasets.
    `refers_to` names an ended request about the same person. `statement` is the identity statement, or the error that
    rejects it; without `identity_verified` the request waits in review. With `strict`, no request is created if nothing
    is held. `alias_refs` are other identifiers of the same person, and `kind` is the kind of `subject_ref`. An identity
    map adds `resolution`, and `identity_unknown` if no identifier can identify rows (extension socket `RESOLVES`).
    `other_cases` are identifiers of other people whose ids differ from these only in case: a `strict` refusal states
    how many have rows."""

    by: Actor
    policy: tenants.Policy
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
    identity_verified: bool = True
    statement: admission.IdentityStatement | problems.Problem | None = None
    maker: str | None = None
    own_only: bool = False
    strict: bool = False
    alias_refs: Sequence[str] = ()
    other_cases: Sequence[str] = ()
    kind: str | None = None
    resolution: dict[str, Any] | None = None
    identity_unknown: bool = False

    @property
    def subject_refs(self) -> tuple[str, ...]:
        return (self.subject_ref, *self.alias_refs, *(self.resolution or {}).get("linked", ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """Facts needed to decide on a batch of requests.

    `rules` are the tenants' rules for subject ids, `earlier` the requests that the batch refers to, `issuers` the
    statements' issuers that are still registered, and `used` the hashes of used statements."""

    at: datetime.datetime
    lookup: repository.Lookup
    rules: dict[str, str]
    earlier: dict[str, tables.DeletionRequest]
    issuers: set[str]
    used: set[str] = field(default_factory=set)


def submit_all(session: Session, drafts: Sequence[RequestDraft]) -> list[Submitted | problems.Problem]:
    """Record requests, and accept those that need no review. A request about a person without rows completes
    immediately or after its grace period; a request about a person who is being forgotten joins the earlier one.

    Return one result per request, in order: a refused request is not stored, and its result is the reason:
    `DatasetUnknown`, `InputInvalid`, `SubjectUnknown`, `RequestUnknown`, `RequestOpen`, `IdentityStatementRequired` or
    `IdentityStatementInvalid`.
    """
    rules = access.subject_rules(session, {draft.by.tenant_id for draft in drafts})
    for resolve in sockets.plugs("app.features", "hooks", "RESOLVES"):
        drafts = resolve(session, drafts)
    facts = _look_up(session, drafts, rules)
    results = [_create(draft, facts) for draft in drafts]
    submitted = [result for result in results if isinstance(result, Submitted)]
    completion.store(session, submitted, at=facts.at, new=True)
    used = [draft.statement for draft, new in zip(drafts, results, strict=True) if isinstance(new, Submitted)]
    if statements := [statement for statement in used if isinstance(statement, admission.IdentityStatement)]:
        admission.judge().use(session, statements)
    return results


def get(session: Session, request_id: str) -> tables.DeletionRequest:
    """Return a request, or raise `RequestUnknown`."""
    return problems.RequestUnknown.if_none(session.get(tables.DeletionRequest, request_id), request_id=request_id)


def cancel(session: Session, request: tables.DeletionRequest, *, discreet: bool) -> None:
    """Cancel a request on behalf of a caller, who may be `discreet`. Raises `TransitionForbidden`."""
    withdraw(session, request, RequestStatus.CANCELLED, verb="cancelled", discreet=discreet or request.discreet)


def withdraw(
    session: Session, request: tables.DeletionRequest, wanted: RequestStatus, *, verb: str, discreet: bool
) -> None:
    """End a request without erasing anything, or raise `TransitionForbidden`. This is possible until a worker claims
    its rows, because erasure is irreversible. A `discreet` caller can do so only in review or in the grace period,
    because later success would reveal whether rows are held."""
    at = now(session)
    if discreet and not (request.status == RequestStatus.IN_REVIEW or deadlines.is_held(request, at=at)):
        raise problems.TransitionForbidden.too_late()
    if not deadlines.is_held(request, at=at) and any(
        erasure.revision is not None
        for erasure in repository.by_request(session, tables.Erasure, [request.id]).get(request.id, ())
    ):
        raise problems.TransitionForbidden.erasing()
    was_accepted = request.status == RequestStatus.ACCEPTED
    run_on(request, at=at)
    request.ended_at = at
    history.move(session, request, wanted, at=at, verb=verb)
    for demand in repository.request_models(session, request_id=request.id):
        # A model that is done was served through another request's erasure, and its certificate remains valid.
        if demand.status in tables.OWED:
            demand.status = RequestModelStatus.CANCELLED
    if was_accepted:
        suppression.withdraw(session, request)


def run_on(request: tables.DeletionRequest, *, at: datetime.datetime) -> None:
    """Resume a request's paused clock, and postpone every deadline by the length of the pause."""
    if request.paused_at is None:
        return
    pause = at - request.paused_at
    request.due_at += pause
    request.deadline += pause
    if request.extended_due_at is not None:
        request.extended_due_at += pause
    request.paused_at, request.alerted = None, None


def _look_up(session: Session, drafts: Sequence[RequestDraft], rules: dict[str, str]) -> _Facts:
    referred = {draft.refers_to for draft in drafts if draft.refers_to is not None}
    statements = [draft.statement for draft in drafts if isinstance(draft.statement, admission.IdentityStatement)]
    at = now(session)
    return _Facts(
        at=at,
        lookup=repository.look_up(
            session,
            subject_refs={ref for draft in drafts for ref in (*draft.subject_refs, *draft.other_cases)},
            since=min((draft.submitted_at or at for draft in drafts), default=at),
            tenant_ids={draft.by.tenant_id for draft in drafts if draft.dataset_ids},
        ),
        rules=rules,
        earlier=repository.requests_by_id(session, referred) if referred else {},
        issuers=admission.judge().existing(session, {s.issuer_id for s in statements}) if statements else set(),
        used=admission.judge().used(session, {s.hash for s in statements}) if statements else set(),
    )


def _create(draft: RequestDraft, facts: _Facts) -> Submitted | problems.Problem:
    refusal = _refusal(draft, facts)
    if refusal is not None:
        return refusal
    at, policy = facts.at, draft.policy
    limit = deadlines.limits(policy)[draft.regulation]
    due_at = _due_at(limit, draft.submitted_at or at, zone=policy.time_zone)
    particulars = sealed.Particulars(
        external_id=draft.external_id, metadata=draft.metadata, callback_urls=list(draft.callback_urls)
    )
    request = bulk.new(
        tables.DeletionRequest,
        **{name: getattr(draft, name) for name in _OF_THE_DRAFT},
        id=tables.new_id("dr"),
        tenant_id=draft.by.tenant_id,
        alias_refs=list(draft.alias_refs) or None,
        dataset_ids=None if draft.dataset_ids is None else sorted(set(draft.dataset_ids)),
        status=RequestStatus.RECEIVED,
        external_ref=draft.external_id,
        particulars=particulars,
        kept=retention.kept(particulars),
        submitted_at=draft.submitted_at or at,
        due_at=due_at,
        deadline=due_at,
        time_zone=policy.time_zone,
        unknown_at=at if draft.identity_unknown else None,
        created_at=at,
    )
    in_doubt = completion.is_in_doubt(request, facts.lookup.doubtful)
    if draft.strict and not in_doubt and not completion.is_anything_held(request, facts.lookup):
        held = [facts.lookup.held([ref]) for ref in draft.other_cases]
        alike = sum(any(completion.asks_for(request, dataset_id) for dataset_id in of_one) for of_one in held)
        return problems.SubjectUnknown.but("Nothing is held about this subject; no request was made.", alike)
    # `use` stores this only after the loop, and a statement must not serve two requests of one batch.
    if isinstance(draft.statement, admission.IdentityStatement):
        facts.used.add(draft.statement.hash)
    actor = draft.by.name
    created = Change(
        request=request, kind=EventKind.RECEIVED, status=RequestStatus.RECEIVED, actor=actor, at=at, verb="created"
    )
    new = Submitted(actor=actor, request=request, changes=[created])
    # A discreet caller must not see whether the identifier is known, so such a request waits as an accepted one.
    if policy.auto_accept and draft.identity_verified and (draft.discreet or not draft.identity_unknown):
        completion.accept(new, facts.lookup, policy=policy, at=at)
        return new
    completion.change(new, RequestStatus.IN_REVIEW, at=at)
    if limit.may_pause and not draft.identity_verified:
        request.paused_at = at
        new.changes.append(Change(request=request, kind=EventKind.PAUSED, status=request.status, actor=actor, at=at))
    return new


def _refusal(draft: RequestDraft, facts: _Facts) -> problems.Problem | None:
    """Return the reason to refuse a draft, independent of what is held about its subject; None if it is acceptable."""
    if facts.rules[draft.by.tenant_id] != draft.policy.subject_rule:
        return access.rule_changed()
    for dataset_id in draft.dataset_ids or ():
        if facts.lookup.datasets.get(dataset_id) != draft.by.tenant_id:
            return problems.DatasetUnknown(dataset_id=dataset_id)
    if draft.submitted_at and draft.submitted_at > facts.at + _CLOCKS_DIFFER_BY:
        return _malformed("submitted_at", "expected a past time")
    limits = deadlines.limits(draft.policy)
    if draft.regulation not in limits:
        return _malformed("regulation", f"expected one of {', '.join(limits)}")
    if draft.refers_to is not None:
        earlier = facts.earlier.get(draft.refers_to)
        if earlier is None or (earlier.tenant_id, earlier.subject_ref) != (draft.by.tenant_id, draft.subject_ref):
            return problems.RequestUnknown("refers_to names no deletion request about this subject.")
        if draft.own_only and earlier.maker != draft.maker:
            return problems.RequestUnknown("refers_to names no deletion request about this subject.")
        if views.View(discreet=draft.discreet, at=facts.at).is_open(earlier):
            return problems.RequestOpen("The request in refers_to has not ended; wait for it, or cancel it.")
    if (draft.alias_refs or draft.kind) and draft.policy.identity == "statement":
        given = "kind" if draft.kind else "aliases"
        fault = problems.FieldError(given, "expected none where each request must carry a statement")
        return problems.IdentityStatementRequired.for_one_id([fault])
    match draft.statement:
        case None if draft.policy.identity == "statement":
            return problems.IdentityStatementRequired(
                errors=[problems.FieldError("identity_statement", "expected a JWT of a registered issuer")]
            )
        case problems.Problem() as refusal:
            return refusal
        case admission.IdentityStatement(issuer_id=issuer_id, hash=used) if (
            issuer_id not in facts.issuers or used in facts.used
        ):
            return admission.judge().refusal()
    return None


def _malformed(path: str, expected: str) -> problems.InputInvalid:
    return problems.InputInvalid("The request cannot be made as it is.", [problems.FieldError(path, expected)])


def approve(session: Session, request: tables.DeletionRequest, *, policy: tenants.Policy) -> None:
    """Accept a request in review. It then covers the person's current rows, and an unknown identity counts as settled.

    Raises `TransitionForbidden` if the request was rejected or cancelled.
    """
    if request.unknown_at is not None and request.status in (RequestStatus.IN_REVIEW, RequestStatus.ACCEPTED):
        request.unknown_at = None
        audit.record(session, "deletion_request.identity_settled", request.id)
    if request.status in (RequestStatus.ACCEPTED, RequestStatus.RUNNING, RequestStatus.COMPLETED):
        return
    status.check(request.status, RequestStatus.ACCEPTED)
    at, actor = now(session), audit.actor_of(session)
    new = Submitted(actor=actor, request=request)
    if request.paused_at is not None:
        run_on(request, at=at)
        new.changes.append(Change(request=request, kind=EventKind.RESUMED, status=request.status, actor=actor, at=at))
    lookup = repository.look_up(session, subject_refs=request.subject_refs, since=request.submitted_at)
    completion.accept(new, lookup, policy=policy, at=at, verb="approved")
    completion.store(session, [new], at=at)


def reject(session: Session, request: tables.DeletionRequest, *, ground: RejectionGround, explanation: str) -> None:
    """Reject a request on a legal ground. Raises `TransitionForbidden` once a worker has claimed the rows or, for a
    discreet request, after its grace period."""
    if request.status == RequestStatus.REJECTED and request.rejection_ground == ground:
        return
    request.rejection_ground = ground
    retention.add(request, rejection_explanation=explanation)
    withdraw(session, request, RequestStatus.REJECTED, verb="rejected", discreet=request.discreet)


def extend(session: Session, request: tables.DeletionRequest, *, policy: tenants.Policy, reason: str) -> None:
    """Extend the deadline, once and before it passes; `reason` is the text sent to the person. The deadline of a
    discreet request can be extended while its caller sees it as open.

    Raises `TransitionForbidden`, `AlreadyExtended`, `ExtensionTooLate`, `ExtensionNotProvided`.
    """
    at = now(session)
    if not views.View(discreet=request.discreet, at=at).is_open(request):
        raise problems.TransitionForbidden.clock_ended(status=request.status)
    if request.extended_due_at is not None:
        raise problems.AlreadyExtended("A deadline can be extended once.")
    if (request.paused_at or at) >= request.due_at:
        raise problems.ExtensionTooLate("A deadline can be extended only before it has passed.")
    limit = deadlines.limits(policy).get(request.regulation)
    extended = deadlines.extended(limit, request.due_at, zone=request.time_zone) if limit else request.due_at
    if extended <= request.due_at:
        raise problems.ExtensionNotProvided("The regulation of this request provides for no extension.")
    request.extended_due_at = request.deadline = extended
    request.alerted = None
    retention.add(request, extension_reason=reason)
    history.note(session, request, EventKind.EXTENDED, at=at, verb="extended")


def pause(session: Session, request: tables.DeletionRequest, *, policy: tenants.Policy) -> None:
    """Pause the clock of a request in review while the person's identity is verified, if the regulation permits that.

    Raises `TransitionForbidden` or `ClockRunsOn`.
    """
    at = now(session)
    _check_in_review(request)
    if request.paused_at is not None:
        return
    limit = deadlines.limits(policy).get(request.regulation)
    if limit is None or not limit.may_pause:
        raise problems.ClockRunsOn("Under the regulation of this request the time runs however long verifying takes.")
    request.paused_at = at
    history.note(session, request, EventKind.PAUSED, at=at, verb="paused")


def resume(session: Session, request: tables.DeletionRequest) -> None:
    """Resume a request's clock and postpone its deadline by the length of the pause. Raises `TransitionForbidden`."""
    at = now(session)
    _check_in_review(request)
    if request.paused_at is None:
        return
    run_on(request, at=at)
    history.note(session, request, EventKind.RESUMED, at=at, verb="resumed")


def alert(session: Session, horizon: datetime.timedelta, *, limit: int = 500) -> int:
    """Announce each open request once when it is due within `horizon` and once when it is overdue; skip paused clocks.
    Return the number of announcements, at most `limit`, earliest deadlines first."""
    at = now(session)
    requests = repository.to_alert(session, at=at, horizon=horizon, limit=limit)
    changes = []
    for request in requests:
        is_overdue = request.deadline <= at
        request.alerted = ClockState.OVERDUE if is_overdue else ClockState.AT_RISK
        kind = EventKind.OVERDUE if is_overdue else EventKind.AT_RISK
        actor = audit.actor_of(session)
        changes.append(Change(request=request, kind=kind, status=request.status, actor=actor, at=at))
    history.record(session, changes)
    return len(changes)


def _check_in_review(request: tables.DeletionRequest) -> None:
    if request.status != RequestStatus.IN_REVIEW:
        raise problems.TransitionForbidden.not_in_review(status=request.status)
