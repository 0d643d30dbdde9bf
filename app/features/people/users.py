"""People who log in to the dashboard. An administrator invites them but never learns their credentials."""

import datetime
import hashlib
import secrets
from collections.abc import Callable

from sqlalchemy.orm import Session

from app.access import repository as access_repository, service
from app.audit import service as audit
from app.db import actor, now, tables
from app.features.people import credentials, oidc, repository
from app.features.people.tables import Authenticator, User
from lethe import sockets
from lethe.contract import problems, sets, tenants
from lethe.features.people import contract

DECIDING = frozenset(
    role for role, scopes in contract.SCOPES_OF.items() if scopes & {sets.Scope.ADMIN, sets.Scope.REQUESTS_REVIEW}
)
"""Roles that permit decisions on requests."""
_LASTING = {sets.Scope.ADMIN: contract.Role.ADMINISTRATOR, sets.Scope.OPERATOR: contract.Role.OPERATOR}
"""Scopes of which each tenant must always have a permanent holder, and the roles that include them."""
EndSessions = Callable[[Session, str], None]
"""`LOGINS_ENDED` hook: end a user's sessions, given the user's id."""
INVITATION = datetime.timedelta(days=7)
"""Time for which an invitation is valid."""


def create(session: Session, *, name: str, email: str, role: contract.Role, by: service.Caller) -> tuple[User, str]:
    """Create a person, and return the person and an invitation. Raises `UserExists`, and `ScopeMissing` if the role has
    a scope that `by` lacks."""
    _require(by, role)
    if repository.is_known(session, email):
        raise contract.UserExists("Somebody with this e-mail address is there already; invite them again instead.")
    user = User(
        id=tables.new_id("usr"),
        tenant_id=actor(session).tenant_id,
        name=name,
        email=email,
        role=role,
        totp=Authenticator(),
        wrong_codes=0,
        created_at=now(session),
    )
    session.add(user)
    invitation = _invite(session, user)
    audit.record(session, "user.created", user.id, role=role)
    return user, invitation


def get(session: Session, user_id: str) -> User:
    """Return a person. Raises `UserUnknown`."""
    return contract.UserUnknown.if_none(repository.user(session, user_id), user_id=user_id)


def caller_as(session: Session, user: User) -> service.Caller:
    """Return the `Caller` for a logged-in person."""
    tenant = session.get_one(tables.Tenant, user.tenant_id)
    return service.Caller(
        id=user.id,
        name=user.name,
        tenant_name=tenant.name,
        tenant_id=user.tenant_id,
        scopes=frozenset(contract.SCOPES_OF[contract.Role(user.role)]),
        policy=tenants.Policy.stored(tenant.policy),
        calls_per_minute=None,
        is_person=True,
    )


def holds_scope(session: Session, tenant_id: str, scope: sets.Scope) -> bool:
    """Return True if any of the tenant's people who log in with a password has the scope."""
    return bool(repository.lasting_users(session, tenant_id, _LASTING[scope], at=now(session)))


def may_decide(user: User) -> bool:
    """Return True if a person's role allows decisions on requests and the person is not disabled."""
    return user.disabled_at is None and user.role in DECIDING


def change(
    session: Session, user_id: str, *, by: service.Caller, name: str | None = None, role: contract.Role | None = None
) -> User:
    """Change a person's name or role; a new role ends the person's sessions. Raises `UserUnknown`, `ScopeMissing`,
    `LastAdministrator`."""
    user = get(session, user_id)
    _require(by, contract.Role(user.role))
    if role is not None and role != user.role:
        _require(by, role)
        _require_other_holder(session, user)
        user.role = role
        _end_sessions(session, user.id)
        audit.record(session, "user.role_changed", user.id, role=role)
    if name is not None and name != user.name:
        user.name = name
        audit.record(session, "user.renamed", user.id)
    return user


def disable(session: Session, user_id: str, *, by: service.Caller) -> None:
    """Disable a person and delete their credentials. Raises `UserUnknown`, `ScopeMissing`, `LastAdministrator`."""
    user = get(session, user_id)
    _require(by, contract.Role(user.role))
    if user.disabled_at is not None:
        return
    _require_other_holder(session, user)
    user.disabled_at = now(session)
    user.invitation_hash = user.invitation_expires_at = None
    _forget_logins(user)
    _end_sessions(session, user.id)
    audit.record(session, "user.disabled", user.id)


def invite(session: Session, user_id: str, *, by: service.Caller) -> tuple[User, str]:
    """Invite a person again, and revoke their previous credentials and sessions. Raises `UserUnknown`, `ScopeMissing`,
    `LastAdministrator`."""
    user = get(session, user_id)
    _require(by, contract.Role(user.role))
    _require_other_holder(session, user)
    _forget_logins(user)
    user.disabled_at = None
    _end_sessions(session, user.id)
    invitation = _invite(session, user)
    audit.record(session, "user.invited", user.id)
    return user, invitation


def invited(session: Session, invitation: str) -> User:
    """Return the person with this invitation, in any tenant. Raises `InvitationOver`."""
    user = repository.invited_user(session, _hash_of(invitation))
    if user is None or not _is_invitation_open(session, user):
        raise contract.InvitationOver()
    return user


def accept(session: Session, user: User, *, password_hash: str) -> None:
    """Set the password that the invited person chose, and close the invitation."""
    user.password_hash = password_hash
    user.invitation_hash = user.invitation_expires_at = None
    audit.record(session, "user.invitation_accepted", user.id)


def checked(session: Session, *, email: str, password: str) -> User:
    """Return the person with this address and password; equally slow for unknown addresses. Raises `LoginRefused`."""
    user = repository.user_with(session, email=email.strip().lower())
    is_right = credentials.matches(password, user.password_hash if user else None)
    if user is None or not is_right or user.disabled_at is not None or _is_locked(session, user):
        raise refusal()
    return user


def accept_code(session: Session, user: User, code: str) -> bool:
    """Return True if a code from the person's authenticator app is valid and unused. Callers must commit even if the
    result is False, because wrong codes are counted."""
    step, at = None, now(session)
    if not _is_locked(session, user):
        step = credentials.step_of(user.totp.secret, code, at=at, after=user.totp_last_step)
    if step is None:
        if user.wrong_since is None or user.wrong_since <= at - credentials.COUNTED_FOR:
            user.wrong_codes, user.wrong_since = 0, at
        user.wrong_codes += 1
        # Not >=, because later codes are counted too, and each would add an entry to the audit log.
        if user.wrong_codes == credentials.MAX_WRONG_CODES:
            audit.record(session, "user.locked", user.id)
        return False
    user.totp_last_step, user.wrong_codes, user.wrong_since = step, 0, None
    return True


def entered(session: Session, user: User, *, password: str | None = None) -> None:
    """Record a login. If `password` is given and its stored hash is outdated, replace the hash."""
    user.last_login_at = now(session)
    if password is not None and user.password_hash and credentials.is_outdated(user.password_hash):
        user.password_hash = credentials.hash_of(password)


def of_identity(session: Session, identity: oidc.OidcIdentity) -> User:
    """Return the person with this identity: the one linked to the provider's id or, at the first login, the one with
    the verified e-mail address, who must have a password or an open invitation. Raises `IdentityRefused` for people who
    were not invited, are disabled or are locked."""
    user = repository.user_of_provider(session, issuer=identity.issuer, subject=identity.subject)
    if user is None and identity.email is None:
        raise contract.IdentityRefused("The identity provider has not verified an e-mail address of this person.")
    if user is None:
        candidate = repository.user_with(session, email=identity.email or "")
        # If another subject is linked, the address used to belong to another person.
        if candidate is not None and candidate.oidc_subject is None:
            user = candidate if candidate.password_hash or _is_invitation_open(session, candidate) else None
    if user is None or user.disabled_at is not None or _is_locked(session, user):
        raise contract.IdentityRefused("This person was not invited, or the account is deactivated.")
    return user


def link(session: Session, user: User, identity: oidc.OidcIdentity) -> None:
    """Link a person to their id at the identity provider, and close any open invitation."""
    if user.oidc_subject is None:
        user.oidc_issuer, user.oidc_subject = identity.issuer, identity.subject
        user.invitation_hash = user.invitation_expires_at = None
        audit.record(session, "user.identity_linked", user.id)


def change_password(session: Session, user: User, *, password_hash: str) -> None:
    """Set a new password and end all of the person's sessions."""
    user.password_hash = password_hash
    _end_sessions(session, user.id)
    audit.record(session, "user.password_changed", user.id)


def enrol(session: Session, user: User, *, secret: str, code: str) -> None:
    """Require codes from this secret at each login from now on. Raises `InputInvalid` if `code` does not match it."""
    user.totp_last_step = first_step(session, secret, code)
    user.totp, user.wrong_codes = Authenticator(secret=secret), 0
    audit.record(session, "user.totp_enrolled", user.id)


def first_step(session: Session, secret: str, code: str) -> int:
    """Return the time step of a code, which proves that an app has the secret. Raises `InputInvalid`."""
    step = credentials.step_of(secret, code, at=now(session)) if credentials.is_secret(secret) else None
    if step is None:
        message = "this is not the code that the app shows for this secret now"
        raise problems.InputInvalid("The authenticator app was not enrolled.", [problems.FieldError("code", message)])
    return step


def remove_totp(session: Session, user: User) -> None:
    """Stop requiring codes from an authenticator app when the person logs in."""
    user.totp, user.totp_last_step = Authenticator(), None
    audit.record(session, "user.totp_removed", user.id)


def refusal() -> contract.LoginRefused:
    """Return the same error for an unknown address, a wrong password and a disabled person, so that callers cannot tell
    these cases apart."""
    return contract.LoginRefused("The address, password or code is wrong, or the account is deactivated.")


def _end_sessions(session: Session, user_id: str) -> None:
    for end in sockets.plugs("app.features", "hooks", "LOGINS_ENDED"):
        end(session, user_id)


def _invite(session: Session, user: User) -> str:
    invitation = secrets.token_urlsafe(32)
    user.invitation_hash, user.invitation_expires_at = _hash_of(invitation), now(session) + INVITATION
    return invitation


def _forget_logins(user: User) -> None:
    """Delete the user's password, authenticator enrolment and link to an identity provider."""
    user.password_hash = user.totp_last_step = user.oidc_issuer = user.oidc_subject = user.wrong_since = None
    user.totp, user.wrong_codes = Authenticator(), 0


def _is_invitation_open(session: Session, user: User) -> bool:
    return user.invitation_expires_at is not None and user.invitation_expires_at > now(session)


def _is_locked(session: Session, user: User) -> bool:
    is_counted = user.wrong_since is not None and user.wrong_since > now(session) - credentials.COUNTED_FOR
    return is_counted and user.wrong_codes >= credentials.MAX_WRONG_CODES


def _hash_of(invitation: str) -> str:
    return hashlib.sha256(invitation.encode()).hexdigest()


def _require(by: service.Caller, role: contract.Role) -> None:
    """Raise `ScopeMissing` if `by` lacks a scope of the role: only callers with all of a role's scopes may grant or
    withdraw it."""
    for scope in sorted(contract.SCOPES_OF[role]):
        by.require(scope)


def _require_other_holder(session: Session, user: User) -> None:
    """Raise `LastAdministrator` if the person is the last permanent holder of a required scope: no other person and no
    non-expiring key has it."""
    session.flush()
    at = now(session)
    keys = access_repository.lasting_keys(session, tenant_id=user.tenant_id)
    for scope, role in _LASTING.items():
        if user.role != role or user.password_hash is None or user.disabled_at is not None:
            continue
        holders = repository.lasting_users(session, user.tenant_id, role, at=at)
        others = [holder for holder in holders if holder.id != user.id]
        if not others and not any(scope in key.scopes for key in keys):
            raise contract.LastAdministrator(
                "{user_id} is the last {role} who logs in with a password, and no key with the scope {scope!r} "
                "lasts; invite another one first.",
                user_id=user.id,
                role=role,
                scope=scope.value,
            )
