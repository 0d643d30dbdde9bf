"""Public networks: frozen before the first row came, and named by the SHA-256 of their file."""

import datetime

from pydantic import Field

from lethe.contract.fields import Answer, PageOut, Paging
from lethe.contract.operation import Resource, of_one
from lethe.contract.problems import (
    DatabaseDamaged,
    IdempotencyConflict,
    NetworkExists,
    NetworkFailed,
    NetworkInUse,
    NetworkInvalid,
    NetworkUnknown,
    UploadTooLarge,
)
from lethe.contract.sets import Scope


class LinearisationOut(Answer):
    """The weights in which a tangent model is linear, and how each row's Jacobian in them is scaled."""

    layers: list[str]
    rank: int = Field(description="Of what is learned of each weight; 0: the whole of it.")
    seed: int = Field(description="Of the factors that are not learned, where the rank is above 0.")
    least_norm: float = Field(description="No row's Jacobian is divided by less.")
    offset: bool = Field(description="The scores of the network itself are added.")


class PublicNetworkOut(Answer):
    """The network that a model stands on: its guarantees count nothing that the network itself learned."""

    sha256: str = Field(description="Of its ONNX file.")
    licence: str
    opset: int
    dp_ledger: str | None = Field(description="Where its own account of differential privacy is.")
    linearisation: LinearisationOut | None = Field(description="Of a tangent model; null: the network encodes rows.")


class ParameterOut(Answer):
    name: str
    shape: list[int]


class NetworkOut(Answer):
    id: str
    name: str
    sha256: str = Field(description="Of the file: certificates name the network by it.")
    size: int = Field(description="Bytes of the file.")
    licence: str
    provenance: str = Field(description="What it was trained on, as its sender says.")
    dp_ledger: str | None = Field(description="Where its own account of differential privacy is.")
    opset: int
    input_shape: list[int] = Field(description="Of one row.")
    output_size: int = Field(description="Features of a row.")
    num_parameters: int
    parameters: list[ParameterOut] = Field(description="Each float32 initializer of the file.")
    operators: list[str] = Field(description="Of ONNX, that it is made of.")
    batch_size: int = Field(description="Rows that it is run on at a time: 1 where rounding depends on the neighbours.")
    created_at: datetime.datetime


_NETWORKS = Resource("Networks", "/v1/networks")

UPLOAD = _NETWORKS.operation(
    "create_network",
    "POST",
    scope=Scope.MODELS_WRITE,
    gives=NetworkOut,
    status=201,
    keyed=True,
    problems=(UploadTooLarge, IdempotencyConflict, NetworkInvalid, NetworkFailed, NetworkExists),
    does="Take a public network, an ONNX file that learned from none of the people here: it is examined and run in a "
    "process apart, which can open no connection and no file.",
)
LIST = _NETWORKS.operation(
    "list_networks",
    "GET",
    scope=Scope.MODELS_READ,
    query=Paging,
    gives=PageOut[NetworkOut],
    does="The public networks, newest first.",
)
GET = of_one(
    _NETWORKS.operation(
        "get_network",
        "GET",
        "/{network_id}",
        scope=Scope.MODELS_READ,
        gives=NetworkOut,
        problems=(NetworkUnknown,),
        does="What a network takes and gives, and where it comes from.",
    )
)
FILE = of_one(
    _NETWORKS.operation(
        "get_network_file",
        "GET",
        "/{network_id}/file",
        scope=Scope.MODELS_READ,
        gives=bytes,
        problems=(NetworkUnknown, DatabaseDamaged),
        does="The ONNX file, once its SHA-256 was checked.",
    )
)
DELETE = of_one(
    _NETWORKS.operation(
        "delete_network",
        "DELETE",
        "/{network_id}",
        scope=Scope.MODELS_WRITE,
        gives=type(None),
        status=204,
        problems=(NetworkUnknown, NetworkInUse),
        does="Let go of a network; 409 while a dataset or a model stands on it.",
    )
)
