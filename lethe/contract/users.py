"""People who log in to the dashboard: each with a name and a role, invited by an administrator."""

import datetime
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field, Strict

from lethe.contract.fields import Answer, Body, Name, PageOut, Paging, Text
from lethe.contract.operation import Resource, of_one
from lethe.contract.problems import LastAdministrator, UserExists, UserUnknown
from lethe.contract.sets import Role, Scope

_READING = frozenset({Scope.REQUESTS_READ, Scope.MODELS_READ, Scope.ACCOUNTING_READ})
SCOPES_OF: Mapping[Role, frozenset[Scope]] = {
    Role.VIEWER: _READING,
    Role.OFFICER: _READING | {Scope.REQUESTS_WRITE, Scope.REQUESTS_REVIEW},
    Role.ENGINEER: _READING | {Scope.MODELS_WRITE},
    Role.ADMINISTRATOR: frozenset({Scope.ADMIN}),
    Role.OPERATOR: frozenset({Scope.OPERATOR}),
}
"""The scopes of each role, as if a key had them."""

Email = Annotated[
    Text,
    Field(min_length=3, max_length=254, pattern=r"^[^@\s\x00]+@[^@\s\x00]+$"),  # RFC 5321, 4.5.3.1.3
    AfterValidator(str.lower),
]
AnyRole = Annotated[Role, Strict(False)]


class UserIn(Body):
    name: Name
    email: Email = Field(description="In lower case from here on; no two people of an installation share one.")
    role: AnyRole


class UserChangeIn(Body):
    name: Name | None = None
    role: AnyRole | None = Field(default=None, description="Another role ends all sessions of the person.")


class UserOut(Answer):
    id: str
    name: str
    email: str
    role: str
    has_password: bool
    has_totp: bool = Field(description="A code of an authenticator app is asked for beside the password.")
    has_identity: bool = Field(description="Logs in by the identity provider (OpenID Connect).")
    invited_until: datetime.datetime | None = Field(description="The end of an invitation that nobody has used.")
    created_at: datetime.datetime
    disabled_at: datetime.datetime | None
    last_login_at: datetime.datetime | None


class InvitedUserOut(UserOut):
    invitation: str = Field(
        description="A path at the gateway, for the person alone, where they choose their password. Shown once; only "
        "its hash is kept.",
        repr=False,
    )


_USERS = Resource("People", "/v1/users")

CREATE = _USERS.operation(
    "create_user",
    "POST",
    scope=Scope.ADMIN,
    takes=UserIn,
    gives=InvitedUserOut,
    status=201,
    problems=(UserExists,),
    does="Invite somebody, who chooses a password of their own. A role whose scopes the caller lacks cannot be given."
    "\n\nNo `Idempotency-Key` is taken, for no invitation is kept to be shown again: a repetition is a 409.",
)
LIST = _USERS.operation(
    "list_users",
    "GET",
    scope=Scope.ADMIN,
    query=Paging,
    gives=PageOut[UserOut],
    does="Everybody, also those who are disabled, newest first.",
)
GET = of_one(
    _USERS.operation(
        "get_user",
        "GET",
        "/{user_id}",
        scope=Scope.ADMIN,
        gives=UserOut,
        problems=(UserUnknown,),
        does="One person: their role, and how they log in.",
    )
)
CHANGE = of_one(
    _USERS.operation(
        "change_user",
        "PATCH",
        "/{user_id}",
        scope=Scope.ADMIN,
        takes=UserChangeIn,
        gives=UserOut,
        idempotent=True,
        problems=(UserUnknown, LastAdministrator),
        does="Give somebody another name or role.",
    )
)
INVITE = of_one(
    _USERS.operation(
        "invite_user",
        "POST",
        "/{user_id}/invite",
        scope=Scope.ADMIN,
        gives=InvitedUserOut,
        status=201,
        problems=(UserUnknown, LastAdministrator),
        does="Invite somebody again, who has lost their password or authenticator app, or was disabled: what they "
        "logged in with ends, and they choose anew. No `Idempotency-Key` is taken.",
    )
)
DISABLE = of_one(
    _USERS.operation(
        "disable_user",
        "DELETE",
        "/{user_id}",
        scope=Scope.ADMIN,
        gives=type(None),
        status=204,
        problems=(UserUnknown, LastAdministrator),
        does="From here on they do not get in, and their sessions are over. Their name stays beside what they did.",
    )
)
