import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.langevin.gradient import BLOCK_ROWS, blocks, data_gradient

Rows = Callable[..., tuple[Any, Any]]
ROUNDING = 1e-5  # relative, of sums in single precision

seeds = st.integers(0, 2**32 - 1)
scales = st.floats(0.01, 100)
classes = pytest.mark.parametrize("num_classes", [2, 3, 10])


def parameters_for(num_classes: int, num_features: int, seed: int, scale: float = 1.0) -> torch.Tensor:
    generator, rows = np.random.default_rng(seed), 1 if num_classes == 2 else num_classes
    return torch.from_numpy(scale * generator.standard_normal((rows, num_features)))


def summed_loss(parameters: torch.Tensor, features: Any, labels: Any) -> torch.Tensor:
    """The loss whose gradient is meant, as the textbook writes it, in double precision."""
    scores = torch.from_numpy(features).double() @ parameters.T
    targets = torch.from_numpy(labels).long()
    if parameters.shape[0] == 1:
        signs = 2 * targets - 1  # -1 or +1
        return torch.nn.functional.softplus(-signs * scores[:, 0]).sum()
    return torch.nn.functional.cross_entropy(scores, targets, reduction="sum")


def one_row(num_features: int, num_classes: int, seed: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    row = generator.standard_normal((1, num_features))
    return (row * (1 - 2**-20) / np.linalg.norm(row)).astype(np.float32), generator.integers(0, num_classes, 1).astype(
        np.int32
    )


def test_at_the_origin_two_classes_pull_by_half(random_rows: Rows) -> None:
    """At zero the gradient of a record of two classes is half the row, towards its label."""
    features, _ = random_rows(1, 6)
    for label, half in ((0, 0.5), (1, -0.5)):
        gradient = data_gradient(torch.zeros(1, 6, dtype=torch.float64), features, np.array([label], np.int32))
        np.testing.assert_array_equal(gradient.numpy(), half * features)


def test_at_the_origin_many_classes_pull_evenly(random_rows: Rows) -> None:
    """At zero the softmax gradient of a record is the row times 1/C, less the whole row for its label."""
    features, _ = random_rows(1, 6)
    gradient = data_gradient(torch.zeros(4, 6, dtype=torch.float64), features, np.array([2], np.int32))
    np.testing.assert_allclose(gradient.numpy(), np.array([[0.25], [0.25], [-0.75], [0.25]]) * features, rtol=ROUNDING)


@classes
def test_gradient_agrees_with_automatic_differentiation(num_classes: int, random_rows: Rows) -> None:
    """Over several blocks the gradient is the derivative of the textbook loss, up to single precision."""
    features, labels = random_rows(2 * BLOCK_ROWS + 17, 12, num_classes)
    parameters = parameters_for(num_classes, 12, seed=1, scale=3.0).requires_grad_()
    (expected,) = torch.autograd.grad(summed_loss(parameters, features, labels), parameters)
    actual = data_gradient(parameters.detach(), features, labels)
    assert actual.dtype == torch.float64
    torch.testing.assert_close(actual, expected, rtol=ROUNDING, atol=ROUNDING * len(features))


@classes
def test_gradient_agrees_with_finite_differences(num_classes: int, random_rows: Rows) -> None:
    """Along a random direction the gradient is the slope of the textbook loss."""
    features, labels = random_rows(100, 7, num_classes)
    parameters, direction = parameters_for(num_classes, 7, seed=1), parameters_for(num_classes, 7, seed=2)
    ahead = summed_loss(parameters + 1e-5 * direction, features, labels)
    behind = summed_loss(parameters - 1e-5 * direction, features, labels)
    slope = float((data_gradient(parameters, features, labels) * direction).sum())
    assert slope == pytest.approx(float(ahead - behind) / 2e-5, abs=1e-3)


@classes
def test_null_rows_contribute_exactly_nothing(num_classes: int, random_rows: Rows) -> None:
    """The gradient over null rows is zero, and the label of a null row among others changes no bit."""
    features, labels = random_rows(50, 8, num_classes)
    parameters = parameters_for(num_classes, 8, seed=3, scale=50.0)
    assert not data_gradient(parameters, np.zeros_like(features), labels).any()
    features[17] = 0
    gradients = []
    for label in range(num_classes):
        labels[17] = label
        gradients.append(data_gradient(parameters, features, labels))
    assert all(torch.equal(gradient, gradients[0]) for gradient in gradients)


@classes
def test_deleting_a_row_takes_away_its_gradient_and_no_more(num_classes: int, random_rows: Rows) -> None:
    """Nulling one row of many changes the gradient by that row's own, within a thousandth of a record's bound."""
    features, labels = random_rows(20_000, 20, num_classes)
    parameters = parameters_for(num_classes, 20, seed=4, scale=4.0)
    own = data_gradient(parameters, features[123:124], labels[123:124])
    before = data_gradient(parameters, features, labels)
    features[123] = 0
    after = data_gradient(parameters, features, labels)
    assert torch.linalg.vector_norm(before - after - own) < 1e-3


@settings(deadline=None)
@given(seeds, scales)
@classes
def test_no_record_pulls_harder_than_its_bound(num_classes: int, seed: int, scale: float) -> None:
    """The gradient of one row of norm 1 has norm at most 1 for two classes and sqrt(2) for more, at any parameters."""
    features, labels = one_row(5, num_classes, seed)
    pull = torch.linalg.vector_norm(data_gradient(parameters_for(num_classes, 5, seed, scale), features, labels))
    assert float(pull) <= (1.0 if num_classes == 2 else 2**0.5) * (1 + 1e-6)


def test_bounds_on_the_pull_are_attained() -> None:
    """A record that is certain and wrong pulls by 1 for two classes and by sqrt(2) for more: the bounds are tight."""
    row, label = np.array([[1.0, 0.0]], np.float32), np.array([0], np.int32)
    for weights, bound in (([[90.0, 0.0]], 1.0), ([[-90.0, 0.0], [90.0, 0.0], [0.0, 0.0]], 2**0.5)):
        pull = torch.linalg.vector_norm(data_gradient(torch.tensor(weights, dtype=torch.float64), row, label))
        assert float(pull) == pytest.approx(bound, rel=ROUNDING)


@settings(deadline=None)
@given(seeds, scales, st.floats(0.1, 10), st.floats(0, 1))
@classes
def test_regularised_gradient_is_smooth_and_strongly_convex(
    num_classes: int, seed: int, scale: float, distance: float, l2: float
) -> None:
    """Between any two points the gradient of f changes by at most L times and at least l2 times their distance,
    with L = 1/4 + l2 for two classes and 1/2 + l2 for more."""
    generator = np.random.default_rng(seed)
    features = generator.standard_normal((30, 4))
    features = (features * (1 - 2**-20) / np.linalg.norm(features, axis=1, keepdims=True)).astype(np.float32)
    features[generator.integers(0, 30, 5)] = 0
    labels = generator.integers(0, num_classes, 30).astype(np.int32)
    here = parameters_for(num_classes, 4, seed, scale)
    away = parameters_for(num_classes, 4, seed + 1)
    away *= distance / torch.linalg.vector_norm(away)
    change = (data_gradient(here + away, features, labels) - data_gradient(here, features, labels)) / 30 + l2 * away
    rounding = ROUNDING * (1 + scale)
    assert torch.linalg.vector_norm(change) <= ((0.25 if num_classes == 2 else 0.5) + l2) * distance + rounding
    assert (change * away).sum() >= l2 * distance**2 - rounding * distance


@pytest.mark.parametrize("num_rows", [1, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1, 3 * BLOCK_ROWS])
def test_blocks_cover_every_row_once(num_rows: int) -> None:
    """The blocks are consecutive, none is empty or too long, and together they are all the rows."""
    rows = np.arange(num_rows)
    assert all(0 < len(rows[block]) <= BLOCK_ROWS for block in blocks(num_rows))
    np.testing.assert_array_equal(np.concatenate([rows[block] for block in blocks(num_rows)]), rows)


def test_rows_are_read_in_place_from_a_read_only_file(tmp_path: Path, random_rows: Rows) -> None:
    """Rows mapped read-only from a file give the same gradient as rows in memory, without a warning or a copy."""
    features, labels = random_rows(40_000, 50)
    np.save(tmp_path / "features.npy", features)
    mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
    parameters = parameters_for(2, 50, seed=6)
    tracemalloc.start()
    from_file = data_gradient(parameters, mapped, labels)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert torch.equal(from_file, data_gradient(parameters, features, labels))
    assert peak < features.nbytes / 20


def test_scores_of_any_size_stay_finite() -> None:
    """Scores far beyond the range of the exponential give the limits of the gradient, not infinities."""
    row, label = np.array([[1.0, 0.0]], np.float32), np.array([1], np.int32)
    for weights in ([[1e4, 0.0]], [[-1e4, 0.0]], [[1e4, 0.0], [-1e4, 0.0], [0.0, 0.0]]):
        assert data_gradient(torch.tensor(weights, dtype=torch.float64), row, label).isfinite().all()
