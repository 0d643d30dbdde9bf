"""A network made linear: scores o g(x) + J~(x) u around public weights w0, in any number of parameters u.

g is the network at w0, J its Jacobian in chosen weights, J~ = J / max(rho(x), rho_0) with rho(x) >= the operator norm
of J(x). So a row's gradient and curvature are bounded as those of a linear model on rows of norm 1, and its constants
hold (docs/mathematics/tangents.md). Nothing here depends on any other row.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.func import jacrev, jvp, vjp, vmap

from lethe.proof.network import Linearisation
from lethe.tangents.grams import grams, structured
from lethe.tangents.graph import Graph, Known

SLACK = 1 + 2.0**-10
"""The norm that a row is divided by is so much larger than the one computed: single precision is off by far less."""
_ROWS = 256  # that go through the network at a time
_JACOBIAN_NUMBERS = 2**25  # of the Jacobians that are there at a time

Slopes = Callable[[Tensor, slice], Tensor]
"""From the scores (b, k) of these rows to the slopes of their losses (b, k)."""


class Tangent:
    """`num_scores`: 1 for two classes, of a network of one output, or of two, whose difference is taken; k for more."""

    def __init__(self, graph: Graph, chosen: Linearisation, *, num_scores: int) -> None:
        """Raises ValueError for layers that the network has not, and for outputs that are not the scores."""
        if not set(chosen.layers) <= graph.weights.keys():
            raise ValueError("Expected the network to have the layers of its linearisation")
        self._graph, self._chosen, self._num_scores = graph, chosen, num_scores
        self._shapes = {name: chosen.shape(graph.weights[name].shape) for name in chosen.layers}
        self.num_parameters = sum(int(np.prod(shape)) for shape in self._shapes.values())
        self.num_features = int(np.prod(graph.input_shape))
        self._factors = dict(self._random_factors())
        self._structured = structured(graph, chosen.layers)
        outputs = graph(self._zeros((1, *graph.input_shape))).shape[-1]
        if outputs != num_scores and (num_scores, outputs) != (1, 2):
            raise ValueError(f"Expected a network of {num_scores} outputs")

    @property
    def _some(self) -> Tensor:
        """A weight, of the device and type of all."""
        return self._graph.weights[self._chosen.layers[0]]

    def _zeros(self, shape: tuple[int, ...]) -> Tensor:
        return self._some.new_zeros(shape)

    def _random_factors(self) -> Iterator[tuple[str, Tensor]]:
        drawn = np.random.Generator(np.random.Philox(self._chosen.seed))
        for name, shape in self._shapes.items():
            if shape != self._graph.weights[name].shape:
                width = self._graph.weights[name][0].numel()
                factor = drawn.standard_normal((self._chosen.rank, width)) / np.sqrt(width)
                yield name, torch.from_numpy(factor).to(self._some)

    def scales(self, rows: Tensor) -> Tensor:
        """1 / max(rho, rho_0) of rows (n, features), rho the norm of each Jacobian, rounded up  # (n,) float32"""
        found = []
        for start in range(0, len(rows), self._at_a_time):
            gram = self._grams(rows[start : start + self._at_a_time]).double()
            norms = torch.linalg.eigvalsh(gram)[:, -1].clamp_min(0).sqrt()
            found.append(1 / (SLACK * norms).clamp_min(self._chosen.least_norm))
        return torch.cat(found).float()

    def jacobians(self, rows: Tensor) -> Tensor:
        """J of each of a few rows (n, features)  # (n, k, parameters)"""
        return torch.cat(self._jacobians(rows, self._origin), 2)

    def _jacobians(self, rows: Tensor, moved: Mapping[str, Tensor]) -> list[Tensor]:
        """The part of J in each of these layers  # (n, k, parameters of the layer)"""

        def of_row(moves: Mapping[str, Tensor], row: Tensor) -> Tensor:
            return self._outputs({**self._origin, **moves}, self._known(row.unsqueeze(0)))[0]

        parts = vmap(jacrev(of_row), in_dims=(None, 0))(moved, rows)
        return [parts[name].flatten(2) for name in moved]

    def _grams(self, rows: Tensor) -> Tensor:
        """J J^T of each row  # (n, k, k)"""
        gram = self._some.new_zeros(len(rows), self._num_scores, self._num_scores)
        if self._structured:
            known = self._known(rows)
            gram = grams(self._graph, self._structured, known, scores=self._selected, factors=self._factors)
        for part in self._jacobians(rows, self._others) if self._others else ():
            gram = gram + part @ part.mT
        return gram

    def scores(self, parameters: Tensor, rows: Tensor, scales: Tensor) -> Tensor:
        """o g(x) + J~(x) u of rows (n, features)  # (n, k)"""
        moves = self._unflattened(parameters)
        return torch.cat([self._scores(moves, self._known(rows[here]), scales[here]) for here in _slices(len(rows))])

    def gradient(self, parameters: Tensor, rows: Tensor, scales: Tensor, slopes: Slopes) -> Tensor:
        """The sum over rows (n, features) of J~^T times the slope of their loss  # (parameters,) float64"""
        total = torch.zeros(self.num_parameters, dtype=torch.float64, device=rows.device)
        moves = self._unflattened(parameters)
        for here in _slices(len(rows)):
            known = self._known(rows[here])
            pulls = slopes(self._scores(moves, known, scales[here]), here) * scales[here, None]
            found = self._pull(known, pulls)
            total += torch.cat([found[name].flatten() for name in self._shapes])
        return total

    def _pull(self, known: Known, pulls: Tensor) -> dict[str, Tensor]:
        _, pull = vjp(lambda at: self._outputs(at, known), self._origin)  # type: ignore[misc]
        found: dict[str, Tensor] = pull(pulls)[0]
        return found

    def _scores(self, moves: Mapping[str, Tensor], known: Known, scales: Tensor) -> Tensor:
        outputs, moved = jvp(lambda at: self._outputs(at, known), (self._origin,), (moves,))  # type: ignore[misc]
        scores: Tensor = scales[:, None] * moved
        return scores + outputs if self._chosen.offset else scores

    def _known(self, rows: Tensor) -> Known:
        """All of these rows that no move changes."""
        shaped = rows.view(len(rows), *self._graph.input_shape)
        return self._graph.known(shaped, but=self._chosen.layers)

    def _outputs(self, moves: Mapping[str, Tensor], known: Known) -> Tensor:
        """The scores of the network itself at w0 + `moves`  # (n, k)"""
        weights = {}
        for name, move in moves.items():
            factor, start = self._factors.get(name), self._graph.weights[name]
            weights[name] = start + (move if factor is None else (move @ factor).view_as(start))
        return self._selected(self._graph.output(known, weights))

    def _selected(self, outputs: Tensor) -> Tensor:
        """The scores among the outputs of the network  # (n, k)"""
        return outputs if outputs.shape[-1] == self._num_scores else outputs[:, 1:] - outputs[:, :1]

    @cached_property
    def _origin(self) -> dict[str, Tensor]:
        return {name: self._zeros(shape) for name, shape in self._shapes.items()}

    @cached_property
    def _others(self) -> dict[str, Tensor]:
        """The moves, all zero, of layers whose Jacobians are computed row by row."""
        names = {layer.name for layer in self._structured}
        return {name: move for name, move in self._origin.items() if name not in names}

    @property
    def _at_a_time(self) -> int:
        """Rows whose Jacobians are there at a time, where they must be."""
        products = {layer.name for layer in self._structured if layer.node.operator == "Gemm"}
        numbers = sum(move.numel() for name, move in self._origin.items() if name not in products)
        return min(_ROWS, max(1, _JACOBIAN_NUMBERS // (self._num_scores * max(numbers, 1))))

    def _unflattened(self, parameters: Tensor) -> dict[str, Tensor]:
        sizes = [int(np.prod(shape)) for shape in self._shapes.values()]
        parts = torch.split(parameters.flatten().to(self._some), sizes)
        return {name: part.view(shape) for (name, shape), part in zip(self._shapes.items(), parts, strict=True)}


def _slices(num_rows: int) -> Iterator[slice]:
    return (slice(start, min(start + _ROWS, num_rows)) for start in range(0, num_rows, _ROWS))
