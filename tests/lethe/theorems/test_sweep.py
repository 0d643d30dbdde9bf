from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.proof.errors import DomainError
from lethe.theorems import CALCULATOR, evaluate
from lethe.theorems import sweep as sweeps
from lethe.theorems.sweep import grid, sweep


@given(low=st.floats(1e-9, 1e6), factor=st.floats(1.001, 1e9), points=st.integers(2, 200), whole=st.booleans())
@pytest.mark.parametrize("scale", ["linear", "log"])
def test_a_grid_has_its_ends_and_rises(scale, low, factor, points, whole):
    """A grid rises from its lower to its upper end, and the numbers of a whole one are whole."""
    low, high = (round(low) + 1, round(low) + 1 + round(factor)) if whole else (low, low * factor)
    found = grid(low=low, high=high, points=points, scale=scale, whole=whole)
    assert (found[0], found[-1]) == pytest.approx((low, high))
    assert all(before < after for before, after in pairwise(found))
    assert len(found) <= points
    assert not whole or all(value == int(value) for value in found)


@pytest.mark.parametrize(
    "wrong",
    [
        {"low": 1.0, "high": 1.0},
        {"low": float("nan")},
        {"high": float("inf")},
        {"points": 1},
        {"points": 201},
        {"low": 0.0, "scale": "log"},
        {"low": -1.7e308, "high": 1.7e308},
    ],
)
def test_a_grid_that_is_none(wrong):
    """Ends out of order or not finite, too few or too many points, and zero on a logarithmic scale are refused."""
    with pytest.raises(DomainError):
        grid(**{"low": 0.5, "high": 2.0, "points": 5, "scale": "linear", "whole": False} | wrong)


def test_a_precondition_fails_where_it_fails():
    """Where a precondition fails the point names it; the others have what the theorem says there."""
    bound = CALCULATOR["t32_sc_eps"]
    params = {"alpha": 2.0, "eps0": 1.0, "m": 0.1, "K": 10, "L": 1.0}
    points = sweep(bound, params, over="eta", low=0.5, high=1.5, points=3, scale="linear")
    assert [point.value for point in points] == [0.5, 1.0, 1.5]
    for point in points[:2]:
        assert point.outputs == evaluate("t32_sc_eps", params | {"eta": point.value})
    assert points[2].outputs is None
    assert points[2].refused is not None
    assert points[2].refused.name == "step_size_at_most_inverse_smoothness"


def test_an_integer_is_swept_over_integers():
    """An integer parameter takes whole values only, and more steps never give more."""
    bound = CALCULATOR["t32_sc_eps"]
    points = sweep(
        bound, {"alpha": 2.0, "eps0": 1.0, "m": 0.1, "eta": 0.5}, over="K", low=1, high=10, points=200, scale="log"
    )
    assert [point.value for point in points] == list(range(1, 11))
    epsilons = [point.outputs["eps"] for point in points if point.outputs]
    assert epsilons == sorted(epsilons, reverse=True)
    assert len(epsilons) == 10


@pytest.mark.parametrize("over", ["Ks", "non_adaptive", "nothing"])
def test_only_numbers_are_swept(over):
    """A list, a hypothesis or a name that the theorem does not know cannot vary."""
    with pytest.raises(DomainError, match="over"):
        sweep(CALCULATOR["c34_sequence"], {}, over=over, low=1, high=2, points=2, scale="linear")


def test_a_sweep_ends_in_time(monkeypatch):
    """What is left when the time is over is refused by that name, and what was found before stays."""
    monkeypatch.setattr(sweeps, "_SECONDS", -1.0)
    points = sweep(CALCULATOR["gdp_eps"], {"delta": 0.1}, over="mu", low=1, high=2, points=2, scale="linear")
    assert [point.refused.name for point in points if point.refused] == ["time", "time"]
