import math

import pytest
from hypothesis import given, strategies as st

from lethe.features.theorems import evaluate
from lethe.proof.errors import DomainError, PreconditionError

GIBBS = {"q": 4, "R0": 0.5, "lam": 1.0, "beta": 0.5, "B": 1.5, "d": 10, "eta": 1e-5, "K": 1000}
THEOREM = {
    "lam": 1.0,
    "beta": 0.5,
    "L": 1,
    "q": 4,
    "B": 1.5,
    "eps_dp": 1.0,
    "eps_dd": 0.1,
    "n": 10000,
    "d": 10,
    "r": 1,
    "sigma2": 1.0,
}


@given(K=st.integers(0, 10**7), R0=st.floats(0, 5))
def test_divergence_from_the_gibbs_law_falls_to_its_bias(K, R0):
    """The divergence falls with K from q R0 to its bias, which is proportional to the step size."""
    at = GIBBS | {"R0": R0}
    here = evaluate("g22", at | {"K": K})["bound"]
    bias = evaluate("g22", at | {"R0": 0})["bound"]
    assert bias <= evaluate("g22", at | {"K": K + 1})["bound"] <= here <= 4 * R0 + bias
    assert evaluate("g22", at | {"R0": 0, "eta": 5e-6})["bound"] == pytest.approx(bias / 2, rel=1e-12)


def test_convergence_needs_a_small_step():
    """A step size greater than lambda/(64 B q^2 (beta + lambda)^2) is refused."""
    largest = 1 / (64 * 1.5 * 16 * 2.25)
    evaluate("g22", GIBBS | {"eta": largest * 0.999})
    with pytest.raises(PreconditionError, match=r"^step_size_of_convergence"):
        evaluate("g22", GIBBS | {"eta": largest * 1.001})


@given(F=st.floats(0, 10), n=st.integers(1, 1000), sigma=st.floats(0.1, 10))
def test_gibbs_laws_of_neighbours_match(F, n, sigma):
    """The bound for data sets that differ in one record equals the bound for objectives that differ by F/n."""
    neighbours = evaluate("pE1", {"F": F, "n": n, "sigma": sigma})["eps"]
    assert neighbours == pytest.approx(evaluate("g23", {"c": F / n, "sigma": sigma})["bound"], rel=1e-12)


@given(d=st.integers(1, 100), sigma=st.floats(0.1, 2), beta=st.floats(0, 3), B=st.floats(1.1, 5))
def test_risk_of_the_gibbs_law_is_monotone(d, sigma, beta, B):
    """The risk rises with the dimension, the temperature, the smoothness and the range of the loss."""
    at = {"d": d, "sigma": sigma, "lam": 0.5, "beta": beta, "B": B}
    here = evaluate("g24", at)["err"]
    for worse in ({"d": d + 1}, {"sigma": 2 * sigma}, {"beta": beta + 1}, {"B": B + 1}):
        assert here < evaluate("g24", at | worse)["err"]


@given(
    q=st.floats(1.1, 20),
    B=st.floats(1.1, 4),
    eps_dd=st.floats(0.01, 0.5),
    r=st.integers(1, 1000),
    sigma2=st.floats(0.5, 2),
)
def test_printed_and_corrected_theorem_agree_after_minimal_training(q, B, eps_dd, r, sigma2):
    """After training for exactly the required number of steps, the printed and the corrected number of deletion steps
    agree. The step size is the smaller of the printed step size and the one that Theorem G.22 requires."""
    made = evaluate("t52", THEOREM | {"q": q, "B": B, "eps_dd": eps_dd, "r": r, "sigma2": sigma2})
    assert made["eta"] == min(made["eta_printed"], made["eta_g22"])
    assert (made["eta_printed"] <= made["eta_g22"]) == (q * eps_dd <= 10)
    if made["K_A"] > 0 and made["K_Abar"] > 0 and math.log(q * math.log(B) / eps_dd) > 0:
        assert abs(made["K_Abar"] - made["K_Abar_printed"]) <= 1
    assert made["cheaper_than_retraining"] == (r / 10000 <= 0.5 - eps_dd / math.log(B))


def test_longer_training_increases_only_the_printed_steps():
    """Training for longer than necessary increases the printed number of deletion steps, but not the corrected one."""
    least = evaluate("t52", THEOREM)
    longer = evaluate("t52", THEOREM | {"steps_learned": least["K_A"] + 1000})
    assert longer["K_Abar"] == least["K_Abar"]
    assert longer["K_Abar_printed"] - least["K_Abar_printed"] in (999, 1000, 1001)


@pytest.mark.parametrize(
    ("wrong", "condition"),
    [
        ({"max_abs_loss": 0.11}, "bounded_loss"),
        ({"steps_learned": 10}, "enough_learning"),
        ({"L": 1e4}, "noise_for_privacy"),
    ],
)
def test_theorem_without_convexity_requires_its_conditions(wrong, condition):
    """A loss beyond its bound, insufficient training, and too little noise for the claimed privacy are refused."""
    evaluate("t52", THEOREM | {"max_abs_loss": 0.1})
    with pytest.raises(PreconditionError, match=f"^{condition}"):
        evaluate("t52", THEOREM | wrong)


@pytest.mark.parametrize("wrong", [{"eps_dd": 1.1}, {"eps_dp": 10.1}, {"r": 10001}])
def test_theorem_without_convexity_refuses_numbers_outside_its_domain(wrong):
    """A deletion target weaker than the privacy target, a privacy target that exceeds the dimension, and a number of
    records larger than the number of rows are refused."""
    with pytest.raises(DomainError, match=next(iter(wrong))):
        evaluate("t52", THEOREM | wrong)
