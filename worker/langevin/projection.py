"""Projection onto the ball, in place."""

import math

from torch import Tensor, linalg

_INSIDE = 1 - 1e-9
"""Share of the squared radius below which a point is surely inside; nearer the sphere its norm is computed."""


def project_onto_ball(point: Tensor, radius: float) -> Tensor:
    """Move `point` to the nearest point of the ball of `radius` around 0, and return it. A point inside the ball is not
    changed, bit for bit. Raises FloatingPointError if the norm is not finite."""
    flat = point.view(-1)
    # False for overflow and for NaN.
    if float(flat @ flat) < _INSIDE * radius * radius:
        return point
    norm = float(linalg.vector_norm(point))
    if not math.isfinite(norm):
        raise FloatingPointError("The parameters are no longer finite numbers")
    return point.mul_(radius / norm) if norm > radius else point
