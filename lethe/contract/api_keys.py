"""Let apps in, with no more scopes than they need, and no longer than they should."""

import datetime
from typing import Annotated

from pydantic import Field, Strict

from lethe.contract.fields import Answer, Body, Moment, Name, PageOut, Paging
from lethe.contract.operation import Resource, of_one
from lethe.contract.problems import KeyUnknown, LastAdminKey
from lethe.contract.sets import Scope


class ApiKeyIn(Body):
    name: Name
    scopes: Annotated[list[Annotated[Scope, Strict(False)]], Field(min_length=1)]
    expires_at: Moment | None = Field(default=None, description="Default: never.")
    calls_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None,
        description="Less than every key may make. Default: what every key may make (LETHE_CALLS_PER_MINUTE).",
    )
    own_requests_only: bool | None = Field(
        default=None,
        description="It sees and cancels the requests that it made itself, or a key that it replaced, and no others. "
        "Default: true for requests:write, with or without requests:read and with nothing else.",
    )


class ApiKeyOut(Answer):
    id: str
    name: str
    scopes: list[str]
    calls_per_minute: int | None
    own_requests_only: bool
    created_at: datetime.datetime
    expires_at: datetime.datetime | None
    last_used_at: datetime.datetime | None = Field(description="To the minute or so.")
    revoked_at: datetime.datetime | None


class NewApiKeyOut(ApiKeyOut):
    key: str = Field(description="Shown once; only its hash is kept.", repr=False)


class RotationIn(Body):
    overlap_seconds: Annotated[int, Field(ge=0, le=30 * 86400)] = Field(
        default=0, description="How long the old key goes on working."
    )
    expires_at: Moment | None = Field(
        default=None, description="Of the new key. Default: it lives as long as the old one was made to."
    )


_KEYS = Resource("API keys", "/v1/api-keys")

CREATE = _KEYS.operation(
    "create_api_key",
    "POST",
    scope=Scope.ADMIN,
    takes=ApiKeyIn,
    gives=NewApiKeyOut,
    status=201,
    does="Make a key. It is shown once: what is lost is revoked and made anew.\n\n"
    "No `Idempotency-Key` is taken, for no key is kept to be shown again.",
)
LIST = _KEYS.operation(
    "list_api_keys",
    "GET",
    scope=Scope.ADMIN,
    query=Paging,
    gives=PageOut[ApiKeyOut],
    does="All keys, also those that open nothing any more, newest first.",
)
GET = of_one(
    _KEYS.operation(
        "get_api_key",
        "GET",
        "/{key_id}",
        scope=Scope.ADMIN,
        gives=ApiKeyOut,
        problems=(KeyUnknown,),
        does="One key: what it opens, and until when.",
    )
)
ROTATE = of_one(
    _KEYS.operation(
        "rotate_api_key",
        "POST",
        "/{key_id}/rotate",
        scope=Scope.ADMIN,
        takes=RotationIn,
        gives=NewApiKeyOut,
        status=201,
        problems=(KeyUnknown, LastAdminKey),
        does="Make a key that may do the same, and let the old one expire after an overlap. "
        "No `Idempotency-Key` is taken.",
    )
)
REVOKE = of_one(
    _KEYS.operation(
        "revoke_api_key",
        "DELETE",
        "/{key_id}",
        scope=Scope.ADMIN,
        gives=type(None),
        status=204,
        problems=(KeyUnknown, LastAdminKey),
        does="From here on nobody gets in with it. The last key of an admin that does not expire stays.",
    )
)
