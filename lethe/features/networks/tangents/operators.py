"""ONNX operators that can be differentiated here, computed by torch.

Their semantics are those of https://onnx.ai/onnx/operators, for the opsets in `supported.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as nn
from torch import Tensor

Attributes = Mapping[str, Any]
Operator = Callable[..., Tensor | tuple[Tensor, ...]]


class UnsupportedOperator(ValueError):
    """Operator, or operator setting, that cannot be differentiated here; the message names it."""


def pads(attributes: Attributes, sizes: Sequence[int], kernel: Sequence[int], ceil: bool = False) -> list[int]:
    """Return torch's padding for a convolution or pool: (before, after) for each spatial axis, last axis first."""
    axes = len(kernel)
    strides, dilations = attributes.get("strides", [1] * axes), attributes.get("dilations", [1] * axes)
    match attributes.get("auto_pad", "NOTSET"):
        case "NOTSET":
            numbers = attributes.get("pads", [0] * 2 * axes)
            both = list(zip(numbers[:axes], numbers[axes:], strict=True))
        case "VALID":
            both = [(0, 0)] * axes
        case same:
            both = []
            for size, k, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
                total = max((-(-size // stride) - 1) * stride + dilation * (k - 1) + 1 - size, 0)
                less, more = total // 2, total - total // 2
                both.append((less, more) if same == "SAME_UPPER" else (more, less))
    if ceil:
        raise UnsupportedOperator("Pooling with ceil_mode is not supported.")
    return [side for pair in reversed(both) for side in pair]


def _convolve(a: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    kernel = weight.shape[2:]
    padded = nn.pad(x, pads(a, x.shape[2:], kernel))
    run = (nn.conv1d, nn.conv2d, nn.conv3d)[len(kernel) - 1]
    axes = len(kernel)
    return run(
        padded,
        weight,
        bias,
        stride=a.get("strides", [1] * axes),
        dilation=a.get("dilations", [1] * axes),
        groups=a.get("group", 1),
    )


def _max_pool(a: Attributes, x: Tensor) -> Tensor:
    kernel = a["kernel_shape"]
    around = pads(a, x.shape[2:], kernel, bool(a.get("ceil_mode")))
    padded = nn.pad(x, around, value=float("-inf")) if any(around) else x
    run: Operator = (nn.max_pool1d, nn.max_pool2d, nn.max_pool3d)[len(kernel) - 1]
    strides, dilations = a.get("strides", [1] * len(kernel)), a.get("dilations", [1] * len(kernel))
    pooled = run(padded, kernel, strides, dilation=dilations)
    assert isinstance(pooled, Tensor)
    return pooled


def _average_pool(a: Attributes, x: Tensor) -> Tensor:
    kernel = a["kernel_shape"]
    if any(dilation != 1 for dilation in a.get("dilations", ())):
        raise UnsupportedOperator("AveragePool with dilations is not supported.")
    around = pads(a, x.shape[2:], kernel, bool(a.get("ceil_mode")))
    if any(around) and not a.get("count_include_pad"):
        raise UnsupportedOperator("AveragePool that pads and does not count the padding is not supported.")
    run: Operator = (nn.avg_pool1d, nn.avg_pool2d, nn.avg_pool3d)[len(kernel) - 1]
    pooled = run(nn.pad(x, around), kernel, a.get("strides", [1] * len(kernel)))
    assert isinstance(pooled, Tensor)
    return pooled


def _gemm(a: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    left = x.transpose(-1, -2) if a.get("transA") else x
    right = weight.transpose(-1, -2) if a.get("transB") else weight
    product: Tensor = a.get("alpha", 1.0) * (left @ right)
    return product if bias is None else product + a.get("beta", 1.0) * bias


def _normalise_batch(a: Attributes, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    if a.get("training_mode"):
        raise UnsupportedOperator("BatchNormalization in training mode makes a row depend on others.")
    shape = (1, -1, *(1,) * (x.dim() - 2))
    factor = scale / torch.sqrt(variance + a.get("epsilon", 1e-5))
    return x * factor.view(shape) + (bias - mean * factor).view(shape)


def _normalise_layer(a: Attributes, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    axes = tuple(range(a.get("axis", -1) % x.dim(), x.dim()))
    centred = x - x.mean(axes, keepdim=True)
    normal = centred * torch.rsqrt(centred.square().mean(axes, keepdim=True) + a.get("epsilon", 1e-5)) * scale
    return normal if bias is None else normal + bias


def _reshape(a: Attributes, x: Tensor, shape: Tensor) -> Tensor:
    sizes = shape.tolist()
    if not a.get("allowzero"):
        sizes = [x.shape[i] if size == 0 else size for i, size in enumerate(sizes)]
    return x.reshape(sizes)


def _flatten(a: Attributes, x: Tensor) -> Tensor:
    axis = a.get("axis", 1)
    axis += x.dim() if axis < 0 else 0
    return x.reshape(int(np.prod(x.shape[:axis])), -1)


def _slice(
    _: Attributes, x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None = None, steps: Tensor | None = None
) -> Tensor:
    along = axes.tolist() if axes is not None else range(len(starts))
    strides = steps.tolist() if steps is not None else [1] * len(starts)
    for start, end, axis, step in zip(starts.tolist(), ends.tolist(), along, strides, strict=True):
        indices = range(x.shape[axis])[start:end:step]
        x = x.index_select(axis, torch.tensor(list(indices), dtype=torch.long, device=x.device))
    return x


def _axes(a: Attributes, axes: Tensor | None) -> list[int] | None:
    """Return a node's axes, which are an attribute in older opsets and an input in newer ones."""
    numbers = a.get("axes") if axes is None else axes.tolist()
    return None if numbers is None else list(numbers)


def _reduce(a: Attributes, x: Tensor, axes: Tensor | None, reduction: Callable[..., Tensor]) -> Tensor:
    along = [axis % x.dim() for axis in _axes(a, axes) or range(x.dim())]
    if 0 in along and x.dim() > 1:
        raise UnsupportedOperator("A reduction over the batch makes a row depend on others.")
    return reduction(x, along, keepdim=bool(a.get("keepdims", 1)))


def _squeeze(a: Attributes, x: Tensor, axes: Tensor | None = None) -> Tensor:
    along = _axes(a, axes)
    return x.squeeze() if along is None else x.squeeze(tuple(along))


def _unsqueeze(a: Attributes, x: Tensor, axes: Tensor | None = None) -> Tensor:
    along = _axes(a, axes) or []
    rank = x.dim() + len(along)
    for axis in sorted(axis % rank for axis in along):
        x = x.unsqueeze(axis)
    return x


def _split(a: Attributes, x: Tensor, sizes: Tensor | None = None) -> tuple[Tensor, ...]:
    axis = a.get("axis", 0)
    return torch.split(x, -(-x.shape[axis] // a["num_outputs"]) if sizes is None else sizes.tolist(), axis)


def _gather(a: Attributes, x: Tensor, indices: Tensor) -> Tensor:
    axis = a.get("axis", 0)
    chosen = torch.where(indices < 0, indices + x.shape[axis], indices)
    entries = x.index_select(axis, chosen.reshape(-1).to(x.device))
    return entries.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


_TYPES = {1: torch.float32, 6: torch.int32, 7: torch.int64, 9: torch.bool}


def _cast(a: Attributes, x: Tensor) -> Tensor:
    if a["to"] not in _TYPES:
        raise UnsupportedOperator("Cast to a type other than float, int32, int64 and bool is not supported.")
    kind = _TYPES[a["to"]]
    return x if kind == torch.float32 and x.is_floating_point() else x.to(kind)


OPERATORS: dict[str, Operator] = {
    "Add": lambda _, x, y: x + y,
    "AveragePool": _average_pool,
    "BatchNormalization": _normalise_batch,
    "Cast": _cast,
    "Clip": lambda _, x, low=None, high=None: torch.clamp(x, low, high),
    "Concat": lambda a, *x: torch.cat(x, a["axis"]),
    "Conv": _convolve,
    "Div": lambda _, x, y: x / y if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc"),
    "Dropout": lambda _, x, *_rest: x,
    "Elu": lambda a, x: nn.elu(x, a.get("alpha", 1.0)),
    "Erf": lambda _, x: torch.erf(x),
    "Exp": lambda _, x: torch.exp(x),
    "Flatten": _flatten,
    "Gather": _gather,
    "Gelu": lambda a, x: nn.gelu(x, approximate=a.get("approximate", "none")),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda _, x: x.mean(tuple(range(2, x.dim())), keepdim=True),
    "HardSigmoid": lambda a, x: torch.clamp(a.get("alpha", 0.2) * x + a.get("beta", 0.5), 0, 1),
    "HardSwish": lambda _, x: x * torch.clamp(x / 6 + 0.5, 0, 1),
    "Identity": lambda _, x: x,
    "LayerNormalization": _normalise_layer,
    "LeakyRelu": lambda a, x: nn.leaky_relu(x, a.get("alpha", 0.01)),
    "MatMul": lambda _, x, y: x @ y,
    "MaxPool": _max_pool,
    "Mod": lambda _, x, y: torch.remainder(x, y),
    "Mul": lambda _, x, y: x * y,
    "Neg": lambda _, x: -x,
    "Pow": lambda _, x, y: torch.pow(x, y),
    "Reciprocal": lambda _, x: 1 / x,
    "ReduceMean": lambda a, x, axes=None: _reduce(a, x, axes, torch.mean),
    "ReduceSum": lambda a, x, axes=None: _reduce(a, x, axes, torch.sum),
    "Relu": lambda _, x: nn.relu(x),
    "Reshape": _reshape,
    "Shape": lambda a, x: torch.tensor(x.shape[a.get("start", 0) : a.get("end", None)], dtype=torch.int64),
    "Sigmoid": lambda _, x: torch.sigmoid(x),
    "Slice": _slice,
    "Softmax": lambda a, x: torch.softmax(x, a.get("axis", -1)),
    "Softplus": lambda _, x: nn.softplus(x),
    "Split": _split,
    "Sqrt": lambda _, x: torch.sqrt(x),
    "Squeeze": _squeeze,
    "Sub": lambda _, x, y: x - y,
    "Tanh": lambda _, x: torch.tanh(x),
    "Transpose": lambda a, x: x.permute(a.get("perm", tuple(reversed(range(x.dim()))))),
    "Unsqueeze": _unsqueeze,
}
"""Each operator's function of a node's attributes and inputs; an omitted input is None."""
