import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from worker.langevin.gradient import HostRows
from worker.langevin.window import BLOCK_ROWS, blocks

RandomRows = Callable[..., tuple[Any, Any]]
ROUNDING = 1e-5  # relative rounding error of sums in single precision

seeds = st.integers(0, 2**32 - 1)
scales = st.floats(0.01, 100)
classes = pytest.mark.parametrize("num_classes", [2, 3, 10])


def gradient_of(parameters: torch.Tensor, features: Any, labels: Any, threads: int | None = None) -> torch.Tensor:
    num_classes = 2 if parameters.shape[0] == 1 else parameters.shape[0]
    with HostRows(features, labels, num_classes=num_classes, threads=threads) as rows:
        return rows.gradient(parameters)


def parameters_for(num_classes: int, num_features: int, seed: int, scale: float = 1.0) -> torch.Tensor:
    generator, rows = np.random.default_rng(seed), 1 if num_classes == 2 else num_classes
    return torch.from_numpy(scale * generator.standard_normal((rows, num_features)))


def summed_loss(parameters: torch.Tensor, features: Any, labels: Any) -> torch.Tensor:
    """Return the textbook loss whose gradient is tested, in double precision."""
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


def test_two_class_gradient_at_the_origin_is_half_the_row(random_rows: RandomRows) -> None:
    """With two classes and zero parameters, a record's gradient is plus or minus half the row, depending on the
    label."""
    features, _ = random_rows(1, 6)
    for label, half in ((0, 0.5), (1, -0.5)):
        gradient = gradient_of(torch.zeros(1, 6, dtype=torch.float64), features, np.array([label], np.int32))
        np.testing.assert_array_equal(gradient.numpy(), half * features)


def test_softmax_gradient_at_the_origin_is_even(random_rows: RandomRows) -> None:
    """With more classes and zero parameters, a record's softmax gradient is 1/C of the row for every class, minus the
    whole row for the record's class."""
    features, _ = random_rows(1, 6)
    gradient = gradient_of(torch.zeros(4, 6, dtype=torch.float64), features, np.array([2], np.int32))
    np.testing.assert_allclose(gradient.numpy(), np.array([[0.25], [0.25], [-0.75], [0.25]]) * features, rtol=ROUNDING)


@classes
def test_gradient_agrees_with_automatic_differentiation(num_classes: int, random_rows: RandomRows) -> None:
    """Over several blocks, the gradient equals the automatic derivative of the textbook loss, up to single
    precision."""
    features, labels = random_rows(2 * BLOCK_ROWS + 17, 12, num_classes)
    parameters = parameters_for(num_classes, 12, seed=1, scale=3.0).requires_grad_()
    (expected,) = torch.autograd.grad(summed_loss(parameters, features, labels), parameters)
    actual = gradient_of(parameters.detach(), features, labels)
    assert actual.dtype == torch.float64
    torch.testing.assert_close(actual, expected, rtol=ROUNDING, atol=ROUNDING * len(features))


@classes
def test_null_rows_contribute_exactly_nothing(num_classes: int, random_rows: RandomRows) -> None:
    """The gradient over null rows is zero, and changing the label of a null row among other rows leaves the gradient
    bit-identical."""
    features, labels = random_rows(50, 8, num_classes)
    parameters = parameters_for(num_classes, 8, seed=3, scale=50.0)
    assert not gradient_of(parameters, np.zeros_like(features), labels).any()
    features[17] = 0
    gradients = []
    for label in range(num_classes):
        labels[17] = label
        gradients.append(gradient_of(parameters, features, labels))
    assert all(torch.equal(gradient, gradients[0]) for gradient in gradients)


@classes
def test_deleting_a_row_removes_its_gradient(num_classes: int, random_rows: RandomRows) -> None:
    """Nulling one row of many changes the total gradient by that row's gradient, to within a thousandth of a record's
    bound."""
    features, labels = random_rows(20_000, 20, num_classes)
    parameters = parameters_for(num_classes, 20, seed=4, scale=4.0)
    own = gradient_of(parameters, features[123:124], labels[123:124])
    before = gradient_of(parameters, features, labels)
    features[123] = 0
    after = gradient_of(parameters, features, labels)
    assert torch.linalg.vector_norm(before - after - own) < 1e-3


@settings(deadline=None)
@given(seeds, scales)
@classes
def test_gradient_of_one_record_is_bounded(num_classes: int, seed: int, scale: float) -> None:
    """For any parameters, the gradient of one row of norm 1 has norm at most 1 for two classes and at most
    sqrt(2) for more."""
    features, labels = one_row(5, num_classes, seed)
    pull = torch.linalg.vector_norm(gradient_of(parameters_for(num_classes, 5, seed, scale), features, labels))
    assert float(pull) <= (1.0 if num_classes == 2 else 2**0.5) * (1 + 1e-6)


def test_gradient_bounds_are_attained() -> None:
    """The bounds of 1 for two classes and sqrt(2) for more are tight: a record that is predicted wrongly with certainty
    attains them."""
    row, label = np.array([[1.0, 0.0]], np.float32), np.array([0], np.int32)
    for weights, bound in (([[90.0, 0.0]], 1.0), ([[-90.0, 0.0], [90.0, 0.0], [0.0, 0.0]], 2**0.5)):
        pull = torch.linalg.vector_norm(gradient_of(torch.tensor(weights, dtype=torch.float64), row, label))
        assert float(pull) == pytest.approx(bound, rel=ROUNDING)


@settings(deadline=None)
@given(seeds, scales, st.floats(0.1, 10), st.floats(0, 1))
@classes
def test_regularised_gradient_is_smooth_and_strongly_convex(
    num_classes: int, seed: int, scale: float, distance: float, l2: float
) -> None:
    """Between any two points, the gradient of f changes by at most L times and at least l2 times their distance, where
    L is 1/4 + l2 for two classes and 1/2 + l2 for more."""
    generator = np.random.default_rng(seed)
    features = generator.standard_normal((30, 4))
    features = (features * (1 - 2**-20) / np.linalg.norm(features, axis=1, keepdims=True)).astype(np.float32)
    features[generator.integers(0, 30, 5)] = 0
    labels = generator.integers(0, num_classes, 30).astype(np.int32)
    here = parameters_for(num_classes, 4, seed, scale)
    away = parameters_for(num_classes, 4, seed + 1)
    away *= distance / torch.linalg.vector_norm(away)
    change = (gradient_of(here + away, features, labels) - gradient_of(here, features, labels)) / 30 + l2 * away
    rounding = ROUNDING * (1 + scale)
    assert torch.linalg.vector_norm(change) <= ((0.25 if num_classes == 2 else 0.5) + l2) * distance + rounding
    assert (change * away).sum() >= l2 * distance**2 - rounding * distance


@pytest.mark.parametrize("num_rows", [1, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1, 3 * BLOCK_ROWS])
def test_blocks_cover_every_row_once(num_rows: int) -> None:
    """Blocks are consecutive, contain every row once, and are neither empty nor too long."""
    rows = np.arange(num_rows)
    assert all(0 < len(rows[block]) <= BLOCK_ROWS for block in blocks(num_rows))
    np.testing.assert_array_equal(np.concatenate([rows[block] for block in blocks(num_rows)]), rows)


def test_rows_are_read_in_place_from_a_read_only_file(tmp_path: Path, random_rows: RandomRows) -> None:
    """Rows mapped read-only from a file give the same gradient as rows in memory, without a warning and without being
    copied."""
    features, labels = random_rows(40_000, 50)
    np.save(tmp_path / "features.npy", features)
    mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
    parameters = parameters_for(2, 50, seed=6)
    tracemalloc.start()
    from_file = gradient_of(parameters, mapped, labels)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert torch.equal(from_file, gradient_of(parameters, features, labels))
    assert peak < features.nbytes / 20


def test_scores_of_any_size_stay_finite() -> None:
    """For scores far beyond the range of the exponential, the gradient takes its limit instead of becoming infinite."""
    row, label = np.array([[1.0, 0.0]], np.float32), np.array([1], np.int32)
    for size in (90.0, 1e4, 1e6):
        for weights in ([[size, 0.0]], [[-size, 0.0]], [[size, 0.0], [-size, 0.0], [0.0, 0.0]]):
            assert gradient_of(torch.tensor(weights, dtype=torch.float64), row, label).isfinite().all()
    certain = gradient_of(torch.tensor([[1e6, 0.0]], dtype=torch.float64), row, label)
    assert float(certain.abs().max()) < 1e-30


@settings(deadline=None, max_examples=60)
@given(seeds, st.integers(1, 90), st.integers(1, 70), st.integers(2, 19), st.floats(0.01, 30))
def test_gradient_of_any_size_matches_automatic_differentiation(
    seed: int, num_rows: int, width: int, classes: int, scale: float
) -> None:
    """For any number of rows, columns and classes, the gradient equals the automatic derivative of the textbook loss in
    double precision."""
    generator = np.random.default_rng(seed)
    features = generator.standard_normal((num_rows, width)) / (1.001 * width**0.5)
    features = (features / np.maximum(1, np.linalg.norm(features, axis=1, keepdims=True))).astype(np.float32)
    labels = generator.integers(0, classes, num_rows).astype(np.int32)
    parameters = parameters_for(classes, width, seed, scale).requires_grad_()
    (expected,) = torch.autograd.grad(summed_loss(parameters, features, labels), parameters)
    rounding = ROUNDING * num_rows * (1 + scale * width**0.5 / 10)
    torch.testing.assert_close(gradient_of(parameters.detach(), features, labels), expected, rtol=0, atol=rounding)


@pytest.mark.parametrize(("num_classes", "num_rows", "width"), [(2, 40_003, 101), (5, 20_001, 48)])
def test_threads_do_not_change_a_bit(num_classes: int, num_rows: int, width: int, random_rows: RandomRows) -> None:
    """The gradient is bit-identical with one thread and with many, and on every repetition."""
    features, labels = random_rows(num_rows, width, num_classes)
    parameters = parameters_for(num_classes, width, seed=7)
    alone = gradient_of(parameters, features, labels, threads=1)
    with HostRows(features, labels, num_classes=num_classes, threads=3) as rows:
        assert rows.threads == 3
        assert all(torch.equal(rows.gradient(parameters), alone) for _ in range(20))
    assert torch.equal(gradient_of(parameters, features, labels), alone)


@pytest.mark.slow
@classes
def test_a_gradient_is_a_new_tensor(num_classes: int, random_rows: RandomRows) -> None:
    """Each call returns a new tensor, and neither the iterate nor its gradient is kept between calls."""
    features, labels = random_rows(300, 20, num_classes)
    parameters = parameters_for(num_classes, 20, seed=8)
    with HostRows(features, labels, num_classes=num_classes) as rows:
        first, copy = rows.gradient(parameters), rows.gradient(parameters)
        first.zero_()
        assert torch.equal(rows.gradient(parameters), copy)
        [(body, tail)] = rows._parts.values()
        assert not any(buffer.any() for buffer in (rows._weights, body.totals, tail.totals))


@classes
def test_closing_overwrites_every_buffer_and_ends_the_threads(num_classes: int, random_rows: RandomRows) -> None:
    """After closing, no buffer contains rows or iterates and no thread is left, and the caller's rows are unchanged."""
    features, labels = random_rows(40_003, 60, num_classes)
    before, others = features.copy(), threading.active_count()
    with HostRows(features, labels, num_classes=num_classes, threads=2) as rows:
        rows.gradient(parameters_for(num_classes, 60, seed=9))
        assert threading.active_count() == others + 1
        [(_, tail)] = rows._parts.values()
        buffers = [tail.features, tail.labels, *rows._sums, *rows._scores]
        assert any(buffer.any() for buffer in buffers)
    assert threading.active_count() == others
    assert not any(buffer.any() for buffer in buffers)
    np.testing.assert_array_equal(features, before)


@classes
def test_nan_parameters_make_the_gradient_nan(num_classes: int, random_rows: RandomRows) -> None:
    """If one parameter is NaN, the whole gradient is NaN."""
    features, labels = random_rows(100, 9, num_classes)
    parameters = parameters_for(num_classes, 9, seed=10)
    parameters[-1, 4] = torch.nan
    assert gradient_of(parameters, features, labels).isnan().all()


def test_rows_that_cannot_be_read_in_place_are_refused(random_rows: RandomRows) -> None:
    """Rows of the wrong type, shape or layout, labels that are not valid classes, and too few classes or threads are
    refused."""
    features, labels = random_rows(40, 6)
    wrong: list[tuple[Any, Any, dict[str, Any]]] = [
        (features.astype(np.float64), labels, {}),
        (np.asfortranarray(features), labels, {}),
        (features[:, :3], labels, {}),
        (features[0], labels, {}),
        (features[:0], labels[:0], {}),
        (features, labels.astype(np.int64), {}),
        (features, labels[:-1], {}),
        (features, labels, {"num_classes": 1}),
        (features, labels, {"threads": 0}),
    ]
    for some_features, some_labels, more in wrong:
        with pytest.raises(ValueError, match="Expected"):
            HostRows(some_features, some_labels, **({"num_classes": 2} | more))
    with HostRows(features, labels, num_classes=2) as rows, pytest.raises(ValueError, match="of shape"):
        rows.gradient(torch.zeros(2, 6, dtype=torch.float64))
    for no_labels in (labels + 1, labels - 1):
        with (
            HostRows(features, no_labels, num_classes=2) as rows,
            pytest.raises(ValueError, match="Expected 0 <= label"),
        ):
            rows.gradient(torch.zeros(1, 6, dtype=torch.float64))


@pytest.mark.soak
def test_compiled_code_needs_no_cache_folder() -> None:
    """The loops can be compiled even if no folder is writable."""
    program = "import numba.core.caching as c; c.CacheImpl._locator_classes = []; from worker.langevin import kernels"
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=360)


def test_labels_that_change_on_disk_are_ignored(random_rows: RandomRows) -> None:
    """The gradient uses the labels that were checked, so that overwriting the labels on disk later does not change
    it."""
    features, labels = random_rows(40, 6, 3)
    parameters = torch.ones(3, 6, dtype=torch.float64)
    with HostRows(features, labels, num_classes=3) as rows:
        before = rows.gradient(parameters)
        labels[:] = 2**30
        assert torch.equal(rows.gradient(parameters), before)
