"""Test vectors of the losses, to fifty digits by mpmath and rounded to doubles: `loss_vectors.json`, for checking other
implementations.

    python -m tests.lethe.proof.loss_vectors

Each is one row of norm 1 with given scores: its loss, the slope by each score, and both times its weight. A `label` is
the stored form: a class, a set of bits for labels, or a target y in units of 2^-23.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mpmath
from mpmath import mp, mpf

from lethe.proof.losses import Objective

FILE = Path(__file__).with_name("loss_vectors.json")
_UNIT = 2**23
_SCORES = (-30.0, -2.5, -1.0, -0.25, 0.0, 0.25, 0.75, 1.0, 2.5, 30.0)
_Y = (-_UNIT, -(_UNIT // 3), 0, 1, _UNIT)
_OF_MANY = ((0.0, 0.0, 0.0), (1.5, -0.5, 0.25), (-40.0, 2.0, 40.0))
_WEIGHTS = itertools.cycle((1.0, 0.5, 1 / 4096, 0.0))


def vectors() -> Iterator[dict[str, Any]]:
    """Yield test vectors for every objective, with scores on both sides of each bend in its loss."""
    for score, label in itertools.product(_SCORES, (0, 1)):
        yield _vector(Objective.LOGISTIC_REGRESSION, 2, [score], label)
    for scores, label in itertools.product(_OF_MANY, range(3)):
        yield _vector(Objective.LOGISTIC_REGRESSION, 3, scores, label)
    for scores, label in itertools.product(_OF_MANY, (0, 1, 5, 7)):
        yield _vector(Objective.MULTILABEL_LOGISTIC_REGRESSION, 3, scores, label)
    for width, score, label in itertools.product((0.5, 2.0), _SCORES, (0, 1)):
        yield _vector(Objective.SMOOTHED_HINGE, 2, [score], label, width)
    for score, label in itertools.product(_SCORES, _Y):
        yield _vector(Objective.LEAST_SQUARES, 1, [score], label)
        yield _vector(Objective.HUBER_REGRESSION, 1, [score], label, 0.5)
        yield _vector(Objective.POISSON_REGRESSION, 1, [score], label, 0.75)


def _vector(
    objective: Objective,
    num_classes: int,
    scores: "list[float] | tuple[float, ...]",
    label: int,
    width: float | None = None,
) -> dict[str, Any]:
    weight = next(_WEIGHTS)
    loss, slopes = _LOSSES[objective]([mpf(score) for score in scores], label, mpf(width or 0))
    return {
        "objective": objective,
        "num_classes": num_classes,
        "loss_width": width,
        "scores": list(scores),
        "label": label,
        "weight": weight,
        "loss": float(weight * loss),
        "slopes": [float(weight * slope) for slope in slopes],
    }


def _logistic(scores: list[Any], label: int, _width: Any) -> tuple[Any, list[Any]]:
    if len(scores) == 1:
        return _of_sign(scores[0], 1 if label else -1)
    total = mpmath.fsum(mp.exp(score) for score in scores)
    slopes = [mp.exp(score) / total - (place == label) for place, score in enumerate(scores)]
    return mp.log(total) - scores[label], slopes


def _labels(scores: list[Any], label: int, _width: Any) -> tuple[Any, list[Any]]:
    each = [_of_sign(score, 1 if label >> place & 1 else -1) for place, score in enumerate(scores)]
    return mpmath.fsum(loss for loss, _ in each), [slope for _, [slope] in each]


def _of_sign(score: Any, y: int) -> tuple[Any, list[Any]]:
    return mp.log1p(mp.exp(-y * score)), [-y / (1 + mp.exp(y * score))]


def _hinge(scores: list[Any], label: int, width: Any) -> tuple[Any, list[Any]]:
    y = 1 if label else -1
    short = 1 - y * scores[0]  # of the margin
    if short <= 0:
        return mpf(0), [mpf(0)]
    return (short - width / 2, [mpf(-y)]) if short >= width else (short**2 / (2 * width), [-y * short / width])


def _squares(scores: list[Any], label: int, _width: Any) -> tuple[Any, list[Any]]:
    residual = scores[0] - mpf(label) / _UNIT
    return residual**2 / 2, [residual]


def _huber(scores: list[Any], label: int, width: Any) -> tuple[Any, list[Any]]:
    residual = scores[0] - mpf(label) / _UNIT
    if abs(residual) <= width:
        return residual**2 / 2, [residual]
    return width * abs(residual) - width**2 / 2, [width * mp.sign(residual)]


def _poisson(scores: list[Any], label: int, width: Any) -> tuple[Any, list[Any]]:
    [score], share = scores, (mpf(label) / _UNIT + 1) / 2
    rate, loss = (mp.exp(score - width),) * 2 if score <= width else (mpf(1), 1 + score - width)
    return loss - share * score, [rate - share]


_LOSSES = {
    Objective.LOGISTIC_REGRESSION: _logistic,
    Objective.MULTILABEL_LOGISTIC_REGRESSION: _labels,
    Objective.SMOOTHED_HINGE: _hinge,
    Objective.LEAST_SQUARES: _squares,
    Objective.HUBER_REGRESSION: _huber,
    Objective.POISSON_REGRESSION: _poisson,
}


def written() -> str:
    """Return the vectors as JSON, one per line."""
    with mp.workdps(50):
        lines = ",\n".join(json.dumps(vector) for vector in vectors())
    return f"[\n{lines}\n]\n"


if __name__ == "__main__":
    FILE.write_text(written())
