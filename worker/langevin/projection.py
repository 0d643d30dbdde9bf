"""Projection onto the ball, in place."""

import math

from torch import Tensor, linalg

_INSIDE = 1 - 1e-9
"""Squares are rounded: what is nearer to the sphere is measured with care."""


def project_onto_ball(point: Tensor, radius: float) -> Tensor:
    """Move `point` to the nearest point of the ball of `radius` around 0: onto the ball, not onto its sphere.

    A point inside is left as it is, bit for bit. A point whose norm is not a finite number has no projection.
    """
    flat = point.view(-1)
    if float(flat @ flat) < _INSIDE * radius * radius:  # false for what overflows, and for NaN
        return point
    norm = float(linalg.vector_norm(point))
    if not math.isfinite(norm):
        raise FloatingPointError("The parameters are no longer finite numbers")
    return point.mul_(radius / norm) if norm > radius else point
