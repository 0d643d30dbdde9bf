"""A linearised network: scores o g(x) + J~(x) u at public weights w0, in any number of parameters u.

g is the network at w0, J its Jacobian in chosen weights, and J~ = J / max(rho(x), rho_0), where rho(x) is at least the
operator norm of J(x). A row's gradient and curvature are therefore bounded as in a linear model on rows of norm 1, so
that its constants apply (docs/mathematics/tangents.md). The network sees one row at a time (`vmap`), so that no result
for a row can depend on another row.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import jacrev, jvp, vjp, vmap

from lethe.features.networks.tangents.grams import grams, structured
from lethe.features.networks.tangents.graph import Graph, Values
from lethe.proof.network import Linearisation

SLACK = 1 + 2.0**-10
"""Factor by which computed norms are rounded up; the margin is far larger than the error of single precision."""
_BATCH_ROWS = 256
"""Maximum number of rows that pass through the network together."""
_JACOBIAN_NUMBERS = 2**25
"""Maximum number of Jacobian entries held in memory."""

Slopes = Callable[[Tensor, slice], Tensor]
"""Function that maps the scores (b, k) of a slice of the rows to the slopes of their losses (b, k)."""


class Tangent:
    """A network's tangent model.

    `num_scores` is the number of classes or labels, except for two classes: then it is 1, and the network has either
    one output or two outputs whose difference is the score.
    """

    def __init__(self, graph: Graph, chosen: Linearisation, *, num_scores: int) -> None:
        """Linearise `graph`. Raises ValueError for unknown layers or a wrong number of outputs."""
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
        """Arbitrary weight, from which new tensors take the device and type that all weights share."""
        return self._graph.weights[self._chosen.layers[0]]

    def _zeros(self, shape: tuple[int, ...]) -> Tensor:
        return self._some.new_zeros(shape)

    def _random_factors(self) -> Iterator[tuple[str, Tensor]]:
        generator = np.random.Generator(np.random.Philox(self._chosen.seed))
        for name, shape in self._shapes.items():
            if shape != self._graph.weights[name].shape:
                width = self._graph.weights[name][0].numel()
                factor = generator.standard_normal((self._chosen.rank, width)) / np.sqrt(width)
                yield name, torch.from_numpy(factor).to(self._some)

    def scales(self, rows: Tensor) -> Tensor:
        """Return 1 / max(rho, rho_0) for rows (n, features); rho is the Jacobian's norm, rounded up  # (n,) float32"""
        scales = []
        for start in range(0, len(rows), self._at_a_time):
            gram = self._grams(rows[start : start + self._at_a_time]).double()
            norms = torch.linalg.eigvalsh(gram)[:, -1].clamp_min(0).sqrt()
            scales.append(1 / (SLACK * norms).clamp_min(self._chosen.least_norm))
        return torch.cat(scales).float()

    def jacobians(self, rows: Tensor) -> Tensor:
        """Return J for each of a small number of rows (n, features)  # (n, k, parameters)"""
        return torch.cat(self._jacobians(rows, self._origin), 2)

    def _jacobians(self, rows: Tensor, moved: Mapping[str, Tensor]) -> list[Tensor]:
        """Return the part of J for each layer in `moved`  # (n, k, parameters of the layer)"""

        def of_row(moves: Mapping[str, Tensor], base: Values) -> Tensor:
            return self._outputs_of_row({**self._origin, **moves}, base)

        parts = vmap(jacrev(of_row), in_dims=(None, 0))(moved, self._base_values(rows))
        return [parts[name].flatten(2) for name in moved]

    def _grams(self, rows: Tensor) -> Tensor:
        """Return each row's J J^T  # (n, k, k)"""
        gram = self._some.new_zeros(len(rows), self._num_scores, self._num_scores)
        if self._structured:
            gram = vmap(self._gram_of_row)(self._base_values(rows))
        for part in self._jacobians(rows, self._others) if self._others else ():
            gram = gram + part @ part.mT
        return gram

    def scores(self, parameters: Tensor, rows: Tensor, scales: Tensor) -> Tensor:
        """Return the scores o g(x) + J~(x) u of rows (n, features)  # (n, k)"""
        moves = self._unflattened(parameters)
        return torch.cat(
            [self._scores(moves, self._base_values(rows[block]), scales[block]) for block in _blocks(len(rows))]
        )

    def gradient(self, parameters: Tensor, rows: Tensor, scales: Tensor, slopes: Slopes) -> Tensor:
        """Return J~^T times the slope of a row's loss, summed over rows (n, features)  # (parameters,) float64"""
        total = torch.zeros(self.num_parameters, dtype=torch.float64, device=rows.device)
        moves = self._unflattened(parameters)
        for block in _blocks(len(rows)):
            base = self._base_values(rows[block])
            pulls = slopes(self._scores(moves, base, scales[block]), block) * scales[block, None]
            _, pull = vjp(lambda at, base=base: self._outputs(at, base), self._origin)  # type: ignore[misc]
            parts: dict[str, Tensor] = pull(pulls)[0]
            total += torch.cat([parts[name].flatten() for name in self._shapes])
        return total

    def _scores(self, moves: Mapping[str, Tensor], base: Values, scales: Tensor) -> Tensor:
        outputs, moved = jvp(lambda at: self._outputs(at, base), (self._origin,), (moves,))  # type: ignore[misc]
        scores: Tensor = scales[:, None] * moved
        return scores + outputs if self._chosen.offset else scores

    def _base_values(self, rows: Tensor) -> dict[str, Tensor]:
        """Return, for rows (n, features), the network's values that no chosen layer affects  # (n, 1, ...) each"""
        return dict(vmap(self._base_of_row)(rows))

    def _base_of_row(self, row: Tensor) -> dict[str, Tensor]:
        values = self._graph.base_values(row.view(1, *self._graph.input_shape), but=self._chosen.layers)
        return {
            name: value
            for name, value in values.items()
            if name not in self._constants and value is not None and value.is_floating_point()
        }

    def _gram_of_row(self, base: Values) -> Tensor:
        values = {**self._constants, **base}
        return grams(self._graph, self._structured, values, scores=self._selected, factors=self._factors)[0]

    def _outputs(self, moves: Mapping[str, Tensor], base: Values) -> Tensor:
        """Return the scores of the network itself at w0 + `moves`  # (n, k)"""
        outputs: Tensor = vmap(self._outputs_of_row, in_dims=(None, 0))(moves, base)
        return outputs

    def _outputs_of_row(self, moves: Mapping[str, Tensor], base: Values) -> Tensor:
        weights = {}
        for name, move in moves.items():
            factor, start = self._factors.get(name), self._graph.weights[name]
            weights[name] = start + (move if factor is None else (move @ factor).view_as(start))
        return self._selected(self._graph.output({**self._constants, **base}, weights))[0]

    def _selected(self, outputs: Tensor) -> Tensor:
        """Return the scores given by the network's outputs  # (n, k)"""
        return outputs if outputs.shape[-1] == self._num_scores else outputs[:, 1:] - outputs[:, :1]

    @cached_property
    def _constants(self) -> dict[str, Tensor | None]:
        """Values in the network that depend neither on the row nor on the chosen layers."""
        return self._graph.constants(but=self._chosen.layers)

    @cached_property
    def _origin(self) -> dict[str, Tensor]:
        return {name: self._zeros(shape) for name, shape in self._shapes.items()}

    @cached_property
    def _others(self) -> dict[str, Tensor]:
        """Zero displacements of the layers whose Jacobians are computed row by row."""
        names = {layer.name for layer in self._structured}
        return {name: move for name, move in self._origin.items() if name not in names}

    @property
    def _at_a_time(self) -> int:
        """Number of rows whose Jacobians are computed together."""
        products = {layer.name for layer in self._structured if layer.node.operator == "Gemm"}
        numbers = sum(move.numel() for name, move in self._origin.items() if name not in products)
        return min(_BATCH_ROWS, max(1, _JACOBIAN_NUMBERS // (self._num_scores * max(numbers, 1))))

    def _unflattened(self, parameters: Tensor) -> dict[str, Tensor]:
        sizes = [int(np.prod(shape)) for shape in self._shapes.values()]
        parts = torch.split(parameters.flatten().to(self._some), sizes)
        return {name: part.view(shape) for (name, shape), part in zip(self._shapes.items(), parts, strict=True)}


def network_inputs(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the features before division by the norm, for rows (n, d) encoded by `lethe.encoding`  # (n, d - 1)

    The last column of a row is the bias 1 divided by the same norm. Null rows give zeros.
    """
    constants = rows[:, -1:]
    return np.divide(rows[:, :-1], constants, out=np.zeros_like(rows[:, :-1]), where=constants > 0)


def scores(tangent: Tangent, parameters: NDArray[np.float64], rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the scores of encoded rows (n, d) under the `parameters` (1, p)  # (n, 1) or (n, C)

    Raises ValueError for rows of the wrong width.
    """
    if rows.shape[1] != tangent.num_features + 1:
        raise ValueError(f"Expected vectors of {tangent.num_features} finite numbers")
    inputs = torch.from_numpy(network_inputs(rows))
    outputs = tangent.scores(torch.tensor(parameters), inputs, tangent.scales(inputs))
    return np.asarray(outputs.double().numpy(), np.float64)


def _blocks(num_rows: int) -> Iterator[slice]:
    return (slice(start, min(start + _BATCH_ROWS, num_rows)) for start in range(0, num_rows, _BATCH_ROWS))
