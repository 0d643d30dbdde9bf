"""The public encoding of `lethe.encoding` as ONNX, from the columns of a record to its row.

Numbers stay in double precision until the row is rounded, as in the gateway. Operators of ONNX cannot refuse a record:
the result is NaN for a record that the gateway would refuse.
"""

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from lethe.contract.problems import FieldError
from lethe.encoding.columns import Categorical, Column, Floats, Numeric, Standard, Vector
from lethe.encoding.rows import SHRINK, Schema
from lethe.errors import NotExpressible
from lethe.features.handover.onnx.graph import OWN, GraphBuilder

_EXPRESSIBLE = (Categorical, Numeric, Standard, Vector)
"""Kinds of columns whose features operators of ONNX can compute."""
OUTPUTS = ("probabilities", "scores", "value")


def require_expressible(schema: Schema) -> None:
    """Check that ONNX can express a schema, or raise `NotExpressible`, which names the columns."""
    kinds = ", ".join(sorted(kind.kind for kind in _EXPRESSIBLE))
    faults = [
        FieldError(f"columns.{column.name}", f"expected one of the kinds {kinds}, not {column.kind}")
        for column in schema.features
        if not isinstance(column, _EXPRESSIBLE)
    ]
    faults += [
        FieldError(f"columns.{column.name}", "expected a name that no other tensor of the file has")
        for column in schema.features
        if column.name in OUTPUTS or column.name.startswith(OWN)
    ]
    if schema.random:
        faults.append(FieldError("random_features", "expected none"))
    if faults:
        raise NotExpressible("Not all of the encoding can be written as ONNX: serve it by lethe.mlflow.", faults)


def columns(graph: GraphBuilder, schema: Schema) -> str:
    """Add the features (b, d) of a schema, whose columns are the inputs, by name."""
    return graph.concat([_column(graph, column) for column in schema.features])


def vectors(graph: GraphBuilder, length: int, *, kind: int) -> str:
    """Add the input `x` (b, length) of vectors without a schema, whose numbers must be finite."""
    x = graph.input("x", length, kind)
    finite = _finite(graph, x, np.float32 if kind == TensorProto.FLOAT else np.float64)
    _all_or_wrong(graph, finite, length)
    return x


def row(graph: GraphBuilder, features: str, width: int, *, large: bool) -> str:
    """Add the row (b, width + 1) with its bias, of norm <= 1, rounded to single precision.

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
            raise NotExpressible(f"A column of kind {column.kind} cannot be written as ONNX.")


def _number(graph: GraphBuilder, column: Numeric | Standard) -> str:
    """Add the features of a number, for which NaN stands for a missing value."""
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
