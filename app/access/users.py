"""People who log in to the dashboard: invited by an administrator, who never knows what they log in with."""

import datetime
import hashlib
import secrets

from sqlalchemy.orm import Session

from app.access import codes, passwords, repository
from app.access import service as access
from app.access.oidc import Identity
from app.access.service import Caller
from app.audit import service as audit
from app.db import actor, now
from app.db.sealed import Authenticator
from app.db.tables import User, new_id
from lethe.contract.problems import (
    FieldError,
    IdentityRefused,
    InputInvalid,
    InvitationOver,
    LastAdministrator,
    LoginRefused,
    UserExists,
    UserUnknown,
)
from lethe.contract.sets import Role, Scope
from lethe.contract.users import SCOPES_OF

DECIDING = frozenset(role for role, scopes in SCOPES_OF.items() if scopes & {Scope.ADMIN, Scope.REQUESTS_REVIEW})
"""The roles of those who decide about requests."""
INVITATION = datetime.timedelta(days=7)
"""Time that an invitation waits for the person."""


def create(session: Session, *, name: str, email: str, role: Role, by: Caller) -> tuple[User, str]:
    """Somebody new, and their invitation. Raises `UserExists`, and `ScopeMissing` for a role that may do what `by` may
    not."""
    _require(by, role)
    if repository.is_known(session, email):
        raise UserExists("Somebody with this e-mail address is there already; invite them again instead.")
    user = User(
        id=new_id("usr"),
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
    """Raises `UserUnknown`."""
    user = repository.user(session, user_id)
    if user is None:
        raise UserUnknown(f"There is no person {user_id!r}.")
    return user


def may_decide(user: User) -> bool:
    """Return True if somebody decides about requests: by their role, and not disabled."""
    return user.disabled_at is None and user.role in DECIDING


def change(session: Session, user_id: str, *, by: Caller, name: str | None = None, role: Role | None = None) -> User:
    """Give somebody another name or role; with another role they log in again. Raises `UserUnknown`, `ScopeMissing`,
    `LastAdministrator`."""
    user = get(session, user_id)
    _require(by, Role(user.role))
    if role is not None and role != user.role:
        _require(by, role)
        _let_go(session, user)
        user.role = role
        repository.end_sessions_of(session, user.id)
        audit.record(session, "user.role_changed", user.id, role=role)
    if name is not None and name != user.name:
        user.name = name
        audit.record(session, "user.renamed", user.id)
    return user


def disable(session: Session, user_id: str, *, by: Caller) -> None:
    """Let nobody in as this person any more, and forget what they logged in with. Raises `UserUnknown`,
    `ScopeMissing`, `LastAdministrator`."""
    user = get(session, user_id)
    _require(by, Role(user.role))
    if user.disabled_at is not None:
        return
    _let_go(session, user)
    user.disabled_at = now(session)
    user.invitation_hash = user.invitation_expires_at = None
    _forget_logins(user)
    repository.end_sessions_of(session, user.id)
    repository.drop_saved_views(session, user.id)
    audit.record(session, "user.disabled", user.id)


def invite(session: Session, user_id: str, *, by: Caller) -> tuple[User, str]:
    """Invite somebody again: whatever they logged in with ends. Raises `UserUnknown`, `ScopeMissing`,
    `LastAdministrator`."""
    user = get(session, user_id)
    _require(by, Role(user.role))
    _let_go(session, user)
    _forget_logins(user)
    user.disabled_at = None
    repository.end_sessions_of(session, user.id)
    invitation = _invite(session, user)
    audit.record(session, "user.invited", user.id)
    return user, invitation


def invited(session: Session, invitation: str) -> User:
    """The person whose invitation this is, in whatever tenant. Raises `InvitationOver`."""
    user = repository.invited_user(session, _hash_of(invitation))
    if user is None or not _is_invitation_open(session, user):
        raise InvitationOver("An invitation is good for a week, and once. Ask an administrator for another one.")
    return user


def accept(session: Session, user: User, *, password_hash: str) -> None:
    """Let somebody in with the password that they chose; the invitation is over."""
    user.password_hash = password_hash
    user.invitation_hash = user.invitation_expires_at = None
    audit.record(session, "user.invitation_accepted", user.id)


def checked(session: Session, *, email: str, password: str) -> User:
    """The person who logs in with this password; takes as long for an unknown address. Raises `LoginRefused`."""
    user = repository.user_with(session, email=email.strip().lower())
    is_right = passwords.matches(password, user.password_hash if user else None)
    if user is None or not is_right or user.disabled_at is not None or _is_locked(session, user):
        raise refusal()
    return user


def accept_code(session: Session, user: User, code: str) -> bool:
    """Accept a code of the person's authenticator app, once. What is not accepted is counted: commit it too."""
    step, at = None, now(session)
    if not _is_locked(session, user):
        step = codes.step_of(user.totp.secret, code, at=at, after=user.totp_last_step)
    if step is None:
        if user.wrong_since is None or user.wrong_since <= at - codes.COUNTED_FOR:
            user.wrong_codes, user.wrong_since = 0, at
        user.wrong_codes += 1
        if user.wrong_codes == codes.MOST_WRONG:
            audit.record(session, "user.locked", user.id)
        return False
    user.totp_last_step, user.wrong_codes, user.wrong_since = step, 0, None
    return True


def entered(session: Session, user: User, *, password: str | None = None) -> None:
    """Note a login; with `password`, its hash is made anew if this release makes stronger ones."""
    user.last_login_at = now(session)
    if password is not None and user.password_hash and passwords.is_outdated(user.password_hash):
        user.password_hash = passwords.hash_of(password)


def of_identity(session: Session, identity: Identity) -> User:
    """The person whom an identity provider names: by its own id for them, or the first time, while their invitation is
    open or if they have a password, by the address that it has verified.

    Raises `IdentityRefused`: nobody comes in who was not invited, or who is locked out.
    """
    user = repository.user_of_provider(session, issuer=identity.issuer, subject=identity.subject)
    if user is None and identity.email is None:
        raise IdentityRefused("The identity provider has not verified an e-mail address of this person.")
    if user is None:
        found = repository.user_with(session, email=identity.email or "")
        if found is not None and found.oidc_subject is None:  # else somebody else had the address before
            user = found if found.password_hash or _is_invitation_open(session, found) else None
    if user is None or user.disabled_at is not None or _is_locked(session, user):
        raise IdentityRefused("Nobody has invited this person here, or they are not let in any more.")
    return user


def link(session: Session, user: User, identity: Identity) -> None:
    """Know the person by the provider's own id from here on; an invitation that was open is used."""
    if user.oidc_subject is None:
        user.oidc_issuer, user.oidc_subject = identity.issuer, identity.subject
        user.invitation_hash = user.invitation_expires_at = None
        audit.record(session, "user.identity_linked", user.id)


def change_password(session: Session, user: User, *, password_hash: str) -> None:
    """Let somebody in with another password from here on; all their sessions are over."""
    user.password_hash = password_hash
    repository.end_sessions_of(session, user.id)
    audit.record(session, "user.password_changed", user.id)


def enrol(session: Session, user: User, *, secret: str, code: str) -> None:
    """Ask for codes of this secret from here on. Raises `InputInvalid` for a code that is not of it."""
    user.totp, user.totp_last_step, user.wrong_codes = (
        Authenticator(secret=secret),
        first_step(session, secret, code),
        0,
    )
    audit.record(session, "user.totp_enrolled", user.id)


def first_step(session: Session, secret: str, code: str) -> int:
    """The step of the code that shows that an app has the secret. Raises `InputInvalid`."""
    step = codes.step_of(secret, code, at=now(session)) if codes.is_secret(secret) else None
    if step is None:
        message = "this is not the code that the app shows for this secret now"
        raise InputInvalid("The authenticator app was not enrolled.", [FieldError("code", message)])
    return step


def remove_totp(session: Session, user: User) -> None:
    """Ask for no codes any more."""
    user.totp, user.totp_last_step = Authenticator(), None
    audit.record(session, "user.totp_removed", user.id)


def is_anything_to_purge(session: Session) -> bool:
    return repository.is_any_invitation_over(session, at=now(session))


def purge(session: Session, *, limit: int) -> int:
    """Forget invitations that have expired; returns how many."""
    return repository.drop_invitations(session, at=now(session), limit=limit)


def refusal() -> LoginRefused:
    """The same for an unknown address, a wrong password, somebody disabled: nobody learns who is known here."""
    return LoginRefused("Address, password or code is not right, or this person is not let in.")


def _invite(session: Session, user: User) -> str:
    invitation = secrets.token_urlsafe(32)
    user.invitation_hash, user.invitation_expires_at = _hash_of(invitation), now(session) + INVITATION
    return invitation


def _forget_logins(user: User) -> None:
    """Forget the password, the authenticator app, and the identity at a provider."""
    user.password_hash = user.totp_last_step = user.oidc_issuer = user.oidc_subject = user.wrong_since = None
    user.totp, user.wrong_codes = Authenticator(), 0


def _is_invitation_open(session: Session, user: User) -> bool:
    return user.invitation_expires_at is not None and user.invitation_expires_at > now(session)


def _is_locked(session: Session, user: User) -> bool:
    is_counted = user.wrong_since is not None and user.wrong_since > now(session) - codes.COUNTED_FOR
    return is_counted and user.wrong_codes >= codes.MOST_WRONG


def _hash_of(invitation: str) -> str:
    return hashlib.sha256(invitation.encode()).hexdigest()


def _require(by: Caller, role: Role) -> None:
    """Raises `ScopeMissing` for a role with a scope that `by` lacks: nobody gives away, or takes, more than they
    have."""
    for scope in sorted(SCOPES_OF[role]):
        by.require(scope)


def _let_go(session: Session, user: User) -> None:
    """Raises `LastAdministrator` if nobody else, and no key that does not expire, may do what only this person may."""
    session.flush()
    at = now(session)
    keys = repository.lasting_keys(session, tenant_id=user.tenant_id)
    for scope, role in access.LASTING:
        if user.role != role or user.password_hash is None or user.disabled_at is not None:
            continue
        others = [one for one in repository.lasting_users(session, user.tenant_id, role, at=at) if one.id != user.id]
        if not others and not any(scope in key.scopes for key in keys):
            raise LastAdministrator(
                f"{user.id} is the last {role} who logs in with a password, and no key with the scope {scope.value!r} "
                "lasts; invite another one first."
            )
