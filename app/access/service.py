"""API keys, which are stored as hashes and have scopes; and the default tenant."""

import datetime
import hashlib
import secrets
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.access import repository
from app.audit import service as audit
from app.db import Actor, actor, now, rare, tables
from lethe import sockets
from lethe.contract import problems, sets, tenants

DEFAULT_TENANT = "ten_default"
"""ID of the tenant that every installation has."""
_changes = 0
"""Number of changes to keys and policies that this process has committed."""


LASTING = (sets.Scope.ADMIN, sets.Scope.OPERATOR)
"""Scopes for which a tenant that ever had a non-expiring holder must always keep at least one."""
HoldsScope = Callable[[Session, str, sets.Scope], bool]
"""`HOLDS_SCOPE` hook: return True if the tenant has a non-expiring holder of the scope other than an API key."""
NamesOf = Callable[[Session, Collection[str]], dict[str, str]]
"""`NAMES` hook: map known ids to names."""
_REQUESTS = frozenset({sets.Scope.REQUESTS_READ, sets.Scope.REQUESTS_WRITE})
_OF_ALL = frozenset({sets.Scope.ADMIN, sets.Scope.AGENT, sets.Scope.OPERATOR, sets.Scope.REQUESTS_REVIEW})
"""Scopes incompatible with `own_requests_only`: they cover all requests or none, or have a rule of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Authenticated caller: an API key, or a person logged in to the dashboard. `id` and `name` belong to the key or
    person."""

    id: str
    tenant_id: str
    scopes: frozenset[str]
    policy: tenants.Policy
    calls_per_minute: int | None
    line_id: str | None = None
    own_requests_only: bool = False
    name: str = ""
    tenant_name: str = ""
    is_person: bool = False

    @property
    def maker(self) -> str:
        """Id under which the caller makes requests. It stays the same when a key is rotated."""
        return self.line_id or self.id

    @property
    def actor(self) -> Actor:
        return Actor(tenant_id=self.tenant_id, name=self.id)

    @property
    def reader(self) -> Actor:
        """Actor for sessions that may see only the deletion requests that this caller may see."""
        return Actor(tenant_id=self.tenant_id, name=self.id, maker=self.maker if self.own_requests_only else None)

    @property
    def discreet(self) -> bool:
        """Return True if the caller may not find out whether anything is held about a person."""
        return not self.has(sets.Scope.ACCOUNTING_READ)

    def has(self, scope: sets.Scope) -> bool:
        if scope is sets.Scope.METRICS_READ:
            return scope in self.scopes or sets.Scope.OPERATOR in self.scopes
        # A refused decision would disclose whether anything is held about the person.
        if scope is sets.Scope.REQUESTS_REVIEW and self.discreet:
            return False
        return scope in self.scopes or (sets.Scope.ADMIN in self.scopes and scope is not sets.Scope.OPERATOR)

    def require(self, scope: sets.Scope) -> None:
        """Raise `ScopeMissing` unless the caller has the scope."""
        if not self.has(scope):
            # The key was made before requests:review required accounting:read as well.
            if scope in self.scopes:
                scope = sets.Scope.ACCOUNTING_READ
            missing = problems.ScopeMissing.by_role if self.is_person else problems.ScopeMissing.by_key
            raise missing(scope=scope.value)


def new_key() -> str:
    """Return a fresh API key with 256 random bits."""
    return "lethe_" + secrets.token_urlsafe(32)


def hash_of(key: str) -> str:
    """Return the SHA-256 of a key, for storage. A key of 256 random bits needs no slow hash."""
    return hashlib.sha256(key.encode()).hexdigest()


def ensure_default_tenant(session: Session) -> Actor:
    """Create the default tenant if it is missing, and return an actor for the service itself in that tenant."""
    if session.get(tables.Tenant, DEFAULT_TENANT) is None:
        policy = tenants.Policy().model_dump(mode="json")
        session.add(tables.Tenant(id=DEFAULT_TENANT, name="default", policy=policy, created_at=now(session)))
        session.flush()
    return Actor(tenant_id=DEFAULT_TENANT, name=audit.SERVICE)


def add_key(
    session: Session,
    *,
    name: str,
    key: str,
    scopes: Iterable[sets.Scope | str],
    expires_at: datetime.datetime | None = None,
    calls_per_minute: int | None = None,
    own_requests_only: bool | None = None,
    replaces: tables.ApiKey | None = None,
) -> tables.ApiKey:
    """Add `key`, storing only its hash.

    `own_requests_only` defaults to True for a key that can make requests and do nothing else except read them. Raises
    `InputInvalid` if the key has already expired, combines `own_requests_only` with a scope over all requests, or may
    review requests but not read accounting (the outcome of a review discloses what is held).
    """
    at = now(session)
    granted = {sets.Scope(scope) for scope in scopes}
    if sets.Scope.REQUESTS_REVIEW in granted and not granted & {sets.Scope.ADMIN, sets.Scope.ACCOUNTING_READ}:
        raise _invalid(
            "scopes", "Add accounting:read: what becomes of a decision tells whether anything is held about the person"
        )
    if own_requests_only is None:
        own_requests_only = granted <= _REQUESTS and sets.Scope.REQUESTS_WRITE in granted
    if own_requests_only and granted & _OF_ALL:
        scopes_of_all = ", ".join(sorted(granted & _OF_ALL))
        raise _invalid(
            "own_requests_only", problems.Sentence("Expected false for a key with {scopes}", scopes=scopes_of_all)
        )
    if expires_at is not None and expires_at <= at:
        raise _invalid("expires_at", "Expected a time that is still to come")
    row = tables.ApiKey(
        id=tables.new_id("key"),
        tenant_id=actor(session).tenant_id,
        name=name,
        key_hash=hash_of(key),
        scopes=sorted(scope.value for scope in granted),
        calls_per_minute=calls_per_minute,
        line_id=None if replaces is None else replaces.line_id or replaces.id,
        own_requests_only=own_requests_only,
        created_at=at,
        expires_at=expires_at,
    )
    session.add(row)
    detail = {
        "expires_at": expires_at and expires_at.isoformat(),
        "calls_per_minute": calls_per_minute,
        "own_requests_only": own_requests_only,
    }
    audit.record(session, "api_key.created", row.id, scopes=row.scopes, **{k: v for k, v in detail.items() if v})
    return row


def ensure_key(session: Session, *, name: str, key: str, scopes: Iterable[sets.Scope]) -> None:
    """Add `key` unless it exists already."""
    if repository.by_hash(session, hash_of(key)) is None:
        add_key(session, name=name, key=key, scopes=scopes)


def rotate_key(
    session: Session,
    key_id: str,
    *,
    by: Caller,
    key: str,
    overlap_seconds: int,
    expires_at: datetime.datetime | None = None,
) -> tables.ApiKey:
    """Add `key` with the permissions of key `key_id`, and let the old key expire after at most `overlap_seconds`.
    Without `expires_at`, the new key has the same lifetime as the old key. Raises `KeyUnknown`, `ScopeMissing` if `by`
    lacks one of the old key's scopes, and `LastAdminKey`."""
    old = _in_force(session, key_id)
    _require(by, old)
    at = now(session)
    if expires_at is None and old.expires_at is not None:
        expires_at = at + (old.expires_at - old.created_at)
    new = add_key(
        session,
        name=old.name,
        key=key,
        scopes=old.scopes,
        expires_at=expires_at,
        calls_per_minute=old.calls_per_minute,
        own_requests_only=old.own_requests_only,
        replaces=old,
    )
    session.flush()
    until = at + datetime.timedelta(seconds=overlap_seconds)
    if old.expires_at is None:
        _require_other_holder(session, old)
    old.expires_at = min(old.expires_at or until, until)
    audit.record(session, "api_key.rotated", old.id, new_key_id=new.id, expires_at=old.expires_at.isoformat())
    will_change(session)
    return new


def revoke_key(session: Session, key_id: str, *, by: Caller | None) -> None:
    """Revoke a key; `by` is None if the service itself revokes it. Raises `KeyUnknown`, `ScopeMissing` if `by` lacks
    one of the key's scopes, and `LastAdminKey`."""
    row = _in_force(session, key_id)
    if by is not None:
        _require(by, row)
    if row.expires_at is None:
        _require_other_holder(session, row)
    row.revoked_at = now(session)
    audit.record(session, "api_key.revoked", key_id)
    will_change(session)


def find(session: Session, key: str | None) -> tables.ApiKey:
    """Return the row of a valid key. Raises `Unauthenticated`."""
    row = repository.by_hash(session, hash_of(key)) if key else None
    if row is None or not is_in_force(row, at=now(session)):
        raise unauthenticated()
    return row


def is_in_force(key: tables.ApiKey, *, at: datetime.datetime) -> bool:
    return key.revoked_at is None and (key.expires_at is None or key.expires_at > at)


def unauthenticated() -> problems.Unauthenticated:
    return problems.Unauthenticated("Send 'Authorization: Bearer <API key>' with a key that is in force.")


def caller_with(session: Session, key: tables.ApiKey) -> Caller:
    tenant = session.get_one(tables.Tenant, key.tenant_id)
    return Caller(
        id=key.id,
        name=key.name,
        tenant_name=tenant.name,
        tenant_id=key.tenant_id,
        scopes=frozenset(key.scopes),
        policy=tenants.Policy.stored(tenant.policy),
        calls_per_minute=key.calls_per_minute,
        line_id=key.line_id,
        own_requests_only=key.own_requests_only,
    )


def names_of(session: Session, ids: Iterable[str]) -> dict[str, str]:
    """Return the names of those API keys and people in the session's tenant whose id is in `ids`, keyed by id."""
    known_ids = frozenset(ids)
    names = repository.names(session, known_ids)
    for names_of_feature in sockets.plugs("app.features", "hooks", "NAMES"):
        names |= names_of_feature(session, known_ids)
    return names


def policy_of(session: Session, tenant_id: str) -> tenants.Policy:
    return tenants.Policy.stored(session.get_one(tables.Tenant, tenant_id).policy)


def subject_rules(session: Session, tenant_ids: Iterable[str]) -> dict[str, str]:
    """Return tenants' rules for subject ids. The same statement evaluates the conditions of `app.db.rare`, and reads
    the last entries of the tenants' audit logs for `audit.record_all`."""
    found = rare.ask(session, repository.TENANTS, {"tenant_ids": list(tenant_ids)})
    known = audit.heads(session)
    known.update({id_: (last, digest) for id_, last, digest, _ in found if last and id_ not in known})
    return {tenant_id: policy["subject_rule"] for tenant_id, *_, policy in found}


def rule_changed() -> problems.SubjectRuleFixed:
    """Return the error for input that was parsed before the tenant's rule for subject ids changed."""
    return problems.SubjectRuleFixed("The tenant's rule for subject ids was changed a moment ago; repeat the call.")


def policies(session: Session) -> dict[str, tenants.Policy]:
    """Return every tenant's policy, keyed by tenant id."""
    return {tenant.id: tenants.Policy.stored(tenant.policy) for tenant in repository.every_tenant(session)}


def changes() -> int:
    """Return how often this process has changed keys or policies. A cache entry with a smaller number is stale."""
    return _changes


def will_change(session: Session) -> None:
    """Invalidate this process's cached callers once `session` has been committed."""

    def count(_session: Session) -> None:
        global _changes
        _changes += 1

    sa.event.listen(session, "after_commit", count, once=True)


def _invalid(field: str, message: str) -> problems.InputInvalid:
    return problems.InputInvalid(message, [problems.FieldError(field, message)])


def _in_force(session: Session, key_id: str) -> tables.ApiKey:
    row = repository.key(session, key_id)
    if row is None or not is_in_force(row, at=now(session)):
        raise problems.KeyUnknown.not_in_force(key_id=key_id)
    return row


def _require(by: Caller, row: tables.ApiKey) -> None:
    """Raise `ScopeMissing` if `by` lacks one of the key's scopes."""
    for scope in row.scopes:
        by.require(sets.Scope(scope))


def _require_other_holder(session: Session, row: tables.ApiKey) -> None:
    """Raise `LastAdminKey` if the key has a `LASTING` scope that no other key or person holds without expiry."""
    others = [other for other in repository.lasting_keys(session, tenant_id=row.tenant_id) if other.id != row.id]
    for scope in LASTING:
        if scope not in row.scopes or any(scope in other.scopes for other in others):
            continue
        holders = sockets.plugs("app.features", "hooks", "HOLDS_SCOPE")
        if not any(holds(session, row.tenant_id, scope) for holds in holders):
            raise problems.LastAdminKey(row_id=row.id, scope=scope.value)
