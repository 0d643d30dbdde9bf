"""What others need for the same request, against their own theorems."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.accounting import rivals
from app.accounting.rivals import Ask, Rival
from lethe.proof import accountant
from lethe.proof.accountant import Run
from lethe.proof.losses import Objective
from lethe.theorems import calibration, evaluate

DELTA = 1e-5
MECHANISM = calibration.mechanism_for(num_slots=5000, num_classes=2, num_parameters=9, epsilon=1.0, delta=DELTA)
CHAIN = accountant.replay(MECHANISM, [Run(steps=MECHANISM.learn_steps)])


def compared(*, records: int = 1, epsilon: float = 1.0, delta: float = DELTA) -> dict[str, Rival]:
    return {rival.name: rival for rival in rivals.compare(CHAIN, Ask(records=records, epsilon=epsilon, delta=delta))}


def test_what_needs_gradients_bounded_everywhere_has_no_number_for_least_squares() -> None:
    """Least squares have bounded gradients in the ball alone: a theorem about steps that leave it is refused by name,
    and those about projected steps are not."""
    made = calibration.mechanism_for(
        objective=Objective.LEAST_SQUARES, num_slots=5000, num_classes=1, num_parameters=9, epsilon=1.0, delta=DELTA
    )
    chain = accountant.replay(made, [Run(steps=made.learn_steps)])
    rows = {rival.name: rival for rival in rivals.compare(chain, Ask(records=1, epsilon=1.0, delta=DELTA))}
    refused = rows["data_deletion"].refused
    assert (rows["data_deletion"].steps, refused and refused.name) == (None, "loss_lipschitz")
    assert rows["lethe"].steps
    assert rows["langevin_unlearning"].steps


def test_our_row_is_the_plan() -> None:
    """The first row is what this model would run, and learning again is what it was made to learn."""
    rows = compared(records=7)
    planned = calibration.least_steps(CHAIN, records=7, epsilon=1.0, delta=DELTA, at_most=10**9)
    assert (rows["lethe"].steps, rows["relearning"].steps) == (planned, MECHANISM.learn_steps)


@pytest.mark.parametrize("records", [1, 7, 100])
def test_langevin_unlearning_takes_its_least_steps(records: int) -> None:
    """Its steps reach epsilon by its own accounting at step size 1/L, and one fewer does not."""
    steps = compared(records=records)["langevin_unlearning"].steps
    assert steps is not None
    slope = 4 * (records * MECHANISM.gradient_bound / (MECHANISM.noise_scale * 5000)) ** 2 / MECHANISM.l2
    rate = MECHANISM.l2 / MECHANISM.smoothness

    def reached(taken: int) -> float:
        orders = (1 + math.exp(log / 200) for log in range(-1000, 2000))
        return min(math.exp(-rate * taken / a) * slope * a - math.log(DELTA) / (a - 1) for a in orders)

    assert reached(steps) == pytest.approx(1.0, rel=1e-3)
    assert reached(steps - steps // 100) > 1.0


def test_data_deletion_takes_the_best_order() -> None:
    """No other Renyi order that gives the same epsilon needs fewer than a hundredth fewer steps."""
    steps = compared(records=10)["data_deletion"].steps
    assert steps is not None
    asked = {
        "L": MECHANISM.gradient_bound,
        "lam": MECHANISM.l2,
        "sigma": MECHANISM.noise_scale,
        "n": 5000,
        "eta": 1 / MECHANISM.smoothness,
        "S": 10,
    }
    best = math.inf
    for hundredths in range(105, 10_000, 5):
        order = 1 + hundredths / 10
        left = 1.0 + math.log(DELTA) / (order - 1)
        if left > 0:
            best = min(best, evaluate("g15_K", asked | {"q": order, "eps_dd": left})["K"])
    assert best * 0.9 <= steps <= best * 1.1


@given(records=st.integers(1, 1000), epsilon=st.floats(0.1, 5.0))
def test_more_to_forget_never_takes_less(records: int, epsilon: float) -> None:
    """Every row's steps rise with the records and fall with epsilon."""
    here, more, laxer = compared(records=records, epsilon=epsilon), compared(records=records + 1, epsilon=epsilon), None
    laxer = compared(records=records, epsilon=1.5 * epsilon)
    for name, row in here.items():
        assert row.steps is not None
        assert (more[name].steps or 0) >= row.steps >= (laxer[name].steps or 0)


def test_different_guarantees_are_named() -> None:
    """Each row says what its epsilon means, and theirs cite the theorem that has what it assumes."""
    for name, row in compared().items():
        assert row.notion in ("unlearning", "deletion")
        assert row.adjacency in ("zero_out", "replace", "add_remove")
        assert row.reference_process
        assert (row.bound is None) == (name in ("lethe", "relearning"))
        assert row.bound is None or row.assumptions


def test_a_precondition_that_fails_is_the_answer() -> None:
    """Descent-to-Delete says nothing of an epsilon above log(1/delta): no steps, but why."""
    row = compared(epsilon=12.0)["descent_to_delete"]
    assert (row.steps, row.noise_std) == (None, None)
    assert row.refused is not None
    assert row.refused.name == "epsilon_at_most_log"
