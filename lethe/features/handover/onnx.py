"""Complete models as ONNX files, from record to probability: `export(client, model_id, "model.onnx")`.

A file contains the public encoding of `lethe.encoding`, the network, the weights, and the result's units. Since it is a
copy of the weights, it is recorded like every export: people who are forgotten later remain in the file.

Numbers stay in double precision until the row is rounded, as in the gateway. ONNX operators cannot refuse a record, so
the result is NaN for records that the gateway would refuse.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from lethe import Client, errors
from lethe.client import files
from lethe.contract import datasets, models, problems
from lethe.encoding.columns import Categorical, Column, Floats, Numeric, Standard, Vector
from lethe.encoding.rows import SHRINK, Schema
from lethe.encoding.schema import stored
from lethe.features.handover.calls import name_copy, network_of
from lethe.features.lineage.contract import CopyKind
from lethe.proof import certificate
from lethe.proof.network import PublicNetwork

OPSET = 17
"""ONNX opset used if the graph has no public network."""
ML_OPSET = 3
"""Opset of `ai.onnx.ml`, used for categorical columns."""
IR_VERSION = 8
"""Minimum IR version of an exported file."""
_ML = "ai.onnx.ml"
_NETWORK = "network/"
"""Prefix of all names in the graph that belong to the public network."""
_STEP = "lethe/"
OWN = (_NETWORK, _STEP)
"""Reserved prefixes, which no column name may have."""


class GraphBuilder:
    """ONNX graph under construction. Tensors are named by numbers and have shape (b, ...) for b rows.

    `wrong` lists masks (b, 1) of rows that the gateway would refuse.
    """

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.inputs: list[str] = []
        self._declared: list[Any] = []
        self._nodes: list[Any] = []
        self._initializers: list[Any] = []
        self._opset = OPSET
        self._ir_version = IR_VERSION
        self._count = 0

    def input(self, name: str, width: int, kind: int = TensorProto.DOUBLE) -> str:
        """Declare an input (b, width) of the model and return its name."""
        self._declared.append(helper.make_tensor_value_info(name, kind, ["batch", width]))
        self.inputs.append(name)
        return name

    def constant(self, value: npt.ArrayLike, kind: npt.DTypeLike = np.float64) -> str:
        name = self._name()
        self._initializers.append(numpy_helper.from_array(np.asarray(value, kind), name))
        return name

    def add(self, operator: str, *inputs: str, output: str | None = None, domain: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        output = output or self._name()
        self._nodes.append(helper.make_node(operator, list(inputs), [output], domain=domain, **attributes))
        return output

    def concat(self, tensors: Sequence[str]) -> str:
        return tensors[0] if len(tensors) == 1 else self.add("Concat", *tensors, axis=1)

    def double(self, tensor: str) -> str:
        return self.add("Cast", tensor, to=TensorProto.DOUBLE)

    def total(self, tensor: str, width: int) -> str:
        """Add a node that sums each row  # (b, width) -> (b, 1)"""
        return self.add("MatMul", tensor, self.constant(np.ones((width, 1))))

    def one_hot(self, texts: str, names: Sequence[str]) -> str:
        """Add indicators for `names`, all 0 for any other text  # (b, 1) -> (b, len(names))"""
        indicators = self.add("OneHotEncoder", texts, domain=_ML, cats_strings=list(names), zeros=1)
        return self.double(self.add("Flatten", indicators, axis=1))

    def network(self, content: bytes, numbers: str) -> str:
        """Add a public network, which rounds numbers (b, d) to 32-bit floats and computes features (b, k) from them."""
        model = onnx.compose.add_prefix(onnx.load_model_from_string(content), _NETWORK)
        self._opset = next(imported.version for imported in model.opset_import if imported.domain in ("", "ai.onnx"))
        self._ir_version = max(IR_VERSION, model.ir_version)
        weights = {tensor.name for tensor in model.graph.initializer}
        [rows] = [candidate for candidate in model.graph.input if candidate.name not in weights]
        shape = [dim.dim_value for dim in rows.type.tensor_type.shape.dim[1:]]
        floats = self.add("Cast", numbers, to=TensorProto.FLOAT)
        self.add("Reshape", floats, self.constant([-1, *shape], np.int64), output=rows.name)
        self._nodes += model.graph.node
        self._initializers += model.graph.initializer
        return self.double(model.graph.output[0].name)

    def finished(self, name: str, result: str, width: int) -> Any:
        """Return the checked model. Its only output is NaN for rows in a `wrong` mask."""
        for wrong in self.wrong:
            result = self.add("Where", wrong, self.constant([[np.nan]]), result)
        self.add("Identity", result, output=name)
        output = helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["batch", width])
        opsets = [helper.make_opsetid("", self._opset)]
        if any(node.domain == _ML for node in self._nodes):
            opsets.append(helper.make_opsetid(_ML, ML_OPSET))
        graph = helper.make_graph(self._nodes, "lethe", self._declared, [output], self._initializers)
        model = helper.make_model(graph, opset_imports=opsets, ir_version=self._ir_version, producer_name="lethe")
        onnx.checker.check_model(model, full_check=True)
        return model

    def _name(self) -> str:
        self._count += 1
        return f"{_STEP}{self._count}"


_EXPRESSIBLE = (Categorical, Numeric, Standard, Vector)
"""Kinds of columns whose features can be computed by ONNX operators."""
OUTPUTS = ("probabilities", "scores", "value")


def require_expressible(schema: Schema) -> None:
    """Check that ONNX can express a schema. Raises `NotExpressible`, naming the columns that cannot be expressed."""
    kinds = ", ".join(sorted(kind.kind for kind in _EXPRESSIBLE))
    faults = [
        problems.FieldError(f"columns.{column.name}", f"expected one of the kinds {kinds}, not {column.kind}")
        for column in schema.features
        if not isinstance(column, _EXPRESSIBLE)
    ]
    faults += [
        problems.FieldError(f"columns.{column.name}", "expected a name that no other tensor of the file has")
        for column in schema.features
        if column.name in OUTPUTS or column.name.startswith(OWN)
    ]
    if schema.random:
        faults.append(problems.FieldError("random_features", "expected none"))
    if faults:
        raise errors.NotExpressible("Not all of the encoding can be written as ONNX: serve it by lethe.mlflow.", faults)


def columns(graph: GraphBuilder, schema: Schema) -> str:
    """Add nodes that compute a schema's features (b, d); each column becomes an input of the same name."""
    return graph.concat([_column(graph, column) for column in schema.features])


def vectors(graph: GraphBuilder, length: int, *, kind: int) -> str:
    """Add the input `x` (b, length) for vectors without a schema. Their numbers must be finite."""
    x = graph.input("x", length, kind)
    finite = _finite(graph, x, np.float32 if kind == TensorProto.FLOAT else np.float64)
    _all_or_wrong(graph, finite, length)
    return x


def row(graph: GraphBuilder, features: str, width: int, *, large: bool) -> str:
    """Add nodes for the row (b, width + 1) with its bias, scaled to norm <= 1 and rounded to single precision.

    `large` is True if squares of features may overflow.
    """
    bias = graph.constant([[1.0]])
    if large:
        largest = graph.add("ReduceMax", graph.add("Abs", features), axes=[1], keepdims=1)
        largest = graph.add("Max", largest, bias)
        features, bias = graph.add("Div", features, largest), graph.add("Div", bias, largest)
    squares = graph.total(graph.add("Mul", features, features), width)
    norm = graph.add("Sqrt", graph.add("Add", squares, graph.add("Mul", bias, bias)))
    scale = graph.add("Div", graph.constant([[SHRINK]]), norm)
    unit = graph.concat([graph.add("Mul", features, scale), graph.add("Mul", bias, scale)])
    return graph.double(graph.add("Cast", unit, to=TensorProto.FLOAT))


def _column(graph: GraphBuilder, column: Column) -> str:
    match column:
        case Categorical():
            one_hot = graph.one_hot(graph.input(column.name, 1, TensorProto.STRING), column.values)
            if column.unknown == "error":
                graph.wrong.append(graph.add("Less", graph.total(one_hot, column.width), graph.constant([[0.5]])))
            return one_hot
        case Vector():
            x = graph.input(column.name, column.length)
            finite = _finite(graph, x)
            _all_or_wrong(graph, finite, column.length)
            return _standard(graph, x, column.center, column.scale, column.clip)
        case Numeric() | Standard():
            return _number(graph, column)
        case _:
            raise errors.NotExpressible(f"A column of kind {column.kind} cannot be written as ONNX.")


def _number(graph: GraphBuilder, column: Numeric | Standard) -> str:
    """Add nodes that compute the features of a numeric column, in which NaN stands for a missing value."""
    x = graph.input(column.name, 1)
    below, above = _below(graph, x, np.inf), _above(graph, x, -np.inf)
    finite = graph.add("And", below, above)
    missing = graph.add("Not", graph.add("Or", below, above))
    is_infinite = graph.add("Xor", below, above)
    graph.wrong.append(graph.add("Not", finite) if column.unknown == "error" else is_infinite)
    if isinstance(column, Numeric) and column.outside == "error":
        graph.wrong.append(graph.add("Or", _below(graph, x, column.low), _above(graph, x, column.high)))
    number = graph.add("Where", finite, x, graph.constant([[0.0]]))
    match column:
        case Numeric():
            scaled = _ranged(graph, number, column)
        case Standard():
            scaled = _standard(graph, number, (column.center,), (column.scale,), column.clip)
    features = graph.add("Where", missing, graph.constant([[0.0]]), scaled)
    return graph.concat([features, graph.double(missing)]) if column.width > column.num_scaled else features


def _ranged(graph: GraphBuilder, x: str, column: Numeric) -> str:
    inside = graph.add("Max", graph.add("Min", x, graph.constant([[column.high]])), graph.constant([[column.low]]))
    if not column.knots:
        above = graph.add("Sub", inside, graph.constant([[column.low]]))
        return graph.add("Div", above, graph.constant([[column.high - column.low]]))
    knots = np.array(column.knots)
    gaps = np.diff(knots)
    # The hat of each knot rises from the preceding knot and falls to the next; the outer hats stay at 1 outside.
    rising = _line(graph, inside, np.append(knots[0], knots[:-1]), np.append(0.0, 1 / gaps), np.eye(1, len(knots))[0])
    falling = _line(
        graph, inside, np.append(knots[1:], knots[-1]), np.append(-1 / gaps, 0.0), np.eye(1, len(knots))[0][::-1]
    )
    hats = graph.add("Min", graph.add("Min", rising, falling), graph.constant([[1.0]]))
    return graph.add("Max", hats, graph.constant([[0.0]]))


def _line(graph: GraphBuilder, x: str, zero: Floats, slope: Floats, offset: Floats) -> str:
    """Add slope (x - zero) + offset  # (b, 1) -> (b, k)"""
    away = graph.add("Sub", x, graph.constant([zero]))
    return graph.add("Add", graph.add("Mul", away, graph.constant([slope])), graph.constant([offset]))


def _standard(
    graph: GraphBuilder, x: str, center: tuple[float, ...], scale: tuple[float, ...], clip: float | None
) -> str:
    away = graph.add("Div", graph.add("Sub", x, graph.constant([center])), graph.constant([scale]))
    if clip is None:
        return away
    return graph.add("Max", graph.add("Min", away, graph.constant([[clip]])), graph.constant([[-clip]]))


def _finite(graph: GraphBuilder, x: str, kind: npt.DTypeLike = np.float64) -> str:
    return graph.add("And", _below(graph, x, np.inf, kind), _above(graph, x, -np.inf, kind))


def _all_or_wrong(graph: GraphBuilder, finite: str, width: int) -> None:
    infinite = graph.double(graph.add("Not", finite))
    graph.wrong.append(graph.add("Greater", graph.total(infinite, width), graph.constant([[0.5]])))


def _below(graph: GraphBuilder, x: str, bound: float, kind: npt.DTypeLike = np.float64) -> str:
    return graph.add("Less", x, graph.constant([[bound]], kind))


def _above(graph: GraphBuilder, x: str, bound: float, kind: npt.DTypeLike = np.float64) -> str:
    return graph.add("Greater", x, graph.constant([[bound]], kind))


_COPY = (
    "This file is a copy of version {version}: who is forgotten afterwards stays in it, and no later certificate is"
    " about it."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """Exported ONNX file. `output` is the name of its only output; `sha256` is the digest of the file."""

    model_id: str
    version: int
    weights_sha256: str
    inputs: tuple[str, ...]
    output: str
    sha256: str


def export(client: Client, model_id: str, to: str | Path | BinaryIO, *, version: int | None = None) -> Exported:
    """Write a version (by default the live one) as an ONNX file that predicts the same as the gateway.

    The inputs are named after the schema's columns, with shape (b, 1) or, for vectors, (b, length): numbers as doubles,
    with NaN for a missing number, and categories as texts spelled as in the schema. Without a schema the input is `x`.
    The output is `probabilities`, `scores` for a hinge loss, or `value` in the target's units; it is NaN for a record
    that the gateway would refuse. The metadata (`lethe.*`) describes the model. Requires a key with models:read, and
    `pip install 'lethe-sdk[onnx]'`. The gateway records the export of the weights.

    Raises:
        NotExpressible: raised, like `ModelNotLive` and `NetworkUnknown`, before the export is recorded.
        CertificateInvalid: if the weights received are not the version's weights.
        Problem: if a call fails for any other reason.
    """
    model = client.models.get(model_id)
    dataset = client.datasets.get(model.dataset_id)
    schema = stored(dataset.schema_) if dataset.schema_ else None
    if model.mechanism.network and model.mechanism.network.linearisation:
        raise errors.NotExpressible("A tangent model needs derivatives of its network: serve it by lethe.mlflow.")
    if schema:
        require_expressible(schema)
    number = model.live_version if version is None else version
    if number is None:
        raise problems.ModelNotLive(f"Model {model_id} has no version yet.")
    exported = client.models.version(model_id, number)
    graph = GraphBuilder()
    row = _row(client, graph, model, dataset, schema)
    weights = client.models.weights(model_id, number)
    if hashlib.sha256(weights).hexdigest() != exported.weights_sha256:
        raise errors.CertificateInvalid(f"The weights are not those of version {number}.")
    from safetensors.numpy import load

    name, output, width = _output(graph, row, load(weights)["parameters"], model, dataset)
    file = graph.finished(name, output, width)
    file.doc_string = _COPY.format(version=number)
    helper.set_model_props(file, _metadata(model, dataset, exported))
    content = file.SerializeToString()
    files.write(to, [content])
    sha256 = hashlib.sha256(content).hexdigest()
    name_copy(client, model_id, number, kind=CopyKind.ONNX, place=f"sha256 {sha256}")
    return Exported(
        model_id=model_id,
        version=number,
        weights_sha256=exported.weights_sha256,
        inputs=tuple(graph.inputs),
        output=name,
        sha256=sha256,
    )


def _row(
    client: Client, graph: GraphBuilder, model: models.ModelOut, dataset: datasets.DatasetOut, schema: Schema | None
) -> str:
    """Add each record's row  # (b, d)"""
    network = model.mechanism.network
    network_file = network_of(client, network.sha256) if network else None
    if schema:
        numbers = columns(graph, schema)
    elif network_file:
        numbers = vectors(graph, int(np.prod(network_file[0].input_shape)), kind=TensorProto.FLOAT)
    else:
        numbers = vectors(graph, dataset.num_features, kind=TensorProto.DOUBLE)
    features = graph.network(network_file[1], numbers) if network_file else numbers
    return row(graph, features, dataset.num_features, large=network_file is None)


def _output(
    graph: GraphBuilder, row: str, parameters: NDArray[np.float64], model: models.ModelOut, dataset: datasets.DatasetOut
) -> tuple[str, str, int]:
    """Add the model's output, and return its name, tensor and width."""
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


def _width(model: models.ModelOut) -> float:
    width = model.mechanism.loss_width
    # Every mechanism of this objective has a width.
    assert width is not None
    return width


def _metadata(model: models.ModelOut, dataset: datasets.DatasetOut, version: models.VersionOut) -> dict[str, str]:
    """Return the metadata to store in the ONNX file."""
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
