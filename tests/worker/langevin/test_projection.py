import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from worker.langevin.step import project_onto_ball

points = st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3).map(lambda p: torch.tensor([p], dtype=torch.float64))
radii = st.floats(1e-3, 1e6)


def norm(point: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(point))


@settings(deadline=None)
@given(points, radii)
def test_a_point_inside_is_unchanged(point: torch.Tensor, radius: float) -> None:
    """A point whose norm is at most the radius stays bit-identical."""
    before = point.clone()
    projected = project_onto_ball(point, max(radius, norm(point)))
    assert torch.equal(before.view(torch.int64), projected.view(torch.int64))


@settings(deadline=None)
@given(points, radii)
def test_a_point_outside_is_scaled_to_the_radius(point: torch.Tensor, radius: float) -> None:
    """A point outside the ball is scaled back to the radius and keeps its direction."""
    size = norm(point)
    if size > radius:
        expected = point * (radius / size)
        projected = project_onto_ball(point, radius)
        assert norm(projected) == pytest.approx(radius, rel=1e-12)
        torch.testing.assert_close(projected, expected, rtol=1e-12, atol=0)


@settings(deadline=None)
@given(points, points, radii)
def test_projection_is_nonexpansive(one: torch.Tensor, two: torch.Tensor, radius: float) -> None:
    """The distance between two projected points is at most the distance between the original points."""
    before = norm(one - two)
    after = norm(project_onto_ball(one, radius) - project_onto_ball(two, radius))
    assert after <= before + 1e-9 * radius


@pytest.mark.slow
@settings(deadline=None)
@given(points, radii)
def test_projection_is_idempotent(point: torch.Tensor, radius: float) -> None:
    """Projecting a projected point does not change it, up to rounding."""
    once = project_onto_ball(point, radius).clone()
    torch.testing.assert_close(project_onto_ball(once.clone(), radius), once, rtol=1e-14, atol=0)


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 1e200])
def test_a_point_without_a_finite_norm_is_refused(poison: float) -> None:
    """A vector that is not finite or whose norm is not finite raises an error that quotes none of its numbers."""
    with pytest.raises(FloatingPointError) as refused:
        project_onto_ball(torch.tensor([[1.0, poison]], dtype=torch.float64), 1.0)
    assert not any(character.isdigit() for character in str(refused.value))
