"""`/models/{id}/serving`: what a model server asks before it serves weights, and then now and again."""

import hashlib
from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.responses import JSONResponse, Response

from app.api.calls import Call
from app.api.gateway import serves
from app.catalogue import service as catalogue
from app.unlearning import serving
from app.unlearning.serving import Serving
from lethe.contract import serving as contract
from lethe.contract.serving import ServingOut, ServingQuery

router = APIRouter()


@serves(
    router,
    contract.SERVING,
    more={304: {"description": "What the ETag named still holds, and for `max-age` seconds more"}},
)
def get_serving(
    call: Call, model_id: str, query: ServingQuery, if_none_match: Annotated[str | None, Header()] = None
) -> Response:
    with call.reading() as session:
        model = catalogue.get_model(session, model_id)
        found = serving.of_model(session, model, number=query.version, weights_sha256=query.weights_sha256)
    headers = {
        "ETag": _tag(found),
        "Cache-Control": f"private, max-age={found.fresh_seconds}, must-revalidate",
        "Vary": "Authorization",
    }
    if if_none_match is not None and _names(if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return JSONResponse(_to_response(found).model_dump(mode="json"), headers=headers)


def _tag(found: Serving) -> str:
    """A tag of all but the time: a caller who has the same answer learns for how long it holds."""
    said = (found.model_id, found.version, found.weights_sha256, found.refusal, found.certified)
    return f'W/"{hashlib.sha256(repr(said).encode()).hexdigest()[:32]}"'


def _names(if_none_match: str, tag: str) -> bool:
    """Compared weakly (RFC 9110, 13.1.2)."""
    given = {one.strip().removeprefix("W/") for one in if_none_match.split(",")}
    return "*" in given or tag.removeprefix("W/") in given


def _to_response(found: Serving) -> ServingOut:
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
