import math

import pytest
from hypothesis import assume, given, strategies as st

from lethe.features.theorems import evaluate
from lethe.proof.errors import DomainError, PreconditionError

MNIST = {"q": 2, "L": 1, "lam": 0.0119, "sigma": 0.03, "n": 11982, "eta": 0.5}
settings = st.fixed_dictionaries(
    {
        "q": st.floats(1.01, 100),
        "L": st.floats(0.1, 5),
        "lam": st.floats(0.001, 1),
        "sigma": st.floats(0.01, 2),
        "n": st.integers(10, 10**6),
        "eta": st.floats(0.01, 0.99),
    }
)
steps = st.integers(0, 10**4)


def value(name: str, given_settings: dict[str, object], output: str = "eps", **more: object) -> float:
    if name == "g7_rdp":
        given_settings = {key: item for key, item in given_settings.items() if key != "lam"}
    return evaluate(name, given_settings | more)[output]


@pytest.mark.parametrize("name", ["g7_rdp", "g9_rdp", "g9_rdp_tight"])
@given(at=settings, K=steps, more=st.integers(1, 5))
def test_privacy_loss_is_monotone(name, at, K, more):
    """The privacy loss rises with the number of steps, the order and the gradient bound, falls with the number of rows
    and the noise, and is quadratic in the group size."""
    here = value(name, at, K=K)
    assert here <= value(name, at, K=K + more)
    assert here <= value(name, at | {"q": at["q"] * more}, K=K) * (1 + 1e-12)
    assert here <= value(name, at | {"L": at["L"] * more}, K=K) * (1 + 1e-12)
    assert here >= value(name, at | {"n": at["n"] * more}, K=K) * (1 - 1e-12)
    assert here >= value(name, at | {"sigma": at["sigma"] * more}, K=K) * (1 - 1e-12)
    assert value(name, at, K=K, S=more) == pytest.approx(more**2 * here, rel=1e-12)


@given(at=settings, K=steps)
def test_keeping_constants_lowers_privacy_loss(at, K):
    """The bound that keeps the proof's constants (`g9_rdp_tight`) never exceeds the printed bound (`g9_rdp`), which
    stays below its limit as the number of steps goes to infinity. For a single step and almost no strong convexity,
    `g9_rdp_tight` is twice the bound without strong convexity (`g7_rdp`)."""
    limit = 4 * at["q"] * at["L"] ** 2 / (at["lam"] * (at["sigma"] * at["n"]) ** 2)
    tight, printed = value("g9_rdp_tight", at, K=K), value("g9_rdp", at, K=K)
    assert tight <= printed * (1 + 1e-9) <= limit * (1 + 2e-9)
    slow = at | {"lam": 1e-9}
    assert value("g9_rdp_tight", slow, K=1) == pytest.approx(2 * value("g7_rdp", slow, K=1), rel=1e-6)


@given(at=settings, K=steps, g=st.integers(1, 20))
def test_keeping_constants_lowers_the_deletion_bound(at, K, g):
    """The deletion bound that keeps the proof's constants never exceeds the printed bound. At K = 0, the printed bound
    equals the limit of the training bound. The printed bound falls with K and is quadratic in the number of deleted
    rows."""
    limit = value("g9_rdp", at, K=10**9)
    assert value("g15_eps", at, K=0) == pytest.approx(limit, rel=1e-9)
    printed = value("g15_eps", at, K=K)
    assert value("g15_eps_tight", at, K=K) <= printed * (1 + 1e-9)
    assert value("g15_eps", at, K=K + 1) <= printed
    assert value("g15_eps", at, K=K, S=g) == pytest.approx(g**2 * printed, rel=1e-12)


@given(at=settings, target=st.floats(-9, 1).map(lambda exponent: 10.0**exponent))
def test_steps_of_data_deletion_are_minimal(at, target):
    """The returned number of steps reaches the target, and one step fewer does not. Halving the target costs 2 log
    2/(eta lambda) more steps."""
    K = value("g15_K", at, "K", eps_dd=target)
    assert value("g15_eps", at, K=K) <= target * (1 + 1e-15)
    if K > 0:
        assert value("g15_eps", at, K=K - 1) > target * (1 - 1e-9)
        halved = value("g15_K", at, "K", eps_dd=target / 2)
        assert abs(halved - K - 2 * math.log(2) / (at["eta"] * at["lam"])) <= 1 + 1e-6


@pytest.mark.parametrize("name", ["g9_rdp", "g9_rdp_tight", "g15_eps", "g15_eps_tight", "g15_K"])
def test_large_step_sizes_are_refused(name):
    """A step size of at least 1/(lambda + beta) is refused. Without beta, a step size of 1/lambda is refused."""
    rest = {"eps_dd": 0.1} if name == "g15_K" else {"K": 10}
    value(name, MNIST | {"beta": 1.98, **rest}, "K" if name == "g15_K" else "eps")
    for wrong in ({"beta": 2.0}, {"eta": 1 / 0.0119}):
        with pytest.raises(PreconditionError, match=r"^step_size_below_inverse_smoothness"):
            value(name, MNIST | rest | wrong)


@pytest.mark.parametrize("name", ["g15_eps", "g15_eps_tight", "g15_K"])
def test_a_wide_initial_distribution_is_refused(name):
    """An initial distribution that is wider than the lemma allows is refused."""
    rest = {"eps_dd": 0.1} if name == "g15_K" else {"K": 10}
    most = evaluate("g14_init_variance", {"lam": 0.0119, "sigma": 0.03, "eta": 0.5})["var"]
    evaluate(name, MNIST | rest | {"initial_variance": most})
    with pytest.raises(PreconditionError, match=r"^initial_variance"):
        evaluate(name, MNIST | rest | {"initial_variance": most * 1.001})
    with pytest.raises(PreconditionError, match=r"^initial_variance"):
        evaluate("g14_init_variance", {"lam": 0.0119, "sigma": 0.03, "eta": 0.5, "actual_variance": most * 1.001})


def test_an_initial_variance_without_contraction_is_refused():
    """At eta lambda = 1, where steps do not contract, evaluating the bound on the initial variance is refused."""
    with pytest.raises(PreconditionError, match=r"^step_size_below_inverse_smoothness"):
        evaluate("g14_init_variance", {"lam": 1.0, "sigma": 0.03, "eta": 1.0})


convex = st.fixed_dictionaries(
    {
        "lam": st.floats(0.001, 1),
        "beta": st.floats(0, 2),
        "L": st.floats(0.1, 5),
        "q": st.floats(1.01, 100),
        "eps_dp": st.floats(0.1, 5),
        "eps_dd": st.floats(0.001, 0.1),
        "n": st.integers(100, 10**6),
        "d": st.integers(1, 1000),
        "r": st.integers(1, 100),
    }
)


@given(at=convex)
def test_theorem_constants_match_the_lemmas(at):
    """The theorem and the lemmas give the same constants for the privacy of long runs, the number of deletion steps,
    and the initial distribution."""
    made = evaluate("t51", at)
    assert made["kappa"] >= 1
    shared = {key: at[key] for key in ("q", "L", "lam", "n", "beta")} | {
        "eta": made["eta"],
        "sigma": math.sqrt(made["sigma2"]),
    }
    assert evaluate("g9_rdp", shared | {"K": 10**7})["eps"] == pytest.approx(at["eps_dp"], rel=1e-9)
    deletion = evaluate("g15_K", shared | {"eps_dd": at["eps_dd"]})["K"]
    assert abs(deletion - made["K_del"]) <= 1
    law = evaluate("g14_init_variance", {key: shared[key] for key in ("lam", "sigma", "eta")})["var"]
    assert made["init_var"] == pytest.approx(law, rel=1e-9)


def test_theorem_with_all_constants_refuses_numbers_outside_its_domain():
    """A deletion target weaker than the privacy target is refused, and so is a number of records larger than the number
    of rows."""
    at = {"lam": 0.1, "beta": 0.2, "L": 1, "q": 2, "eps_dp": 1.0, "eps_dd": 0.1, "n": 100, "d": 10, "r": 1}
    for wrong in ({"eps_dd": 1.1}, {"r": 101}):
        with pytest.raises(DomainError, match=next(iter(wrong))):
            evaluate("t51", at | wrong)


@given(err=st.floats(0, 10), lam=st.floats(0.01, 1), beta=st.floats(0, 2), r=st.integers(1, 50))
def test_risk_after_an_edit_is_monotone(err, lam, beta, r):
    """The risk after an edit rises with the previous risk and the number of edited records, and is at least 2 kappa
    times the previous risk."""
    at = {"err": err, "lam": lam, "beta": beta, "L": 1, "n": 100, "r": r}
    assert evaluate("g16", at)["err"] >= 2 * (1 + beta / lam) * err
    assert evaluate("g16", at)["err"] <= evaluate("g16", at | {"err": err + 1})["err"]
    assert evaluate("g16", at)["err"] <= evaluate("g16", at | {"r": r + 1})["err"]


@given(err0=st.floats(0, 10), lam=st.floats(0.01, 1), beta=st.floats(0, 2), K=steps, eta=st.floats(0.01, 0.3))
def test_risk_falls_to_its_floor(err0, lam, beta, K, eta):
    """The risk falls with K to its floor (1 + beta/lambda) d sigma^2. The bound with twice the printed rate is never
    larger."""
    assume(eta * (lam + beta) < 1)
    at = {"err0": err0, "lam": lam, "beta": beta, "sigma": 0.1, "d": 3, "eta": eta}
    here, there, last = (evaluate("g17", at | {"K": k}) for k in (K, K + 1, 10**9))
    floor = (1 + beta / lam) * 3 * 0.01
    assert floor * (1 - 1e-12) <= there["err"] <= here["err"]
    assert here["err_fast"] <= here["err"]
    assert last["err"] == pytest.approx(floor, rel=1e-9)
    with pytest.raises(PreconditionError, match=r"^step_size_below_inverse_smoothness"):
        evaluate("g17", at | {"K": K, "eta": 1 / (lam + beta) * 1.0001})
