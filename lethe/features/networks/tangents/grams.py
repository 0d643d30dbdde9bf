"""Each row's k x k matrix J J^T, without forming Jacobians of matrix products, convolutions and biases.

The derivative of score c in a weight of a product y_t = W h_t is the sum over places t of D_ct h_t^T, where D_ct is the
derivative of the score with respect to y_t. For a single place, J J^T is |h|^2 D D^T (for one output: Goodfellow 2015,
arXiv:1510.01799). k reverse passes through the network compute the D of all rows together.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as nn
from torch import Tensor
from torch.func import vjp, vmap

from lethe.features.networks.tangents.graph import Graph, Node, Values, tensor
from lethe.features.networks.tangents.operators import pads

Factors = tuple[Tensor, Tensor]
"""Tensors (b, k or 1, t, l) and (b, k or 1, t, r): the sum over t of their outer products is the derivative of each
score in a weight."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Layer whose weight is used by exactly one node.

    `factors` computes the Jacobian's factors from the node's input (b, ...) and the derivatives of the scores with
    respect to its output (b, k, ...).
    """

    name: str
    node: Node
    factors: Callable[[Node, Tensor, Tensor, Tensor], Factors]


def structured(graph: Graph, names: Iterable[str]) -> list[Layer]:
    """Return the layers in `names` whose weight is used by a single node, in a way covered by `_FACTORS`."""
    layers = []
    for name in names:
        users = [node for node in graph.nodes if name in node.inputs]
        if len(users) == 1 and users[0].inputs.count(name) == 1:
            factors = _FACTORS.get((users[0].operator, users[0].inputs.index(name)))
            if factors and _is_plain(users[0], graph.weights[name]):
                layers.append(Layer(name, users[0], factors))
    return layers


def grams(
    graph: Graph,
    layers: list[Layer],
    base: Values,
    *,
    scores: Callable[[Tensor], Tensor],
    factors: Mapping[str, Tensor],
) -> Tensor:
    """Return each row's J J^T for these layers, at the network's own weights  # (b, k, k)

    `base` has all rows' values that do not depend on moving weights; `scores` selects the scores from the outputs; and
    `factors` maps each layer whose weight moves by U A to its A (r, in).
    """
    weights = {name: value for name, value in graph.weights.items() if name not in base}
    tapped = {layer.node.outputs[0] for layer in layers}
    values = graph.values(base, weights)
    taps = {name: torch.zeros_like(tensor(values[name])) for name in tapped}
    outputs, pull = vjp(lambda at: scores(graph.output(base, weights, at)), taps)  # type: ignore[misc]
    num_rows, num_scores = outputs.shape
    cotangents = torch.eye(num_scores, dtype=outputs.dtype, device=outputs.device)[:, None].expand(-1, num_rows, -1)
    # (k, b, ...) for each tap.
    derivatives = vmap(lambda cotangent: pull(cotangent)[0])(cotangents)
    total = outputs.new_zeros(num_rows, num_scores, num_scores)
    for layer in layers:
        node, weight = layer.node, graph.weights[layer.name]
        mine = derivatives[node.outputs[0]].transpose(0, 1)
        left, right = layer.factors(node, tensor(values[node.inputs[0]]), mine, weight)
        total += _gram(left, right @ factors[layer.name].T if layer.name in factors else right)
    return torch.as_tensor(total)


def _gram(left: Tensor, right: Tensor) -> Tensor:
    """Return J J^T for the Jacobians whose factors are `left` and `right`  # (b, k, k)"""
    if left.shape[2] == 1:
        return torch.mul(left[:, :, 0] @ left[:, :, 0].mT, right[:, :, 0] @ right[:, :, 0].mT)
    jacobians = (left.mT @ right).flatten(2)
    return torch.matmul(jacobians, jacobians.mT)


def _of_gemm(node: Node, inputs: Tensor, derivatives: Tensor, weight: Tensor) -> Factors:
    inputs, derivatives = node.attributes.get("alpha", 1.0) * inputs[:, None, None], derivatives[:, :, None]
    return (derivatives, inputs) if node.attributes.get("transB") else (inputs, derivatives)


def _of_matmul(node: Node, inputs: Tensor, derivatives: Tensor, weight: Tensor) -> Factors:
    return inputs.reshape(len(inputs), 1, -1, inputs.shape[-1]), derivatives.flatten(
        2, -2
    ) if derivatives.dim() > 3 else (derivatives[:, :, None])


def _of_convolution(node: Node, inputs: Tensor, derivatives: Tensor, weight: Tensor) -> Factors:
    attributes, kernel = node.attributes, weight.shape[2:]
    padded = nn.pad(inputs, pads(attributes, inputs.shape[2:], kernel))
    dilations, strides = attributes.get("dilations", [1, 1]), attributes.get("strides", [1, 1])
    # (b, in, t)
    unfolded = nn.unfold(padded, tuple(kernel), dilation=dilations, stride=strides)
    return derivatives.flatten(3).mT, unfolded.mT[:, None]


def _of_bias(node: Node, inputs: Tensor, derivatives: Tensor, weight: Tensor) -> Factors:
    """Return the Jacobian's factors for a bias that is added along the last axis."""
    summed = derivatives.flatten(2, -2).sum(2) if derivatives.dim() > 3 else derivatives
    return node.attributes.get("beta", 1.0) * summed[:, :, None], derivatives.new_ones(1, 1, 1, 1)


def _of_channels(node: Node, inputs: Tensor, derivatives: Tensor, weight: Tensor) -> Factors:
    """Return the Jacobian's factors for a convolution's bias."""
    return derivatives.flatten(3).sum(3)[:, :, None], derivatives.new_ones(1, 1, 1, 1)


_FACTORS = {
    ("Add", 0): _of_bias,
    ("Add", 1): _of_bias,
    ("Conv", 1): _of_convolution,
    ("Conv", 2): _of_channels,
    ("Gemm", 1): _of_gemm,
    ("Gemm", 2): _of_bias,
    ("MatMul", 1): _of_matmul,
}


def _is_plain(node: Node, weight: Tensor) -> bool:
    """Return True if `_FACTORS` covers the node's attributes and its weight's shape."""
    match node.operator:
        case "Conv":
            return weight.dim() == 1 or (weight.dim() == 4 and node.attributes.get("group", 1) == 1)
        case "Gemm":
            return not node.attributes.get("transA")
        case "Add":
            return weight.dim() == 1 and math.prod(weight.shape) > 1
        case _:
            return weight.dim() == 2
