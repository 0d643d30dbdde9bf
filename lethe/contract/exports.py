"""Copies of weights that were handed out."""

import datetime
from typing import Annotated

from pydantic import Field

from lethe.contract.fields import Answer, PageOut, Paging
from lethe.contract.operation import Resource, of_one
from lethe.contract.problems import ModelUnknown
from lethe.contract.sets import Scope


class ExportOut(Answer):
    """Weights that were handed out."""

    id: str
    version: int
    api_key_id: str
    at: datetime.datetime


class ExportsQuery(Paging):
    version: Annotated[int | None, Field(ge=1, le=2**31 - 1)] = None


_MODELS = Resource("Models", "/v1/models")

EXPORTS = of_one(
    _MODELS.operation(
        "list_exports",
        "GET",
        "/{model_id}/exports",
        scope=Scope.MODELS_READ,
        query=ExportsQuery,
        gives=PageOut[ExportOut],
        problems=(ModelUnknown,),
        does="Who was handed which weights, and when, newest first.",
    )
)
