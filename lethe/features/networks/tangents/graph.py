"""ONNX network as a function of its weights and input, which torch can differentiate."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor

from lethe.features.networks.tangents.operators import OPERATORS, UnsupportedOperator
from lethe.features.networks.tangents.supported import unsupported

Values = Mapping[str, Tensor | None]
"""A network's values for a batch of rows, by name; None for an omitted input."""

NO_TAPS: Mapping[str, Tensor] = {}


@dataclass(frozen=True, slots=True)
class Node:
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


class Graph:
    """Network with one input (batch, ...) and one output (batch, k); `weights` holds its float32 initializers."""

    def __init__(self, content: bytes) -> None:
        """Load the network.

        Raises:
            UnsupportedOperator: if the network cannot be differentiated; the message names the operators.
            ValueError: if the network does not have exactly one input and one output.
        """
        model = onnx.load_from_string(content)
        versions = {imported.domain: imported.version for imported in model.opset_import}
        graph = model.graph
        opset = versions.pop("", versions.pop("ai.onnx", 0))
        operators = {node.op_type for node in graph.node}
        if why := "it has operators that are not of ONNX" if versions else unsupported(operators, opset):
            raise UnsupportedOperator(f"The network cannot be differentiated: {why}.")
        constants = {item.name: torch.from_numpy(numpy_helper.to_array(item).copy()) for item in graph.initializer}
        self.weights = {name: value for name, value in constants.items() if value.dtype == torch.float32}
        self._fixed = {name: value for name, value in constants.items() if name not in self.weights}
        inputs = [candidate for candidate in graph.input if candidate.name not in constants]
        if len(inputs) != 1 or len(graph.output) != 1:
            raise ValueError("Expected a network of one input and one output")
        self._input, self._output = inputs[0].name, graph.output[0].name
        self.input_shape = tuple(dim.dim_value for dim in inputs[0].type.tensor_type.shape.dim[1:])
        self.nodes = [node for proto in graph.node if (node := self._node(proto))]

    def _node(self, node: onnx.NodeProto) -> Node | None:
        if node.op_type == "Constant":
            [value] = node.attribute
            self._fixed[node.output[0]] = _constant(value)
            return None
        values = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
        attributes = {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}
        return Node(node.op_type, tuple(node.input), tuple(node.output), attributes)

    def to(self, device: torch.device, dtype: torch.dtype = torch.float32) -> "Graph":
        """Move the weights and constants in place, and return the graph."""
        self.weights = {name: value.to(device, dtype) for name, value in self.weights.items()}
        self._fixed = {
            name: value.to(device, dtype) if value.is_floating_point() else value for name, value in self._fixed.items()
        }
        return self

    def base_values(self, rows: Tensor, *, but: Collection[str] = ()) -> dict[str, Tensor | None]:
        """For rows (batch, *input_shape), return the values that do not depend on the weights named in `but`."""
        base = self.constants(but=but) | {self._input: rows}
        self._run(base, NO_TAPS)
        return base

    def constants(self, *, but: Collection[str] = ()) -> dict[str, Tensor | None]:
        """Return the constants and weights not named in `but`, and the value that stands for an omitted input."""
        return {name: value for name, value in {**self._fixed, **self.weights, "": None}.items() if name not in but}

    def values(
        self, base: Values, weights: Mapping[str, Tensor], taps: Mapping[str, Tensor] = NO_TAPS
    ) -> dict[str, Tensor | None]:
        """Complete the `base` values with those that depend on `weights`, and add `taps` to the values they name."""
        values = {**base, **weights}
        self._run(values, taps)
        return values

    def output(self, base: Values, weights: Mapping[str, Tensor], taps: Mapping[str, Tensor] = NO_TAPS) -> Tensor:
        """Return the network's output, computed by `values`  # (batch, k)"""
        return tensor(self.values(base, weights, taps)[self._output])

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the outputs for rows (batch, *input_shape)  # (batch, k)"""
        return self.output(self.base_values(rows), {})

    def _run(self, values: dict[str, Tensor | None], taps: Mapping[str, Tensor]) -> None:
        """Compute the missing values whose inputs are in `values`, and add them to `values`."""
        for node in self.nodes:
            if node.outputs[0] in values or not all(name in values for name in node.inputs):
                continue
            results = OPERATORS[node.operator](node.attributes, *(values[name] for name in node.inputs))
            values |= zip(node.outputs, results if isinstance(results, tuple) else (results,), strict=False)
            if tap := [name for name in node.outputs if name in taps]:
                values |= {name: tensor(values[name]) + taps[name] for name in tap}


def tensor(value: Tensor | None) -> Tensor:
    """Return `value`, which must not be None."""
    assert value is not None
    return value


def _constant(attribute: onnx.AttributeProto) -> Tensor:
    if attribute.name == "value":
        return torch.from_numpy(numpy_helper.to_array(attribute.t).copy())
    numbers = np.asarray(onnx.helper.get_attribute_value(attribute))
    return torch.from_numpy(numbers.astype(np.float32 if numbers.dtype.kind == "f" else np.int64))
