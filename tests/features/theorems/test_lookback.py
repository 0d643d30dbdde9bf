"""The lookback of the accountant, compared with the calculator's theorem of cyclic batches."""

import pytest

from lethe.features.theorems import evaluate
from lethe.proof import lookback
from lethe.proof.mechanism import Adjacency
from tests.lethe.proof.test_lookback import mechanism


@pytest.mark.parametrize("steps", [10**3, 10**6, 10**9])
def test_look_back_bound_matches_the_calculator(steps):
    """For any number of steps, the accountant's look-back bound equals the value of the calculator's `cyclic_batches`
    theorem."""
    made = mechanism(num_slots=32_561, batch_size=326, cool_down=64, l2=2.5e-4, step_size=7.9, learn_steps=7000)
    share = {"B": made.num_batches, "T": steps, "q": 64, "c": made.contraction, "eta": 7.9, "sigma": 0.1}
    expected = evaluate("cyclic_batches", share | {"gap": made.sensitivity(Adjacency.ZERO_OUT) / 7.9})["mu"]
    assert lookback.worst_mu(made, steps) == pytest.approx(expected, rel=1e-9)
    expected = evaluate("cyclic_batches", share | {"gap": made.sensitivity(Adjacency.ZERO_OUT) / 7.9, "K": 0})["mu"]
    assert lookback.present(((made, steps),)).mu >= expected * (1 - 1e-9)
