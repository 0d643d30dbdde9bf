"""Networks that can be differentiated here. This module does not need torch."""

from collections.abc import Iterable

OPSETS = range(13, 25)
"""Versions of the ONNX operator set whose operators the tests compare with onnxruntime's."""
_OPERATOR_NAMES = """
Add AveragePool BatchNormalization Cast Clip Concat Constant Conv Div Dropout Elu Erf Exp Flatten Gather Gelu Gemm
GlobalAveragePool HardSigmoid HardSwish Identity LayerNormalization LeakyRelu MatMul MaxPool Mod Mul Neg Pow
Reciprocal ReduceMean ReduceSum Relu Reshape Shape Sigmoid Slice Softmax Softplus Split Sqrt Squeeze Sub Tanh
Transpose Unsqueeze
"""
OPERATORS = frozenset(_OPERATOR_NAMES.split())


def unsupported(operators: Iterable[str], opset: int) -> str | None:
    """Return the reason why a network with these operators cannot be differentiated, or None if it can."""
    if opset not in OPSETS:
        return f"it is of opset {opset}, expected one from {OPSETS[0]} to {OPSETS[-1]}"
    if others := sorted(set(operators) - OPERATORS):
        return f"it has operators that cannot be differentiated here: {', '.join(others)}"
    return None
