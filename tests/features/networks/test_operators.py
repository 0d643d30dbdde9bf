"""Each ONNX operator as torch computes it here equals onnxruntime's."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from lethe.features.networks.tangents import supported
from lethe.features.networks.tangents.graph import Graph
from lethe.features.networks.tangents.operators import OPERATORS, UnsupportedOperator

ROWS = np.random.default_rng(0).standard_normal((5, 2, 6, 6)).astype(np.float32)
POSITIVE = np.abs(ROWS) + 0.1
DRAWN = np.random.default_rng(1)


def f32(*shape: int) -> np.ndarray:
    return DRAWN.standard_normal(shape).astype(np.float32)


def i64(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


# operator, attributes, inputs behind the rows
CASES: list[tuple[str, dict[str, Any], tuple[np.ndarray, ...]]] = [
    ("Add", {}, (f32(6),)),
    ("AveragePool", {"kernel_shape": [2, 3], "strides": [2, 1]}, ()),
    ("AveragePool", {"kernel_shape": [2, 2], "pads": [1, 0, 0, 1], "count_include_pad": 1}, ()),
    ("BatchNormalization", {"epsilon": 1e-3}, (f32(2), f32(2), f32(2), np.abs(f32(2)))),
    ("Cast", {"to": TensorProto.FLOAT}, ()),
    ("Clip", {}, (np.float32(-0.5), np.float32(0.7))),
    ("Concat", {"axis": 1}, (f32(5, 1, 6, 6),)),
    ("Conv", {}, (f32(3, 2, 3, 3), f32(3))),
    ("Conv", {"pads": [1, 2, 0, 1], "strides": [2, 1], "dilations": [1, 2]}, (f32(3, 2, 3, 3),)),
    ("Conv", {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, (f32(3, 2, 4, 3),)),
    ("Conv", {"auto_pad": "SAME_LOWER", "group": 2}, (f32(4, 1, 2, 2),)),
    ("Conv", {"auto_pad": "VALID"}, (f32(4, 2, 2, 2),)),
    ("Div", {}, (np.abs(f32(6)) + 1,)),
    ("Dropout", {}, ()),
    ("Elu", {"alpha": 0.5}, ()),
    ("Erf", {}, ()),
    ("Exp", {}, ()),
    ("Flatten", {"axis": 2}, ()),
    ("Flatten", {"axis": -3}, ()),
    ("Gather", {"axis": 2}, (i64(0, 5, -1),)),
    ("Gather", {"axis": 1}, (np.array([[0, 1], [1, 0]], np.int64),)),
    ("Gelu", {}, ()),
    ("Gelu", {"approximate": "tanh"}, ()),
    ("GlobalAveragePool", {}, ()),
    ("HardSigmoid", {"alpha": 0.3}, ()),
    ("HardSwish", {}, ()),
    ("Identity", {}, ()),
    ("LayerNormalization", {"axis": -1, "epsilon": 1e-3}, (f32(6), f32(6))),
    ("LayerNormalization", {"axis": 2}, (f32(6, 6),)),
    ("LeakyRelu", {"alpha": 0.2}, ()),
    ("MatMul", {}, (f32(6, 4),)),
    ("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2]}, ()),
    ("MaxPool", {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "dilations": [1, 2]}, ()),
    ("Mul", {}, (f32(6, 6),)),
    ("Neg", {}, ()),
    ("Pow", {}, (np.float32(2),)),
    ("Reciprocal", {}, ()),
    ("ReduceMean", {"keepdims": 0}, (i64(2, -1),)),
    ("ReduceSum", {}, (i64(1),)),
    ("Relu", {}, ()),
    ("Reshape", {}, (i64(0, -1, 3),)),
    ("Sigmoid", {}, ()),
    ("Slice", {}, (i64(1, -1), i64(9, -7), i64(2, 3), i64(2, -2))),
    ("Softmax", {"axis": 1}, ()),
    ("Softplus", {}, ()),
    ("Split", {"axis": 2}, (i64(2, 4),)),
    ("Split", {"axis": 3, "num_outputs": 2}, ()),
    ("Sqrt", {}, ()),
    ("Sub", {}, (f32(1, 6),)),
    ("Tanh", {}, ()),
    ("Transpose", {"perm": [0, 2, 3, 1]}, ()),
    ("Unsqueeze", {}, (i64(1, -1),)),
]


def network(operator: str, attributes: dict[str, Any], others: tuple[np.ndarray, ...], *, opset: int = 20) -> bytes:
    names = [f"input{n}" for n in range(len(others))]
    outputs = ["scores", "unused"] if operator == "Split" else ["scores"]
    node = helper.make_node(operator, ["rows", *names], outputs, **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["batch", *ROWS.shape[1:]])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(one), name) for one, name in zip(others, names, strict=True)],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return made.SerializeToString()


def as_onnxruntime(content: bytes, rows: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"rows": rows})[0])


def outputs(content: bytes, rows: np.ndarray = ROWS) -> np.ndarray:
    graph = Graph(content)
    return graph(torch.from_numpy(rows)).numpy()


@pytest.mark.parametrize(("operator", "attributes", "others"), CASES)
def test_operators_match_onnxruntime(operator, attributes, others):
    """Each operator returns the same result as in onnxruntime, up to single precision."""
    rows = POSITIVE if operator in ("Sqrt", "Reciprocal", "Pow") else ROWS
    content = network(operator, attributes, others)
    ours = outputs(content, rows)
    theirs = as_onnxruntime(content, rows)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_every_operator_is_compared():
    """Every operator in the table is supported, and a test compares it with onnxruntime."""
    assert set(OPERATORS) | {"Constant"} == supported.OPERATORS
    assert set(OPERATORS) - {operator for operator, _, _ in CASES} == {"Gemm", "Mod", "Shape", "Squeeze"}


@pytest.mark.parametrize(
    ("operator", "attributes", "others"),
    [
        ("Cos", {}, ()),
        ("AveragePool", {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1]}, ()),
        ("MaxPool", {"kernel_shape": [4, 4], "strides": [3, 3], "ceil_mode": 1}, ()),
        ("ReduceMean", {}, (i64(0),)),
        ("Cast", {"to": TensorProto.DOUBLE}, ()),
    ],
)
def test_unsupported_operators_are_refused(operator, attributes, others):
    """A network with an operator or attribute that is not supported is refused."""
    content = network(operator, attributes, others)
    with pytest.raises(UnsupportedOperator):
        outputs(content)


def test_an_untested_opset_is_refused():
    """A network is refused if its opset has not been compared with onnxruntime."""
    with pytest.raises(UnsupportedOperator, match="opset"):
        Graph(network("Relu", {}, (), opset=7))
