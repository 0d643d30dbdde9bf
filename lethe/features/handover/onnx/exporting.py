"""A whole model in one ONNX file: encoding, network, weights, and units of the result."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper

from lethe import Client
from lethe.client import files
from lethe.contract.datasets import DatasetOut
from lethe.contract.models import ModelOut, VersionOut
from lethe.contract.problems import ModelNotLive
from lethe.encoding.rows import Schema
from lethe.encoding.schema import stored
from lethe.errors import CertificateInvalid, NotExpressible
from lethe.features.handover.network_files import network_of
from lethe.features.handover.onnx import encoding
from lethe.features.handover.onnx.graph import GraphBuilder
from lethe.proof import certificate
from lethe.proof.network import PublicNetwork

_COPY = (
    "This file is a copy of version {version}: who is forgotten afterwards stays in it, and no later certificate is"
    " about it."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A written file. `output` is the name of its only output, `sha256` that of the file."""

    model_id: str
    version: int
    weights_sha256: str
    inputs: tuple[str, ...]
    output: str
    sha256: str


def export(client: Client, model_id: str, to: str | Path | BinaryIO, *, version: int | None = None) -> Exported:
    """Write a version as one ONNX file that predicts as the gateway does; by default the live version.

    The inputs are the columns of the schema by name, (b, 1) each, or (b, length) for a vector: numbers as doubles, NaN
    for a missing number, and categories as texts, spelled as in the schema. Without a schema the input is `x`. The
    output is `probabilities`, `scores` of a hinge, or `value` in the units of a target; it is NaN for a record that the
    gateway would refuse. The metadata (`lethe.*`) describes the model. Needs a key with models:read, and
    `pip install 'lethe-sdk[onnx]'`. The gateway records the export of the weights.

    Raises:
        NotExpressible: or `ModelNotLive` or `NetworkUnknown`, before the export is recorded.
        CertificateInvalid: if the weights are not those of the version.
        Problem: any other problem of the calls.
    """
    model = client.models.get(model_id)
    dataset = client.datasets.get(model.dataset_id)
    schema = stored(dataset.schema_) if dataset.schema_ else None
    if model.mechanism.network and model.mechanism.network.linearisation:
        raise NotExpressible("A tangent model needs derivatives of its network: serve it by lethe.mlflow.")
    if schema:
        encoding.require_expressible(schema)
    number = model.live_version if version is None else version
    if number is None:
        raise ModelNotLive(f"Model {model_id} has no version yet.")
    exported = client.models.version(model_id, number)
    graph = GraphBuilder()
    row = _row(client, graph, model, dataset, schema)
    weights = client.models.weights(model_id, number)
    if hashlib.sha256(weights).hexdigest() != exported.weights_sha256:
        raise CertificateInvalid(f"The weights are not those of version {number}.")
    from safetensors.numpy import load

    name, output, width = _output(graph, row, load(weights)["parameters"], model, dataset)
    file = graph.finished(name, output, width)
    file.doc_string = _COPY.format(version=number)
    helper.set_model_props(file, _metadata(model, dataset, exported))
    content = file.SerializeToString()
    files.write(to, [content])
    return Exported(
        model_id=model_id,
        version=number,
        weights_sha256=exported.weights_sha256,
        inputs=tuple(graph.inputs),
        output=name,
        sha256=hashlib.sha256(content).hexdigest(),
    )


def _row(client: Client, graph: GraphBuilder, model: ModelOut, dataset: DatasetOut, schema: Schema | None) -> str:
    """Add the row of each record  # (b, d)"""
    network = model.mechanism.network
    network_file = network_of(client, network.sha256) if network else None
    if schema:
        numbers = encoding.columns(graph, schema)
    elif network_file:
        numbers = encoding.vectors(graph, int(np.prod(network_file[0].input_shape)), kind=TensorProto.FLOAT)
    else:
        numbers = encoding.vectors(graph, dataset.num_features, kind=TensorProto.DOUBLE)
    features = graph.network(network_file[1], numbers) if network_file else numbers
    return encoding.row(graph, features, dataset.num_features, large=network_file is None)


def _output(
    graph: GraphBuilder, row: str, parameters: NDArray[np.float64], model: ModelOut, dataset: DatasetOut
) -> tuple[str, str, int]:
    """Add the output; return its name, the tensor, and its width."""
    if model.objective == "logistic_regression" and len(parameters) == 1:
        # sigmoid(s) is the softmax of (0, s).
        parameters = np.vstack((np.zeros_like(parameters), parameters))
    num_scores = len(parameters)
    zeros = graph.constant(np.zeros(num_scores))
    scores = graph.add("Gemm", row, graph.constant(parameters), zeros, transB=1)
    if dataset.target:
        if model.objective == "poisson_regression":
            bounded = graph.add("Min", graph.add("Sub", scores, graph.constant([[_width(model)]])), zeros)
            rates = graph.add("Mul", graph.add("Exp", bounded), graph.constant([[dataset.target.max]]))
            return "value", rates, 1
        half = (dataset.target.max - dataset.target.min) / 2
        y = graph.add("Max", graph.add("Min", scores, graph.constant([[1.0]])), graph.constant([[-1.0]]))
        above = graph.add("Mul", graph.add("Add", y, graph.constant([[1.0]])), graph.constant([[half]]))
        return "value", graph.add("Add", above, graph.constant([[dataset.target.min]])), 1
    if model.objective == "multilabel_logistic_regression":
        return "probabilities", graph.add("Sigmoid", scores), num_scores
    if model.objective == "logistic_regression":
        return "probabilities", graph.add("Softmax", scores, axis=1), num_scores
    return "scores", scores, num_scores


def _width(model: ModelOut) -> float:
    width = model.mechanism.loss_width
    # Every mechanism of this objective has a width.
    assert width is not None
    return width


def _metadata(model: ModelOut, dataset: DatasetOut, version: VersionOut) -> dict[str, str]:
    """Return the metadata of the file."""
    metadata = {
        "lethe.model_id": model.id,
        "lethe.version": str(version.number),
        "lethe.weights_sha256": version.weights_sha256,
        "lethe.objective": model.objective,
        "lethe.copy": _COPY.format(version=version.number),
    }
    if dataset.classes:
        metadata["lethe.classes"] = json.dumps(dataset.classes)
    limits = certificate.LIMITS
    if (stated := model.mechanism.network) is not None:
        network = PublicNetwork(
            sha256=stated.sha256, licence=stated.licence, opset=stated.opset, dp_ledger=stated.dp_ledger
        )
        limits = [*limits, network.rests_on]
        metadata |= {"lethe.network_sha256": network.sha256, "lethe.network_licence": network.licence}
    return metadata | {"lethe.limits": "\n".join(limits)}
