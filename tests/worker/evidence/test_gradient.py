"""The second gradient detects rows other than those that were used, and tolerates rounding."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from lethe.proof.losses import Objective, gradient_bound
from worker.evidence import differs
from worker.langevin.gradient import HostRows

Made = tuple[Any, Any, Any, float]


@pytest.fixture(params=[(2, 300), (5, 300), (2, 20_000)])
def made(request: pytest.FixtureRequest) -> Made:
    """Return rows, labels, parameters and the maximum contribution of a record."""
    classes, rows = request.param
    generator = np.random.default_rng(1)
    features = generator.standard_normal((rows, 12))
    features *= (1 - 2**-20) / np.linalg.norm(features, axis=1, keepdims=True)
    parameters = 3 * generator.standard_normal((1 if classes == 2 else classes, 12))
    labels = generator.integers(0, classes, rows).astype(np.int32)
    bound = gradient_bound(Objective.LOGISTIC_REGRESSION, classes)
    return features.astype(np.float32), labels, parameters, bound


def gradient(features: Any, labels: Any, parameters: Any) -> Any:
    with HostRows(features, labels, num_classes=max(2, len(parameters)), threads=1) as rows:
        return rows.gradient(torch.from_numpy(parameters)).numpy()


def test_both_gradients_agree(made: Made) -> None:
    """The engine's gradient equals the gradient that numpy computes, even if some rows are null."""
    features, labels, parameters, bound = made
    features[5] = 0
    ours = gradient(features, labels, parameters)
    assert not differs(ours, parameters, features=features, labels=labels, bound=bound)


@pytest.mark.parametrize("classes", [2, 3])
def test_identical_rows_are_not_a_fault(classes: int) -> None:
    """If all rows are identical, single-precision rounding errors add up instead of cancelling, and the comparison
    still accepts them."""
    features = np.tile(np.float32([[0.1, 0.3, 0.948]]), (300_000, 1))
    labels = (np.arange(len(features)) % 7 == 0).astype(np.int32)
    parameters = np.random.default_rng(2).normal(size=(1 if classes == 2 else classes, 3)) * 9
    ours = gradient(features, labels, parameters)
    bound = gradient_bound(Objective.LOGISTIC_REGRESSION, classes)
    assert not differs(ours, parameters, features=features, labels=labels, bound=bound)


def test_large_scores_do_not_overflow(made: Made) -> None:
    """The comparison of gradients works even for weights so large that their exponentials would overflow."""
    features, labels, parameters, bound = made
    parameters = parameters * 1e4
    ours = gradient(features, labels, parameters)
    assert not differs(ours, parameters, features=features, labels=labels, bound=bound)


@pytest.mark.parametrize("spoil", ["row", "label", "nan", "one more"])
def test_one_different_row_is_detected(made: Made, spoil: str) -> None:
    """The comparison detects a row that was not nulled, a row with a different label, a repeated row and a NaN."""
    features, labels, parameters, bound = made
    here: Callable[[], Any] = lambda: gradient(features, labels, parameters)  # noqa: E731
    ours = here()
    # the record that is predicted worst, whose gradient is not small
    scores = features @ parameters.T.astype(np.float32)
    wrong = int(np.argmax(scores[:, 0] * (1 - 2 * labels)) if len(parameters) == 1 else np.argmin(scores.max(1)))
    if spoil == "nan":
        ours[0, 0] = math.nan
    elif spoil == "one more":
        ours = ours + gradient(features[[wrong]], labels[[wrong]], parameters)
    elif spoil == "row":
        features = features.copy()
        features[wrong] = 0
    else:
        labels = labels.copy()
        labels[wrong] = (labels[wrong] + 1) % max(2, len(parameters))
    assert differs(ours, parameters, features=features, labels=labels, bound=bound)
