"""The sum of the records' gradients of a tangent model: each pass goes through the network, on the CPU or a GPU.

A stored row is its record's features and a constant, divided by their norm, so the network is given features over that
constant; a null row has none and counts nothing. The scale of a row is computed in the run that reads it, when it first
does, and is gone with it: nothing that follows from a record is kept beside the record.

Products are in single precision, sums over blocks of 256 rows in double. Their order depends on the device and on the
number of its threads, so this gradient is not the same to the bit everywhere, as that of linear models is; the noise
hides it many times over (docs/sharp-edges.md).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from types import TracebackType
from typing import Self

import numpy as np
import torch
import torch.nn.functional as nn
from numpy.typing import NDArray
from torch import Tensor

from lethe.encoding.weights import as_factors
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism
from lethe.tangents import rows
from lethe.tangents.graph import Graph
from lethe.tangents.model import Tangent
from lethe.tangents.rows import network_inputs
from worker.langevin.losses import Loss

_BLOCK_ROWS = 64
_BLOCK_NUMBERS = 2**26  # of Jacobians in double precision: half a gigabyte
_AGREEMENT = 2.0**-8
"""By so much of a record's own scale the two computations of it may differ: single precision is off by far less."""


Rows = tuple[NDArray[np.float32], NDArray[np.int32]]  # (n, d) and (n,)


class TangentRows:
    """The rows of a run on a public network. A context: on leaving it what was computed of rows is overwritten."""

    def __init__(
        self,
        features: NDArray[np.float32],  # (n, d), each row of norm at most 1, the bias last
        labels: NDArray[np.int32],  # (n,)
        weights: NDArray[np.int32] | None = None,  # (n,), in units of 2^-23, where rows have them
        *,
        mechanism: Mechanism,
        network: bytes,
        device: torch.device | None = None,
    ) -> None:
        """Raises ValueError for a network that does not fit the rows or the mechanism."""
        self._features, self._labels, self._row_weights = features, labels, weights
        self._device = device or torch.device("cpu")
        self._mechanism, self._loss, self._network = mechanism, Loss.of(mechanism), network
        self._tangent = tangent_of(mechanism, network, device=self._device)
        self._scales = np.full(len(features), np.nan, np.float32)

    def gradient(self, parameters: Tensor, here: slice = slice(None)) -> Tensor:
        """Sum over the rows `here` of the gradient of their loss at `parameters`  # (1, d) float64, as they are"""
        inputs, labels, factors, scales = self._there(here)
        found = self._tangent.gradient(
            parameters.to(self._device),
            inputs,
            scales,
            lambda scores, at: factors[at, None] * slopes(self._loss, scores, labels[at]),
        )
        return found.to("cpu").view_as(parameters)

    def look(self, slots: Sequence[slice]) -> None:
        """Keep nothing of rows that are in none of these slots."""
        kept = np.full_like(self._scales, np.nan)
        for here in slots:
            kept[here] = self._scales[here]
        self._scales[:] = kept
        kept.fill(0)

    def close(self) -> None:
        """Overwrite what was computed of rows."""
        self._scales.fill(0)

    def differs(self, ours: Tensor, parameters: Tensor, here: slice, *, bound: float) -> bool:
        """Return True if `ours` is not the sum of the gradients, computed here from each row's Jacobian in double
        precision, or if a row's is longer than the mechanism states. `bound`: on what may be missing."""
        is_there = self._features[here][:, -1] > 0
        inputs, labels = network_inputs(self._features[here][is_there]), self._labels[here][is_there]
        factors = self._factors(here)[torch.from_numpy(is_there)].double()
        tangent = tangent_of(self._mechanism, self._network, dtype=torch.float64)
        theirs = torch.zeros_like(parameters)
        lengths = 0.0
        of_one = self._mechanism.num_parameters * self._loss.weight_rows(self._mechanism.num_classes)
        at_once = max(1, min(_BLOCK_ROWS, _BLOCK_NUMBERS // of_one))
        for start in range(0, len(inputs), at_once):
            block = slice(start, start + at_once)
            some = torch.from_numpy(inputs[block].astype(np.float64))
            jacobians = tangent.jacobians(some)
            scales = tangent.scales(some).double()
            norms = scales * torch.linalg.matrix_norm(jacobians, 2)
            if not bool((norms <= 1).all()):
                return True
            scores = tangent.scores(parameters, some, scales)
            pulls = slopes(self._loss, scores, torch.tensor(labels[block])) * (factors[block] * scales)[:, None]
            each = torch.einsum("nk,nkp->np", pulls, jacobians)
            theirs += each.sum(0)
            lengths += float(each.norm(dim=1).sum())
        apart = float((theirs - ours).norm())
        theirs.zero_()
        return not apart <= bound + _AGREEMENT * lengths

    def _factors(self, here: slice) -> Tensor:
        """The factors of the losses of the rows `here`  # (n,)"""
        if self._row_weights is None:
            return torch.ones(len(self._labels[here]))
        return torch.from_numpy(as_factors(self._row_weights[here]))

    def _there(self, here: slice) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The rows `here`, their labels, factors and scales, 0 of a null row, which so counts nothing."""
        inputs = torch.from_numpy(network_inputs(self._features[here])).to(self._device)
        labels = torch.from_numpy(np.array(self._labels[here])).to(self._device)
        self._loss.require_labels(self._labels[here], self._mechanism.num_classes)
        known = self._scales[here]
        if np.isnan(known).any():
            is_there = self._features[here][:, -1] > 0
            known[:] = self._tangent.scales(inputs).cpu().numpy() * is_there
            if not np.isfinite(known).all():
                raise FloatingPointError("A row has a Jacobian that is not finite")
        return inputs, labels, self._factors(here).to(self._device), torch.from_numpy(known).to(self._device)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def tangent_of(
    mechanism: Mechanism,
    network: bytes,
    *,
    device: torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tangent:
    """The tangent model of a mechanism. Raises ValueError where it is of another network."""
    stated = mechanism.network
    if stated is None or stated.linearisation is None or sha256(network).hexdigest() != stated.sha256:
        raise ValueError("Expected the network whose tangent the mechanism states")
    tangent = Tangent(
        Graph(network).to(device or torch.device("cpu"), dtype),
        stated.linearisation,
        num_scores=Loss.of(mechanism).weight_rows(mechanism.num_classes),
    )
    if tangent.num_parameters != mechanism.num_parameters:
        raise ValueError("Expected as many parameters as the mechanism states")
    return tangent


def scored(
    mechanism: Mechanism, network: bytes, parameters: NDArray[np.float64], found: Iterable[Rows]
) -> Iterator[Rows]:
    """In place of rows that are there their scores under the `parameters` (1, p): the rows of a linear model whose
    weights are the identity."""
    tangent = tangent_of(mechanism, network)
    for features, labels in found:
        is_there = features[:, -1] > 0
        yield rows.scores(tangent, parameters, features[is_there]).astype(np.float32), labels[is_there]


def slopes(loss: Loss, scores: Tensor, labels: Tensor) -> Tensor:
    """The slope of each row's loss by its scores  # (n, 1) or (n, C)"""
    if loss.class_weights is not None:
        weights = scores.new_tensor(loss.class_weights)[labels.long()]  # (n,)
        return weights[:, None] * slopes(replace(loss, class_weights=None), scores, labels)
    if loss.objective is Objective.MULTILABEL_LOGISTIC_REGRESSION:
        has = labels[:, None] >> torch.arange(scores.shape[1], device=scores.device) & 1
        return scores.sigmoid() - has
    if scores.shape[1] == 1:
        return scores.sigmoid() - labels[:, None]
    return scores.softmax(1) - nn.one_hot(labels.long(), scores.shape[1])
