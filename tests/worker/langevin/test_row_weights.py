"""Losses with row weights between 0 and 1."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge

from lethe.encoding.rows import as_factors
from lethe.encoding.targets import UNIT, TargetColumn
from lethe.proof.losses import Objective, gradient_bound
from tests.worker import passes
from tests.worker.langevin.conftest import ReplayableNoise, SilentNoise, mechanism_of
from worker.evidence import differs
from worker.langevin import chain, engines
from worker.langevin.gradient import HostRows
from worker.langevin.losses import Loss
from worker.langevin.window import BLOCK_ROWS

LOSSES = {
    "two classes": (Loss(), 2),
    "weighed classes": (Loss(class_weights=(0.25, 1.0)), 2),
    "four classes": (Loss(), 4),
    "labels": (Loss(Objective.MULTILABEL_LOGISTIC_REGRESSION), 3),
    "hinge": (Loss(Objective.SMOOTHED_HINGE, 0.5), 2),
    "huber": (Loss(Objective.HUBER_REGRESSION, 0.4), 1),
    "squares": (Loss(Objective.LEAST_SQUARES), 1),
    "counts": (Loss(Objective.POISSON_REGRESSION, 1.5), 1),
}
every_loss = pytest.mark.parametrize(("loss", "classes"), LOSSES.values(), ids=LOSSES)


def drawn(loss: Loss, classes: int, num_rows: int, width: int = 9, seed: int = 0) -> tuple[Any, Any, Any]:
    """Return rows of norm 1, labels, and weights of which some are 0 and some are 1."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(num_rows, width))
    features *= (1 - 2**-20) / np.linalg.norm(features, axis=1, keepdims=True)
    if loss.objective.is_regression:
        labels = random.integers(-UNIT, UNIT, size=num_rows, endpoint=True)
    else:
        several = loss.objective is Objective.MULTILABEL_LOGISTIC_REGRESSION
        labels = random.integers(2**classes if several else classes, size=num_rows)
    weights = np.clip(random.integers(-UNIT // 4, UNIT + UNIT // 4, size=num_rows), 0, UNIT)
    return features.astype(np.float32), labels.astype(np.int32), weights.astype(np.int32)


def at(loss: Loss, classes: int, width: int = 9, scale: float = 1.0) -> Any:
    return torch.from_numpy(scale * np.random.default_rng(8).normal(size=(loss.weight_rows(classes), width)))


def gradient(loss: Loss, classes: int, parameters: Any, features: Any, labels: Any, weights: Any = None) -> Any:
    with HostRows(features, labels, weights, num_classes=classes, loss=loss) as rows:
        return rows.gradient(parameters)


@pytest.mark.slow
@every_loss
def test_gradients_are_scaled_by_row_weights(loss: Loss, classes: int) -> None:
    """Over several blocks, the gradient that the kernel and the device compute is the sum of the rows' gradients, each
    multiplied by the row's weight. The second gradient agrees with it and detects omitted weights."""
    features, labels, weights = drawn(loss, classes, 2 * BLOCK_ROWS + 17)
    parameters = at(loss, classes)
    ours = gradient(loss, classes, parameters, features, labels, weights)
    each = [
        gradient(loss, classes, parameters, features[part : part + 1], labels[part : part + 1]) for part in range(200)
    ]
    few = gradient(loss, classes, parameters, features[:200], labels[:200], weights[:200])
    expected = sum(factor * one for factor, one in zip((weights / UNIT).tolist(), each, strict=False))
    torch.testing.assert_close(few, expected, rtol=1e-5, atol=1e-4)
    for opened in passes.OTHERS.values():
        with opened(features, labels, weights, num_classes=classes, loss=loss) as there:
            torch.testing.assert_close(there.gradient(parameters), ours, rtol=1e-5, atol=1e-5 * len(features))
    seen: dict[str, Any] = {"features": features, "labels": labels, "objective": loss.objective, "bound": 1.0}
    seen |= {"loss_width": loss.width, "class_weights": loss.class_weights}
    assert not differs(ours.numpy(), parameters.numpy(), weights=weights, **seen)
    assert differs(ours.numpy(), parameters.numpy(), **seen)


@every_loss
def test_weights_of_one_change_nothing(loss: Loss, classes: int) -> None:
    """If every weight is 1, the gradient is bit-identical to that of unweighted rows."""
    features, labels, _ = drawn(loss, classes, 2 * BLOCK_ROWS + 17)
    ones, parameters = np.full(len(labels), UNIT, np.int32), at(loss, classes)
    weighted = gradient(loss, classes, parameters, features, labels, ones)
    assert torch.equal(weighted, gradient(loss, classes, parameters, features, labels))


@every_loss
def test_a_row_of_weight_zero_acts_like_a_null_row(loss: Loss, classes: int) -> None:
    """Replacing rows of weight 0 by null rows leaves the gradient bit-identical."""
    features, labels, weights = drawn(loss, classes, BLOCK_ROWS + 5)
    nobody, parameters = weights == 0, at(loss, classes)
    assert 100 < nobody.sum() < len(weights) - 100
    ours = gradient(loss, classes, parameters, features, labels, weights)
    features[nobody], labels[nobody] = 0, 0
    assert torch.equal(ours, gradient(loss, classes, parameters, features, labels, weights))


@given(
    name=st.sampled_from(sorted(LOSSES)),
    seed=st.integers(0, 2**32),
    weight=st.integers(0, UNIT),
    radius=st.floats(0.1, 50),
)
@settings(max_examples=150, deadline=None)
def test_weighted_gradients_are_bounded(name: str, seed: int, weight: int, radius: float) -> None:
    """For any parameters in the ball and any weight, the norm of a record's gradient is at most M times the record's
    weight."""
    loss, classes = LOSSES[name]
    features, labels, _ = drawn(loss, classes, 1, width=4, seed=seed)
    direction = np.random.default_rng(seed + 1).normal(size=(loss.weight_rows(classes), 4))
    parameters = torch.from_numpy(radius * direction / np.linalg.norm(direction))
    found = gradient(loss, classes, parameters, features, labels, np.array([weight], np.int32))
    most = gradient_bound(loss.objective, classes, radius=radius, loss_width=loss.width)
    assert float(found.norm()) <= most * (1 + 1e-5) * weight / UNIT + 1e-12


def run(features: Any, stored: Any, noise: Any, **changed: Any) -> Any:
    """Return the parameters after a run on these rows, as an array (1, d) or (C, d)."""
    mechanism = mechanism_of(num_slots=len(features), num_parameters=features.shape[1], **changed)
    rows = 1 if mechanism.num_classes <= 2 else mechanism.num_classes
    return chain.run(
        mechanism=mechanism,
        features=features,
        labels=stored,
        initial=np.zeros((rows, features.shape[1])),
        steps=mechanism.learn_steps,
        noise=noise,
        on_progress=lambda steps_done: None,
        backend=engines.Backend(threads=1),
    ).parameters


def test_runs_with_weights_of_one_match_runs_without() -> None:
    """With the same noise, a run in which all weights are 1 ends with the same parameters, bit for bit, as a run
    without weights. A row of weight 0 has the same effect as a null row."""
    features, labels, weights = drawn(Loss(), 2, 300)
    ones = np.full_like(labels, UNIT)
    plain = run(features, labels, ReplayableNoise(3))
    full = run(features, np.stack([labels, ones], axis=1), ReplayableNoise(3), weight_bound=10.0)
    assert np.array_equal(plain, full)
    some = run(features, np.stack([labels, weights], axis=1), ReplayableNoise(3), weight_bound=10.0)
    assert not np.array_equal(plain, some)
    gone = weights == 0
    features[gone], labels[gone] = 0, 0
    without = run(features, np.stack([labels, weights], axis=1), ReplayableNoise(3), weight_bound=10.0)
    assert np.array_equal(some, without)


def test_two_rows_of_half_weight_equal_one_row() -> None:
    """Two copies of a row with half the weight each have the same effect as one row of full weight and a null row."""
    features, labels, weights = drawn(Loss(), 2, 200)
    halves = weights // 2
    twice = np.repeat(features, 2, axis=0), np.repeat(np.stack([labels, halves], axis=1), 2, axis=0)
    once = np.zeros_like(twice[0]), np.zeros_like(twice[1])
    once[0][::2], once[1][::2] = features, np.stack([labels, 2 * halves], axis=1)
    ended = [run(*rows, SilentNoise(), weight_bound=1.0) for rows in (twice, once)]
    np.testing.assert_allclose(ended[0], ended[1], atol=1e-6)


def test_least_squares_match_scikit_learn() -> None:
    """The noiseless steps converge to the minimiser of scikit-learn's Ridge with sample_weight."""
    features, labels, weights = drawn(LOSSES["squares"][0], 1, 400, width=5)
    changed = {"objective": Objective.LEAST_SQUARES, "num_classes": 1, "l2": 0.05, "step_size": 0.5}
    stored = np.stack([labels, weights], axis=1)
    found = run(features, stored, SilentNoise(), learn_steps=2000, radius=5.0, weight_bound=2.0, **changed)
    rival = Ridge(alpha=400 * 0.05, fit_intercept=False, tol=1e-12)
    rival.fit(features.astype(float), labels / UNIT, sample_weight=as_factors(weights))
    np.testing.assert_allclose(found[0], rival.coef_, atol=1e-6)


@pytest.mark.parametrize("classes", [2, 4])
def test_classes_match_scikit_learn(classes: int) -> None:
    """With two and with four classes, the steps converge to the minimiser that scikit-learn's LogisticRegression
    finds."""
    features, labels, weights = drawn(Loss(), classes, 400, width=5)
    changed = {"num_classes": classes, "l2": 0.05, "step_size": 1.0, "learn_steps": 3000}
    found = run(features, np.stack([labels, weights], axis=1), SilentNoise(), weight_bound=1.0, **changed)
    rival = LogisticRegression(C=1 / (400 * 0.05), fit_intercept=False, tol=1e-10, max_iter=5000)
    rival.fit(features.astype(float), labels, sample_weight=as_factors(weights))
    np.testing.assert_allclose(found, rival.coef_, atol=1e-5)


@pytest.mark.slow
def test_counts_match_scikit_learn() -> None:
    """With counts, the steps converge to the minimiser that scikit-learn finds when its penalty is divided by the sum
    of all weights."""
    bound, l2 = 30.0, 2e-3
    random = np.random.default_rng(3)
    features = np.ones((3000, 4))
    features[:, 1:] = random.standard_normal((3000, 3))
    features *= (1 - 2**-20) / np.linalg.norm(features, axis=1, keepdims=True)
    counts = random.poisson(np.exp(features @ [0.9, 1.2, -0.7, 0.3]))
    weights = random.integers(0, UNIT, size=3000, endpoint=True).astype(np.int32)
    stored = np.stack([TargetColumn(low=0, high=bound, counts=True).labels(counts), weights], axis=1)
    changed = {"objective": Objective.POISSON_REGRESSION, "num_classes": 1, "loss_width": math.log(bound)}
    more = {"l2": l2, "step_size": 1.0, "learn_steps": 6000, "radius": 20.0, "weight_bound": 1.0}
    found = run(features.astype(np.float32), stored, SilentNoise(), **changed | more)
    factors = as_factors(weights).astype(float)
    rival = PoissonRegressor(alpha=l2 * bound * 3000 / factors.sum(), fit_intercept=False, tol=1e-10, max_iter=1000)
    rival.fit(features, counts, sample_weight=factors)
    np.testing.assert_allclose(found[0], rival.coef_, atol=1e-4)


@pytest.mark.parametrize("weight", [-1, UNIT + 1, -(2**31)])
def test_a_weight_beyond_its_bound_ends_the_run(weight: int) -> None:
    """A stored weight that is not between 0 and 1 is refused before it is used in any computation."""
    features, labels, weights = drawn(Loss(), 2, 40, width=5)
    weights[7] = weight
    with pytest.raises(ValueError, match="weight between 0 and 1"):
        run(features, np.stack([labels, weights], axis=1), SilentNoise(), weight_bound=1.0)


def test_weights_must_match_the_mechanism() -> None:
    """Rows with weights are refused if the mechanism states no weight bound, and rows without weights are refused if it
    states one."""
    features, labels, weights = drawn(Loss(), 2, 40, width=5)
    with pytest.raises(ValueError, match="where the mechanism states"):
        run(features, np.stack([labels, weights], axis=1), SilentNoise())
    with pytest.raises(ValueError, match="where the mechanism states"):
        run(features, labels, SilentNoise(), weight_bound=1.0)
