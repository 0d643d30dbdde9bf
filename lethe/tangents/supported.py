"""Networks whose derivatives can be computed here, told without torch."""

from collections.abc import Iterable

OPSETS = range(13, 25)
OPERATORS = frozenset(
    [
        "Add",
        "AveragePool",
        "BatchNormalization",
        "Cast",
        "Clip",
        "Concat",
        "Constant",
        "Conv",
        "Div",
        "Dropout",
        "Elu",
        "Erf",
        "Exp",
        "Flatten",
        "Gather",
        "Gelu",
        "Gemm",
        "GlobalAveragePool",
        "HardSigmoid",
        "HardSwish",
        "Identity",
        "LayerNormalization",
        "LeakyRelu",
        "MatMul",
        "MaxPool",
        "Mod",
        "Mul",
        "Neg",
        "Pow",
        "Reciprocal",
        "ReduceMean",
        "ReduceSum",
        "Relu",
        "Reshape",
        "Shape",
        "Sigmoid",
        "Slice",
        "Softmax",
        "Softplus",
        "Split",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Tanh",
        "Transpose",
        "Unsqueeze",
    ]
)


def unsupported(operators: Iterable[str], opset: int) -> str | None:
    """The reason why a network of these operators cannot be differentiated, None where it can."""
    if opset not in OPSETS:
        return f"it is of opset {opset}, expected one from {OPSETS[0]} to {OPSETS[-1]}"
    if others := sorted(set(operators) - OPERATORS):
        return f"it has operators that cannot be differentiated here: {', '.join(others)}"
    return None
