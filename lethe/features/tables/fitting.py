"""Models trained on some of a table's rows with a gateway's mechanism, and measured on the others."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import entr, expit, log_softmax, softmax, xlogy

from lethe.contract import problems, sets
from lethe.encoding.targets import UNIT, y_of_scores
from lethe.features.insight import costs
from lethe.proof import calibration, errors
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism

_CHAINS = 8
"""Number of independent noisy models; plans state their mean accuracy."""
_MAX_PRODUCTS = 2e11
"""Maximum number of multiplications per plan, which take some seconds; longer chains are cut short."""

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int32]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FittingPlan:
    """Cost of one combination of settings (`costs.Cost`) and the resulting accuracy on held-out rows, with and without
    noise, in the preview's metric."""

    epsilon: float
    delta: float
    l2: float
    accuracy: float
    accuracy_without_noise: float
    noise: float
    learn_passes: float
    request_passes: float | None


_MIN_RATE = 1e-9
"""Minimum predicted rate as a fraction of the bound, because linear models can predict lower rates."""


def metrics_of(objective: Objective) -> tuple[sets.Metric, ...]:
    """Return the metrics that a dry run can compute for an objective's models, the default first."""
    match objective:
        case Objective.LOGISTIC_REGRESSION:
            return sets.Metric.ACCURACY, sets.Metric.LOG_LOSS
        case Objective.SMOOTHED_HINGE:
            return (sets.Metric.ACCURACY,)
        case Objective.MULTILABEL_LOGISTIC_REGRESSION:
            return sets.Metric.LABEL_ACCURACY, sets.Metric.EXACT_MATCH, sets.Metric.LOG_LOSS
        case Objective.HUBER_REGRESSION | Objective.LEAST_SQUARES:
            return sets.Metric.R_SQUARED, sets.Metric.MEAN_ABSOLUTE_ERROR
        case Objective.POISSON_REGRESSION:
            return sets.Metric.R_SQUARED, sets.Metric.MEAN_ABSOLUTE_ERROR, sets.Metric.MEAN_POISSON_DEVIANCE


@dataclass(frozen=True, slots=True)
class Learned:
    """Values to predict, and the metric as a gateway computes it (`worker.langevin.evaluate`). The values are classes
    (n, 1), labels (n, C) or targets (n, 1) from -1 to 1, where 1 stands for `half_range` units."""

    objective: Objective
    num_classes: int
    values: Floats
    metric: sets.Metric
    half_range: float = 1.0

    @classmethod
    def of(
        cls,
        objective: Objective,
        labels: Labels,
        num_classes: int,
        *,
        metric: sets.Metric | None = None,
        half_range: float = 1.0,
    ) -> "Learned":
        """Read labels in a dataset's stored form. The default metric is the first of `metrics_of`."""
        stored = labels[:, np.newaxis].astype(np.int64)
        metric = metric or metrics_of(objective)[0]
        if objective is Objective.MULTILABEL_LOGISTIC_REGRESSION:
            return cls(objective, num_classes, (stored >> np.arange(num_classes) & 1).astype(np.float64), metric)
        return cls(objective, num_classes, stored / (UNIT if objective.is_regression else 1.0), metric, half_range)

    def at(self, places: Places) -> "Learned":
        return replace(self, values=self.values[places])

    def share(self, predicted: Floats) -> float:
        """Return the metric's value for predictions shaped like `values`. Log loss needs scores (`share_of_scores`)."""
        match self.metric:
            case sets.Metric.R_SQUARED:
                total = float(np.square(self.values - self.values.mean()).sum())
                return 1 - float(np.square(np.clip(predicted, -1, 1) - self.values).sum()) / total if total else 0.0
            case sets.Metric.MEAN_ABSOLUTE_ERROR:
                return self.half_range * float(np.abs(np.clip(predicted, -1, 1) - self.values).mean())
            case sets.Metric.MEAN_POISSON_DEVIANCE:
                counts = np.rint(self.half_range * (self.values + 1))
                rates = self.half_range * np.maximum(np.clip(predicted, -1, 1) + 1, _MIN_RATE)
                return float(2 * (xlogy(counts, counts / rates) - counts + rates).mean())
            case sets.Metric.EXACT_MATCH:
                return float(np.mean(np.all(predicted == self.values, axis=1)))
            case _:
                return float((predicted == self.values).mean())

    def share_of_scores(self, scores: Floats, width: float) -> float:
        if self.metric is sets.Metric.LOG_LOSS:
            return self.loss(scores, width) / len(self.values[0])
        if self.objective.is_regression:
            return self.share(y_of_scores(scores, objective=self.objective, loss_width=width))
        if scores.shape[1] > 1 and self.metric is sets.Metric.ACCURACY:
            return self.share(scores.argmax(axis=1)[:, np.newaxis].astype(np.float64))
        return self.share((scores > 0).astype(np.float64))

    def majority(self) -> float:
        """Return the metric's value for the best constant prediction."""
        match self.metric:
            case sets.Metric.R_SQUARED | sets.Metric.MEAN_POISSON_DEVIANCE:
                return self.share(np.full_like(self.values, self.values.mean()))
            case sets.Metric.MEAN_ABSOLUTE_ERROR:
                return self.share(np.full_like(self.values, np.median(self.values)))
            case sets.Metric.LABEL_ACCURACY:
                shares = self.values.mean(axis=0)
                return float(np.maximum(shares, 1 - shares).mean())
            case sets.Metric.LOG_LOSS if self.objective is Objective.MULTILABEL_LOGISTIC_REGRESSION:
                shares = self.values.mean(axis=0)
                return float((entr(shares) + entr(1 - shares)).mean())
            case sets.Metric.LOG_LOSS:
                return float(entr(np.bincount(self.values[:, 0].astype(np.int64)) / len(self.values)).sum())
            case _:
                return float(np.unique(self.values, axis=0, return_counts=True)[1].max() / len(self.values))

    def loss(self, scores: Floats, width: float, factors: Floats | float = 1.0) -> float:
        """Return the mean over rows of loss times factor  # scores (n, 1) or (n, C), factors (n, 1)"""
        match self.objective:
            case Objective.LOGISTIC_REGRESSION if scores.shape[1] > 1:
                losses = -np.take_along_axis(log_softmax(scores, axis=1), self.values.astype(np.int64), axis=1)
            case Objective.LOGISTIC_REGRESSION | Objective.MULTILABEL_LOGISTIC_REGRESSION:
                losses = np.logaddexp(0, (1 - 2 * self.values) * scores)
            case Objective.SMOOTHED_HINGE:
                gaps = 1 - (2 * self.values - 1) * scores
                losses = np.where(gaps < width, np.maximum(gaps, 0) ** 2 / (2 * width), gaps - width / 2)
            case Objective.HUBER_REGRESSION | Objective.LEAST_SQUARES:
                distances = np.abs(scores - self.values)
                inner = np.minimum(distances, width)
                losses = inner * (distances - inner / 2)
            case Objective.POISSON_REGRESSION:
                beyond = scores - width
                losses = np.exp(np.minimum(beyond, 0)) + np.maximum(beyond, 0) - (self.values + 1) / 2 * scores
        return float((factors * losses).sum() / len(scores))

    def pull(self, scores: Floats, width: float) -> Floats:
        """Return the derivative of each row's loss with respect to its scores  # (..., n, 1) or (..., n, C)"""
        match self.objective:
            case Objective.LOGISTIC_REGRESSION if scores.shape[-1] > 1:
                slopes = softmax(scores, axis=-1) - (np.arange(scores.shape[-1]) == self.values)
            case Objective.LOGISTIC_REGRESSION | Objective.MULTILABEL_LOGISTIC_REGRESSION:
                slopes = expit(scores) - self.values
            case Objective.SMOOTHED_HINGE:
                signs = 2 * self.values - 1
                slopes = -signs * np.clip((1 - signs * scores) / width, 0, 1)
            case Objective.HUBER_REGRESSION | Objective.LEAST_SQUARES:
                slopes = np.clip(scores - self.values, -width, width)
            case Objective.POISSON_REGRESSION:
                slopes = np.exp(np.minimum(scores - width, 0)) - (self.values + 1) / 2
        return np.asarray(slopes, dtype=np.float64)


class FittingRows(Protocol):
    """Rows whose scores are linear in the parameters. `shape` is the parameters' shape, `num_products` the number of
    multiplications needed to compute one row's scores."""

    shape: tuple[int, int]
    num_products: int

    @property
    def numbers(self) -> Floats:
        """Coefficients of the parameters in the scores  # (n C, d), or (n, d) if equal for all scores"""

    def __len__(self) -> int: ...
    def at(self, places: Places) -> "FittingRows": ...
    def scores(self, weights: Floats) -> Floats:
        """Return the rows' scores  # (..., *shape) -> (..., n, C)"""

    def pulled(self, pull: Floats) -> Floats:
        """Backpropagate a gradient from the scores to the parameters  # (..., n, C) -> (..., *shape)"""


class LinearRows:
    """Encoded rows  # (n, d), with separate parameters for each score."""

    def __init__(self, rows: Floats, num_scores: int) -> None:
        self.numbers = rows
        self.shape = (num_scores, rows.shape[1])
        self.num_products = num_scores * rows.shape[1]

    def __len__(self) -> int:
        return len(self.numbers)

    def at(self, places: Places) -> "LinearRows":
        return LinearRows(self.numbers[places], self.shape[0])

    def scores(self, weights: Floats) -> Floats:
        return np.asarray(np.einsum("nd,...cd->...nc", self.numbers, weights, optimize=True))

    def pulled(self, pull: Floats) -> Floats:
        return np.asarray(np.einsum("...nc,nd->...cd", pull, self.numbers, optimize=True))


class FittingProblem:
    """Rows of norm <= 1 and their values, split into training and test rows. `factors` multiply the rows' losses in
    training and are ignored in the metric."""

    def __init__(
        self, rows: FittingRows, learned: Learned, train: Places, test: Places, factors: Floats | None = None
    ) -> None:
        self._rows, self._learned = rows.at(train), learned.at(train)
        self._factors = np.ones((len(train), 1)) if factors is None else factors[train, np.newaxis]
        self._test_rows, self._test_learned = rows.at(test), learned.at(test)
        self._minimisers: dict[tuple[float, float], Floats] = {}

    def second_moment(self) -> float:
        """Return the largest eigenvalue of (1/b) sum x x^T among all batches of the default size."""
        num_batches = len(self._rows) // calibration.default_batch_size(len(self._rows))
        largest = 0.0
        for batch in np.array_split(np.arange(len(self._rows)), num_batches):
            x = self._rows.at(batch).numbers
            product = x @ x.T if len(x) < x.shape[1] else x.T @ x
            largest = max(largest, float(np.linalg.eigvalsh(product)[-1]) / len(batch))
        return largest

    def plan(self, settings: calibration.ModelSettings, random: np.random.Generator) -> FittingPlan:
        """Return the settings' cost and accuracy. Raises `PreconditionFailed` if no mechanism supports them."""
        try:
            mechanism = calibration.mechanism_for(
                settings,
                num_slots=len(self._rows),
                num_classes=self._learned.num_classes,
                objective=self._learned.objective,
                num_parameters=math.prod(self._rows.shape),
            )
        except errors.PrivacyError as error:
            raise problems.PreconditionFailed(f"{error}.") from error
        width = math.inf if mechanism.loss_width is None else mechanism.loss_width
        if (mechanism.l2, width) not in self._minimisers:
            self._minimisers[mechanism.l2, width] = self._minimiser(mechanism.l2, width)
        exact = self._minimisers[mechanism.l2, width]
        noisy = self._noisy(mechanism, exact, width, random)
        return FittingPlan(
            **asdict(costs.of(mechanism, epsilon=settings.epsilon, delta=settings.delta)),
            accuracy=float(np.mean([self._accuracy(weights, width) for weights in noisy])),
            accuracy_without_noise=self._accuracy(exact, width),
        )

    def _minimiser(self, l2: float, width: float) -> Floats:
        shape = self._rows.shape

        def objective(flat: Floats) -> tuple[float, Floats]:
            weights = flat.reshape(shape)
            scores = self._rows.scores(weights)
            pull = self._factors * self._learned.pull(scores, width)
            gradient = self._rows.pulled(pull) / len(self._rows) + l2 * weights
            return self._learned.loss(scores, width, self._factors) + l2 / 2 * float(flat @ flat), gradient.ravel()

        minimiser: Floats = minimize(objective, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B").x
        return minimiser.reshape(shape)

    def _noisy(self, mechanism: Mechanism, start: Floats, width: float, random: np.random.Generator) -> Floats:
        """Return the last iterates of chains that take the mechanism's steps from `start`  # (chains, 1 or C, d)"""
        per_step = _CHAINS * self._rows.num_products * mechanism.batch_size * 2
        steps = int(min(mechanism.learn_steps, max(mechanism.num_batches, _MAX_PRODUCTS / per_step)))
        weights = np.broadcast_to(start, (_CHAINS, *start.shape)).copy()
        batches = np.array_split(np.arange(len(self._rows)), mechanism.num_batches)
        for step in range(steps):
            batch = batches[step % len(batches)]
            rows = self._rows.at(batch)
            share = min(1.0, (steps - step) / mechanism.cool_down)
            pull = self._factors[batch] * self._learned.at(batch).pull(rows.scores(weights), width)
            gradient = rows.pulled(pull) / len(rows) + mechanism.l2 * weights
            weights -= mechanism.step_size * share * gradient
            weights += random.normal(scale=math.sqrt(mechanism.step_variance * share), size=weights.shape)
            far = np.linalg.norm(weights, axis=(1, 2), keepdims=True) / mechanism.radius
            weights /= np.maximum(far, 1.0)
        return weights

    def _accuracy(self, weights: Floats, width: float) -> float:
        return self._test_learned.share_of_scores(self._test_rows.scores(weights), width)
