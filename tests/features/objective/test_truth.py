"""The certified delta, compared with the true hockey stick of random data sets by quadrature."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from lethe.features.objective import accountant
from lethe.features.objective.accountant import Releases
from lethe.proof.mechanism import Adjacency
from tests.features.objective.quadrature import Record, hockey_stick, laws, mechanism

pytestmark = pytest.mark.slow

QUADRATURE = 1e-5
"""Error of the quadrature in one dimension."""


def records(rng: np.random.Generator, count: int, columns: int, classes: int = 2) -> list[Record]:
    """Return rows of norm at most 1, half of them of norm 1."""
    rows = rng.standard_normal((count, columns))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True) * np.where(rng.random((count, 1)) < 0.5, 1, 1 + rng.random())
    return [(row, int(label)) for row, label in zip(rows, rng.integers(classes, size=count), strict=True)]


@settings(max_examples=25, deadline=None)
@example(seed=1, others=0, groups=1, strength=0.2, noise_scale=0.5, epsilon=1.0)
@example(seed=2, others=3, groups=3, strength=1.0, noise_scale=2.0, epsilon=0.5)
@given(
    seed=st.integers(0, 2**32),
    others=st.integers(0, 8),
    groups=st.integers(1, 3),
    strength=st.floats(0.2, 20),
    noise_scale=st.floats(0.5, 6),
    epsilon=st.floats(0, 4),
)
def test_datasets_with_one_column_stay_within_the_bound(seed, others, groups, strength, noise_scale, epsilon):
    """For datasets with one column, the true delta of nulling or replacing records never exceeds the certified delta,
    in either direction."""
    rng = np.random.default_rng(seed)
    rest, person, other = records(rng, others, 1), records(rng, groups, 1), records(rng, groups, 1)
    made = mechanism(l2=strength, noise_scale=noise_scale)
    for adjacency, replaced in ((Adjacency.ZERO_OUT, []), (Adjacency.REPLACE, other)):
        bound = accountant.delta(made, epsilon=epsilon, records=groups, adjacency=adjacency)
        held, gone = laws(rest + person, rest + replaced, classes=2, strength=strength, noise_scale=noise_scale)
        assert held.mass() == pytest.approx(1, abs=QUADRATURE)
        assert gone.mass() == pytest.approx(1, abs=QUADRATURE)
        assert max(hockey_stick(held, gone, epsilon), hockey_stick(gone, held, epsilon)) <= bound + QUADRATURE


@pytest.mark.parametrize(("columns", "classes"), [(2, 2), (1, 3)])
@pytest.mark.parametrize("seed", range(2))
def test_datasets_with_two_columns_stay_within_the_bound(columns, classes, seed):
    """For datasets with two columns, or with one column and three classes, the true delta never exceeds the certified
    delta at any tested epsilon."""
    rng = np.random.default_rng(seed)
    rest, person, other = (records(rng, count, columns, classes) for count in (6 * seed, 1, 1))
    strength, noise_scale = float(rng.uniform(0.3, 4)), float(rng.uniform(0.7, 3))
    made = mechanism(l2=strength, noise_scale=noise_scale, num_columns=columns, num_classes=classes)
    shown = {"classes": classes, "strength": strength, "noise_scale": noise_scale}
    for adjacency, replaced in ((Adjacency.ZERO_OUT, []), (Adjacency.REPLACE, other)):
        held, gone = laws(rest + person, rest + replaced, **shown)
        assert (held.mass(), gone.mass()) == (pytest.approx(1, abs=1e-4), pytest.approx(1, abs=1e-4))
        for epsilon in (0.0, 0.1, 0.3, 1.0, 2.0):
            bound = accountant.delta(made, epsilon=epsilon, adjacency=adjacency)
            assert max(hockey_stick(held, gone, epsilon), hockey_stick(gone, held, epsilon)) <= bound + 1e-4


@pytest.mark.parametrize("seed", range(4))
def test_two_versions_together_do_not_exceed_the_convolution(seed):
    """The true delta of two versions with independent noise, computed by quadrature over both minimisers, is at most
    the delta certified for `adaptive`."""
    rng = np.random.default_rng(seed)
    rest, person = records(rng, seed, 1), records(rng, 1, 1)
    strength, noise_scale = (0.3, 1.0, 3.0, 1.0)[seed], (1.0, 2.0, 3.0, 0.7)[seed]
    made = mechanism(l2=strength, noise_scale=noise_scale)
    held, gone = laws(rest + person, rest, classes=2, strength=strength, noise_scale=noise_scale, cells=40)
    for epsilon in (0.05, 0.3, 1.0, 2.0):
        bound = accountant.adaptive_delta([Releases(mechanism=made, versions=2)], epsilon=epsilon)
        for p, q in ((held, gone), (gone, held)):
            excess = np.outer(p.density, p.density) - math.exp(epsilon) * np.outer(q.density, q.density)
            assert float(np.maximum(excess, 0).sum()) * p.volume**2 <= bound + 1e-5


def test_bound_is_nearly_attained():
    """For a record that contradicts all others, the certified delta at an epsilon beyond kappa is at most three times
    the true delta."""
    rest, person = [(np.array([1.0]), 0)] * 30, [(np.array([1.0]), 1)]
    made = mechanism(l2=2.0, noise_scale=2.0)
    held, gone = laws(rest + person, rest, classes=2, strength=2.0, noise_scale=2.0)
    true = max(hockey_stick(held, gone, 0.5), hockey_stick(gone, held, 0.5))
    assert 1e-3 < true <= accountant.delta(made, epsilon=0.5) <= 3 * true
