"""The objectives, and the constants of their losses: how steep and how curved one record can make them."""

import math
from enum import StrEnum

from lethe.proof.errors import (
    DomainError,
    require_count,
    require_positive,
)


class Objective(StrEnum):
    """The function that is minimised: f(w) = (1/num_slots) sum_i loss_i(w) + (l2/2) |w|^2 over rows of Euclidean norm
    <= 1. Their constants: `docs/mathematics/losses.md`."""

    LOGISTIC_REGRESSION = "logistic_regression"
    """log(1 + exp(-y w.x)) of two classes, y = -1 or 1; the cross-entropy of the softmax of more."""
    MULTILABEL_LOGISTIC_REGRESSION = "multilabel_logistic_regression"
    """sum_c log(1 + exp(-y_c w_c.x)) of C labels, each of which a record has or has not, y_c = 1 or -1."""
    SMOOTHED_HINGE = "smoothed_hinge"
    """max(0, 1 - y w.x) of two classes, a parabola over the `loss_width` below 1, where it would have its corner."""
    HUBER_REGRESSION = "huber_regression"
    """(w.x - y)^2 / 2 of a target -1 <= y <= 1, a line from where that is steeper than `loss_width`."""
    LEAST_SQUARES = "least_squares"
    """(w.x - y)^2 / 2 of a target -1 <= y <= 1."""
    POISSON_REGRESSION = "poisson_regression"
    """exp(w.x - c) - u w.x of a count, u = (y + 1) / 2 of its bound, a line from where the rate exp(w.x - c) is 1, the
    bound: from w.x = c, the `loss_width`, on."""

    @property
    def is_regression(self) -> bool:
        return self in (Objective.HUBER_REGRESSION, Objective.LEAST_SQUARES, Objective.POISSON_REGRESSION)

    @property
    def scores_are_y(self) -> bool:
        """A score is the target itself, between -1 and 1; of the others it is a logarithm, of odds or of a rate, or a
        margin."""
        return self in (Objective.HUBER_REGRESSION, Objective.LEAST_SQUARES)

    @property
    def is_logistic(self) -> bool:
        return self in (Objective.LOGISTIC_REGRESSION, Objective.MULTILABEL_LOGISTIC_REGRESSION)

    @property
    def has_width(self) -> bool:
        """Its loss has a `loss_width`."""
        return self in (Objective.HUBER_REGRESSION, Objective.SMOOTHED_HINGE, Objective.POISSON_REGRESSION)


MOST_LABELS = 31
"""A record has a set of them: a bit of a 32-bit integer for each."""


def num_weight_rows(num_classes: int, objective: Objective = Objective.LOGISTIC_REGRESSION) -> int:
    """A target (`num_classes` = 1) needs one weight vector, and so do two classes, by its sign; more need one each, and
    so do labels."""
    if num_classes < 1:
        raise ValueError(f"Expected {num_classes=} >= 1")
    return 1 if num_classes <= 2 and objective is not Objective.MULTILABEL_LOGISTIC_REGRESSION else num_classes


def require_loss(objective: Objective, num_classes: int, loss_width: float | None) -> None:
    """Raises `DomainError` where the objective is not one of so many classes, or has no such width."""
    if objective is Objective.LOGISTIC_REGRESSION:
        require_count(2, num_classes=num_classes)
    elif objective is Objective.MULTILABEL_LOGISTIC_REGRESSION:
        require_count(2, num_classes=num_classes)
        if num_classes > MOST_LABELS:
            raise DomainError(f"Expected num_classes={num_classes} <= {MOST_LABELS} for {objective}")
    else:
        expected = 1 if objective.is_regression else 2
        if type(num_classes) is not int or num_classes != expected:
            raise DomainError(f"Expected num_classes={num_classes} == {expected} for {objective}")
    if objective.has_width != (loss_width is not None):
        raise DomainError(f"Expected {'a' if objective.has_width else 'no'} loss_width for {objective}")
    if loss_width is not None:
        require_positive(loss_width=loss_width)


def require_class_weights(objective: Objective, num_classes: int, weights: tuple[float, ...]) -> None:
    """Raises `DomainError` unless there is one for each class, above 0 and at most 1, and the largest is 1."""
    if objective not in (Objective.LOGISTIC_REGRESSION, Objective.SMOOTHED_HINGE):
        raise DomainError(f"Expected no class_weights for {objective}, which has no classes")
    if len(weights) != num_classes:
        raise DomainError(f"Expected {num_classes} class_weights, not {len(weights)}")
    for weight in weights:
        require_positive(class_weight=weight)
    if max(weights) != 1:
        raise DomainError(f"Expected the largest of class_weights to be 1, not {max(weights)}")


def gradient_bound(
    objective: Objective, num_classes: int, *, radius: float = math.inf, loss_width: float | None = None
) -> float:
    """M of one row of norm <= 1, in the ball of this `radius`.

    Logistic: |sigmoid(-y w.x) x| <= 1, of each of C labels. Softmax: |p - e_y| <= sqrt(2). Hinge: its steepest line.
    Huber: `loss_width`. Least squares: |w.x - y| <= R + 1. Poisson: |rate - u|, both from 0 to 1.
    """
    require_loss(objective, num_classes, loss_width)
    match objective:
        case Objective.LOGISTIC_REGRESSION:
            return 1.0 if num_classes == 2 else math.sqrt(2)
        case Objective.MULTILABEL_LOGISTIC_REGRESSION:
            return math.sqrt(num_classes)
        case Objective.SMOOTHED_HINGE | Objective.POISSON_REGRESSION:
            return 1.0
        case Objective.HUBER_REGRESSION:
            return _width(loss_width)
        case Objective.LEAST_SQUARES:
            return radius + 1


def smoothness(
    objective: Objective,
    num_classes: int,
    l2: float,
    *,
    loss_width: float | None = None,
    second_moment: float | None = None,
) -> float:
    """L of the regularised objective on rows of norm <= 1: p(1-p) <= 1/4, diag(p) - pp^T <= 1/2; the curvature of a
    parabola of height 1 over the width of the hinge, and of that of a target; the rate of a count, up to 1. Times
    `second_moment`, where the rows of each batch keep to that bound."""
    require_loss(objective, num_classes, loss_width)
    return _curvature(objective, num_classes, loss_width) * require_second_moment(second_moment) + l2


def _curvature(objective: Objective, num_classes: int, loss_width: float | None) -> float:
    """beta: how fast the slope of a row's loss changes with its score."""
    match objective:
        case Objective.LOGISTIC_REGRESSION:
            return 0.25 if num_classes == 2 else 0.5
        case Objective.MULTILABEL_LOGISTIC_REGRESSION:
            return 0.25
        case Objective.SMOOTHED_HINGE:
            return 1 / _width(loss_width)
        case Objective.HUBER_REGRESSION | Objective.LEAST_SQUARES | Objective.POISSON_REGRESSION:
            return 1.0


def require_second_moment(second_moment: float | None) -> float:
    """The bound, 1 where there is none. Raises `DomainError` unless 0 < bound <= 1."""
    if second_moment is None:
        return 1.0
    require_positive(second_moment=second_moment)
    if second_moment > 1:
        raise DomainError(f"Expected second_moment={second_moment} <= 1")
    return second_moment


def farthest_minimiser(objective: Objective, num_classes: int, l2: float, *, loss_width: float | None = None) -> float:
    """Radius of a ball that holds the minimiser, whatever the data: |grad f(0)| / m, and for a regression no more than
    1/sqrt(m), since (m/2)|w|^2 <= f(w) <= f(0) <= 1/2; for counts sqrt(2 D/m), D being what a loss at 0 can be above
    its least."""
    if objective is Objective.POISSON_REGRESSION:
        width = _width(loss_width)
        rate = math.exp(-width)  # of a score of 0
        return min(max(rate, 1 - rate) / l2, math.sqrt(2 * max(rate, rate + width - 1) / l2))
    if objective.is_regression:
        steepest = 1.0 if loss_width is None else min(1.0, loss_width)
        return min(steepest / l2, 1 / math.sqrt(l2))
    return gradient_bound(objective, num_classes, loss_width=loss_width) / l2


def _width(loss_width: float | None) -> float:
    assert loss_width is not None  # `require_loss`
    return loss_width
