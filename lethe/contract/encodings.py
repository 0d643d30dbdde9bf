"""Progress of uploads whose rows go through a public network."""

import datetime

from pydantic import Field

from lethe.contract.fields import Answer
from lethe.contract.operation import Resource
from lethe.contract.sets import Scope


class EncodingOut(Answer):
    name: str = Field(description="Of the dataset that it makes, or the id of the one that it adds rows to.")
    network_id: str
    num_bytes: int = Field(description="Of the file.")
    num_encoded: int = Field(description="Rows that have gone through the network, as of a second ago.")
    num_rows: int | None = Field(description="Of the file; null until it is known.")
    began_at: datetime.datetime


class EncodingsOut(Answer):
    items: list[EncodingOut] = Field(description="The latest first; of all gateways that share a data folder.")


LIST = Resource("Datasets", "/v1").operation(
    "list_encodings",
    "GET",
    "/datasets:encodings",
    scope=Scope.MODELS_READ,
    gives=EncodingsOut,
    does="Uploads whose rows go through a public network at present, and how far each is. The call that sent one is "
    "answered when it is done; then it is not listed any more.",
)
