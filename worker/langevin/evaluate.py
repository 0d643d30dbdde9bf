"""Metrics of a model on the rows that are still there."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.catalogue.prediction import probabilities, scores
from lethe.encoding.targets import UNIT, Target
from worker.langevin.gradient import blocks

Rows = tuple[NDArray[np.float32], NDArray[np.int32]]  # (n, d) and (n,); null rows belong to nobody and do not count


def of_classes(parameters: NDArray[np.float64], found: Iterable[Rows], num_classes: int) -> dict[str, Any]:
    """`accuracy`: the share of rows whose most probable class is their label; `evaluated_on`: how many there are."""
    right = counted = 0
    for features, labels in _present(found):
        guesses = probabilities(parameters, features, num_classes).argmax(axis=1)  # (b,)
        right += int((guesses == labels).sum())
        counted += len(labels)
    return ({"accuracy": right / counted} if counted else {}) | {"evaluated_on": counted}


def of_labels(parameters: NDArray[np.float64], found: Iterable[Rows]) -> dict[str, Any]:
    """`label_accuracy`: the share of all labels of all rows of which it is said rightly that the row has or has not
    got them; `exact_match`: of rows of which that is said rightly of every label."""
    right = exact = counted = 0
    for features, labels in _present(found):
        has = labels[:, None] >> np.arange(len(parameters)) & 1  # (b, C)
        is_right = (scores(parameters, features) > 0) == has
        right, exact = right + int(is_right.sum()), exact + int(is_right.all(axis=1).sum())
        counted += len(labels)
    shares = {"label_accuracy": right / (counted * len(parameters)), "exact_match": exact / counted} if counted else {}
    return shares | {"evaluated_on": counted}


def of_target(parameters: NDArray[np.float64], found: Iterable[Rows], target: Target) -> dict[str, Any]:
    """`r_squared`: 1 less the squared errors over the squared distances from the mean (none where all are the mean);
    `mean_absolute_error` in the units of the target; `evaluated_on`: how many rows there are."""
    counted, total, squares, missed, absolute = 0, 0.0, 0.0, 0.0, 0.0
    for features, labels in _present(found):
        values = target.values(labels / UNIT) - target.low  # (b,)
        errors = target.values(scores(parameters, features)[:, 0]) - target.low - values
        counted += len(labels)
        total, squares = total + float(values.sum()), squares + float(values @ values)
        missed, absolute = missed + float(errors @ errors), absolute + float(np.abs(errors).sum())
    apart = squares - total * total / max(counted, 1)
    return (
        ({"r_squared": 1 - missed / apart} if apart > 1e-12 * squares else {})
        | ({"mean_absolute_error": absolute / counted} if counted else {})
        | {"evaluated_on": counted}
    )


def _present(found: Iterable[Rows]) -> Iterator[Rows]:
    for features, labels in found:
        for block in blocks(len(features)):
            present = features[block].any(axis=1)  # (b,)
            yield features[block][present], labels[block][present]
