"""An ONNX graph built node by node, from operators with the same meaning in every opset of a public network."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
"""Opset of ONNX if the graph has no public network."""
ML_OPSET = 3
"""Opset of `ai.onnx.ml`, used for categorical columns."""
IR_VERSION = 8
"""Minimum IR version of a file."""
_ML = "ai.onnx.ml"
_NETWORK = "network/"
"""Prefix of all names of a public network inside the graph."""
_STEP = "lethe/"
OWN = (_NETWORK, _STEP)
"""Reserved prefixes, which no column name may have."""


class GraphBuilder:
    """A graph under construction. Tensors are named by numbers, and are (b, ...) for b rows.

    `wrong` has masks (b, 1) of the rows that the gateway would refuse.
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
        """Declare an input (b, width) of the file and return its name."""
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
        """Add the sum of each row  # (b, width) -> (b, 1)"""
        return self.add("MatMul", tensor, self.constant(np.ones((width, 1))))

    def one_hot(self, texts: str, names: Sequence[str]) -> str:
        """Add the indicators of `names`, all 0 for another text  # (b, 1) -> (b, len(names))"""
        indicators = self.add("OneHotEncoder", texts, domain=_ML, cats_strings=list(names), zeros=1)
        return self.double(self.add("Flatten", indicators, axis=1))

    def network(self, content: bytes, numbers: str) -> str:
        """Add a public network and its features (b, k) of numbers (b, d), which are rounded to 32-bit floats."""
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
        """Return the checked file with one output, which is NaN for rows that are `wrong`."""
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
