import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from lethe.proof import accountant, calibration, conversion, methods
from lethe.proof.accountant import Exposure, Run
from lethe.proof.errors import DomainError, PreconditionError
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Adjacency, Mechanism, finest_grid
from tests.lethe.proof.restart import restart_mu
from tests.tables import each


def mechanism(**changed: Any) -> Mechanism:
    settings = {"num_slots": 100, "num_classes": 2, "l2": 0.05, "step_size": 2.0, "noise_scale": 0.1, "radius": 20.0}
    return Mechanism(objective=Objective.LOGISTIC_REGRESSION, **{**settings, "learn_steps": 50, **changed})


HISTORY = [Run(steps=50), Run(steps=3, records=2), Run(steps=7, records=1)]


def test_every_notion_includes_the_grid():
    """For every notion, mu on a grid is the mu without a grid plus 2 (g sqrt(d) / nu) sqrt((1 + c) / (1 - c))."""
    plain, grid = mechanism(), mechanism(grid=2.0**-12, num_parameters=30)
    c = 1 - 2.0 * 0.05
    rounding = 2 * 2.0**-12 * math.sqrt(30) / math.sqrt(2 * 2.0 * 0.1**2) * math.sqrt((1 + c) / (1 - c))
    assert grid.rounding_mu == pytest.approx(rounding, rel=1e-12)
    for mu in (
        lambda made: accountant.unlearning_mu(accountant.replay(made, HISTORY)),
        lambda made: accountant.unlearning_mu(accountant.replay(made, HISTORY), records=3),
        lambda made: accountant.deletion_mu(accountant.replay(made, HISTORY), records=2, steps_present=50),
        lambda made: accountant.deletion_mu(
            accountant.replay(made, HISTORY), records=2, steps_present=7, steps_absent=53
        ),
        lambda made: restart_mu(made, HISTORY),
        lambda made: accountant.reset_mu(made, steps=7),
        lambda made: accountant.release_mu(made, steps=7, adjacency=Adjacency.REPLACE),
        lambda made: methods.adaptive_mu([Exposure(mechanism=made, records=2, releases=((7, 1),))]) / 2,
    ):
        assert mu(grid) - mu(plain) == pytest.approx(rounding, rel=1e-9)


@pytest.mark.parametrize("steps", [1, 20, 340, 10_000, 10**6])
def test_rounding_is_never_forgotten(steps: int):
    """However many steps follow a deletion or an unknown start, mu does not fall below what rounding alone can
    cause."""
    made = mechanism(grid=2.0**-12, num_parameters=30, step_size=3.5)
    chain = accountant.replay(made, [Run(steps=50), Run(steps=steps, records=1)])
    assert accountant.unlearning_mu(chain) >= made.rounding_mu
    assert accountant.deletion_mu(chain, records=1, steps_present=50) >= made.rounding_mu
    assert accountant.reset_mu(made, steps=steps) >= made.rounding_mu
    assert restart_mu(made, [Run(steps=50), Run(steps=steps, records=1)]) >= made.rounding_mu


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_more_steps_never_raise_mu_on_a_grid(steps: int, more: int):
    """Mu decreases with the number of steps after a deletion, so that a search finds the minimum number of steps."""
    made = mechanism(grid=2.0**-10, num_parameters=5)
    few, many = (
        accountant.unlearning_mu(accountant.replay(made, [Run(steps=50), Run(steps=k, records=1)]))
        for k in (steps, steps + more)
    )
    assert many <= few


def test_a_chain_on_a_grid_has_one_mechanism():
    """A chain on a grid is refused if its step size, noise or grid changes between runs, because its rounding
    would have no bound."""
    made = mechanism(grid=2.0**-10, num_parameters=5)
    for other in (replace(made, noise_scale=0.2), replace(made, grid=0.0), replace(made, num_parameters=6)):
        with pytest.raises(PreconditionError):
            accountant.replay(made, [Run(steps=5), Run(steps=5, mechanism=other)])


def test_rounding_costs_nothing_without_a_difference():
    """On a grid, mu is 0 if no record was deleted, because the two processes are the same."""
    assert accountant.unlearning_mu(accountant.replay(mechanism(grid=0.5, num_parameters=9), [Run(steps=50)])) == 0


@given(st.integers(1, 200), st.integers(1, 200))
def test_splitting_a_run_changes_nothing_on_a_grid(first: int, second: int):
    """On a grid, one run of K + K' steps has the same mu as two runs of K and K' steps."""
    made = mechanism(grid=2.0**-10, num_parameters=5)
    whole = accountant.replay(made, [Run(steps=50), Run(steps=first + second, records=1)])
    parts = accountant.replay(made, [Run(steps=50), Run(steps=first, records=1), Run(steps=second)])
    assert accountant.unlearning_mu(parts) == pytest.approx(accountant.unlearning_mu(whole), rel=1e-9)


def delta_of(first: np.ndarray, second: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum())


@pytest.mark.parametrize(("grid", "steps"), [(0.5, 1), (1.0, 2), (0.25, 3), (2.0, 3)])
def test_exact_laws_on_a_grid_keep_the_bound(grid: float, steps: int):
    """The exact distributions of two one-dimensional chains that round at every step are computed. The divergence of
    their last iterates stays below the bound in both directions, but exceeds the bound without its rounding term."""
    contraction, shift, noise = 0.8, 0.3, 1.0
    points = np.arange(-40, 40 + grid, grid)

    def law(push: float) -> np.ndarray:
        here = (points == 0).astype(float)
        for _ in range(steps):
            means = grid * np.floor((contraction * points + push) / grid + 0.5)
            upper = (points[:, None] + grid / 2 - means[None, :]) / noise
            here = (stats.norm.cdf(upper) - stats.norm.cdf(upper - grid / noise)) @ here
        return here

    influence = shift * (1 - contraction**steps) / (1 - contraction)
    variance = noise**2 * (1 - contraction ** (2 * steps)) / (1 - contraction**2)
    plain = influence / math.sqrt(variance)
    bound = plain + 2 * grid / noise * math.sqrt((1 + contraction) / (1 - contraction))
    exceeded = False
    for offset in np.linspace(0, grid, 9):  # where the means lie between two grid points
        laws = law(offset), law(offset + shift)
        for first, second in (laws, laws[::-1]):
            for epsilon in (0.1, 0.5, 1.0, 2.0):
                exact = delta_of(first, second, epsilon)
                assert exact <= conversion.gdp_delta(epsilon=epsilon, mu=bound) + 1e-12
                exceeded |= exact > conversion.gdp_delta(epsilon=epsilon, mu=plain)
    assert exceeded


@each("noise_std", [1e-6, 0.37, 1.0, 5e4])
@each("radius", [1.0, 4000.0, 1e9])
def test_finest_grid_is_representable(noise_std: float, radius: float):
    """The default grid spacing is a power of two that a mechanism accepts. It is at most 2^-32 times the noise, unless
    float64 is coarser than that."""
    grid = finest_grid(noise_std=noise_std, radius=radius)
    assert math.frexp(grid)[0] == 0.5
    assert noise_std * 2**-33 <= grid <= max(noise_std * 2**-32, radius * 2**-50)
    assert grid >= radius * 2**-51
    if noise_std > 1e-11 * radius:
        assert mechanism(noise_scale=noise_std / 2, radius=radius, grid=grid).grid == grid


def test_the_default_grid_is_set_from_the_size():
    """`mechanism_for` sets the grid and the number of parameters from `num_parameters`, which raises mu on Adult by a
    ten-thousandth."""
    settings, adult = calibration.ModelSettings(epsilon=1.0, delta=1e-5), {"num_slots": 32561, "num_classes": 2}
    plain = calibration.mechanism_for(settings, **adult)
    made = calibration.mechanism_for(settings, **adult, num_parameters=105)
    assert made == replace(plain, grid=made.grid, num_parameters=105)
    runs = [Run(steps=made.learn_steps), Run(steps=347, records=1)]
    mus = [accountant.unlearning_mu(accountant.replay(m, runs)) for m in (plain, made)]
    assert 0 < mus[1] - mus[0] < 1e-4 * mus[0]


@pytest.mark.parametrize("grid", [0.3, -0.5, math.nan, math.inf, 2.0**-52])
def test_an_unrepresentable_grid_is_refused(grid: float):
    """A grid must be 0 or a power of two, and float64 must be able to represent all its multiples within the ball."""
    with pytest.raises((DomainError, PreconditionError)):
        mechanism(radius=1.0, grid=grid)
    with pytest.raises(DomainError):
        mechanism(num_parameters=0)
