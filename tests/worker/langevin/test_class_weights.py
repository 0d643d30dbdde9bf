"""Losses with class weights."""

from typing import Any

import numpy as np
import pytest
import torch

from lethe.proof.losses import Objective
from tests.worker import passes
from worker.evidence import differs
from worker.langevin.gradient import HostRows
from worker.langevin.losses import Loss
from worker.langevin.window import BLOCK_ROWS

TWO = Loss(class_weights=(0.25, 1.0))
FOUR = Loss(class_weights=(1.0, 0.1, 0.5, 0.3))
FIVE = Loss(class_weights=(1.0, 0.1, 0.5, 0.3, 0.7))
HINGE = Loss(Objective.SMOOTHED_HINGE, 0.5, (1.0, 0.2))


def expected(loss: Loss, weights: Any, parameters: Any, features: Any, labels: Any) -> Any:
    """Return the derivative of the weighted sum of the textbook losses, in double precision."""
    parameters = parameters.clone().requires_grad_()
    scores, y = torch.from_numpy(features).double() @ parameters.T, torch.from_numpy(labels).long()
    factors = torch.tensor(weights, dtype=torch.float64)[y]
    if loss.objective is Objective.SMOOTHED_HINGE:
        z = (2 * y - 1) * scores[:, 0]
        bend = (1 - z) ** 2 / (2 * 0.5)
        losses = torch.where(z >= 1, 0.0, torch.where(z <= 0.5, 1 - z - 0.25, bend))
    elif len(weights) == 2:
        losses = torch.nn.functional.softplus((1 - 2 * y) * scores[:, 0])
    else:
        losses = torch.nn.functional.cross_entropy(scores, y, reduction="none")
    return torch.autograd.grad((factors * losses).sum(), parameters)[0]


@pytest.mark.slow
@pytest.mark.parametrize("loss", [TWO, FOUR, FIVE, HINGE], ids=["two", "four", "five", "hinge"])
def test_gradients_are_scaled_by_class_weights(loss: Loss) -> None:
    """Over several blocks, the kernel and every engine compute the gradient of the weighted losses. The second gradient
    agrees with theirs and detects omitted weights."""
    random, weights = np.random.default_rng(3), loss.class_weights
    assert weights is not None
    rows, width, classes = 2 * BLOCK_ROWS + 17, 12, len(weights)
    features = random.normal(size=(rows, width))
    features *= (1 - 2**-20) / np.linalg.norm(features, axis=1, keepdims=True)
    features, labels = features.astype(np.float32), random.integers(classes, size=rows).astype(np.int32)
    at = torch.from_numpy(random.normal(size=(loss.weight_rows(classes), width)))
    with HostRows(features, labels, num_classes=classes, loss=loss) as read:
        ours = read.gradient(at)
    exact = expected(loss, weights, at, features, labels)
    torch.testing.assert_close(ours, exact, rtol=1e-5, atol=1e-5 * rows)
    for opened in passes.OTHERS.values():
        with opened(features, labels, num_classes=classes, loss=loss) as there:
            torch.testing.assert_close(there.gradient(at), ours, rtol=1e-5, atol=1e-5 * rows)
    seen: dict[str, Any] = {"features": features, "labels": labels, "objective": loss.objective, "bound": 1.0}
    seen |= {"loss_width": loss.width}
    assert not differs(ours.numpy(), at.numpy(), class_weights=weights, **seen)
    assert differs(ours.numpy(), at.numpy(), **seen)
