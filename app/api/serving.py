"""`/models/{id}/serving`: what a model server asks before it serves weights, and then now and again."""

import datetime
import hashlib
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from app.api.calls import Call, call_with
from app.api.models import NumberAsked
from app.api.problems import responses
from app.api.schemas import Sha256
from app.catalogue import service as catalogue
from app.unlearning import serving
from app.unlearning.serving import Serving
from lethe.contract.problems import ModelUnknown, VersionUnknown
from lethe.contract.sets import Scope

router = APIRouter(prefix="/models", tags=["Models"])


class ServingOut(BaseModel):
    model_id: str
    version: int | None
    weights_sha256: str | None
    may_serve: bool
    reason: str | None = Field(description="Why not: not_live, forgetting_overdue, superseded or weights_destroyed")
    certified: bool = Field(description="Everybody whose request was accepted has been forgotten by this version.")
    valid_until: datetime.datetime | None = Field(
        description="Until when it may be served without asking again: an hour at most, and no accepted request is due "
        "before. After an answer 304 it is as far away as max-age says."
    )
    retry_after_seconds: int | None = Field(description="When to ask again about what may not be served yet.")


@router.get(
    "/{model_id}/serving",
    response_model=ServingOut,
    responses=responses(ModelUnknown, VersionUnknown)
    | {304: {"description": "What the ETag named still holds, and for `max-age` seconds more"}},
)
def get_serving(
    call: Annotated[Call, call_with(Scope.MODELS_READ)],
    model_id: str,
    version: NumberAsked = None,
    weights_sha256: Annotated[Sha256 | None, Query()] = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Whether the live version may be served now, or the one that is named; nothing here is about a person."""
    with call.reading() as session:
        model = catalogue.get_model(session, model_id)
        found = serving.of_model(session, model, number=version, weights_sha256=weights_sha256)
    headers = {
        "ETag": _tag(found),
        "Cache-Control": f"private, max-age={found.fresh_seconds}, must-revalidate",
        "Vary": "Authorization",
    }
    if if_none_match is not None and _names(if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return JSONResponse(_shown(found).model_dump(mode="json"), headers=headers)


def _tag(found: Serving) -> str:
    """Of all but the time: whoever has the same answer is told for how long it holds."""
    said = (found.model_id, found.version, found.weights_sha256, found.refusal, found.certified)
    return f'W/"{hashlib.sha256(repr(said).encode()).hexdigest()[:32]}"'


def _names(if_none_match: str, tag: str) -> bool:
    """Compared weakly (RFC 9110, 13.1.2)."""
    given = {one.strip().removeprefix("W/") for one in if_none_match.split(",")}
    return "*" in given or tag.removeprefix("W/") in given


def _shown(found: Serving) -> ServingOut:
    return ServingOut(
        model_id=found.model_id,
        version=found.version,
        weights_sha256=found.weights_sha256,
        may_serve=found.refusal is None,
        reason=found.refusal,
        certified=found.certified,
        valid_until=found.valid_until,
        retry_after_seconds=found.retry_after_seconds,
    )
