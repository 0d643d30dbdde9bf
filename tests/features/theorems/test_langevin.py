import math

import pytest
from hypothesis import given, strategies as st

from lethe.features.theorems import evaluate
from lethe.proof.errors import DomainError, PreconditionError
from tests.tables import each

OPEN = {"eta": 0.1, "sigma": 1.0, "C_lsi": 1.0, "R": 1.0, "Mlip": 1.0}
STRONG = {"regime": "sc", "K": 10, "eta": 3.0, "sigma": 0.03, "C_lsi": 0.15, "m": 0.0119}
MNIST = {"S": 1, "Mlip": 1, "m": 0.0119, "sigma": 0.03, "n": 11982}
GENERAL = {"alpha": 4, "S": 1, "Mlip": 1, "sigma": 1.0, "n": 1000, "eta": 0.5, "T": 50, "C0": 0.1, "R": 1.0, "L": 1.0}


def test_the_cap_is_returned_as_a_logarithm():
    """With the constants for MNIST and a ball of radius 1, the log-Sobolev cap is about e^13480, so only its logarithm
    is returned."""
    cap = evaluate("lsi_cap_log", {"R": 1.0, "Mlip": 1.0, "eta": 3.8, "s2_noise": 0.006840})["log_C"]
    assert cap == pytest.approx(4 * 4.8**2 / 0.00684 + math.log(6 * (4 * 4.8**2 + 0.00684)), rel=1e-12)
    assert cap == pytest.approx(13_480, abs=50)


@pytest.mark.parametrize("regime", ["nc", "cvx"])
@given(K=st.integers(0, 60), L=st.floats(0.01, 3), C_lsi=st.floats(0.01, 10), sigma=st.floats(0.5, 3))
def test_rates_without_strong_convexity_are_monotone(regime, K, L, C_lsi, sigma):
    """The sum of the rates never falls, and each step adds at most as much as the one before. The log-Sobolev constants
    stay below the cap, and the divergence never grows."""
    at = OPEN | {"regime": regime, "L": L, "C_lsi": C_lsi, "sigma": sigma}
    here, there, after = (evaluate("t32_rates", at | {"K": k}) for k in (K, K + 1, K + 2))
    first, second = there["sum_R"] - here["sum_R"], after["sum_R"] - there["sum_R"]
    assert 0 <= second <= first * (1 + 1e-6) + 1e-12
    cap = evaluate("lsi_cap_log", {"R": 1.0, "Mlip": 1.0, "eta": 0.1, "s2_noise": 0.2 * sigma**2})["log_C"]
    assert math.log(after["C_K"]) <= max(cap, math.log(C_lsi)) + 1e-9
    eps = [evaluate("t32_eps", at | {"K": k, "alpha": 2, "eps0": 0.3})["eps"] for k in (K, K + 1)]
    assert eps[1] <= eps[0] <= 0.3


@given(K=st.integers(0, 60), C_lsi=st.floats(0.01, 10))
def test_convex_rates_match_smooth_rates_at_zero(K, C_lsi):
    """At smoothness zero, the smooth regime has the same rates as the convex regime."""
    at = OPEN | {"C_lsi": C_lsi, "K": K}
    convex, flat = (evaluate("t32_rates", at | regime) for regime in ({"regime": "cvx"}, {"regime": "nc", "L": 1e-16}))
    assert convex == pytest.approx(flat, rel=1e-12)


def test_constants_stop_at_the_cap():
    """In a small ball with large noise, the log-Sobolev constant reaches the cap and stays there."""
    at = {"regime": "nc", "eta": 1.0, "sigma": 1.0, "C_lsi": 1.0, "L": 2.0, "R": 0.1, "Mlip": 0.1}
    cap = evaluate("lsi_cap_log", {"R": 0.1, "Mlip": 0.1, "eta": 1.0, "s2_noise": 2.0})["log_C"]
    assert evaluate("t32_rates", at | {"K": 100})["C_K"] == pytest.approx(math.exp(cap), rel=1e-12)


@given(alpha=st.floats(1.01, 50), eps0=st.floats(0, 10), K=st.integers(0, 10**5), eta=st.floats(0.01, 80))
def test_strongly_convex_unlearning_is_the_third_regime(alpha, eps0, K, eta):
    """The bound for strongly convex unlearning equals the strongly convex case of the theorem with three regimes. It
    falls with K and never exceeds its initial value. The bound with a shifted order is never larger."""
    at = {"alpha": alpha, "eps0": eps0, "m": 0.0119, "eta": eta}
    here, there = (evaluate("t32_sc_eps", at | {"K": k}) for k in (K, K + 1))
    assert there["eps"] <= here["eps"] <= eps0
    assert here["eps_order_shift"] <= here["eps"] * (1 + 1e-9)
    case = evaluate("t32_eps", at | {"K": K, "regime": "sc", "sigma": 0.03, "C_lsi": 2 * 0.03**2 / 0.0119})
    assert case["eps"] == pytest.approx(here["eps"], rel=1e-9)


@each(
    ("name", "at", "condition"),
    [
        ("t32_rates", OPEN | {"regime": "nc", "K": 1, "L": 1.0, "R": None}, "projection"),
        ("t32_rates", OPEN | {"regime": "cvx", "K": 1, "R": None}, "projection"),
        ("t32_rates", OPEN | {"regime": "cvx", "K": 1, "L": 20.1}, "step_size_of_convex_case"),
        ("t32_rates", STRONG | {"C_lsi": 0.0756}, "large_log_sobolev"),
        ("t32_rates", STRONG | {"C_lsi": 0.0757}, "step_size_of_case_3"),
        ("t32_rates", STRONG | {"L": 0.34}, "step_size_at_most_inverse_smoothness"),
        ("t32_rates", STRONG | {"L": 0.01}, "convexity_below_smoothness"),
        ("t32_eps", STRONG | {"alpha": 2, "eps0": 1, "L": 0.34}, "step_size_at_most_inverse_smoothness"),
        ("t32_sc_eps", {"alpha": 2, "eps0": 1, "m": 0.5, "eta": 2.01, "K": 1}, "step_size_at_most_inverse_smoothness"),
        ("t33_sc", MNIST | {"alpha": 2, "eta": 4.0, "L": 0.2619, "T": 5}, "step_size_at_most_inverse_smoothness"),
        ("t33_general", GENERAL | {"regime": "nc", "R": None}, "projection"),
        ("t33_general", GENERAL | {"regime": "cvx", "L": 4.01}, "step_size_of_convex_case"),
    ],
)
def test_regimes_require_their_conditions(name, at, condition):
    """Each regime refuses parameters that its proof does not cover and names the violated condition."""
    with pytest.raises(PreconditionError, match=f"^{condition}"):
        evaluate(name, at)


@pytest.mark.parametrize(
    ("name", "at", "missing"),
    [
        ("t32_rates", STRONG | {"m": None}, "m"),
        ("t32_rates", OPEN | {"regime": "nc", "K": 1}, "L"),
        ("t32_rates", OPEN | {"regime": "cvx", "K": 1, "Mlip": None}, "Mlip"),
        ("t33_general", GENERAL | {"regime": "nc", "L": None}, "L"),
        ("t33_sc", MNIST | {"alpha": 2, "T": 5}, "eta"),
    ],
)
def test_regimes_name_missing_parameters(name, at, missing):
    """If a parameter that only one regime needs is missing, the error names it."""
    with pytest.raises(DomainError, match=f"parameter '{missing}'"):
        evaluate(name, at)


def learning(name: str, at: dict[str, object], **more: object) -> float:
    return evaluate(name, at | more)["eps"]


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("t33_sc", MNIST | {"eta": 3.8}),
        ("t33_general", GENERAL | {"regime": "cvx"}),
        ("t33_general", GENERAL | {"regime": "nc"}),
    ],
    ids=["sc", "cvx", "nc"],
)
@given(T=st.integers(0, 100), alpha=st.floats(1.1, 50), k=st.integers(1, 9))
def test_privacy_of_training_scales_with_its_parameters(name, at, T, alpha, k):
    """The privacy loss of training is 0 at T = 0 and rises with T. It is linear in the order, quadratic in the group
    size, and inversely quadratic in the number of rows."""
    here = learning(name, at, T=T, alpha=alpha)
    assert learning(name, at, T=0, alpha=alpha) == 0 <= here <= learning(name, at, T=T + 1, alpha=alpha) * (1 + 1e-12)
    assert learning(name, at, T=T, alpha=2 * alpha) == pytest.approx(2 * here, rel=1e-9)
    assert learning(name, at, T=T, alpha=alpha, S=k) == pytest.approx(k**2 * here, rel=1e-9)
    assert learning(name, at, T=T, alpha=alpha, n=at["n"] * k) == pytest.approx(here / k**2, rel=1e-9)
    if name == "t33_general":
        every = {"q": alpha, "L": 1, "sigma": 1.0, "n": 1000, "eta": 0.5, "K": T}
        assert here <= 2 * evaluate("g7_rdp", every)["eps"] * (1 + 1e-9)
    else:
        assert here <= learning(name, at, alpha=alpha) * (1 + 1e-12)


def test_savings_may_be_negative():
    """If unlearning starts further from its target than a fresh model does, the savings are negative and retraining is
    reported as cheaper."""
    saved = evaluate("savings_sc", {"alpha": 2, "m": 0.1, "eta": 1.0, "d0": 0.1, "eps0": 0.5})
    assert saved["iterations"] < 0
    assert saved["retraining_cheaper"]
    assert not evaluate("savings_sc", {"alpha": 2, "m": 0.1, "eta": 1.0, "d0": 0.5, "eps0": 0.1})["retraining_cheaper"]
