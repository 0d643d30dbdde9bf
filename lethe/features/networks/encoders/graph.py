"""Graph of an ONNX file, refused unless the network is a deterministic function of a single row.

A file counts as hostile until it has been read, first of all in the process of `encoders.child`. Only files that pass
there are read by `tangents`, which has no separate process. The permitted operators always compute the same output from
the same input: none of them is random, branches, loops, or comes from another domain.
"""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import TensorProto

from lethe.proof.network import MAX_DP_LEDGER_LENGTH, MAX_LAYERS

OPSETS = range(9, 26)
"""Permitted versions of the ONNX operator set."""
MAX_INPUTS = 2**20
"""Maximum number of input values per row."""
MAX_OUTPUTS = 65_536
MAX_TENSOR_SIZE = 2**28
"""Maximum number of values that an operator may compute per row."""
_MAX_SHAPE_BYTES = 1024
"""Maximum size in bytes of an initializer that can be a shape."""
_QUOTED_LENGTH = 60
"""Maximum number of characters of a name that are quoted in a refusal."""

_OPERATOR_NAMES = """
Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh Attention AveragePool BatchNormalization Cast CastLike Ceil
Celu Clip Concat Constant ConstantOfShape Conv ConvTranspose Cos Cosh CumSum DepthToSpace DequantizeLinear Div Dropout
Einsum Elu Equal Erf Exp Expand EyeLike Flatten Floor Gather GatherElements GatherND Gelu Gemm GlobalAveragePool
GlobalLpPool GlobalMaxPool Greater GreaterOrEqual GroupNormalization HardSigmoid HardSwish Identity
InstanceNormalization LRN LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax LpNormalization LpPool MatMul
Max MaxPool Mean MeanVarianceNormalization Min Mish Mod Mul Neg Not OneHot Or PRelu Pad Pow QuantizeLinear
RMSNormalization Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin
ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize RotaryEmbedding Round Selu Shape Sigmoid Sign Sin Sinh Size
Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Swish Tan Tanh ThresholdedRelu Tile TopK
Transpose Trilu Unsqueeze Upsample Where Xor
"""
OPERATORS = frozenset(_OPERATOR_NAMES.split())
"""ONNX operators that are deterministic functions of their inputs, without branches, loops or state."""


class NetworkRefused(Exception):
    """Refusal of a network file. The message gives the reason, and quotes only names from the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkGraph:
    """Network as declared in its file.

    `input_shape` is one row's shape. `parameters` lists the name and shape of each float32 initializer.
    """

    opset: int
    input_name: str
    input_shape: tuple[int, ...]
    output_name: str
    parameters: tuple[tuple[str, tuple[int, ...]], ...]
    operators: tuple[str, ...]

    @property
    def num_parameters(self) -> int:
        return sum(math.prod(shape) for _, shape in self.parameters)


def parse(content: bytes) -> NetworkGraph:
    """Parse and check an ONNX file. Raises `NetworkRefused`."""
    model = _model(content)
    if not model.graph.node or not model.graph.output:
        raise NetworkRefused("The file holds no network, or is cut off; export the network to ONNX again.")
    opset = _opset(model)
    _check_nodes(model)
    _check_tensors(model)
    name, shape = _input(model.graph)
    return NetworkGraph(
        opset=opset,
        input_name=name,
        input_shape=shape,
        output_name=_output(model.graph),
        parameters=_parameters(model.graph),
        operators=tuple(sorted({node.op_type for node in model.graph.node})),
    )


def check_sizes(content: bytes) -> None:
    """Check that no tensor declared in the file, or inferred from the declared shapes for one row, is too large.

    Raises `NetworkRefused`. Sizes that depend on the row are limited only by the process's memory.
    """
    model = _model(content)
    declared = [tuple(tensor.dims) for tensor in _tensors(model.graph)]
    # The smallest type of number takes a quarter of a byte.
    if any(min(shape, default=1) < 0 or math.prod(shape) > 4 * len(content) for shape in declared):
        raise NetworkRefused("The file declares more numbers than it holds; export the network to ONNX again.")
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) > _MAX_SHAPE_BYTES:
            tensor.ClearField("raw_data")
    with contextlib.suppress(Exception):
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    for value in model.graph.value_info:
        # An unknown size counts as one, because the batch is one row.
        size = math.prod(dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim)
        if size > MAX_TENSOR_SIZE:
            raise NetworkRefused(f"An operator computes {size} numbers of a row; at most {MAX_TENSOR_SIZE} are taken.")


def _model(content: bytes) -> Any:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except MemoryError:
        raise
    # The errors of the parser on hostile bytes are undocumented.
    except Exception:  # noqa: BLE001
        raise NetworkRefused("The file is not a whole ONNX file; export the network to ONNX again.") from None
    return model


def _opset(model: Any) -> int:
    domains = {imported.domain: imported.version for imported in model.opset_import}
    opset = domains.pop("", domains.pop("ai.onnx", None))
    if model.functions or model.training_info:
        raise NetworkRefused("The file has functions or training of its own; export the network for inference alone.")
    if domains:
        raise NetworkRefused(
            f"The file uses operators of the domain {_quoted(min(domains))}; only those of ONNX are run."
        )
    if opset not in OPSETS:
        raise NetworkRefused(
            f"The file is of opset {opset}; export the network with one from {OPSETS[0]} to {OPSETS[-1]}."
        )
    return int(opset)


def _check_nodes(model: Any) -> None:
    for node in model.graph.node:
        if node.domain not in ("", "ai.onnx"):
            raise NetworkRefused(
                f"The file uses operators of the domain {_quoted(node.domain)}; only those of ONNX are run."
            )
        if node.op_type not in OPERATORS:
            raise NetworkRefused(
                f"The operator {_quoted(node.op_type)} is not run: a network is a deterministic function of one row,"
                " without branches, loops and random numbers."
            )
        if node.op_type == "Dropout" and (len(node.output) > 1 or len(node.input) > 2):
            raise NetworkRefused("The network drops out at random; export it for inference (model.eval() in PyTorch).")
        trains = any(attribute.name == "training_mode" and attribute.i for attribute in node.attribute)
        if node.op_type == "BatchNormalization" and trains:
            raise NetworkRefused(
                "The network normalises by its batch; export it for inference (model.eval() in PyTorch)."
            )
        if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
            raise NetworkRefused("The network has a graph inside an operator; branches and loops are not run.")


def _check_tensors(model: Any) -> None:
    if model.graph.sparse_initializer:
        raise NetworkRefused("The network has sparse initializers; export it with dense ones.")
    for tensor in _tensors(model.graph):
        if tensor.external_data or tensor.data_location == TensorProto.EXTERNAL:
            raise NetworkRefused("The network has weights in other files; export it as one file.")


def _tensors(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from attribute.tensors
            if attribute.HasField("t"):
                yield attribute.t


def _input(graph: Any) -> tuple[str, tuple[int, ...]]:
    """Return the name of the network's only input, and one row's shape."""
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [candidate for candidate in graph.input if candidate.name not in weights]
    expected = "Expected one input of 32-bit floats, (batch, ...), whose batch is dynamic and whose other sizes are not"
    if len(inputs) != 1 or inputs[0].type.tensor_type.elem_type != TensorProto.FLOAT:
        raise NetworkRefused(f"{expected}; the network has {len(inputs)} inputs, or one of another type.")
    dims = inputs[0].type.tensor_type.shape.dim
    shape = tuple(int(dim.dim_value) for dim in dims[1:])
    if dims and dims[0].HasField("dim_value"):
        size = dims[0].dim_value
        raise NetworkRefused(
            f"{expected}; its batch is fixed to {size}. Export it with a dynamic one, in PyTorch by"
            f" torch.onnx.export(..., dynamic_shapes={{{inputs[0].name[:_QUOTED_LENGTH]!r}: {{0: 'batch'}}}})."
        )
    if len(dims) < 2 or min(shape) < 1:
        raise NetworkRefused(f"{expected}; export the network with a dynamic batch axis alone.")
    if math.prod(shape) > MAX_INPUTS:
        raise NetworkRefused(f"A row of the input has {math.prod(shape)} numbers; at most {MAX_INPUTS} are taken.")
    return inputs[0].name, shape


def _output(graph: Any) -> str:
    if len(graph.output) != 1 or graph.output[0].type.tensor_type.elem_type != TensorProto.FLOAT:
        raise NetworkRefused(
            f"Expected one output of 32-bit floats, (batch, features); the network has {len(graph.output)}, or one of"
            " another type. Export the features alone."
        )
    return str(graph.output[0].name)


def _parameters(graph: Any) -> tuple[tuple[str, tuple[int, ...]], ...]:
    floats = [tensor for tensor in graph.initializer if tensor.data_type == TensorProto.FLOAT]
    names = [tensor.name for tensor in floats]
    if len(floats) > MAX_LAYERS or len(set(names)) != len(names):
        raise NetworkRefused(f"Expected {MAX_LAYERS} parameters at most, each with a name of its own.")
    if not all(name.isprintable() and 0 < len(name) <= MAX_DP_LEDGER_LENGTH for name in names):
        raise NetworkRefused(f"Expected names of parameters of 1 to {MAX_DP_LEDGER_LENGTH} printable characters.")
    return tuple((tensor.name, tuple(int(size) for size in tensor.dims)) for tensor in floats)


def _quoted(name: str) -> str:
    return repr(name[:_QUOTED_LENGTH]) if name.isprintable() else "with an unprintable name"
