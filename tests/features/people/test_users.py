"""Users who log in: invitations, passwords, codes, roles, and the last administrator."""

import dataclasses
import datetime
from collections.abc import Callable

import pyotp
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.access import service as access
from app.access.service import Caller
from app.db import Actor, now
from app.features.desk import sessions
from app.features.desk.tables import DashboardSession
from app.features.people import credentials, jobs, repository, users
from app.features.people.oidc import OidcIdentity
from app.features.people.tables import Authenticator, User
from app.installations import Installation
from lethe.contract.problems import InputInvalid, ScopeMissing, SealedTextDamaged, Unauthenticated
from lethe.contract.sets import Scope
from lethe.features.people.contract import (
    SCOPES_OF,
    IdentityRefused,
    InvitationOver,
    LastAdministrator,
    LoginRefused,
    Role,
    UserExists,
)
from tests.stored import flipped, line_of
from tests.tables import each

PASSWORD = "correct horse battery staple"
AT = datetime.datetime(2026, 11, 25, 12, tzinfo=datetime.UTC)
Invited = Callable[..., str]


@pytest.fixture
def admin(installation: Installation, admin_key: str) -> Caller:
    with installation.database.reading() as session:
        return access.caller_with(session, access.find(session, admin_key))


@pytest.fixture
def invited(installation: Installation, by: Actor, admin: Caller) -> Invited:
    """Return a function that invites a person, who chooses `PASSWORD`, and returns their id."""

    def invite(role: Role = Role.OFFICER, email: str = "maria@example.com") -> str:
        with installation.database.writing(by=by) as session:
            user, invitation = users.create(session, name="Maria Lopez", email=email, role=role, by=admin)
        with installation.database.writing(by=by) as session:
            users.accept(session, users.invited(session, invitation), password_hash=credentials.hash_of(PASSWORD))
        return user.id

    return invite


def logged_in(installation: Installation, user_id: str) -> str:
    """Log the user in and return the session's token."""
    token = sessions.new_token()
    with installation.database.reading() as session:
        caller = users.caller_as(session, session.get_one(User, user_id))
    with installation.database.writing(by=caller.actor) as session:
        sessions.open_session(session, token=token, caller=caller, settings=installation.settings)
    return token


def is_open(installation: Installation, token: str) -> bool:
    with installation.database.reading() as session:
        try:
            sessions.caller_of(session, token, settings=installation.settings)
        except Unauthenticated:
            return False
        return True


@pytest.mark.slow
@pytest.mark.usefixtures("costly_passwords")
def test_passwords_are_hashed() -> None:
    """A password is stored as an argon2id hash, which matches no other password. A user without a hash cannot log in
    with any password."""
    kept = credentials.hash_of(PASSWORD)
    assert kept.startswith("$argon2id$")
    assert credentials.matches(PASSWORD, kept)
    assert not credentials.matches(PASSWORD + " ", kept)
    assert not credentials.matches(PASSWORD, None)
    assert not credentials.matches("lethe: no password", None)
    assert not credentials.is_outdated(kept)
    assert credentials.is_outdated(kept.replace("t=3", "t=1"))


@each("password", ["", "eleven char", "x" * 1025, "a surrogate \ud800 alone"])
def test_passwords_need_a_minimum_length(password: str) -> None:
    """The only requirement for passwords is a minimum length. They can contain white space and characters of any
    script."""
    with pytest.raises(InputInvalid):
        credentials.hash_of(password)
    assert credentials.hash_of("пароль из слов")


def test_codes_are_valid_for_adjacent_steps() -> None:
    """A code is valid during its own time step and the adjacent ones, unless a code for the same or a later step has
    already been accepted."""
    secret = credentials.new_secret()
    step = int(AT.timestamp()) // credentials.SECONDS
    for offset, accepted in ((-2, None), (-1, step - 1), (0, step), (1, step + 1), (2, None)):
        code = pyotp.TOTP(secret).generate_otp(step + offset)
        assert credentials.step_of(secret, code, at=AT) == accepted
    now_shown = pyotp.TOTP(secret).at(AT)
    assert credentials.step_of(secret, f"{now_shown[:3]} {now_shown[3:]}", at=AT, after=step - 1) == step
    assert credentials.step_of(secret, now_shown, at=AT, after=step) is None
    assert credentials.step_of(secret, "", at=AT) is None
    assert not credentials.is_secret("short")


def test_a_code_is_accepted_once(installation: Installation, by: Actor, invited: Invited) -> None:
    """A code cannot be used twice. After twenty wrong codes, the user is locked out for an hour, even with a correct
    code. After that, the count starts from zero."""
    user_id, secret = invited(), credentials.new_secret()
    with installation.database.writing(by=by) as session:
        user = users.get(session, user_id)
        user.totp = Authenticator(secret=secret)
        at = now(session)
        code, following = (pyotp.TOTP(secret).at(at + datetime.timedelta(seconds=later)) for later in (0, 30))
        assert users.accept_code(session, user, code)
        assert not users.accept_code(session, user, code)
        for _ in range(credentials.MAX_WRONG_CODES - 1):
            assert not users.accept_code(session, user, "no code")
        assert not users.accept_code(session, user, following)
        with pytest.raises(LoginRefused):
            users.checked(session, email="maria@example.com", password=PASSWORD)
        assert user.wrong_since is not None
        user.wrong_since -= credentials.COUNTED_FOR
        assert users.checked(session, email="maria@example.com", password=PASSWORD) is user
        assert not users.accept_code(session, user, "no code")
        assert user.wrong_codes == 1
        assert users.accept_code(session, user, following)
        assert user.wrong_codes == 0


def test_the_secret_is_sealed(installation: Installation, by: Actor, invited: Invited) -> None:
    """An authenticator app's secret is sealed in the database and cannot be opened without the installation's keys."""
    user_id, secret = invited(), credentials.new_secret()
    with installation.database.writing(by=by) as session:
        users.get(session, user_id).totp = Authenticator(secret=secret)
    with installation.database.looking() as connection:
        [stored] = connection.execute(sa.text("SELECT totp FROM users")).scalars()
    assert secret.encode() not in bytes(stored)
    with installation.database.reading(by=by) as session:
        assert users.get(session, user_id).totp.secret == secret


def test_users_log_in_by_address_and_password(
    installation: Installation, by: Actor, admin: Caller, invited: Invited
) -> None:
    """A user logs in with a password and an e-mail address, whose case does not matter. A login with a wrong password,
    with an unknown address, or before the invitation has been accepted is refused."""
    user_id = invited()
    with installation.database.writing(by=by) as session:
        users.create(session, name="New", email="new@example.com", role=Role.VIEWER, by=admin)
    with installation.database.reading() as session:
        assert users.checked(session, email=" Maria@Example.com", password=PASSWORD).id == user_id
        for email, password in (("maria@example.com", "x" * 12), ("no@example.com", PASSWORD), ("new@example.com", "")):
            with pytest.raises(LoginRefused):
                users.checked(session, email=email, password=password)


def test_a_weak_hash_is_replaced_at_login(installation: Installation, by: Actor, invited: Invited) -> None:
    """A password hash with weaker parameters is replaced when the user logs in."""
    weak, user_id = credentials.PasswordHasher(time_cost=1, memory_cost=64).hash(PASSWORD), invited()
    with installation.database.writing(by=by) as session:
        user = users.get(session, user_id)
        user.password_hash = weak
        users.entered(session, user, password=PASSWORD)
        assert user.last_login_at is not None
        assert credentials.matches(PASSWORD, user.password_hash)
        assert not credentials.is_outdated(user.password_hash)


def test_an_invitation_is_valid_once_for_a_week(
    installation: Installation, by: Actor, admin: Caller, invited: Invited
) -> None:
    """An invitation becomes void after a week, or when it is used, when the user is invited again, or when the user is
    disabled. A periodic job deletes expired invitations."""
    with installation.database.writing(by=by) as session:
        user, first = users.create(session, name="Ann", email="ann@example.com", role=Role.VIEWER, by=admin)
    with installation.database.writing(by=by) as session:
        assert users.invited(session, first).id == user.id
        second = users.invite(session, user.id, by=admin)[1]
        with pytest.raises(InvitationOver):
            users.invited(session, first)
        users.accept(session, users.invited(session, second), password_hash="$argon2id$")
        with pytest.raises(InvitationOver):
            users.invited(session, second)
        third = users.invite(session, user.id, by=admin)[1]
        users.get(session, user.id).invitation_expires_at = now(session)
        with pytest.raises(InvitationOver):
            users.invited(session, third)
    jobs.forget_invitations(installation)
    with installation.database.reading(by=by) as session:
        assert users.get(session, user.id).invitation_hash is None


@pytest.mark.parametrize("end", ["disabled", "role", "password", "invited"])
def test_sessions_end_when_credentials_change(
    installation: Installation, by: Actor, admin: Caller, invited: Invited, end: str
) -> None:
    """A user who is disabled, invited again, or given another role or password is logged out everywhere, but other
    users are not. A disabled user's credentials are deleted."""
    secret = credentials.new_secret()
    user_id, other = invited(), invited(email="other@example.com")
    token, kept = logged_in(installation, user_id), logged_in(installation, other)
    with installation.database.writing(by=by) as session:
        match end:
            case "disabled":
                users.enrol(
                    session, users.get(session, user_id), secret=secret, code=pyotp.TOTP(secret).at(now(session))
                )
                users.disable(session, user_id, by=admin)
                gone = users.get(session, user_id)
                assert (gone.password_hash, gone.totp.secret, gone.totp_last_step) == (
                    None,
                    Authenticator().secret,
                    None,
                )
            case "role":
                users.change(session, user_id, by=admin, role=Role.VIEWER)
            case "password":
                users.change_password(session, users.get(session, user_id), password_hash="$argon2id$")
            case "invited":
                users.invite(session, user_id, by=admin)
    assert not is_open(installation, token)
    assert is_open(installation, kept)


def test_a_damaged_secret_refuses_every_code(
    installation: Installation, by: Actor, admin: Caller, invited: Invited, gateway: TestClient
) -> None:
    """If an authenticator app's secret is damaged, every code is refused. The user is still shown as having an app
    until the credentials are reset."""
    user_id, secret = invited(), credentials.new_secret()
    with installation.database.writing(by=by) as session:
        user = users.get(session, user_id)
        users.enrol(session, user, secret=secret, code=pyotp.TOTP(secret).at(now(session)))
    with installation.database.reading(by=by) as session:
        page, place = line_of(installation, users.get(session, user_id).totp.key)
    page.write_bytes(flipped(page.read_bytes(), place + 40))
    assert gateway.get(f"/v1/users/{user_id}").json()["has_totp"] is True
    with installation.database.writing(by=by) as session, pytest.raises(SealedTextDamaged):
        users.accept_code(session, users.get(session, user_id), pyotp.TOTP(secret).at(now(session)))
    with installation.database.writing(by=by) as session:
        users.disable(session, user_id, by=admin)
    assert gateway.get(f"/v1/users/{user_id}").json()["has_totp"] is False


def test_a_provider_login_needs_an_invitation(
    installation: Installation, by: Actor, admin: Caller, invited: Invited
) -> None:
    """A user can log in through an identity provider while the invitation is open or once a password is set. The login
    is refused after the invitation has expired and during a lockout for wrong codes."""
    here = OidcIdentity(issuer="https://login.example", subject="1", email="ann@example.com")
    with installation.database.writing(by=by) as session:
        ann, _ = users.create(session, name="Ann", email="ann@example.com", role=Role.VIEWER, by=admin)
        assert users.of_identity(session, here) is ann
        ann.invitation_expires_at = now(session)
        with pytest.raises(IdentityRefused):
            users.of_identity(session, here)
    user_id = invited()
    with installation.database.writing(by=by) as session:
        maria = users.get(session, user_id)
        there = dataclasses.replace(here, email=maria.email)
        assert users.of_identity(session, there) is maria
        users.link(session, maria, there)
        maria.totp = Authenticator(secret=credentials.new_secret())
        for _ in range(credentials.MAX_WRONG_CODES):
            users.accept_code(session, maria, "no code")
        with pytest.raises(IdentityRefused):
            users.of_identity(session, there)


def test_a_session_has_a_key_or_a_user(installation: Installation) -> None:
    """The database refuses a dashboard session that has neither a key nor a user."""
    at = AT
    with pytest.raises(sa.exc.IntegrityError), installation.database.writing() as session:
        session.add(DashboardSession(token_hash="0" * 64, opened_at=at, seen_at=at, expires_at=at))


def test_addresses_are_unique(installation: Installation, by: Actor, admin: Caller, invited: Invited) -> None:
    """An e-mail address is unique across all tenants of the installation."""
    invited()
    with installation.database.writing(by=by) as session, pytest.raises(UserExists):
        users.create(session, name="Maria", email="maria@example.com", role=Role.VIEWER, by=admin)
    with installation.database.reading(by=Actor(tenant_id="ten_other", name="test")) as session:
        assert repository.is_known(session, "maria@example.com")
        assert repository.users(session, limit=9, cursor=None).items == []


def test_the_last_administrator_cannot_be_removed(
    installation: Installation, by: Actor, admin: Caller, invited: Invited
) -> None:
    """The last administrator key can be revoked if an administrator has a password. After that, the last administrator
    with a password cannot be removed. An administrator who is locked out because of wrong codes does not count."""
    user_id = invited(Role.ADMINISTRATOR)
    operator = invited(Role.OPERATOR, "olga@example.com")
    with installation.database.writing(by=by) as session:
        access.revoke_key(session, admin.id, by=None)
    for act in (
        lambda session: users.disable(session, user_id, by=admin),
        lambda session: users.change(session, user_id, by=admin, role=Role.VIEWER),
        lambda session: users.invite(session, user_id, by=admin),
        lambda session: users.disable(session, operator, by=admin),
    ):
        with installation.database.writing(by=by) as session, pytest.raises(LastAdministrator):
            act(session)
    another = invited(Role.ADMINISTRATOR, "another@example.com")
    with installation.database.writing(by=by) as session:
        locked = users.get(session, another)
        locked.wrong_codes, locked.wrong_since = credentials.MAX_WRONG_CODES, now(session)
        with pytest.raises(LastAdministrator):
            users.disable(session, user_id, by=admin)
        locked.wrong_codes = 0
        users.disable(session, user_id, by=admin)
        with pytest.raises(LastAdministrator):
            users.disable(session, another, by=admin)


def test_administrators_cannot_manage_operators(
    installation: Installation, by: Actor, admin: Caller, invited: Invited
) -> None:
    """An administrator can neither create nor change an operator, because an operator's scope extends beyond the
    tenant."""
    operator = invited(Role.OPERATOR, "olga@example.com")
    with installation.database.reading() as session:
        maria = users.caller_as(session, session.get_one(User, invited(Role.ADMINISTRATOR)))
    with installation.database.writing(by=by) as session:
        for act in (
            lambda: users.create(session, name="O", email="o@example.com", role=Role.OPERATOR, by=maria),
            lambda: users.change(session, operator, by=maria, role=Role.VIEWER),
            lambda: users.invite(session, operator, by=maria),
            lambda: users.disable(session, operator, by=maria),
        ):
            with pytest.raises(ScopeMissing):
                act()


def test_roles_have_scopes() -> None:
    """Every role has scopes. Viewers cannot change anything, and officers and engineers cannot manage keys."""
    assert SCOPES_OF.keys() == set(Role)
    assert all(scope.value.endswith(":read") for scope in SCOPES_OF[Role.VIEWER])
    assert not any({Scope.ADMIN, Scope.OPERATOR} & SCOPES_OF[role] for role in (Role.OFFICER, Role.ENGINEER))
