"""`/api-keys`: let apps in, with no more scopes than they need."""

from fastapi import APIRouter

from app.access import repository
from app.access import service as access
from app.access.service import Scope
from app.api.calls import At, Cursor, Limit, caller_with
from app.api.problems import responses
from app.api.schemas import ApiKeyIn, ApiKeyOut, NewApiKeyOut, PageOut
from app.errors import KeyUnknown

router = APIRouter(prefix="/api-keys", tags=["API keys"], dependencies=[caller_with(Scope.ADMIN)])


@router.post("", status_code=201, responses=responses())
def create_api_key(at: At, body: ApiKeyIn) -> NewApiKeyOut:
    """Make a key. It is shown once: what is lost is revoked and made anew."""
    key = access.new_key()
    with at.database.writing() as session:
        row = access.add_key(session, name=body.name, key=key, scopes=body.scopes)
    return NewApiKeyOut(**ApiKeyOut.model_validate(row, from_attributes=True).model_dump(), key=key)


@router.get("", responses=responses())
def list_api_keys(at: At, limit: Limit = 50, cursor: Cursor = None) -> PageOut[ApiKeyOut]:
    with at.database.reading() as session:
        page = repository.keys(session, limit=limit, cursor=cursor)
    items = [ApiKeyOut.model_validate(row, from_attributes=True) for row in page.items]
    return PageOut(items=items, next_cursor=page.next_cursor)


@router.delete("/{key_id}", status_code=204, responses=responses(KeyUnknown))
def revoke_api_key(at: At, key_id: str) -> None:
    """From here on nobody gets in with it."""
    with at.database.writing() as session:
        access.revoke_key(session, key_id)
