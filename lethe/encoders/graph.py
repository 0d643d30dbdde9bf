"""The graph of an ONNX file: refused unless it is a function of one row that can be named, and nothing else.

A file is hostile until read, and it is read first in the process apart (`lethe.encoders.child`); only one that passed
there is read by `lethe.tangents`, which has no process of its own. The operators that are taken compute the same from
the same numbers: none draws at random, branches, loops, or comes from another domain.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import TensorProto

from lethe.proof.network import LONGEST_DP_LEDGER, MOST_LAYERS

OPSETS = range(9, 26)
"""Versions of the ONNX operators that are taken."""
MOST_INPUTS = 2**20
"""Numbers of one row that go in."""
MOST_OUTPUTS = 65_536
_SHOWN = 60  # characters of a name that a refusal quotes

OPERATORS = frozenset(
    [
        "Abs",
        "Acos",
        "Acosh",
        "Add",
        "And",
        "ArgMax",
        "ArgMin",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "Attention",
        "AveragePool",
        "BatchNormalization",
        "Cast",
        "CastLike",
        "Ceil",
        "Celu",
        "Clip",
        "Concat",
        "Constant",
        "ConstantOfShape",
        "Conv",
        "ConvTranspose",
        "Cos",
        "Cosh",
        "CumSum",
        "DepthToSpace",
        "DequantizeLinear",
        "Div",
        "Dropout",
        "Einsum",
        "Elu",
        "Equal",
        "Erf",
        "Exp",
        "Expand",
        "EyeLike",
        "Flatten",
        "Floor",
        "Gather",
        "GatherElements",
        "GatherND",
        "Gelu",
        "Gemm",
        "GlobalAveragePool",
        "GlobalLpPool",
        "GlobalMaxPool",
        "Greater",
        "GreaterOrEqual",
        "GroupNormalization",
        "HardSigmoid",
        "HardSwish",
        "Identity",
        "InstanceNormalization",
        "LRN",
        "LayerNormalization",
        "LeakyRelu",
        "Less",
        "LessOrEqual",
        "Log",
        "LogSoftmax",
        "LpNormalization",
        "LpPool",
        "MatMul",
        "Max",
        "MaxPool",
        "Mean",
        "MeanVarianceNormalization",
        "Min",
        "Mish",
        "Mod",
        "Mul",
        "Neg",
        "Not",
        "OneHot",
        "Or",
        "PRelu",
        "Pad",
        "Pow",
        "QuantizeLinear",
        "RMSNormalization",
        "Range",
        "Reciprocal",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "ReduceSumSquare",
        "Relu",
        "Reshape",
        "Resize",
        "RotaryEmbedding",
        "Round",
        "Selu",
        "Shape",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "Size",
        "Slice",
        "Softmax",
        "Softplus",
        "Softsign",
        "SpaceToDepth",
        "Split",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Sum",
        "Swish",
        "Tan",
        "Tanh",
        "ThresholdedRelu",
        "Tile",
        "TopK",
        "Transpose",
        "Trilu",
        "Unsqueeze",
        "Upsample",
        "Where",
        "Xor",
    ]
)
"""ONNX operators that are deterministic functions of their inputs, without branches, loops or states."""


class Refused(Exception):
    """The file is not taken. The text says why, and quotes no more than names of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A network as its file declares it. `input_shape`: of one row; `parameters`: name and shape of each
    float32 initializer; `operators`: each that it has, once."""

    opset: int
    input_name: str
    input_shape: tuple[int, ...]
    output_name: str
    parameters: tuple[tuple[str, tuple[int, ...]], ...]
    operators: tuple[str, ...]

    @property
    def num_parameters(self) -> int:
        return sum(math.prod(shape) for _, shape in self.parameters)


def parse(content: bytes) -> Graph:
    """The graph of an ONNX file. Raises `Refused`."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001  nobody lists what a parser raises on hostile bytes
        raise Refused("The file is no ONNX file, or is cut off; export the network to ONNX again.") from None
    if not model.graph.node or not model.graph.output:
        raise Refused("The file holds no network, or is cut off; export the network to ONNX again.")
    opset = _opset(model)
    _check_nodes(model)
    _check_tensors(model)
    name, shape = _input(model.graph)
    return Graph(
        opset=opset,
        input_name=name,
        input_shape=shape,
        output_name=_output(model.graph),
        parameters=_parameters(model.graph),
        operators=tuple(sorted({node.op_type for node in model.graph.node})),
    )


def _opset(model: Any) -> int:
    domains = {one.domain: one.version for one in model.opset_import}
    used = domains.pop("", domains.pop("ai.onnx", None))
    if model.functions or model.training_info:
        raise Refused("The file has functions or training of its own; export the network for inference alone.")
    if domains:
        raise Refused(f"The file uses operators of the domain {_quoted(min(domains))}; only those of ONNX are run.")
    if used not in OPSETS:
        raise Refused(f"The file is of opset {used}; export the network with one from {OPSETS[0]} to {OPSETS[-1]}.")
    return int(used)


def _check_nodes(model: Any) -> None:
    for node in model.graph.node:
        if node.domain not in ("", "ai.onnx"):
            raise Refused(f"The file uses operators of the domain {_quoted(node.domain)}; only those of ONNX are run.")
        if node.op_type not in OPERATORS:
            raise Refused(
                f"The operator {_quoted(node.op_type)} is not run: a network is a deterministic function of one row,"
                " without branches, loops and random numbers."
            )
        if node.op_type == "Dropout" and (len(node.output) > 1 or len(node.input) > 2):
            raise Refused("The network drops out at random; export it for inference (model.eval() in PyTorch).")
        if node.op_type == "BatchNormalization" and any(
            one.name == "training_mode" and one.i for one in node.attribute
        ):
            raise Refused("The network normalises by its batch; export it for inference (model.eval() in PyTorch).")
        if any(one.HasField("g") or one.graphs for one in node.attribute):
            raise Refused("The network has a graph inside an operator; branches and loops are not run.")


def _check_tensors(model: Any) -> None:
    if model.graph.sparse_initializer:
        raise Refused("The network has sparse initializers; export it with dense ones.")
    for tensor in _tensors(model.graph):
        if tensor.external_data or tensor.data_location == TensorProto.EXTERNAL:
            raise Refused("The network has weights in other files; export it as one file.")


def _tensors(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from attribute.tensors
            if attribute.HasField("t"):
                yield attribute.t


def _input(graph: Any) -> tuple[str, tuple[int, ...]]:
    """The name of the only input, and the shape of one row of it."""
    weights = {one.name for one in graph.initializer}
    inputs = [one for one in graph.input if one.name not in weights]
    expected = "Expected one input of 32-bit floats, (batch, ...), whose batch is dynamic and whose other sizes are not"
    if len(inputs) != 1 or inputs[0].type.tensor_type.elem_type != TensorProto.FLOAT:
        raise Refused(f"{expected}; the network has {len(inputs)} inputs, or one of another type.")
    dims = inputs[0].type.tensor_type.shape.dim
    shape = tuple(int(one.dim_value) for one in dims[1:])
    if len(dims) < 2 or dims[0].HasField("dim_value") or min(shape) < 1:
        raise Refused(f"{expected}; export the network with a dynamic batch axis alone.")
    if math.prod(shape) > MOST_INPUTS:
        raise Refused(f"A row of the input has {math.prod(shape)} numbers; at most {MOST_INPUTS} are taken.")
    return inputs[0].name, shape


def _output(graph: Any) -> str:
    if len(graph.output) != 1 or graph.output[0].type.tensor_type.elem_type != TensorProto.FLOAT:
        raise Refused(
            f"Expected one output of 32-bit floats, (batch, features); the network has {len(graph.output)}, or one of"
            " another type. Export the features alone."
        )
    return str(graph.output[0].name)


def _parameters(graph: Any) -> tuple[tuple[str, tuple[int, ...]], ...]:
    found = tuple(
        (one.name, tuple(int(size) for size in one.dims))
        for one in graph.initializer
        if one.data_type == TensorProto.FLOAT
    )
    names = [name for name, _ in found]
    if len(found) > MOST_LAYERS or len(set(names)) != len(names):
        raise Refused(f"Expected {MOST_LAYERS} parameters at most, each with a name of its own.")
    if not all(name.isprintable() and 0 < len(name) <= LONGEST_DP_LEDGER for name in names):
        raise Refused(f"Expected names of parameters of 1 to {LONGEST_DP_LEDGER} printable characters.")
    return found


def _quoted(name: str) -> str:
    return repr(name[:_SHOWN]) if name.isprintable() else "with an unprintable name"
