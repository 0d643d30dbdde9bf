"""An ONNX network as a function of its weights and its input, which torch can differentiate."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor

from lethe.tangents.operators import OPERATORS, UnsupportedOperator
from lethe.tangents.supported import unsupported

Known = Mapping[str, Tensor | None]
"""Values of a network for some rows, by name."""

NO_TAPS: Mapping[str, Tensor] = {}


@dataclass(frozen=True, slots=True)
class Node:
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


class Graph:
    """A network of one input (batch, ...) and one output (batch, k).

    `weights`: its float initializers by name, float32.
    """

    def __init__(self, content: bytes) -> None:
        """Raises `UnsupportedOperator`, naming the first operator that cannot be differentiated, and ValueError for
        bytes that are no network of this kind."""
        model = onnx.load_from_string(content)
        versions = {one.domain: one.version for one in model.opset_import}
        graph = model.graph
        opset = versions.pop("", versions.pop("ai.onnx", 0))
        if said := "it has operators that are not of ONNX" if versions else unsupported(_operators(graph), opset):
            raise UnsupportedOperator(f"The network cannot be differentiated: {said}.")
        constants = {one.name: torch.from_numpy(numpy_helper.to_array(one).copy()) for one in graph.initializer}
        self.weights = {name: value for name, value in constants.items() if value.dtype == torch.float32}
        self._fixed = {name: value for name, value in constants.items() if name not in self.weights}
        inputs = [one for one in graph.input if one.name not in constants]
        if len(inputs) != 1 or len(graph.output) != 1:
            raise ValueError("Expected a network of one input and one output")
        self._input, self._output = inputs[0].name, graph.output[0].name
        self.input_shape = tuple(one.dim_value for one in inputs[0].type.tensor_type.shape.dim[1:])
        self.nodes = [node for one in graph.node if (node := self._node(one))]

    def _node(self, node: onnx.NodeProto) -> Node | None:
        if node.op_type == "Constant":
            [value] = node.attribute
            self._fixed[node.output[0]] = _constant(value)
            return None
        attributes = {one.name: _readable(onnx.helper.get_attribute_value(one)) for one in node.attribute}
        return Node(node.op_type, tuple(node.input), tuple(node.output), attributes)

    def to(self, device: torch.device, dtype: torch.dtype = torch.float32) -> "Graph":
        """Move the constants, in place."""
        self.weights = {name: value.to(device, dtype) for name, value in self.weights.items()}
        self._fixed = {
            name: value.to(device, dtype) if value.is_floating_point() else value for name, value in self._fixed.items()
        }
        return self

    def known(self, rows: Tensor, *, but: Collection[str] = ()) -> dict[str, Tensor | None]:
        """All values for these rows (batch, *input_shape) that depend on none of the weights named in `but`."""
        known = {**self._fixed, **self.weights, "": None, self._input: rows}
        for name in but:
            del known[name]
        self._run(known, NO_TAPS)
        return known

    def values(
        self, known: Known, weights: Mapping[str, Tensor], taps: Mapping[str, Tensor] = NO_TAPS
    ) -> dict[str, Tensor | None]:
        """All values of rows of which all is `known` but what depends on these weights. `taps`: is added to values of
        these names, once they were computed."""
        values = {**known, **weights}
        self._run(values, taps)
        return values

    def output(self, known: Known, weights: Mapping[str, Tensor], taps: Mapping[str, Tensor] = NO_TAPS) -> Tensor:
        """The network's own among those values  # (batch, k)"""
        return _tensor(self.values(known, weights, taps)[self._output])

    def __call__(self, rows: Tensor) -> Tensor:
        """The outputs of these rows (batch, *input_shape)  # (batch, k)"""
        return self.output(self.known(rows), {})

    def _run(self, values: dict[str, Tensor | None], taps: Mapping[str, Tensor]) -> None:
        """Add what follows from the values, and is not among them."""
        for node in self.nodes:
            if node.outputs[0] in values or not all(name in values for name in node.inputs):
                continue
            made = OPERATORS[node.operator](node.attributes, *(values[name] for name in node.inputs))
            values |= zip(node.outputs, made if isinstance(made, tuple) else (made,), strict=False)
            if tap := [name for name in node.outputs if name in taps]:
                values |= {name: _tensor(values[name]) + taps[name] for name in tap}


def _operators(graph: onnx.GraphProto) -> set[str]:
    return {node.op_type for node in graph.node}


def _tensor(value: Tensor | None) -> Tensor:
    assert value is not None
    return value


def _readable(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _constant(attribute: onnx.AttributeProto) -> Tensor:
    if attribute.name == "value":
        return torch.from_numpy(numpy_helper.to_array(attribute.t).copy())
    numbers = np.asarray(onnx.helper.get_attribute_value(attribute))
    return torch.from_numpy(numbers.astype(np.float32 if numbers.dtype.kind == "f" else np.int64))
