"""Operations on public networks, which are fixed before the first row arrives and identified by their SHA-256."""

import datetime
from typing import Annotated

from pydantic import Field

from lethe.contract import fields, operation, problems, sets


class NetworkExists(problems.Conflict, title="This network exists already"):
    template = "This file is network {network_id}; use that, or delete it to register it again."


class NetworkInUse(problems.Conflict, title="A dataset or a model uses this network"):
    by_dataset = problems.variant(
        "The rows of dataset {dataset_id} are features of network {network_id}; retire it first."
    )
    by_model = problems.variant("Model {model_id} stands on network {network_id}; retire it first.")


class ParameterOut(fields.Answer):
    name: str = Field(description="Name of the ONNX initializer.")
    shape: list[int] = Field(description="Shape of the initializer.")


class NetworkOut(fields.Answer):
    id: str = Field(description="ID of the network.")
    name: str = Field(description="Name of the network.")
    sha256: str = Field(description="SHA-256 (hex) of the ONNX file, by which certificates identify the network.")
    size: int = Field(description="Size of the ONNX file in bytes.")
    licence: str = Field(description="Licence of the network: an SPDX expression, or the name of a licence text.")
    provenance: str = Field(description="Description of the network's training data, as stated by the uploader.")
    dp_ledger: str | None = Field(description="Location of the network's differential-privacy ledger; null if none.")
    opset: int = Field(description="Version of the ONNX operator set.")
    input_shape: list[int] = Field(description="Shape of the input for a single row.")
    output_size: int = Field(description="Number of features computed for each row.")
    num_parameters: int = Field(description="Number of parameters of the network.")
    parameters: list[ParameterOut] = Field(description="Float32 initializers in the ONNX file.")
    operators: list[str] = Field(description="ONNX operators used by the network.")
    created_at: datetime.datetime = Field(description="Time at which the network was uploaded.")


class NetworkFileIn(fields.Form):
    """Public network as an ONNX file that includes its weights."""

    licence: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="Licence of the network: an SPDX expression, or the name of a licence text."
    )
    provenance: Annotated[str, Field(min_length=1, max_length=2000)] = Field(
        description="Description of the network's training data."
    )
    dp_ledger: Annotated[str, Field(min_length=1, max_length=500)] | None = fields.optional(
        "Location of the network's own differential-privacy ledger, if it was trained on people's data; certificates "
        "name it. Without one, certificates require that the network was never trained on the person's data."
    )


class NetworkIn(NetworkFileIn):
    name: Annotated[str, Field(min_length=1, max_length=200)] = Field(description="Name of the network.")


_NETWORKS = operation.ResourceOperations("Networks", "/v1/networks", problems.NetworkUnknown)

UPLOAD = _NETWORKS.operation(
    "create_network",
    "POST",
    scope=sets.Scope.MODELS_WRITE,
    gives=NetworkOut,
    status=201,
    repeat="keyed",
    problems=(
        problems.UploadTooLarge,
        problems.StorageQuotaExceeded,
        problems.NetworkInvalid,
        problems.NetworkFailed,
        NetworkExists,
    ),
    does="Register a public network (ONNX), which must not have been trained on data of the people concerned. The file "
    "is examined and run in a separate process without network or file access.",
)
LIST = _NETWORKS.operation(
    "list_networks",
    "GET",
    scope=sets.Scope.MODELS_READ,
    query=fields.Paging,
    gives=fields.PageOut[NetworkOut],
    does="List the public networks, newest first.",
)
GET = _NETWORKS.of_one(
    "get_network",
    "GET",
    "/{network_id}",
    scope=sets.Scope.MODELS_READ,
    gives=NetworkOut,
    does="Return a network's inputs, outputs and provenance.",
)
FILE = _NETWORKS.of_one(
    "get_network_file",
    "GET",
    "/{network_id}/file",
    scope=sets.Scope.MODELS_READ,
    gives=bytes,
    problems=(problems.DatabaseDamaged,),
    does="Return the ONNX file after checking its SHA-256.",
)
DELETE = _NETWORKS.of_one(
    "delete_network",
    "DELETE",
    "/{network_id}",
    scope=sets.Scope.MODELS_WRITE,
    gives=type(None),
    status=204,
    problems=(NetworkInUse,),
    does="Delete a network. Returns 409 while a dataset or model uses it.",
)


class EncodingOut(fields.Answer):
    name: str = Field(description="Name of the dataset to be created, or ID of the dataset to which rows are added.")
    network_id: str = Field(description="ID of the network that encodes the rows.")
    num_bytes: int = Field(description="Size of the uploaded file in bytes.")
    num_encoded: int = Field(description="Number of rows encoded so far, updated about once a second.")
    num_rows: int | None = Field(description="Number of rows in the uploaded file; null until known.")
    began_at: datetime.datetime = Field(description="Time at which encoding began.")


class EncodingsOut(fields.Answer):
    items: list[EncodingOut] = Field(description="Uploads on all gateways that share this data folder, newest first.")


ENCODINGS = operation.ResourceOperations("Datasets", "/v1").operation(
    "list_encodings",
    "GET",
    "/datasets:encodings",
    scope=sets.Scope.MODELS_READ,
    gives=EncodingsOut,
    does="List the uploads whose rows are currently being encoded by a public network, with their progress. An upload "
    "is removed from the list when its own call returns.",
)
