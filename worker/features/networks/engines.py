"""Engine for tangent models, on the CPU or a GPU: the sum of the records' gradients, from a pass through the network.

A stored row is its record's features and a constant, divided by their norm. The network therefore receives the features
divided by the constant; a null row has constant 0 and does not count. A row's scale is computed when a run first reads
the row and is discarded with the run: no value derived from a record is stored next to it.

Products are in single precision, sums over blocks of 256 rows in double. Their order depends on the device and its
number of threads, so this gradient, unlike a linear model's, is not bitwise the same everywhere. The difference is far
below the noise (docs/sharp-edges.md).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Self

import numpy as np
import torch
import torch.nn.functional as nn
from numpy.typing import NDArray
from torch import Tensor

from lethe.encoding.rows import as_factors
from lethe.features.networks.tangents.graph import Graph
from lethe.features.networks.tangents.model import Tangent, network_inputs, scores
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism
from worker.langevin import engines, evaluate, losses

_BLOCK_ROWS = 64
# Jacobian entries in double precision per block: half a gigabyte.
_BLOCK_NUMBERS = 2**26
_AGREEMENT = 2.0**-8
"""Maximum relative difference between two computations for the same record, far above single-precision error."""
_NEARBY = 2.0**-16
"""Relative change of the inputs within which kinks are searched for, far above single-precision error."""


class TangentRows:
    """Rows of a run on a public network. A context manager that overwrites everything computed from rows on exit."""

    def __init__(
        self,
        features: NDArray[np.float32],
        labels: NDArray[np.int32],
        weights: NDArray[np.int32] | None = None,
        *,
        mechanism: Mechanism,
        network: bytes,
        device: torch.device | None = None,
    ) -> None:
        """Prepare the tangent model.

        `features` (n, d) are rows of norm at most 1, with the bias last; `labels` are (n,); `weights` (n,) are
        multiples of 2^-23. Raises ValueError for a network that does not fit the rows or the mechanism.
        """
        self._features, self._labels, self._row_weights = features, labels, weights
        self._device = device or torch.device("cpu")
        self._mechanism, self._loss, self._network = mechanism, losses.Loss.of(mechanism), network
        self._tangent = tangent_of(mechanism, network, device=self._device)
        self._scales = np.full(len(features), np.nan, np.float32)

    def gradient(self, parameters: Tensor, block: slice = slice(None)) -> Tensor:
        """Return the sum of the loss gradients over the rows `block` at `parameters`  # (1, d) float64"""
        inputs, labels, factors, scales = self._inputs_of(block)
        gradient = self._tangent.gradient(
            parameters.to(self._device),
            inputs,
            scales,
            lambda scores, at: factors[at, None] * slopes(self._loss, scores, labels[at]),
        )
        return gradient.to("cpu").view_as(parameters)

    def look(self, slots: Sequence[slice]) -> None:
        """Discard the scales of rows outside these slots."""
        scales = np.full_like(self._scales, np.nan)
        for rows in slots:
            scales[rows] = self._scales[rows]
        self._scales[:] = scales
        scales.fill(0)

    def close(self) -> None:
        """Overwrite everything computed from rows."""
        self._scales.fill(0)

    def differs(self, ours: Tensor, parameters: Tensor, block: slice, *, bound: float) -> bool:
        """Return True if `ours` differs from the sum of the gradients, recomputed from each row's Jacobian in double
        precision, or if a Jacobian is larger than the mechanism permits. `bound` is the tolerated difference.

        In single precision, a row at a kink of the network (at a ReLU) can fall on either side of the kink. Differences
        as large as the change in a row's gradient near the row are therefore tolerated as well.
        """
        is_present = self._features[block][:, -1] > 0
        inputs, labels = network_inputs(self._features[block][is_present]), self._labels[block][is_present]
        factors = self._factors(block)[torch.from_numpy(is_present)].double()
        tangent = tangent_of(self._mechanism, self._network, dtype=torch.float64)
        theirs, lengths = torch.zeros_like(parameters), 0.0
        signs = torch.randn(inputs.shape[1], dtype=torch.float64).sign()

        def gradients(part: slice, moved: float = 0.0) -> Tensor:
            batch = torch.from_numpy(inputs[part].astype(np.float64)) * (1 + moved * signs)
            jacobians, scales = tangent.jacobians(batch), tangent.scales(batch).double()
            scales = scales.where(scales * torch.linalg.matrix_norm(jacobians, 2) <= 1, torch.nan)
            slope = slopes(self._loss, tangent.scores(parameters, batch, scales), torch.tensor(labels[part]))
            return torch.einsum("nk,nkp->np", slope * (factors[part] * scales)[:, None], jacobians)

        jacobian_size = self._mechanism.num_parameters * self._loss.weight_rows(self._mechanism.num_classes)
        at_once = max(1, min(_BLOCK_ROWS, _BLOCK_NUMBERS // jacobian_size))
        parts = [slice(start, start + at_once) for start in range(0, len(inputs), at_once)]
        for part in parts:
            each = gradients(part)
            theirs += each.sum(0)
            lengths += float(each.norm(dim=1).sum())
        apart, tolerated = float((theirs - ours).norm()), bound + _AGREEMENT * lengths
        theirs.zero_()
        if apart <= tolerated:
            return False
        for part in parts:
            each = gradients(part)
            nearby = [(gradients(part, moved) - each).norm(dim=1) for moved in (_NEARBY, -_NEARBY)]
            tolerated += float(torch.maximum(*nearby).sum())
        return not apart <= tolerated

    def _factors(self, block: slice) -> Tensor:
        """Return the loss factors of the rows `block`  # (n,)"""
        if self._row_weights is None:
            return torch.ones(len(self._labels[block]))
        return torch.from_numpy(as_factors(self._row_weights[block]))

    def _inputs_of(self, block: slice) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the inputs, labels, factors and scales of the rows `block`. A null row's scale is 0."""
        inputs = torch.from_numpy(network_inputs(self._features[block])).to(self._device)
        labels = torch.from_numpy(np.array(self._labels[block])).to(self._device)
        self._loss.require_labels(self._labels[block], self._mechanism.num_classes)
        scales = self._scales[block]
        if np.isnan(scales).any():
            is_present = self._features[block][:, -1] > 0
            scales[:] = self._tangent.scales(inputs).cpu().numpy() * is_present
            if not np.isfinite(scales).all():
                raise FloatingPointError("A row has a Jacobian that is not finite")
        return inputs, labels, self._factors(block).to(self._device), torch.from_numpy(scales).to(self._device)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def tangent_of(
    mechanism: Mechanism, network: bytes, *, device: torch.device | None = None, dtype: torch.dtype = torch.float32
) -> Tangent:
    """Return a mechanism's tangent model. Raises ValueError if `network` is not the mechanism's network."""
    stated = mechanism.network
    if stated is None or stated.linearisation is None or sha256(network).hexdigest() != stated.sha256:
        raise ValueError("Expected the network whose tangent the mechanism states")
    tangent = Tangent(
        Graph(network).to(device or torch.device("cpu"), dtype),
        stated.linearisation,
        num_scores=losses.Loss.of(mechanism).weight_rows(mechanism.num_classes),
    )
    if tangent.num_parameters != mechanism.num_parameters:
        raise ValueError("Expected as many parameters as the mechanism states")
    return tangent


def scored(
    mechanism: Mechanism, network: bytes, parameters: NDArray[np.float64], rows: Iterable[evaluate.LabelledRows]
) -> Iterator[evaluate.LabelledRows]:
    """Replace each non-null row with its scores under the `parameters` (1, p), so that the rows can be evaluated with a
    linear model whose weights are the identity."""
    tangent = tangent_of(mechanism, network)
    for features, labels in rows:
        is_present = features[:, -1] > 0
        yield scores(tangent, parameters, features[is_present]).astype(np.float32), labels[is_present]


def slopes(loss: losses.Loss, scores: Tensor, labels: Tensor) -> Tensor:
    """Return the slope of each row's loss with respect to its scores  # (n, 1) or (n, C)"""
    if loss.class_weights is not None:
        weights = scores.new_tensor(loss.class_weights)[labels.long()]  # (n,)
        return weights[:, None] * slopes(replace(loss, class_weights=None), scores, labels)
    if loss.objective is Objective.MULTILABEL_LOGISTIC_REGRESSION:
        has = labels[:, None] >> torch.arange(scores.shape[1], device=scores.device) & 1
        return scores.sigmoid() - has
    if scores.shape[1] == 1:
        return scores.sigmoid() - labels[:, None]
    return scores.softmax(1) - nn.one_hot(labels.long(), scores.shape[1])


def open_rows(
    mechanism: Mechanism,
    features: NDArray[np.float32],
    labels: NDArray[np.int32],
    weights: NDArray[np.int32] | None,
    backend: engines.Backend,
    _: Sequence[slice],
    *,
    device: torch.device,
) -> TangentRows | None:
    """Open a tangent model's rows (`worker.langevin.engines.Engine`)."""
    if not mechanism.is_tangent:
        return None
    network = backend.network or b""
    return TangentRows(features, labels, weights, mechanism=mechanism, network=network, device=device)


ENGINES = (open_rows,)
SCORERS = (scored,)
