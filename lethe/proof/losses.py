"""Objectives and the constants of their losses: gradient bounds, smoothness, and the radius of the minimiser.

Derivations: `docs/mathematics/losses.md`.
"""

import math
from enum import StrEnum

from lethe.proof.errors import DomainError, require_count, require_positive


class Objective(StrEnum):
    """Objective f(w) = (1/num_slots) sum_i loss_i(w) + (l2/2) |w|^2 over rows of Euclidean norm <= 1."""

    LOGISTIC_REGRESSION = "logistic_regression"
    """log(1 + exp(-y w.x)) for two classes, y = -1 or 1; softmax cross-entropy for more classes."""
    MULTILABEL_LOGISTIC_REGRESSION = "multilabel_logistic_regression"
    """sum_c log(1 + exp(-y_c w_c.x)) for C labels; y_c = 1 if the record has label c, otherwise -1."""
    SMOOTHED_HINGE = "smoothed_hinge"
    """max(0, 1 - y w.x) for two classes, with the corner at 1 replaced by a parabola over the `loss_width` below 1."""
    HUBER_REGRESSION = "huber_regression"
    """(w.x - y)^2 / 2 for a target -1 <= y <= 1, continued as a line where its slope exceeds `loss_width`."""
    LEAST_SQUARES = "least_squares"
    """(w.x - y)^2 / 2 for a target -1 <= y <= 1."""
    POISSON_REGRESSION = "poisson_regression"
    """exp(w.x - c) - u w.x for a count that is the fraction u = (y + 1) / 2 of its bound, with c the `loss_width`.

    The loss continues as a line from w.x = c, where the rate exp(w.x - c) reaches 1, which is the bound."""

    @property
    def is_regression(self) -> bool:
        """True if the target is a number: a real target or a count."""
        return self in (Objective.HUBER_REGRESSION, Objective.LEAST_SQUARES, Objective.POISSON_REGRESSION)

    @property
    def scores_are_y(self) -> bool:
        """True if a score predicts the target itself, in [-1, 1].

        The score of any other objective is log-odds, the logarithm of a rate, or a margin.
        """
        return self in (Objective.HUBER_REGRESSION, Objective.LEAST_SQUARES)

    @property
    def is_logistic(self) -> bool:
        """True if scores are log-odds or softmax logits."""
        return self in (Objective.LOGISTIC_REGRESSION, Objective.MULTILABEL_LOGISTIC_REGRESSION)

    @property
    def has_width(self) -> bool:
        """True if the loss has a `loss_width`."""
        return self in (Objective.HUBER_REGRESSION, Objective.SMOOTHED_HINGE, Objective.POISSON_REGRESSION)


MAX_LABELS = 31
"""Maximum number of labels; a record's label set is stored as the bits of a 32-bit integer."""


def num_weight_rows(num_classes: int, objective: Objective = Objective.LOGISTIC_REGRESSION) -> int:
    """Return the number of weight vectors: one for a target or two classes, otherwise one per class or label.

    A target has `num_classes` = 1. The sign of a single score separates two classes.

    Raises:
        ValueError: if `num_classes` < 1.
    """
    if num_classes < 1:
        raise ValueError(f"Expected {num_classes=} >= 1")
    return 1 if num_classes <= 2 and objective is not Objective.MULTILABEL_LOGISTIC_REGRESSION else num_classes


def require_loss(objective: Objective, num_classes: int, loss_width: float | None) -> None:
    """Check that an objective supports this number of classes and this loss width.

    Raises:
        DomainError: if `num_classes` is out of range, or `loss_width` is missing, superfluous or not positive.
    """
    if objective is Objective.LOGISTIC_REGRESSION:
        require_count(2, num_classes=num_classes)
    elif objective is Objective.MULTILABEL_LOGISTIC_REGRESSION:
        require_count(2, num_classes=num_classes)
        if num_classes > MAX_LABELS:
            raise DomainError(f"Expected num_classes={num_classes} <= {MAX_LABELS} for {objective}")
    else:
        expected = 1 if objective.is_regression else 2
        if type(num_classes) is not int or num_classes != expected:
            raise DomainError(f"Expected num_classes={num_classes} == {expected} for {objective}")
    if objective.has_width != (loss_width is not None):
        raise DomainError(f"Expected {'a' if objective.has_width else 'no'} loss_width for {objective}")
    if loss_width is not None:
        require_positive(loss_width=loss_width)


def require_class_weights(objective: Objective, num_classes: int, weights: tuple[float, ...]) -> None:
    """Check that there is one weight in (0, 1] per class and that the largest is 1.

    Raises:
        DomainError: if either condition fails or the objective has no classes.
    """
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
    """Return M, the largest norm of the loss gradient of a row of norm <= 1 in the ball of `radius` R.

    Logistic: |sigmoid(-y w.x) x| <= 1, or at most sqrt(C) for C labels. Softmax: |p - e_y| <= sqrt(2). Hinge: 1, the
    slope of its line. Huber: `loss_width`. Least squares: |w.x - y| <= R + 1. Poisson: |rate - u| <= 1, both in [0, 1].

    Raises:
        DomainError: if the objective does not support `num_classes` or `loss_width`.
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
    """Return L, the smoothness of the regularised objective on rows of norm <= 1.

    L = beta Lambda + l2. beta bounds the curvature of a row's loss with respect to its score: p(1-p) <= 1/4 for two
    classes and labels, diag(p) - pp^T <= 1/2 for softmax, 1/`loss_width` for the hinge, 1 for squared losses, and the
    rate <= 1 for counts. Lambda is `second_moment`, a bound that each batch of rows satisfies; None stands for 1.

    Raises:
        DomainError: if an argument is out of range.
    """
    require_loss(objective, num_classes, loss_width)
    return _curvature(objective, num_classes, loss_width) * require_second_moment(second_moment) + l2


def _curvature(objective: Objective, num_classes: int, loss_width: float | None) -> float:
    """Return beta, the Lipschitz constant of the derivative of a row's loss with respect to its score."""
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
    """Return the bound on the second moment, which is 1 if `second_moment` is None.

    Raises:
        DomainError: if the bound is not in (0, 1].
    """
    if second_moment is None:
        return 1.0
    require_positive(second_moment=second_moment)
    if second_moment > 1:
        raise DomainError(f"Expected second_moment={second_moment} <= 1")
    return second_moment


def farthest_minimiser(objective: Objective, num_classes: int, l2: float, *, loss_width: float | None = None) -> float:
    """Return the radius of a ball around the origin that contains the minimiser of every dataset.

    The radius is |grad f(0)| / m, with m = `l2`. For a regression it is at most 1/sqrt(m), because the minimiser
    satisfies (m/2)|w|^2 <= f(w) <= f(0) <= 1/2. For counts it is at most sqrt(2 D/m), where D bounds the difference
    between a loss at 0 and its minimum.
    """
    if objective is Objective.POISSON_REGRESSION:
        width = _width(loss_width)
        rate_at_zero = math.exp(-width)
        return min(
            max(rate_at_zero, 1 - rate_at_zero) / l2, math.sqrt(2 * max(rate_at_zero, rate_at_zero + width - 1) / l2)
        )
    if objective.is_regression:
        max_slope = 1.0 if loss_width is None else min(1.0, loss_width)
        return min(max_slope / l2, 1 / math.sqrt(l2))
    return gradient_bound(objective, num_classes, loss_width=loss_width) / l2


def _width(loss_width: float | None) -> float:
    """Return the loss width of an objective that needs one; `require_loss` has checked that it is given."""
    assert loss_width is not None
    return loss_width
