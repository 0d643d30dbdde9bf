"""An ONNX graph that is written node by node, of operators that mean the same in every opset of a public network."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
"""The operators of ONNX, where no network brings others."""
ML_OPSET = 3
"""The operators of `ai.onnx.ml`, where a column is categorical."""
IR_VERSION = 8
"""The least that a runtime must read."""
_ML = "ai.onnx.ml"
_NETWORK = "network/"
"""The beginning of all names of a network inside the whole."""
_STEP = "lethe/"
OWN = (_NETWORK, _STEP)
"""Names of columns begin otherwise."""


class Graph:
    """A graph as it grows: tensors are named by numbers, and all are (b, ...) for b rows.

    `wrong`: masks (b, 1) of the rows that the gateway would refuse.
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
        """An input (b, width) of the file."""
        self._declared.append(helper.make_tensor_value_info(name, kind, ["batch", width]))
        self.inputs.append(name)
        return name

    def constant(self, value: npt.ArrayLike, kind: npt.DTypeLike = np.float64) -> str:
        name = self._name()
        self._initializers.append(numpy_helper.from_array(np.asarray(value, kind), name))
        return name

    def add(self, operator: str, *inputs: str, output: str | None = None, domain: str = "", **attributes: Any) -> str:
        """Add a node; returns its output."""
        output = output or self._name()
        self._nodes.append(helper.make_node(operator, list(inputs), [output], domain=domain, **attributes))
        return output

    def concat(self, tensors: Sequence[str]) -> str:
        return tensors[0] if len(tensors) == 1 else self.add("Concat", *tensors, axis=1)

    def double(self, tensor: str) -> str:
        return self.add("Cast", tensor, to=TensorProto.DOUBLE)

    def total(self, tensor: str, width: int) -> str:
        """The sum of each row  # (b, width) -> (b, 1)"""
        return self.add("MatMul", tensor, self.constant(np.ones((width, 1))))

    def one_hot(self, texts: str, names: Sequence[str]) -> str:
        """A place for each name, 0 for all of them for any other text  # (b, 1) -> (b, len(names))"""
        found = self.add("OneHotEncoder", texts, domain=_ML, cats_strings=list(names), zeros=1)
        return self.double(self.add("Flatten", found, axis=1))

    def network(self, content: bytes, numbers: str) -> str:
        """The features (b, k) that a public network makes of numbers (b, d), which it gets as 32-bit floats."""
        model = onnx.compose.add_prefix(onnx.load_model_from_string(content), _NETWORK)
        self._opset = next(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
        self._ir_version = max(IR_VERSION, model.ir_version)
        weights = {one.name for one in model.graph.initializer}
        [given] = [one for one in model.graph.input if one.name not in weights]
        shape = [one.dim_value for one in given.type.tensor_type.shape.dim[1:]]
        floats = self.add("Cast", numbers, to=TensorProto.FLOAT)
        self.add("Reshape", floats, self.constant([-1, *shape], np.int64), output=given.name)
        self._nodes += model.graph.node
        self._initializers += model.graph.initializer
        return self.double(model.graph.output[0].name)

    def finished(self, name: str, result: str, width: int) -> Any:
        """The file with one output: NaN for rows that are `wrong`. Raises what the checker of ONNX raises."""
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
