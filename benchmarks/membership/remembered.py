"""What models still know: how often they are right about rows, and how surprised they are by them."""

from dataclasses import dataclass

import numpy as np

from benchmarks.membership.laws import Parameters
from benchmarks.membership.problems import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """Means over models and standard deviations between them; the loss is in nats per row, without regulariser."""

    accuracy: float
    accuracy_std: float
    loss: float
    loss_std: float


def of(parameters: Parameters, rows: Rows) -> Recall:
    """Of these rows, in at least two models."""
    logits = rows.logits(parameters)  # (models, n)
    right = ((logits > 0) | ((logits == 0) & (rows.labels == 0))).mean(axis=1)  # (models,), as the service predicts
    losses = np.logaddexp(0, -logits).mean(axis=1)  # (models,)
    return Recall(
        accuracy=float(right.mean()),
        accuracy_std=float(right.std(ddof=1)),
        loss=float(losses.mean()),
        loss_std=float(losses.std(ddof=1)),
    )
