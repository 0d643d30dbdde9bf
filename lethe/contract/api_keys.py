"""API keys: credentials of apps, with scopes, a rate limit and an expiry."""

import datetime
from typing import Annotated

from pydantic import Field, Strict

from lethe.contract import fields, operation, problems, sets


class ApiKeyIn(fields.Body):
    name: fields.Name = Field(description="Name of the key, shown in lists and in the audit log.")
    scopes: Annotated[list[Annotated[sets.Scope, Strict(False)]], Field(min_length=1, fail_fast=True)] = Field(
        description="Scopes to grant to the key. The caller must have all of them."
    )
    expires_at: fields.Moment | None = fields.optional(
        "Time at which the key expires (RFC 3339). Default: the key never expires."
    )
    calls_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] | None = fields.optional(
        "Maximum calls per minute, within the installation's own limit (LETHE_CALLS_PER_MINUTE). Default: no limit."
    )
    own_requests_only: bool | None = fields.optional(
        "Restrict the key to requests created with it or with a key that it replaced. Default: true for keys with "
        "requests:write and no other scope except requests:read."
    )


class ApiKeyOut(fields.Answer):
    id: str = Field(description="ID of the key.")
    name: str = Field(description="Name of the key.")
    scopes: list[str] = Field(description="Scopes of the key, sorted.")
    calls_per_minute: int | None = Field(description="Maximum number of calls per minute; null if not limited per key.")
    own_requests_only: bool = Field(
        description="True if the key can see and cancel only requests created with it or with a key that it replaced."
    )
    created_at: datetime.datetime = Field(description="Time at which the key was created.")
    expires_at: datetime.datetime | None = Field(description="Time at which the key expires; null if it never expires.")
    last_used_at: datetime.datetime | None = Field(description="Time of last use, to about a minute; null if unused.")
    revoked_at: datetime.datetime | None = Field(description="Time at which the key was revoked; null if not revoked.")


class NewApiKeyOut(ApiKeyOut):
    key: str = Field(description="Secret key. It is shown only once; only its hash is stored.", repr=False)


class RotationIn(fields.Body):
    overlap_seconds: Annotated[int, Field(ge=0, le=30 * 86400)] = Field(
        default=0, description="Seconds that the old key remains valid after the rotation, unless it expires earlier."
    )
    expires_at: fields.Moment | None = fields.optional(
        "Expiry of the new key (RFC 3339). Default: the old key's lifetime from now."
    )


_KEYS = operation.ResourceOperations("API keys", "/v1/api-keys", problems.KeyUnknown)

CREATE = _KEYS.operation(
    "create_api_key",
    "POST",
    scope=sets.Scope.ADMIN,
    takes=ApiKeyIn,
    gives=NewApiKeyOut,
    status=201,
    does="Create a key. It is shown only once: if it is lost, revoke it and create another.\n\nNo `Idempotency-Key` is "
    "accepted, because the key is not stored and could not be shown again.",
)
LIST = _KEYS.operation(
    "list_api_keys",
    "GET",
    scope=sets.Scope.ADMIN,
    query=fields.Paging,
    gives=fields.PageOut[ApiKeyOut],
    does="List all keys, including expired and revoked ones, newest first.",
)
GET = _KEYS.of_one(
    "get_api_key",
    "GET",
    "/{key_id}",
    scope=sets.Scope.ADMIN,
    gives=ApiKeyOut,
    does="Return the scopes, limits and expiry of a key.",
)
ROTATE = _KEYS.of_one(
    "rotate_api_key",
    "POST",
    "/{key_id}/rotate",
    scope=sets.Scope.ADMIN,
    takes=RotationIn,
    gives=NewApiKeyOut,
    status=201,
    problems=(problems.LastAdminKey,),
    does="Create a key with the same scopes and limits as an existing key, which remains valid for an overlap period. "
    "No `Idempotency-Key` is accepted.",
)
REVOKE = _KEYS.of_one(
    "revoke_api_key",
    "DELETE",
    "/{key_id}",
    scope=sets.Scope.ADMIN,
    gives=type(None),
    status=204,
    problems=(problems.LastAdminKey,),
    does="Revoke a key immediately. The last admin key that does not expire cannot be revoked.",
)
