import math

import pytest
from hypothesis import assume, given, strategies as st

from lethe.features.theorems import evaluate
from lethe.proof.errors import DomainError, PreconditionError

SGD = {"eta": 1 / 0.2619, "m": 0.0119, "n": 11982}
CLIP = {"eps": 1.0, "delta0": 1.0, "C2": 1.0, "sigma": 1.0}


@given(alpha=st.floats(1.01, 100), p=st.floats(0.001, 1), more=st.floats(1, 10))
def test_rarer_selection_costs_more(alpha, p, more):
    """If every result is published, selection costs nothing. A lower acceptance probability p costs more, and the cost
    is at least log(1/p) at every order."""

    def penalty(order: float, chance: float) -> float:
        return evaluate("selection_penalty", {"alpha": order, "p_accept": chance})["add_eps"]

    assert penalty(alpha, 1.0) == 0
    assert -math.log(p) <= penalty(alpha, p) <= penalty(alpha, p / more)
    assert penalty(alpha * more, p) <= penalty(alpha, p) * (1 + 1e-12)


@given(
    z=st.floats(0, 1),
    b=st.sampled_from([1, 2, 3, 1997, 3994, 5991, 11982]),
    K=st.integers(1, 50),
    alpha=st.floats(1.1, 50),
)
def test_kept_constant_matches_the_shift_accountant(z, b, K, alpha):
    """Keeping the proof's constant never increases the bound and makes it equal to the shift accountant's bound. Both
    bounds fall with the number of epochs and with the batch size."""
    at = SGD | {"alpha": alpha, "z": z, "sigma": 0.03, "b": b}
    here, there = (evaluate("sgd_eps_printed", at | {"K": k}) for k in (K, K + 1))
    assert here["eps_shift"] <= here["eps"] / 2 * (1 + 1e-12)
    assert there["eps"] <= here["eps"]
    if here["eps"] > 1e-300:
        steps = {"z0": z, "segments": [[K * 11982 // b, 0]], "c": 1 - SGD["eta"] * 0.0119}
        mu = evaluate("shift_mu", steps | {"eta": SGD["eta"], "sigma": 0.03})["mu"]
        assert here["eps_shift"] == pytest.approx(alpha * mu**2 / 2, rel=1e-6)


def test_full_batches_have_the_stationary_distance():
    """With one batch per epoch, the distance is 2M/(m n), as for full-batch descent."""
    full = evaluate("sgd_z", SGD | {"Mlip": 1, "b": 11982})["z"]
    assert full == pytest.approx(2 / (0.0119 * 11982), rel=1e-12)
    assert full < evaluate("sgd_z", SGD | {"Mlip": 1, "b": 5991})["z"]


@pytest.mark.parametrize(
    ("name", "rest"), [("sgd_z", {"Mlip": 1}), ("sgd_eps_printed", {"alpha": 2, "z": 0.1, "sigma": 0.03, "K": 1})]
)
def test_noisy_sgd_requires_its_conditions(name, rest):
    """A batch larger than the data set and a step size above 1/L are refused."""
    at = SGD | rest | {"b": 512}
    with pytest.raises(DomainError, match="b=11983 <= n=11982"):
        evaluate(name, at | {"b": 11983})
    for wrong in ({"L": 0.27}, {"eta": 1 / 0.0119}):
        with pytest.raises(PreconditionError, match=r"^step_size_at_most_inverse_smoothness"):
            evaluate(name, at | wrong)
    with pytest.raises(PreconditionError, match=r"^convexity_below_smoothness"):
        evaluate(name, at | {"L": 0.01})


@given(eps=st.floats(0, 10), r=st.floats(1e-4, 10))
def test_hockey_stick_matches_the_gaussian_curve(eps, r):
    """The hockey-stick divergence of two Gaussians equals the `gdp_delta` of the distance between them."""
    assert evaluate("theta_hs", {"eps": eps, "r": r})["theta"] == evaluate("gdp_delta", {"eps": eps, "mu": r})["delta"]


@given(eps=st.floats(0, 5), sigma=st.floats(0.3, 1e5), T=st.integers(0, 12), delta0=st.floats(1e-9, 1))
def test_model_clipping_is_monotone(eps, sigma, T, delta0):
    """Delta never rises with further steps, never falls if its initial value is raised, and stays at or above its floor
    of 1e-60."""

    def delta(steps: int, start: float = delta0) -> float:
        return evaluate("model_clip_delta", CLIP | {"eps": eps, "sigma": sigma, "delta0": start, "T": steps})["delta"]

    assert delta(0) == delta0
    assert 1e-60 <= delta(T + 1) <= delta(T) * (1 + 1e-9)
    assert delta(T) <= delta(T, min(1.0, 2 * delta0)) * (1 + 1e-9)
    assert delta(T, 1.5) <= 1


def test_first_clipped_step_is_a_gaussian_mechanism():
    """After one step from an unknown state, delta equals that of two Gaussians at distance 2C/sigma."""
    one = evaluate("model_clip_delta", CLIP | {"T": 1})["delta"]
    assert one == pytest.approx(evaluate("theta_hs", {"eps": 1.0, "r": 2.0})["theta"], rel=1e-8)
    assert evaluate("model_clip_delta", CLIP | {"sigma": 10.0, "T": 50})["delta"] == 1e-60


@given(
    C0=st.floats(0, 5),
    C1=st.floats(0, 5),
    gamma=st.floats(0.01, 0.9),
    lam=st.just(0.0) | st.floats(0.01, 1.1),
    T=st.integers(1, 200),
)
def test_gradient_clipping_matches_the_shift_accountant(C0, C1, gamma, lam, T):
    """The slope rho equals the shift accountant's value for clipped gradients that differ by 2C1, and rises with both
    clipping thresholds."""
    assume(gamma * lam < 0.99)
    at = {"C0": C0, "C1": C1, "gamma": gamma, "lam": lam, "sigma": 0.5, "T": T}
    rho = evaluate("grad_clip_rho", at)["rho"]
    chain = {"z0": 2 * C0, "segments": [[T, 2 * C1]], "c": 1 - gamma * lam, "eta": gamma}
    mu = evaluate("shift_mu", chain | {"sigma": 0.5 / math.sqrt(2 * gamma)})["mu"]
    assert rho == pytest.approx(mu**2 / 2, rel=1e-9, abs=1e-12)
    assert rho <= evaluate("grad_clip_rho", at | {"C0": C0 + 1})["rho"]
    assert rho <= evaluate("grad_clip_rho", at | {"C1": C1 + 1})["rho"]


def test_gradient_clipping_without_steps_has_an_infinite_bound():
    """With no steps, the bound is infinite unless the starting point is fixed."""
    at = {"C1": 1.0, "gamma": 0.1, "lam": 0.0, "sigma": 1.0, "T": 0}
    assert evaluate("grad_clip_rho", at | {"C0": 1.0})["rho"] == "inf"
    assert evaluate("grad_clip_rho", at | {"C0": 0.0})["rho"] == 0.0


@given(eps=st.floats(0.01, 2.8), T=st.integers(1, 200))
def test_printed_noise_meets_its_target_by_the_shift_bound(eps, T):
    """Up to eps = log(1/delta)/4, the noise printed in the paper achieves the (eps, delta) that it is printed for, by
    the shift bound, with and without weight decay."""
    for lam in (0.0, 6.0):
        at = {"C0": 1.0, "C1": 0.1, "gamma": 0.1, "T": T, "lam": lam}
        sigma2 = evaluate("koloskova_sigma2", at | {"eps": eps, "delta": 1e-5})["sigma2"]
        rho = evaluate("grad_clip_rho", at | {"sigma": math.sqrt(sigma2)})["rho"]
        assert evaluate("rdp_linear_mironov", {"tau": rho, "delta": 1e-5})["eps"] <= eps * (1 + 1e-9)


@pytest.mark.parametrize("name", ["grad_clip_rho", "koloskova_sigma2"])
def test_gradient_clipping_refuses_numbers_outside_its_domain(name):
    """Weight decay that overshoots and a target above 3 log(1/delta) are refused."""
    at = {"C0": 1.0, "C1": 0.1, "gamma": 0.5, "T": 10, "lam": 1.9}
    at |= {"sigma": 1.0} if name == "grad_clip_rho" else {"eps": 1.0, "delta": 1e-5}
    evaluate(name, at)
    with pytest.raises(DomainError, match=r"gamma lam=1\.0 < 1"):
        evaluate(name, at | {"lam": 2.0})
    if name == "koloskova_sigma2":
        with pytest.raises(DomainError, match="eps=35"):
            evaluate(name, at | {"eps": 35.0})
        with pytest.raises(PreconditionError, match=r"^strong_decay"):
            evaluate(name, at | {"lam": 0.9})
