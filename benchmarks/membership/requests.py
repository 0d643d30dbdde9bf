"""Who asks to be forgotten: an ordinary row, the row that shows most, and a group of rows that resemble it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from app.unlearning import planner
from benchmarks.membership.problems import EPSILON, Problem, Rows
from lethe.proof import accountant
from lethe.proof.accountant import Run

GROUP = 20
NAMES = ("one", "telling", "group")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Slots that become null together, and the `steps` that the service's planner then takes.

    `weights` are how the attacker adds up the logits of the rows into one score: by how hard each row pulls, which is
    the best linear score there is before unlearning. Of a single row the score is its logit, as in U-LiRA. `foreseen`
    is the mu at which that score would give the rows away before unlearning, were the law of models exactly normal.
    `mu_before` and `mu_after` are what the accountant says, without any steps and with `steps`.
    """

    name: str
    slots: NDArray[np.int64]
    weights: NDArray[np.float64]
    foreseen: float
    steps: int
    mu_before: float
    mu_after: float

    def scores(self, rows: Rows, parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of models with parameters (models, d)  # (models,)"""
        return rows.at(self.slots).logits(parameters) @ self.weights


def drawn(problem: Problem, *, seed: int) -> dict[str, Request]:
    """`one`: any row. `telling`: the row that a model's own noise hides worst. `group`: it and the rows of its label
    that are nearest to it."""
    rows = problem.rows
    linear = _Linear(problem)
    one = np.random.default_rng(seed).integers(len(rows.labels))
    telling = int(np.argmax([linear.mu(np.array([slot])) for slot in range(len(rows.labels))]))
    alike = np.flatnonzero(rows.labels == rows.labels[telling])
    nearest = alike[np.argsort(-(rows.features[alike] @ rows.features[telling]), kind="stable")][:GROUP]
    chosen = (np.array([one]), np.array([telling]), nearest)
    return {name: _request(problem, linear, name, slots) for name, slots in zip(NAMES, chosen, strict=True)}


def _request(problem: Problem, linear: "_Linear", name: str, slots: NDArray[np.int64]) -> Request:
    chain, records = problem.learned, len(slots)
    plan = planner.forget(chain, records=records, epsilon=EPSILON, delta=problem.delta)
    return Request(
        name=name,
        slots=slots,
        weights=linear.pulls[slots] / linear.pulls[slots].sum(),
        foreseen=linear.mu(slots),
        steps=plan.steps,
        mu_before=accountant.unlearning_mu(chain, records=records),
        mu_after=accountant.unlearning_mu(accountant.advance(chain, Run(steps=plan.steps, records=records))),
    )


class _Linear:
    """Models to first order about the minimiser, in continuous time: normal with covariance sigma^2 / Hessian, and
    moved by the gradients of the rows that are missing, over the Hessian."""

    def __init__(self, problem: Problem) -> None:
        features, labels = problem.rows.features.astype(np.float64), problem.rows.labels
        num_slots, width = features.shape
        fitted = LogisticRegression(C=1 / (problem.mechanism.l2 * num_slots), fit_intercept=False, max_iter=10_000)
        likely = fitted.fit(features, labels).predict_proba(features)[:, 1]
        self.pulls = np.abs(labels - likely)  # (n,)
        self._gradients = features * (labels - likely)[:, None] / num_slots
        curved = features * (likely * (1 - likely))[:, None]
        self._hessian = curved.T @ features / num_slots + problem.mechanism.l2 * np.eye(width)
        self._noise_scale = problem.mechanism.noise_scale

    def mu(self, slots: NDArray[np.int64]) -> float:
        pull = self._gradients[slots].sum(axis=0)
        return float(np.sqrt(pull @ np.linalg.solve(self._hessian, pull)) / self._noise_scale)
