"""The k x k matrices J J^T of rows, without their Jacobians where a layer is a matrix product, a convolution or a bias.

In a weight of a product y_t = W h_t the derivative of score c is the sum over places t of D_ct h_t^T, with D_ct that of
the score in y_t. Of one place J J^T is |h|^2 D D^T (as for one output Goodfellow 2015, arXiv:1510.01799). The D of all
rows come from k reverse passes through the network together.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as nn
from torch import Tensor
from torch.func import vjp, vmap

from lethe.tangents.graph import Graph, Known, Node
from lethe.tangents.operators import pads

Factors = tuple[Tensor, Tensor]  # (b, k or 1, t, l) and (b, k or 1, t, r)
"""The derivative of each score in a weight is the sum over t of their outer products."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A weight that one node uses. `factors`: from what the node takes and the derivatives of the scores in what it
    gives, (b, ...) and (b, k, ...)."""

    name: str
    node: Node
    factors: Callable[[Node, Tensor, Tensor, Tensor], Factors]


def structured(graph: Graph, names: Iterable[str]) -> list[Layer]:
    """The weights of these names that one node uses, in a way whose derivative is known here."""
    found = []
    for name in names:
        users = [node for node in graph.nodes if name in node.inputs]
        if len(users) == 1 and users[0].inputs.count(name) == 1:
            factors = _FACTORS.get((users[0].operator, users[0].inputs.index(name)))
            if factors and _is_plain(users[0], graph.weights[name]):
                found.append(Layer(name, users[0], factors))
    return found


def grams(
    graph: Graph,
    layers: list[Layer],
    known: Known,
    *,
    scores: Callable[[Tensor], Tensor],
    factors: Mapping[str, Tensor],
) -> Tensor:
    """J J^T of each row in these layers, at the weights that the network has  # (b, k, k)

    `known`: all values for the rows that depend on no weight that moves; `scores`: of the network's outputs; `factors`:
    A (r, in) of each layer that moves by U A.
    """
    weights = {name: value for name, value in graph.weights.items() if name not in known}
    tapped = {layer.node.outputs[0] for layer in layers}
    values = graph.values(known, weights)
    taps = {name: torch.zeros_like(_tensor(values, name)) for name in tapped}
    found, pull = vjp(lambda at: scores(graph.output(known, weights, at)), taps)  # type: ignore[misc]
    num_rows, num_scores = found.shape
    each = torch.eye(num_scores, dtype=found.dtype, device=found.device)[:, None].expand(-1, num_rows, -1)
    derivatives = vmap(lambda cotangent: pull(cotangent)[0])(each)  # (k, b, ...) of each
    total = found.new_zeros(num_rows, num_scores, num_scores)
    for layer in layers:
        node, weight = layer.node, graph.weights[layer.name]
        mine = derivatives[node.outputs[0]].transpose(0, 1)
        left, right = layer.factors(node, _tensor(values, node.inputs[0]), mine, weight)
        total += _gram(left, right @ factors[layer.name].T if layer.name in factors else right)
    return torch.as_tensor(total)


def _gram(left: Tensor, right: Tensor) -> Tensor:
    """# (b, k, k)"""
    if left.shape[2] == 1:
        return torch.mul(left[:, :, 0] @ left[:, :, 0].mT, right[:, :, 0] @ right[:, :, 0].mT)
    jacobians = (left.mT @ right).flatten(2)  # (b, k, l r)
    return torch.matmul(jacobians, jacobians.mT)


def _of_gemm(node: Node, taken: Tensor, derivatives: Tensor, weight: Tensor) -> Factors:
    taken, derivatives = node.attributes.get("alpha", 1.0) * taken[:, None, None], derivatives[:, :, None]
    return (derivatives, taken) if node.attributes.get("transB") else (taken, derivatives)


def _of_matmul(node: Node, taken: Tensor, derivatives: Tensor, weight: Tensor) -> Factors:
    return taken.reshape(len(taken), 1, -1, taken.shape[-1]), derivatives.flatten(2, -2) if derivatives.dim() > 3 else (
        derivatives[:, :, None]
    )


def _of_convolution(node: Node, taken: Tensor, derivatives: Tensor, weight: Tensor) -> Factors:
    attributes, kernel = node.attributes, weight.shape[2:]
    padded = nn.pad(taken, pads(attributes, taken.shape[2:], kernel))
    dilations, strides = attributes.get("dilations", [1, 1]), attributes.get("strides", [1, 1])
    unfolded = nn.unfold(padded, tuple(kernel), dilation=dilations, stride=strides)  # (b, in, t)
    return derivatives.flatten(3).mT, unfolded.mT[:, None]


def _of_bias(node: Node, taken: Tensor, derivatives: Tensor, weight: Tensor) -> Factors:
    """One that is added along the last axis."""
    summed = derivatives.flatten(2, -2).sum(2) if derivatives.dim() > 3 else derivatives
    return node.attributes.get("beta", 1.0) * summed[:, :, None], derivatives.new_ones(1, 1, 1, 1)


def _of_channels(node: Node, taken: Tensor, derivatives: Tensor, weight: Tensor) -> Factors:
    """A bias of a convolution."""
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
    """Return True for the usual settings of the operators in `_FACTORS`."""
    match node.operator:
        case "Conv":
            return weight.dim() == 1 or (weight.dim() == 4 and node.attributes.get("group", 1) == 1)
        case "Gemm":
            return not node.attributes.get("transA")
        case "Add":
            return weight.dim() == 1 and math.prod(weight.shape) > 1
        case _:
            return weight.dim() == 2


def _tensor(values: Mapping[str, Tensor | None], name: str) -> Tensor:
    found = values[name]
    assert found is not None
    return found
