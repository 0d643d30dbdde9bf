"""Models of a part of a table's rows, learned as the gateway would learn them, and measured on the other part."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import entr, expit, log_softmax, softmax, xlogy

from lethe.contract.problems import PreconditionFailed
from lethe.contract.sets import Metric
from lethe.encoding.targets import UNIT, y_of_scores
from lethe.proof.errors import PrivacyError
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism
from lethe.theorems import calibration, costs

_CHAINS = 8
"""Noisy models that are learned side by side; their mean accuracy is told."""
_MOST_PRODUCTS = 2e11
"""Multiplications of one plan: some seconds; a chain that takes more of them is cut short."""

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int32]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One setting: accuracy (the metric of the preview) on rows that were held out, of the noisy model and of one
    without noise; the rest as `lethe.theorems.costs.Cost` has it."""

    epsilon: float
    delta: float
    l2: float
    accuracy: float
    accuracy_without_noise: float
    noise: float
    learn_passes: float
    request_passes: float | None


_LEAST_RATE = 1e-9
"""A rate that is said to be less, as a line may say it, is taken for this share of the bound."""


def metrics_of(objective: Objective) -> tuple[Metric, ...]:
    """The metrics by which models of an objective are measured here, the default first."""
    match objective:
        case Objective.LOGISTIC_REGRESSION:
            return Metric.ACCURACY, Metric.LOG_LOSS
        case Objective.SMOOTHED_HINGE:
            return (Metric.ACCURACY,)
        case Objective.MULTILABEL_LOGISTIC_REGRESSION:
            return Metric.LABEL_ACCURACY, Metric.EXACT_MATCH, Metric.LOG_LOSS
        case Objective.HUBER_REGRESSION | Objective.LEAST_SQUARES:
            return Metric.R_SQUARED, Metric.MEAN_ABSOLUTE_ERROR
        case Objective.POISSON_REGRESSION:
            return Metric.R_SQUARED, Metric.MEAN_ABSOLUTE_ERROR, Metric.MEAN_POISSON_DEVIANCE


@dataclass(frozen=True, slots=True)
class Learned:
    """The values that rows are to be given: the class of each (n, 1), the labels that it has (n, C), or its target from
    -1 to 1 (n, 1), which is `half_range` of its units away from 0 there; and the metric of models of them, as the
    gateway measures it (`worker.langevin.evaluate`)."""

    objective: Objective
    num_classes: int
    values: Floats
    metric: Metric
    half_range: float = 1.0

    @classmethod
    def of(
        cls,
        objective: Objective,
        labels: Labels,
        num_classes: int,
        *,
        metric: Metric | None = None,
        half_range: float = 1.0,
    ) -> "Learned":
        """Read labels as a dataset stores them; by default the first of `metrics_of`."""
        found = labels[:, np.newaxis].astype(np.int64)
        metric = metric or metrics_of(objective)[0]
        if objective is Objective.MULTILABEL_LOGISTIC_REGRESSION:
            return cls(objective, num_classes, (found >> np.arange(num_classes) & 1).astype(np.float64), metric)
        return cls(objective, num_classes, found / (UNIT if objective.is_regression else 1.0), metric, half_range)

    def at(self, places: Places) -> "Learned":
        return replace(self, values=self.values[places])

    def share(self, guessed: Floats) -> float:
        """The metric of guesses that are of the same shape as the values. The log loss is of scores alone."""
        match self.metric:
            case Metric.R_SQUARED:
                apart = float(np.square(self.values - self.values.mean()).sum())
                return 1 - float(np.square(np.clip(guessed, -1, 1) - self.values).sum()) / apart if apart else 0.0
            case Metric.MEAN_ABSOLUTE_ERROR:
                return self.half_range * float(np.abs(np.clip(guessed, -1, 1) - self.values).mean())
            case Metric.MEAN_POISSON_DEVIANCE:
                counts = np.rint(self.half_range * (self.values + 1))
                rates = self.half_range * np.maximum(np.clip(guessed, -1, 1) + 1, _LEAST_RATE)
                return float(2 * (xlogy(counts, counts / rates) - counts + rates).mean())
            case Metric.EXACT_MATCH:
                return float(np.mean(np.all(guessed == self.values, axis=1)))
            case _:
                return float((guessed == self.values).mean())

    def share_of_scores(self, scores: Floats, width: float) -> float:
        if self.metric is Metric.LOG_LOSS:
            return self.loss(scores, width) / len(self.values[0])
        if self.objective.is_regression:
            return self.share(y_of_scores(scores, objective=self.objective, loss_width=width))
        if scores.shape[1] > 1 and self.metric is Metric.ACCURACY:
            return self.share(scores.argmax(axis=1)[:, np.newaxis].astype(np.float64))
        return self.share((scores > 0).astype(np.float64))

    def majority(self) -> float:
        """The best that the metric can be of saying the same of every row, with these known."""
        match self.metric:
            case Metric.R_SQUARED | Metric.MEAN_POISSON_DEVIANCE:
                return self.share(np.full_like(self.values, self.values.mean()))
            case Metric.MEAN_ABSOLUTE_ERROR:
                return self.share(np.full_like(self.values, np.median(self.values)))
            case Metric.LABEL_ACCURACY:
                has = self.values.mean(axis=0)
                return float(np.maximum(has, 1 - has).mean())
            case Metric.LOG_LOSS if self.objective is Objective.MULTILABEL_LOGISTIC_REGRESSION:
                has = self.values.mean(axis=0)
                return float((entr(has) + entr(1 - has)).mean())
            case Metric.LOG_LOSS:
                return float(entr(np.bincount(self.values[:, 0].astype(np.int64)) / len(self.values)).sum())
            case _:
                return float(np.unique(self.values, axis=0, return_counts=True)[1].max() / len(self.values))

    def loss(self, scores: Floats, width: float, factors: Floats | float = 1.0) -> float:
        """The mean loss of rows of these scores (n, 1) or (n, C), each times its factor (n, 1), if they differ"""
        match self.objective:
            case Objective.LOGISTIC_REGRESSION if scores.shape[1] > 1:
                found = -np.take_along_axis(log_softmax(scores, axis=1), self.values.astype(np.int64), axis=1)
            case Objective.LOGISTIC_REGRESSION | Objective.MULTILABEL_LOGISTIC_REGRESSION:
                found = np.logaddexp(0, (1 - 2 * self.values) * scores)
            case Objective.SMOOTHED_HINGE:
                short = 1 - (2 * self.values - 1) * scores
                found = np.where(short < width, np.maximum(short, 0) ** 2 / (2 * width), short - width / 2)
            case Objective.HUBER_REGRESSION | Objective.LEAST_SQUARES:
                off = np.abs(scores - self.values)
                bent = np.minimum(off, width)
                found = bent * (off - bent / 2)
            case Objective.POISSON_REGRESSION:
                beyond = scores - width
                found = np.exp(np.minimum(beyond, 0)) + np.maximum(beyond, 0) - (self.values + 1) / 2 * scores
        return float((factors * found).sum() / len(scores))

    def pull(self, scores: Floats, width: float) -> Floats:
        """The derivative of each row's loss by its scores  # (..., n, 1) or (..., n, C)"""
        match self.objective:
            case Objective.LOGISTIC_REGRESSION if scores.shape[-1] > 1:
                found = softmax(scores, axis=-1) - (np.arange(scores.shape[-1]) == self.values)
            case Objective.LOGISTIC_REGRESSION | Objective.MULTILABEL_LOGISTIC_REGRESSION:
                found = expit(scores) - self.values
            case Objective.SMOOTHED_HINGE:
                signs = 2 * self.values - 1
                found = -signs * np.clip((1 - signs * scores) / width, 0, 1)
            case Objective.HUBER_REGRESSION | Objective.LEAST_SQUARES:
                found = np.clip(scores - self.values, -width, width)
            case Objective.POISSON_REGRESSION:
                found = np.exp(np.minimum(scores - width, 0)) - (self.values + 1) / 2
        return np.asarray(found, dtype=np.float64)


class Rows(Protocol):
    """Rows whose scores are linear in what is learned. `shape`: of that; `num_products`: of the scores of one row."""

    shape: tuple[int, int]
    num_products: int

    @property
    def numbers(self) -> Floats:
        """The factors of what is learned in the scores  # (n C, d), or (n, d) where they are the same of every score"""

    def __len__(self) -> int: ...
    def at(self, places: Places) -> "Rows": ...
    def scores(self, weights: Floats) -> Floats:
        """# (..., *shape) -> (..., n, C)"""

    def pulled(self, pull: Floats) -> Floats:
        """The sum over the rows of what scores that are pulled so pull at  # (..., n, C) -> (..., *shape)"""


class LinearRows:
    """Encoded rows (n, d), with weights of their own for each score."""

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


class Problem:
    """Rows of norm <= 1 and what they are to be given, cut in two. `factors`: of the losses of rows, which count in
    learning and not in measuring."""

    def __init__(
        self, rows: Rows, learned: Learned, train: Places, test: Places, factors: Floats | None = None
    ) -> None:
        self._rows, self._learned = rows.at(train), learned.at(train)
        self._factors = np.ones((len(train), 1)) if factors is None else factors[train, np.newaxis]
        self._test_rows, self._test_learned = rows.at(test), learned.at(test)
        self._minimisers: dict[tuple[float, float], Floats] = {}

    def second_moment(self) -> float:
        """The largest eigenvalue of (1/b) sum x x^T over the rows of any batch of the default size."""
        num_batches = len(self._rows) // calibration.default_batch_size(len(self._rows))
        found = 0.0
        for batch in np.array_split(np.arange(len(self._rows)), num_batches):
            x = self._rows.at(batch).numbers
            product = x @ x.T if len(x) < x.shape[1] else x.T @ x
            found = max(found, float(np.linalg.eigvalsh(product)[-1]) / len(batch))
        return found

    def plan(
        self, epsilon: float, l2: float, delta: float, second_moment: float | None, random: np.random.Generator
    ) -> Plan:
        """Raises `PreconditionFailed` where there is no such mechanism."""
        try:
            mechanism = calibration.mechanism_for(
                num_slots=len(self._rows),
                num_classes=self._learned.num_classes,
                objective=self._learned.objective,
                num_parameters=math.prod(self._rows.shape),
                epsilon=epsilon,
                delta=delta,
                l2=l2,
                second_moment=second_moment,
            )
        except PrivacyError as error:
            raise PreconditionFailed(f"{error}.") from error
        width = math.inf if mechanism.loss_width is None else mechanism.loss_width
        if (l2, width) not in self._minimisers:
            self._minimisers[l2, width] = self._minimiser(l2, width)
        exact = self._minimisers[l2, width]
        return Plan(
            **asdict(costs.of(mechanism, epsilon=epsilon, delta=delta)),
            accuracy=float(
                np.mean([self._accuracy(one, width) for one in self._noisy(mechanism, exact, width, random)])
            ),
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

        found: Floats = minimize(objective, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B").x
        return found.reshape(shape)

    def _noisy(self, mechanism: Mechanism, start: Floats, width: float, random: np.random.Generator) -> Floats:
        """The iterates to which the mechanism's steps lead from the start  # (chains, 1 or C, d)"""
        per_step = _CHAINS * self._rows.num_products * mechanism.batch_size * 2
        steps = int(min(mechanism.learn_steps, max(mechanism.num_batches, _MOST_PRODUCTS / per_step)))
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
