"""Operations on people who log in to the dashboard. An administrator invites them, and each has a role."""

import datetime
import unicodedata
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field, Strict

from lethe.contract import fields, operation, problems, sets


class LoginRefused(problems.NotAllowed, title="This login is refused", status=401): ...


class IdentityRefused(problems.NotAllowed, title="The identity provider's response does not grant access"): ...


class UserUnknown(problems.NotFound, title="There is no such person", template="There is no person {user_id!r}."): ...


class InvitationOver(problems.Gone, title="The invitation has been used, or has expired"):
    template = "An invitation is valid once, for a week. Ask an administrator for a new one."


class UserExists(problems.Conflict, title="A person with this e-mail address exists"): ...


class LastAdministrator(problems.Conflict, title="Without this person, the tenant could no longer be administered"): ...


class IdentityProviderUnavailable(problems.Unavailable, title="The identity provider does not answer"): ...


class Role(sets.ClosedSet):
    """Role of a user, which determines their scopes (`lethe.features.people.contract.SCOPES_OF`)."""

    VIEWER = "viewer"
    OFFICER = "officer"
    """Submits requests and decides on them."""
    ENGINEER = "engineer"
    ADMINISTRATOR = "administrator"
    OPERATOR = "operator"
    """Creates tenants, without access to their contents."""


_READING = frozenset({sets.Scope.REQUESTS_READ, sets.Scope.MODELS_READ, sets.Scope.ACCOUNTING_READ})
SCOPES_OF: Mapping[Role, frozenset[sets.Scope]] = {
    Role.VIEWER: _READING,
    Role.OFFICER: _READING | {sets.Scope.REQUESTS_WRITE, sets.Scope.REQUESTS_REVIEW},
    Role.ENGINEER: _READING | {sets.Scope.MODELS_WRITE},
    Role.ADMINISTRATOR: frozenset({sets.Scope.ADMIN}),
    Role.OPERATOR: frozenset({sets.Scope.OPERATOR}),
}
"""Scopes granted by each role, with the same effect as the scopes of an API key."""


def is_email_normal(address: str) -> bool:
    """Return True if an address has no compatibility characters. For example, the Kelvin sign becomes k in lower case,
    which could change the address into another person's."""
    return unicodedata.is_normalized("NFKC", address)


def _lower(address: str) -> str:
    if not is_email_normal(address):
        raise ValueError("expected an address without compatibility characters (Unicode NFKC)")
    return address.lower()


Email = Annotated[
    fields.Text,
    # The maximum length is that of RFC 5321, 4.5.3.1.3.
    Field(min_length=3, max_length=254, pattern=r"^[^@\s\x00]+@[^@\s\x00]+$"),
    fields.WHOLE,
    AfterValidator(_lower),
]
AnyRole = Annotated[Role, Strict(False)]


class UserIn(fields.Body):
    name: fields.Name = Field(description="Name of the user.")
    email: Email = Field(description="E-mail address of the user, stored in lower case and unique in the installation.")
    role: AnyRole = Field(description="Role of the user, which determines the user's scopes.")


class UserChangeIn(fields.Body):
    name: fields.Name | None = fields.optional("New name of the user. Default: unchanged.")
    role: AnyRole | None = fields.optional(
        "New role of the user; setting it ends all their sessions. Default: unchanged."
    )


class UserOut(fields.Answer):
    id: str = Field(description="ID of the user.")
    name: str = Field(description="Name of the user.")
    email: str = Field(description="E-mail address of the user, in lower case.")
    role: str = Field(description="Role of the user, which determines the user's scopes.")
    has_password: bool = Field(description="True if the user has chosen a password.")
    has_totp: bool = Field(description="True if login also requires a code from an authenticator app.")
    has_identity: bool = Field(description="True if the user logs in through an identity provider (OpenID Connect).")
    invited_until: datetime.datetime | None = Field(description="Expiry of the unused invitation; null if none.")
    created_at: datetime.datetime = Field(description="Time at which the user was first invited.")
    disabled_at: datetime.datetime | None = Field(
        description="Time at which the user was disabled; null while enabled."
    )
    last_login_at: datetime.datetime | None = Field(description="Time of last login; null if the user never logged in.")


class InvitedUserOut(UserOut):
    invitation: str = Field(
        description="Secret path on the gateway at which the user chooses a password. It is shown only once; only its "
        "hash is stored.",
        repr=False,
    )


_USERS = operation.ResourceOperations("People", "/v1/users", UserUnknown)

CREATE = _USERS.operation(
    "create_user",
    "POST",
    scope=sets.Scope.ADMIN,
    takes=UserIn,
    gives=InvitedUserOut,
    status=201,
    problems=(UserExists,),
    does="Invite a user, who then chooses a password. Callers cannot grant a role with scopes that they lack.\n\nNo "
    "`Idempotency-Key` is accepted, because the invitation is not stored and could not be shown again. A repeated call "
    "gets a 409.",
)
LIST = _USERS.operation(
    "list_users",
    "GET",
    scope=sets.Scope.ADMIN,
    query=fields.Paging,
    gives=fields.PageOut[UserOut],
    does="List all users, including disabled ones, newest first.",
)
GET = _USERS.of_one(
    "get_user",
    "GET",
    "/{user_id}",
    scope=sets.Scope.ADMIN,
    gives=UserOut,
    does="Return a user's role and login methods.",
)
CHANGE = _USERS.of_one(
    "change_user",
    "PATCH",
    "/{user_id}",
    scope=sets.Scope.ADMIN,
    takes=UserChangeIn,
    gives=UserOut,
    repeat="idempotent",
    problems=(LastAdministrator,),
    does="Change a user's name or role.",
)
INVITE = _USERS.of_one(
    "invite_user",
    "POST",
    "/{user_id}/invite",
    scope=sets.Scope.ADMIN,
    gives=InvitedUserOut,
    status=201,
    problems=(LastAdministrator,),
    does="Renew the invitation of a user who has lost their password or authenticator app, or was disabled. Their "
    "previous credentials become invalid, and they choose new ones. No `Idempotency-Key` is accepted.",
)
DISABLE = _USERS.of_one(
    "disable_user",
    "DELETE",
    "/{user_id}",
    scope=sets.Scope.ADMIN,
    gives=type(None),
    status=204,
    problems=(LastAdministrator,),
    does="Disable a user and end their sessions. Their name stays on record with their past actions.",
)
