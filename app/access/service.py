"""API keys: made once, stored as hashes, carrying scopes; and the tenant that every installation has."""

import datetime
import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.access import repository
from app.audit import service as audit
from app.db import Actor, actor, now
from app.db.tables import ApiKey, Tenant, User, new_id
from lethe.contract.policy import Policy
from lethe.contract.problems import (
    FieldError,
    InputInvalid,
    KeyUnknown,
    LastAdminKey,
    ScopeMissing,
    SubjectRuleFixed,
    Unauthenticated,
)
from lethe.contract.sets import Role, Scope
from lethe.contract.users import SCOPES_OF

DEFAULT_TENANT = "ten_default"
"""The tenant that every installation has."""
_changes = 0
"""Number of times that this process has changed what keys open."""


LASTING = ((Scope.ADMIN, Role.ADMINISTRATOR), (Scope.OPERATOR, Role.OPERATOR))
"""Scopes that somebody must always have, and the roles that bring them."""
_REQUESTS = frozenset({Scope.REQUESTS_READ, Scope.REQUESTS_WRITE})
_OF_ALL = frozenset({Scope.ADMIN, Scope.AGENT, Scope.OPERATOR, Scope.REQUESTS_REVIEW})
"""With these a key decides about everybody's requests, or about none, or has a rule of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller: an API key, or somebody who logged in to the dashboard. `id`: of the key, or the person; `name`:
    theirs."""

    id: str
    tenant_id: str
    scopes: frozenset[str]
    policy: Policy
    calls_per_minute: int | None
    line_id: str | None = None
    own_requests_only: bool = False
    name: str = ""
    tenant_name: str = ""
    is_person: bool = False

    @property
    def maker(self) -> str:
        """The origin of requests, which stays the same over all rotations of a key."""
        return self.line_id or self.id

    @property
    def actor(self) -> Actor:
        return Actor(tenant_id=self.tenant_id, name=self.id)

    @property
    def reader(self) -> Actor:
        """The same, where only what it may see of deletion requests is to be found."""
        return Actor(tenant_id=self.tenant_id, name=self.id, maker=self.maker if self.own_requests_only else None)

    @property
    def discreet(self) -> bool:
        """Return True if the caller may not learn whether anything is held about a person."""
        return not self.has(Scope.ACCOUNTING_READ)

    def has(self, scope: Scope) -> bool:
        if scope is Scope.METRICS_READ:
            return scope in self.scopes or Scope.OPERATOR in self.scopes
        if scope is Scope.REQUESTS_REVIEW and self.discreet:  # a decision that is refused tells what is held
            return False
        return scope in self.scopes or (Scope.ADMIN in self.scopes and scope is not Scope.OPERATOR)

    def require(self, scope: Scope) -> None:
        """Raises `ScopeMissing`."""
        if not self.has(scope):
            if scope in self.scopes:  # a decision about requests, by a key made before it took this too
                scope = Scope.ACCOUNTING_READ
            raise ScopeMissing(f"This {'role' if self.is_person else 'key'} does not have the scope {scope.value!r}.")


def new_key() -> str:
    """A fresh API key, 256 random bits."""
    return "lethe_" + secrets.token_urlsafe(32)


def hash_of(key: str) -> str:
    """Hash a key for storage: 256 random bits need no slow hash."""
    return hashlib.sha256(key.encode()).hexdigest()


def ensure_default_tenant(session: Session) -> Actor:
    """The service itself, acting for the tenant that every installation has."""
    if session.get(Tenant, DEFAULT_TENANT) is None:
        policy = Policy().model_dump(mode="json")
        session.add(Tenant(id=DEFAULT_TENANT, name="default", policy=policy, created_at=now(session)))
        session.flush()
    return Actor(tenant_id=DEFAULT_TENANT, name=audit.SERVICE)


def add_key(
    session: Session,
    *,
    name: str,
    key: str,
    scopes: Iterable[Scope | str],
    expires_at: datetime.datetime | None = None,
    calls_per_minute: int | None = None,
    own_requests_only: bool | None = None,
    replaces: ApiKey | None = None,
) -> ApiKey:
    """Let `key` in; only its hash is stored. `own_requests_only`: by default of a key that makes requests and may do
    nothing else. Raises `InputInvalid` for a key that would have expired already, that sees its own requests alone and
    yet is to decide about all, or that is to decide and may not know what is held: refused decisions would tell it."""
    at = now(session)
    asked = {Scope(scope) for scope in scopes}
    if Scope.REQUESTS_REVIEW in asked and not asked & {Scope.ADMIN, Scope.ACCOUNTING_READ}:
        message = "Add accounting:read: what becomes of a decision tells whether anything is held about the person"
        raise InputInvalid(message, [FieldError("scopes", message)])
    if own_requests_only is None:
        own_requests_only = asked <= _REQUESTS and Scope.REQUESTS_WRITE in asked
    if own_requests_only and asked & _OF_ALL:
        message = f"Expected false for a key with {', '.join(sorted(asked & _OF_ALL))}"
        raise InputInvalid(message, [FieldError("own_requests_only", message)])
    if expires_at is not None and expires_at <= at:
        message = "Expected a time that is still to come"
        raise InputInvalid(message, [FieldError("expires_at", message)])
    row = ApiKey(
        id=new_id("key"),
        tenant_id=actor(session).tenant_id,
        name=name,
        key_hash=hash_of(key),
        scopes=sorted(scope.value for scope in asked),
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


def ensure_key(session: Session, *, name: str, key: str, scopes: Iterable[Scope]) -> None:
    """Let `key` in if it is not."""
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
) -> ApiKey:
    """Let `key` in with what `key_id` may do, which expires after `overlap_seconds`, if it does not before.

    Without `expires_at` the new key lives as long as the old one was made to. Raises `KeyUnknown`, `ScopeMissing` (`by`
    lacks a scope of the old key), `LastAdminKey`.
    """
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
        _let_go(session, old)
    old.expires_at = min(old.expires_at or until, until)
    audit.record(session, "api_key.rotated", old.id, new_key_id=new.id, expires_at=old.expires_at.isoformat())
    will_change(session)
    return new


def revoke_key(session: Session, key_id: str, *, by: Caller | None) -> None:
    """End a key; `by`: None where the service ends it itself. Raises `KeyUnknown`, `ScopeMissing` (`by` lacks a scope
    of the key), `LastAdminKey`."""
    row = _in_force(session, key_id)
    if by is not None:
        _require(by, row)
    if row.expires_at is None:
        _let_go(session, row)
    row.revoked_at = now(session)
    line_id = row.line_id or row.id
    session.flush()
    if not repository.is_line_in_force(session, line_id, at=row.revoked_at):
        repository.drop_saved_views(session, line_id)
    audit.record(session, "api_key.revoked", key_id)
    will_change(session)


def find(session: Session, key: str | None) -> ApiKey:
    """The key in force that this is. Raises `Unauthenticated`."""
    found = repository.by_hash(session, hash_of(key)) if key else None
    if found is None or not is_in_force(found, at=now(session)):
        raise unauthenticated()
    return found


def is_in_force(key: ApiKey, *, at: datetime.datetime) -> bool:
    return key.revoked_at is None and (key.expires_at is None or key.expires_at > at)


def unauthenticated() -> Unauthenticated:
    return Unauthenticated("Send 'Authorization: Bearer <API key>' with a key that is in force.")


def authenticate(session: Session, key: str | None) -> Caller:
    """Raises `Unauthenticated`."""
    return caller_with(session, find(session, key))


def caller_with(session: Session, key: ApiKey) -> Caller:
    tenant = session.get_one(Tenant, key.tenant_id)
    return Caller(
        id=key.id,
        name=key.name,
        tenant_name=tenant.name,
        tenant_id=key.tenant_id,
        scopes=frozenset(key.scopes),
        policy=Policy.model_validate(tenant.policy),
        calls_per_minute=key.calls_per_minute,
        line_id=key.line_id,
        own_requests_only=key.own_requests_only,
    )


def caller_as(session: Session, user: User) -> Caller:
    """The caller that somebody is who logged in."""
    tenant = session.get_one(Tenant, user.tenant_id)
    return Caller(
        id=user.id,
        name=user.name,
        tenant_name=tenant.name,
        tenant_id=user.tenant_id,
        scopes=frozenset(SCOPES_OF[Role(user.role)]),
        policy=Policy.model_validate(tenant.policy),
        calls_per_minute=None,
        is_person=True,
    )


def names_of(session: Session, ids: Iterable[str]) -> dict[str, str]:
    """The names of the people and keys among `ids`, as far as the session's tenant has them."""
    return repository.names(session, frozenset(ids))


def policy_of(session: Session, tenant_id: str) -> Policy:
    return Policy.model_validate(session.get_one(Tenant, tenant_id).policy)


def subject_rule_of(session: Session, tenant_id: str) -> str:
    return str(session.get_one(Tenant, tenant_id).policy["subject_rule"])


def rule_changed() -> SubjectRuleFixed:
    """The error for what was read by another rule for subject ids than the tenant's present one."""
    return SubjectRuleFixed("The tenant's rule for subject ids was changed a moment ago; repeat the call.")


def policies(session: Session) -> dict[str, Policy]:
    """The policy of every tenant, by its id."""
    return {tenant.id: Policy.model_validate(tenant.policy) for tenant in repository.every_tenant(session)}


def changes() -> int:
    """Number of times that this process has changed what keys open: what was believed before a change is asked
    again."""
    return _changes


def will_change(session: Session) -> None:
    """Ask again what was believed of keys, once `session` has been committed."""

    def count(_session: Session) -> None:
        global _changes
        _changes += 1

    sa.event.listen(session, "after_commit", count, once=True)


def _in_force(session: Session, key_id: str) -> ApiKey:
    row = repository.key(session, key_id)
    if row is None or not is_in_force(row, at=now(session)):
        raise KeyUnknown(f"There is no API key {key_id!r} in force.")
    return row


def _require(by: Caller, row: ApiKey) -> None:
    """Raises `ScopeMissing` if `by` lacks a scope of the key."""
    for scope in row.scopes:
        by.require(Scope(scope))


def _let_go(session: Session, row: ApiKey) -> None:
    """Raises `LastAdminKey` if no other key that does not expire, and nobody who logs in with a password, may do what
    only this one could have done."""
    others = [other for other in repository.lasting_keys(session, tenant_id=row.tenant_id) if other.id != row.id]
    at = now(session)
    for scope, role in LASTING:
        is_given = any(scope in other.scopes for other in others)
        if scope in row.scopes and not is_given and not repository.lasting_users(session, row.tenant_id, role, at=at):
            raise LastAdminKey(
                f"{row.id} is the last key with the scope {scope.value!r} that does not expire; make another one first."
            )
