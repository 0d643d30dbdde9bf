"""A dry run on the caller's own machine: what a table becomes once it is encoded, and what forgetting would cost it.

A part of the rows is learned as the gateway would learn it: the mechanism's own noisy steps, from the minimiser on,
where learning ends. It is measured on the other part. Every number is about the rows, so none belongs into a schema or
a document that others see.
"""

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax

from lethe.contract.problems import DatasetUnusable, FieldError, PreconditionFailed, SchemaInvalid
from lethe.encoding.faults import refuse
from lethe.encoding.rows import Schema
from lethe.encoding.schema import parse_schema
from lethe.encoding.spread import Spread
from lethe.frames import Frame
from lethe.proof.errors import PrivacyError
from lethe.proof.losses import num_weight_rows
from lethe.proof.mechanism import Mechanism
from lethe.tables.reading import columns_of
from lethe.theorems import calibration, costs

EPSILONS = (0.5, 1.0, 2.0, 4.0)
HELD_OUT = 0.25
_CHAINS = 8
"""Noisy models that are learned side by side; their mean accuracy is told."""
_MOST_PRODUCTS = 2e11
"""Multiplications of one plan: some seconds; a chain that takes more of them is cut short."""

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSeen:
    """Shares of the rows in which a column is missing or unknown, and clipped."""

    name: str
    kind: str
    num_features: int
    unknown: float
    clipped: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One setting: accuracy on rows that were held out, of the noisy model and of one without noise; the rest as
    `lethe.theorems.costs.Cost` has it."""

    epsilon: float
    delta: float
    l2: float
    accuracy: float
    accuracy_without_noise: float
    noise: float
    learn_passes: float
    request_passes: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """`lengths`: of the rows before each is scaled to norm 1, the 5th, 50th and 95th of a hundred. `second_moment`:
    the largest eigenvalue of the second moment of any batch, of batches drawn at random. `scikit_learn`: the
    accuracy of its logistic regression, tuned, on the same features; None where it is not installed."""

    num_rows: int
    num_features: int
    held_out: int
    columns: tuple[ColumnSeen, ...]
    lengths: tuple[float, float, float]
    second_moment: float
    warnings: tuple[str, ...]
    majority: float
    scikit_learn: float | None
    plans: tuple[Plan, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def preview(
    table: str | Path | Frame,
    *,
    schema: dict[str, Any],
    epsilons: Sequence[float] = EPSILONS,
    l2: Sequence[float] | None = None,
    delta: float | None = None,
    second_moment: float | None = None,
    seed: int = 0,
) -> Preview:
    """Encode a table by the schema, and fit and measure models of it, all in this process.

    `l2`: the default for so many rows, a quarter of it and four times it, unless others are asked for; `delta`:
    1 / n^1.1 as by default; `second_moment`: the bound that the models state. `seed`: of the split and the noise.

    Raises `SchemaInvalid`, `RowInvalid`, `DatasetUnusable` and `PreconditionFailed` as the gateway would.
    """
    parsed = parse_schema(schema)
    if parsed.target or parsed.separator:
        raise SchemaInvalid(
            "A preview is of one label for each row.",
            [FieldError(f"columns.{parsed.label}", "expected the role label")],
        )
    columns = columns_of(table)
    missing = [name for name in parsed.used if name not in columns]
    refuse(SchemaInvalid, [FieldError(f"column {name}", "is missing") for name in missing])
    num_rows = len(columns[parsed.label])
    if num_rows == 0:
        raise DatasetUnusable("There are no rows.")
    found = parsed.encode_labelled(columns, range(1, num_rows + 1))
    parsed.check_known(found.num_unknown, num_rows)
    random = np.random.default_rng(seed)
    order = random.permutation(num_rows)
    cut = max(1, round(num_rows * HELD_OUT))
    test, train = order[:cut], order[cut:]
    raw = found.raw
    lengths = np.hypot(np.linalg.norm(raw, axis=1), 1.0)
    low, middle, high = np.quantile(lengths, [0.05, 0.5, 0.95]).tolist()
    problem = _Problem(found.features.astype(np.float64), found.labels, train, test, len(parsed.classes))
    return Preview(
        num_rows=num_rows,
        num_features=parsed.num_features,
        held_out=len(test),
        columns=tuple(_seen(parsed, columns, found.num_unknown.tolist(), num_rows)),
        lengths=(low, middle, high),
        second_moment=problem.second_moment(),
        warnings=tuple(Spread.of(raw).warnings(parsed.places)),
        majority=float(np.bincount(found.labels[test]).max() / len(test)),
        scikit_learn=_scikit_learn(raw, found.labels, train, test),
        plans=tuple(
            problem.plan(epsilon, one, delta or float(len(train) ** -1.1), second_moment, random)
            for epsilon in epsilons
            for one in l2 or costs.around(len(train), epsilon)
        ),
    )


def _seen(schema: Schema, columns: dict[str, Any], num_unknown: list[int], num_rows: int) -> list[ColumnSeen]:
    return [
        ColumnSeen(
            name=column.name,
            kind=column.kind,
            num_features=column.width,
            unknown=unknown / num_rows,
            clipped=column.num_clipped(columns[column.name]) / num_rows,
        )
        for column, unknown in zip(schema.features, num_unknown, strict=True)
    ]


class _Problem:
    """Rows of norm <= 1 and their labels, cut in two."""

    def __init__(self, rows: Floats, labels: Labels, train: Any, test: Any, num_classes: int) -> None:
        self._rows, self._labels = rows[train], labels[train]
        self._test_rows, self._test_labels = rows[test], labels[test]
        self._num_classes = num_classes
        self._minimisers: dict[float, Floats] = {}

    def second_moment(self) -> float:
        """The largest eigenvalue of (1/b) sum x x^T over the rows of any batch of the default size."""
        num_batches = len(self._rows) // calibration.default_batch_size(len(self._rows))
        batches = np.array_split(self._rows, num_batches)
        products = (x @ x.T if len(x) < x.shape[1] else x.T @ x for x in batches)
        return max(
            float(np.linalg.eigvalsh(product)[-1]) / len(x) for product, x in zip(products, batches, strict=True)
        )

    def plan(
        self, epsilon: float, l2: float, delta: float, second_moment: float | None, random: np.random.Generator
    ) -> Plan:
        try:
            mechanism = calibration.mechanism_for(
                num_slots=len(self._rows),
                num_classes=self._num_classes,
                epsilon=epsilon,
                delta=delta,
                l2=l2,
                second_moment=second_moment,
            )
        except PrivacyError as error:
            raise PreconditionFailed(f"{error}.") from error
        if l2 not in self._minimisers:
            self._minimisers[l2] = self._minimiser(l2)
        exact = self._minimisers[l2]
        return Plan(
            **asdict(costs.of(mechanism, epsilon=epsilon, delta=delta)),
            accuracy=float(np.mean([self._accuracy(one) for one in self._noisy(mechanism, exact, random)])),
            accuracy_without_noise=self._accuracy(exact),
        )

    def _minimiser(self, l2: float) -> Floats:
        shape = (num_weight_rows(self._num_classes), self._rows.shape[1])

        def objective(flat: Floats) -> tuple[float, Floats]:
            weights = flat.reshape(shape)
            loss, pull = self._losses(self._rows @ weights.T)
            gradient = pull.T @ self._rows / len(self._rows) + l2 * weights
            return loss + l2 / 2 * float(flat @ flat), gradient.ravel()

        found: Floats = minimize(objective, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B").x
        return found.reshape(shape)

    def _noisy(self, mechanism: Mechanism, start: Floats, random: np.random.Generator) -> Floats:
        """The iterates to which the mechanism's steps lead from the start  # (chains, 1 or C, d)"""
        per_step = _CHAINS * start.size * mechanism.batch_size * 2
        steps = int(min(mechanism.learn_steps, max(mechanism.num_batches, _MOST_PRODUCTS / per_step)))
        weights = np.broadcast_to(start, (_CHAINS, *start.shape)).copy()
        batches = np.array_split(np.arange(len(self._rows)), mechanism.num_batches)
        for step in range(steps):
            batch = batches[step % len(batches)]
            rows, labels = self._rows[batch], self._labels[batch]
            share = min(1.0, (steps - step) / mechanism.cool_down)
            pull = _pull(np.einsum("nd,kcd->knc", rows, weights, optimize=True), labels)
            gradient = np.einsum("knc,nd->kcd", pull, rows, optimize=True) / len(rows) + mechanism.l2 * weights
            weights -= mechanism.step_size * share * gradient
            weights += random.normal(scale=math.sqrt(mechanism.step_variance * share), size=weights.shape)
        return weights

    def _losses(self, scores: Floats) -> tuple[float, Floats]:
        """The mean loss, and its derivative by each score times the number of rows  # (n, 1) or (n, C)"""
        if self._num_classes == 2:
            loss = np.logaddexp(0, (1 - 2.0 * self._labels)[:, np.newaxis] * scores)
        else:
            loss = -np.take_along_axis(log_softmax(scores, axis=1), self._labels[:, np.newaxis], axis=1)
        return float(loss.mean()), _pull(scores, self._labels)

    def _accuracy(self, weights: Floats) -> float:
        scores = self._test_rows @ weights.T
        guessed = scores[:, 0] > 0 if self._num_classes == 2 else scores.argmax(axis=1)
        return float((guessed == self._test_labels).mean())


def _pull(scores: Floats, labels: Labels) -> Floats:
    """The derivative of each row's loss by its scores  # (..., n, 1) for two classes, (..., n, C) for more"""
    if scores.shape[-1] == 1:
        probabilities, targets = expit(scores), labels[:, np.newaxis]
    else:
        probabilities, targets = softmax(scores, axis=-1), np.arange(scores.shape[-1]) == labels[:, np.newaxis]
    pull: Floats = probabilities - targets
    return pull


def _scikit_learn(features: Floats, labels: Labels, train: Any, test: Any) -> float | None:
    if importlib.util.find_spec("sklearn") is None or len(set(labels[train].tolist())) < 2:
        return None
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    search = GridSearchCV(LogisticRegression(max_iter=2000), {"C": [0.01, 0.1, 1, 10, 100]}, cv=3)
    return float(search.fit(features[train], labels[train]).score(features[test], labels[test]))
