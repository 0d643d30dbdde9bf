"""Solver for objective perturbation. No other file handles the perturbation xi or the minimiser without noise.

Passes are in double precision: the tolerance is far below what single precision can resolve. The minimiser starts at
the origin whatever was published before, so a version depends only on the current rows and fresh noise.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from app.errors import AuditFailed, NotConverged
from lethe.encoding.rows import labels_in, weights_in
from lethe.encoding.targets import UNIT
from lethe.features.objective.mechanism import ObjectivePerturbation
from lethe.proof.canary_test import chance_of_squares
from lethe.proof.losses import Objective
from worker.features.objective.certificate import gradient_norm_bound
from worker.langevin import losses, window
from worker.langevin.noise import Noise

NEWTON_PARAMETERS = 512
"""Maximum number of parameters of a part for which the Hessian is factorised."""
_MEMORY = 30
_MAX_HALVINGS = 60

Floats = NDArray[np.float64]

FALSE_ALARM = 1e-7
"""Maximum probability that the output noise of a correct run is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Minimised:
    """Released version, with `parameters` (1, d) or (C, d) and `lanes` (p,) on the mechanism's grid.

    `records` counts the non-null rows that were read.
    """

    parameters: Floats
    lanes: Floats
    records: int


def minimise(
    *,
    mechanism: ObjectivePerturbation,
    features: NDArray[np.float32],  # (n, d), one row per slot
    labels: NDArray[np.int32],  # (n,), or (n, 2) with weights
    noise: Noise,
    on_progress: Callable[[int], None],
    slopes: Sequence[float] | Floats = (),  # (p,)
) -> Minimised:
    """Draw a perturbation, minimise the perturbed objective from the origin, and return the minimiser plus noise.

    Lanes are coordinates on which only canaries depend, with a linear loss whose slope is in `slopes` (0 for no
    canary). Their noise is drawn together with that of the parameters, and the same solver minimises them. They do not
    depend on rows, nor the parameters on them.

    `on_progress(iterations)` is called after each iteration and may raise to stop the run. The number of iterations
    depends on the rows and must not be published; the cap is public. The perturbation, minimiser and gradients are
    overwritten before the function returns or raises.

    Raises:
        ValueError: naming the condition, if the rows violate an assumption of the guarantee.
        NotConverged: if the certified gradient is above the tolerance after `max_iterations`.
        AuditFailed: if the output noise of the lanes does not have its variance.
    """
    rows = _Rows(mechanism, features, labels)
    size, shape = mechanism.num_parameters, mechanism.shape
    drawn = noise.rounded_normal(size + len(slopes), mechanism.noise_scale / mechanism.noise_grid).numpy()
    drawn *= mechanism.noise_grid
    perturbation, point, lanes = drawn[:size].reshape(shape), np.zeros(shape), np.zeros((len(slopes), 1))
    try:
        _solve(rows, mechanism, perturbation, point, on_progress)
        if len(slopes):
            _solve(
                _Canaries(np.reshape(slopes, (-1, 1))), mechanism, drawn[size:, None], lanes, lambda iterations: None
            )
        bound = gradient_norm_bound(
            point,
            features=features,
            labels=rows.labels,
            weights=rows.weights,
            perturbation=perturbation,
            regularisation=(mechanism.num_slots, mechanism.l2),
            objective=mechanism.objective,
            class_weights=mechanism.class_weights,
        )
        if not bound <= mechanism.gradient_tolerance:
            raise NotConverged("The solver did not reach its tolerance.")
        grid = mechanism.grid
        released = noise.rounded_normal(len(drawn), mechanism.output_noise / grid).numpy()
        np.concatenate([point.ravel(), lanes.ravel()], out=drawn)
        drawn /= grid
        released += np.round(drawn, out=drawn)
        released *= grid
        parameters, ended = released[:size].reshape(shape), released[size:]
        _require_variance((ended - lanes.ravel()) / mechanism.output_noise)
        return Minimised(parameters=parameters, lanes=ended, records=rows.records)
    finally:
        drawn.fill(0)
        point.fill(0)


def _require_variance(residuals: Floats) -> None:
    """Raise `AuditFailed` if standard normal residuals have another sum of squares than expected; in a correct run,
    with probability at most `FALSE_ALARM`."""
    if len(residuals) and not chance_of_squares(float(residuals @ residuals), len(residuals)) >= FALSE_ALARM:
        raise AuditFailed("The output noise of the lanes does not have its variance.")


@dataclass(frozen=True, slots=True)
class _Canaries:
    """Records of the lanes: linear losses with the given slopes  # (p, 1)"""

    slopes: Floats

    def gradient(self, point: Floats) -> Floats:
        return self.slopes.copy()

    def gradient_and_hessians(self, point: Floats) -> tuple[Floats, list[Floats]]:
        return self.slopes.copy(), [np.zeros((1, 1)) for _ in point]


class _Rows:
    """Rows read in double precision, block by block. The guarantee's assumptions are checked at construction."""

    def __init__(
        self, mechanism: ObjectivePerturbation, features: NDArray[np.float32], stored: NDArray[np.int32]
    ) -> None:
        features, stored = np.asarray(features), np.asarray(stored)
        num_rows = mechanism.num_slots
        if features.shape != (num_rows, mechanism.num_columns) or features.dtype != np.float32:
            raise ValueError("Expected features to be a float32 matrix, one row of num_columns for each slot")
        if stored.shape not in ((num_rows,), (num_rows, 2)) or stored.dtype != np.int32:
            raise ValueError("Expected labels to be int32, one for each row of features, or each with a weight")
        if (stored.ndim == 2) != (mechanism.weight_bound is not None):
            raise ValueError("Expected weights of rows where the mechanism states their bound, and nowhere else")
        self.features, self.labels, self.weights = features, labels_in(stored), weights_in(stored)
        self.records, self._mechanism = 0, mechanism
        self._of_labels = mechanism.objective is Objective.MULTILABEL_LOGISTIC_REGRESSION
        self._of_classes = None if mechanism.class_weights is None else np.array(mechanism.class_weights)
        losses.Loss(mechanism.objective).require_labels(self.labels, mechanism.num_classes)
        if self.weights is not None and not 0 <= self.weights.min() <= self.weights.max() <= UNIT:
            raise ValueError("Expected a weight between 0 and 1")
        for block in window.blocks(num_rows):
            squares = np.einsum("ij,ij->i", features[block], features[block], dtype=np.float64)
            # In this form NaN is refused too.
            if not (squares <= 1).all():
                raise ValueError("Expected every row of features to be of norm <= 1")
            self.records += int(np.count_nonzero(squares))

    def gradient(self, point: Floats) -> Floats:
        """Return the sum of all rows' loss gradients  # (1, d) or (C, d)"""
        total = np.zeros_like(point)
        for x, chances, factors, block in self._passed(point):
            total += (self._residuals(chances, block) * factors).T @ x
        return total

    def gradient_and_hessians(self, point: Floats) -> tuple[Floats, list[Floats]]:
        """Return the gradient and the Hessian of each independent part: (d, d) per score, or (C d, C d)."""
        total, (scores, width) = np.zeros_like(point), point.shape
        joint = scores > 1 and not self._of_labels
        hessians = [np.zeros((point.size,) * 2)] if joint else [np.zeros((width, width)) for _ in range(scores)]
        for x, chances, factors, block in self._passed(point):
            total += (self._residuals(chances, block) * factors).T @ x
            if not joint:
                for score, hessian in enumerate(hessians):
                    p = chances[:, score : score + 1]
                    hessian += (x * (p * (1 - p) * factors)).T @ x
                continue
            blocked = hessians[0].reshape(scores, width, scores, width)
            for a in range(scores):
                for b in range(a + 1):
                    p, q = chances[:, a : a + 1], chances[:, b : b + 1]
                    part = (x * ((p * (a == b) - p * q) * factors)).T @ x
                    blocked[a, :, b, :] += part
                    if a != b:
                        blocked[b, :, a, :] += part
        return total, hessians

    def _passed(self, point: Floats) -> Iterator[tuple[Floats, Floats, Floats | float, slice]]:
        """Yield each block's rows, probabilities, factors and slots; then overwrite rows and probabilities."""
        for block in window.blocks(len(self.features)):
            x = self.features[block].astype(np.float64)
            chances = x @ point.T
            if point.shape[0] > 1 and not self._of_labels:
                chances -= chances.max(axis=1, keepdims=True)
                np.exp(chances, out=chances)
                chances /= chances.sum(axis=1, keepdims=True)
            else:
                chances = 0.5 * (1 + np.tanh(0.5 * chances))
            factors: Floats | float = 1.0
            if self._of_classes is not None:
                factors = self._of_classes[self.labels[block]][:, None]
            if self.weights is not None:
                factors = factors * (self.weights[block] / UNIT)[:, None]
            yield x, chances, factors, block
            x.fill(0)
            chances.fill(0)

    def _residuals(self, chances: Floats, block: slice) -> Any:
        """Return the slope of each row's loss with respect to its scores  # (b, 1) or (b, C)"""
        labels, classes = self.labels[block], np.arange(chances.shape[1])
        if self._of_labels:
            return chances - (labels[:, None] >> classes & 1)
        if len(classes) == 1:
            return chances - labels[:, None]
        return chances - (labels[:, None] == classes)


def _solve(
    rows: _Rows | _Canaries,
    mechanism: ObjectivePerturbation,
    perturbation: Floats,
    point: Floats,
    on_progress: Callable[[int], None],
) -> None:
    """Move `point` until the gradient there is well below the tolerance or no longer falls."""
    strength = mechanism.num_slots * mechanism.l2
    # Half is left to the bound on the rounding of the gradient.
    tolerance, per_part = mechanism.gradient_tolerance / 2, mechanism.num_columns * mechanism.num_scores

    def gradient(at: Floats) -> Floats:
        return rows.gradient(at) + strength * at + perturbation

    newton = per_part <= NEWTON_PARAMETERS
    method = _newton(rows, gradient, strength, perturbation, point) if newton else _lbfgs(gradient, strength, point)
    for iteration, norm in enumerate(method):
        if norm <= tolerance or iteration >= mechanism.max_iterations:
            return
        on_progress(iteration + 1)


def _newton(
    rows: _Rows | _Canaries, gradient: Callable[[Floats], Floats], strength: float, perturbation: Floats, point: Floats
) -> Iterator[float]:
    """Take Newton steps, halving each until the gradient's norm falls; yield that norm before each step."""
    while True:
        total, hessians = rows.gradient_and_hessians(point)
        total += strength * point + perturbation
        norm = float(np.linalg.norm(total))
        yield norm
        step = np.empty_like(total)
        for hessian, part, of_step in zip(hessians, _parts(total, hessians), _parts(step, hessians), strict=True):
            hessian[np.diag_indices_from(hessian)] += strength
            of_step[:] = -cho_solve(cho_factor(hessian, lower=True, overwrite_a=True), part)
        share = 1.0
        while share > 2.0**-_MAX_HALVINGS and not np.linalg.norm(gradient(point + share * step)) < norm:
            share /= 2
        if share <= 2.0**-_MAX_HALVINGS:
            return
        point += share * step
        for used in (total, step, *hessians):
            used.fill(0)


def _parts(values: Floats, hessians: list[Floats]) -> list[Floats]:
    """Return views of `values`, one per Hessian: the whole array, or one row each."""
    return [values.reshape(-1)] if len(hessians) == 1 else list(values)


def _lbfgs(gradient: Callable[[Floats], Floats], strength: float, point: Floats) -> Iterator[float]:
    """Take L-BFGS steps using only slopes, which stay precise longer than values; yield the gradient's norm."""
    pairs: list[tuple[Floats, Floats, float]] = []
    now = gradient(point)
    try:
        while True:
            yield float(np.linalg.norm(now))
            direction = -_inverse_times(now, pairs, strength)
            start = float(np.vdot(now, direction))
            if not start < 0:
                return
            low, high, share = 0.0, np.inf, 1.0 if pairs else min(1.0, strength / float(np.linalg.norm(now)) + 1e-3)
            for _ in range(_MAX_HALVINGS):
                after = gradient(point + share * direction)
                slope = float(np.vdot(after, direction))
                if abs(slope) <= -0.5 * start:
                    break
                low, high = (share, high) if slope < 0 else (low, share)
                share = 2 * share if np.isinf(high) else (low + high) / 2
            else:
                return
            moved, changed = share * direction, after - now
            point += moved
            curvature = float(np.vdot(moved, changed))
            if curvature > 0:
                pairs.append((moved, changed, curvature))
            if len(pairs) > _MEMORY:
                for used in pairs.pop(0)[:2]:
                    used.fill(0)
            now.fill(0)
            now = after
    finally:
        for used in (now, *(values for pair in pairs for values in pair[:2])):
            used.fill(0)


def _inverse_times(values: Floats, pairs: list[tuple[Floats, Floats, float]], strength: float) -> Floats:
    """Return the L-BFGS inverse Hessian approximation times `values` (Nocedal, Wright, Algorithm 7.4)."""
    result, shares = values.copy(), []
    for moved, changed, curvature in reversed(pairs):
        shares.append(float(np.vdot(moved, result)) / curvature)
        result -= shares[-1] * changed
    result *= pairs[-1][2] / float(np.vdot(pairs[-1][1], pairs[-1][1])) if pairs else 1 / strength
    for (moved, changed, curvature), share in zip(pairs, reversed(shares), strict=True):
        result += moved * (share - float(np.vdot(changed, result)) / curvature)
    return result
