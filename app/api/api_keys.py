"""`/api-keys`: let apps in, with no more scopes than they need, and no longer than they should."""

import datetime
from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field, Strict

from app.access import repository
from app.access import service as access
from app.access.service import Scope
from app.api.calls import Call, Cursor, Limit, call_with
from app.api.problems import responses
from app.api.schemas import Body, Moment, Name, PageOut
from app.db.tables import ApiKey
from app.errors import KeyUnknown, LastAdminKey

router = APIRouter(prefix="/api-keys", tags=["API keys"], dependencies=[call_with(Scope.ADMIN)])


class ApiKeyIn(Body):
    name: Name
    scopes: Annotated[list[Annotated[Scope, Strict(False)]], Field(min_length=1)]
    expires_at: Moment | None = Field(None, description="Default: never.")
    calls_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        None, description="Less than every key may make. Default: what every key may make (LETHE_CALLS_PER_MINUTE)."
    )
    own_requests_only: bool | None = Field(
        None,
        description="It sees and cancels the requests that it made itself, or a key that it replaced, and no others. "
        "Default: true for requests:write, with or without requests:read and with nothing else.",
    )


class ApiKeyOut(BaseModel):
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
    key: str = Field(description="Shown once; only its hash is kept.")


class RotationIn(Body):
    overlap_seconds: Annotated[int, Field(ge=0, le=30 * 86400)] = Field(
        0, description="How long the old key goes on working."
    )
    expires_at: Moment | None = Field(
        None, description="Of the new key. Default: it lives as long as the old one was made to."
    )


@router.post("", status_code=201, responses=responses())
def create_api_key(call: Annotated[Call, call_with(Scope.ADMIN)], body: ApiKeyIn, response: Response) -> NewApiKeyOut:
    """Make a key. It is shown once: what is lost is revoked and made anew.

    No `Idempotency-Key` is taken, for no key is kept to be shown again.
    """
    for scope in body.scopes:
        call.caller.require(scope)  # nobody gives away more than they have
    key = access.new_key()
    with call.writing() as session:
        row = access.add_key(
            session,
            name=body.name,
            key=key,
            scopes=body.scopes,
            expires_at=body.expires_at,
            calls_per_minute=body.calls_per_minute,
            own_requests_only=body.own_requests_only,
        )
    return _new(row, key, response)


@router.get("", responses=responses())
def list_api_keys(
    call: Annotated[Call, call_with(Scope.ADMIN)], limit: Limit = 50, cursor: Cursor = None
) -> PageOut[ApiKeyOut]:
    """All keys, also those that open nothing any more, newest first."""
    with call.reading() as session:
        page = repository.keys(session, limit=limit, cursor=cursor)
    items = [ApiKeyOut.model_validate(row, from_attributes=True) for row in page.items]
    return PageOut(items=items, next_cursor=page.next_cursor)


@router.post("/{key_id}/rotate", status_code=201, responses=responses(KeyUnknown, LastAdminKey))
def rotate_api_key(
    call: Annotated[Call, call_with(Scope.ADMIN)], key_id: str, body: RotationIn, response: Response
) -> NewApiKeyOut:
    """Make a key that may do the same, and let the old one expire after an overlap. No `Idempotency-Key` is taken."""
    key = access.new_key()
    with call.writing() as session:
        row = access.rotate_key(
            session,
            key_id,
            by=call.caller,
            key=key,
            overlap_seconds=body.overlap_seconds,
            expires_at=body.expires_at,
        )
    return _new(row, key, response)


@router.delete("/{key_id}", status_code=204, responses=responses(KeyUnknown, LastAdminKey))
def revoke_api_key(call: Annotated[Call, call_with(Scope.ADMIN)], key_id: str) -> None:
    """From here on nobody gets in with it. The last key of an admin that does not expire stays."""
    with call.writing() as session:
        access.revoke_key(session, key_id)


def _new(row: ApiKey, key: str, response: Response) -> NewApiKeyOut:
    response.headers["Location"] = f"/v1/api-keys/{row.id}"
    return NewApiKeyOut(**ApiKeyOut.model_validate(row, from_attributes=True).model_dump(), key=key)
