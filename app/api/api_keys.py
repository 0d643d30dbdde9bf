"""`/api-keys`: let apps in, with no more scopes than they need, and no longer than they should."""

from fastapi import APIRouter, Response

from app.access import repository
from app.access import service as access
from app.api.calls import Call
from app.api.gateway import serves
from app.db.tables import ApiKey
from lethe.contract import api_keys as contract
from lethe.contract.api_keys import ApiKeyIn, ApiKeyOut, NewApiKeyOut, RotationIn
from lethe.contract.fields import PageOut, Paging
from lethe.contract.problems import KeyUnknown

router = APIRouter()


@serves(router, contract.CREATE)
def create_api_key(call: Call, body: ApiKeyIn, response: Response) -> NewApiKeyOut:
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


@serves(router, contract.LIST)
def list_api_keys(call: Call, query: Paging) -> PageOut[ApiKeyOut]:
    with call.reading() as session:
        page = repository.keys(session, limit=query.limit, cursor=query.cursor)
    items = [ApiKeyOut.model_validate(row, from_attributes=True) for row in page.items]
    return PageOut(items=items, next_cursor=page.next_cursor)


@serves(router, contract.ROTATE)
def rotate_api_key(call: Call, key_id: str, body: RotationIn, response: Response) -> NewApiKeyOut:
    key = access.new_key()
    with call.writing() as session:
        row = access.rotate_key(
            session, key_id, by=call.caller, key=key, overlap_seconds=body.overlap_seconds, expires_at=body.expires_at
        )
    return _new(row, key, response)


@serves(router, contract.REVOKE)
def revoke_api_key(call: Call, key_id: str) -> None:
    with call.writing() as session:
        access.revoke_key(session, key_id, by=call.caller)


def _new(row: ApiKey, key: str, response: Response) -> NewApiKeyOut:
    response.headers["Location"] = f"/v1/api-keys/{row.id}"
    return NewApiKeyOut(**ApiKeyOut.model_validate(row, from_attributes=True).model_dump(), key=key)


@serves(router, contract.GET)
def get_api_key(call: Call, key_id: str) -> ApiKeyOut:
    with call.reading() as session:
        row = repository.key(session, key_id)
        if row is None:
            raise KeyUnknown(f"There is no API key {key_id!r}.")
        return ApiKeyOut.model_validate(row, from_attributes=True)
