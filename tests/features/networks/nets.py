"""Small networks as ONNX files, valid and invalid."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FORM = {"name": "small", "licence": "CC0-1.0", "provenance": "Nothing: its numbers were drawn at random."}
WIDTH, OUT = 6, 4
WEIGHTS = np.random.default_rng(3).normal(size=(WIDTH, OUT)).astype(np.float32)


def onnx_file(
    nodes: Sequence[Any],
    *,
    batch: Any = "batch",
    kind: int = TensorProto.FLOAT,
    shape: Sequence[Any] = (WIDTH,),
    out: Sequence[Any] = ("batch", OUT),
    inputs: int = 1,
    weights: Any = WEIGHTS,
    opset: int = 17,
    domains: Sequence[tuple[str, int]] = (),
    ir_version: int = 9,
) -> bytes:
    """Return an ONNX file whose nodes compute `y` from the input `x` and the weights `w`."""
    names = ["x", "x2", "x3"][:inputs]
    graph = helper.make_graph(
        list(nodes),
        "net",
        [helper.make_tensor_value_info(name, kind, [batch, *shape]) for name in names],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, list(out))],
        [numpy_helper.from_array(weights, "w")],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(*one) for one in domains)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
    content: bytes = model.SerializeToString()
    return content


def node(kind: str, inputs: str = "x w", output: str = "y", **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(), [output], **attributes)


def linear(scale: float = 1.0) -> bytes:
    """y = relu(x W)"""
    return onnx_file([node("MatMul", "x w", "h"), node("Relu", "h")], weights=scale * WEIGHTS)


def raised_by_the_largest() -> bytes:
    """y = x W + relu(m - 1.5), where m is the largest number in the whole batch"""
    edge = numpy_helper.from_array(np.float32(1.5))
    return onnx_file(
        [
            node("MatMul", "x w", "h"),
            helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
            helper.make_node("Constant", [], ["edge"], value=edge),
            node("Sub", "m edge", "above"),
            node("Relu", "above", "raise"),
            node("Add", "h raise"),
        ]
    )


def logarithm() -> bytes:
    """y = log(12 + x W), which is NaN where x W is below -12"""
    two = numpy_helper.from_array(np.float32(12.0))
    return onnx_file(
        [
            node("MatMul", "x w", "h"),
            helper.make_node("Constant", [], ["two"], value=two),
            node("Add", "h two", "s"),
            node("Log", "s"),
        ]
    )


def slow(size: int = 9000, *, hidden: bool = False) -> bytes:
    """y = x W, after an unused product of two large matrices; if `hidden`, their size is computed from the row."""
    shape = numpy_helper.from_array(np.array([size, size], np.int64))
    sizes = numpy_helper.from_array(np.array([size, size], np.float32))
    shaped = [helper.make_node("Constant", [], ["shape"], value=shape)]
    if hidden:
        shaped = [
            helper.make_node("Constant", [], ["sizes"], value=sizes),
            node("Sub", "sum sum", "null"),
            node("Add", "null sizes", "moved"),
            helper.make_node("Cast", ["moved"], ["shape"], to=TensorProto.INT64),
        ]
    return onnx_file(
        [
            helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
            *shaped,
            node("Expand", "sum shape", "a"),
            node("MatMul", "a a", "b"),
            helper.make_node("ReduceMean", ["b"], ["c"], keepdims=0),
            node("Mul", "c c", "d"),
            node("MatMul", "x w", "h"),
            node("Sub", "d d", "zero"),
            node("Add", "h zero"),
        ]
    )


def declaring(size: int) -> bytes:
    """y = x W, with weights whose size differs from the size the file declares"""
    model = onnx.load_from_string(linear())
    model.graph.initializer[0].dims[0] = size
    content: bytes = model.SerializeToString()
    return content
