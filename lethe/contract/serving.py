"""Serving: the question that a model server asks before it serves weights, and then now and again."""

import datetime
from typing import Annotated

from pydantic import Field

from lethe.contract.fields import Answer, Query, Sha256
from lethe.contract.operation import Resource, of_one
from lethe.contract.problems import ModelUnknown, VersionUnknown
from lethe.contract.sets import Scope


class ServingOut(Answer):
    model_id: str
    version: int | None
    weights_sha256: str | None
    may_serve: bool
    reason: str | None = Field(
        description="Why not: not_live, held, forgetting_overdue, superseded or weights_destroyed"
    )
    certified: bool = Field(description="Everybody whose request was accepted has been forgotten by this version.")
    valid_until: datetime.datetime | None = Field(
        description="Until when it may be served without asking again: an hour at most, and no accepted request is due "
        "before. After an answer 304 it is as far away as max-age says."
    )
    retry_after_seconds: int | None = Field(description="When to ask again about what may not be served yet.")


class ServingQuery(Query):
    version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    weights_sha256: Sha256 | None = None


_SERVING = Resource("Models", "/v1/models")

SERVING = of_one(
    _SERVING.operation(
        "get_serving",
        "GET",
        "/{model_id}/serving",
        scope=Scope.MODELS_READ,
        query=ServingQuery,
        gives=ServingOut,
        problems=(ModelUnknown, VersionUnknown),
        does="Whether the live version may be served now, or the one that is named; nothing here is about a person.",
    )
)
