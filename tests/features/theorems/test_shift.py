import math

import pytest
from hypothesis import assume, given, strategies as st

from lethe.features.theorems import evaluate
from lethe.features.theorems.bound import NotionError
from lethe.proof import accountant
from lethe.proof.accountant import Run
from lethe.proof.errors import DomainError, PreconditionError
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Adjacency, Mechanism
from tests.lethe.proof.paths import Step, pulled_mu

MNIST = {"Mlip": 1, "m": 0.0119, "n": 11982, "eta": 1 / 0.2619, "sigma": 0.03}
gradients = st.just(0.0) | st.floats(1e-4, 1.0)


def shift(z0: float, segments: list[tuple[int, float]], c: float, eta: float = 0.7, sigma: float = 0.3) -> float:
    return evaluate("shift_mu", {"z0": z0, "segments": segments, "c": c, "eta": eta, "sigma": sigma})["mu"]


def path(segments: list[tuple[int, float]], c: float) -> list[Step]:
    return [(c, 2 * 0.7 * 0.09, 0.7 * gap) for steps, gap in segments for _ in range(steps)]


@given(
    z0=gradients,
    segments=st.lists(st.tuples(st.integers(0, 8), gradients), max_size=5),
    c=st.just(0.0) | st.just(1.0) | st.floats(0.3, 1.6),
)
def test_shift_accountant_matches_the_taut_string(z0, segments, c):
    """Summing over segments gives the same mu as the taut string (the greatest convex minorant of influence against
    noise) over all individual steps, whether or not the gradient difference grows from segment to segment."""
    assume(any(steps for steps, _ in segments))
    expected = pulled_mu(path(segments, c), apart=z0)
    assert shift(z0, segments, c) == pytest.approx(expected, rel=1e-9, abs=1e-300)


@given(
    z0=gradients, segments=st.lists(st.tuples(st.integers(1, 8), gradients), min_size=1, max_size=5), c=st.floats(0, 1)
)
def test_mu_is_a_ratio_unless_the_difference_grows(z0, segments, c):
    """If the gradient difference does not grow from segment to segment, the taut string is a single straight piece from
    the origin to the end of the path, and mu is Delta / sqrt(v)."""
    falling = sorted(segments, key=lambda segment: -segment[1])
    at = {"z0": z0, "segments": falling, "c": c, "eta": 0.7, "sigma": 0.3}
    result = evaluate("shift_mu", at)
    reach, v = z0, 0.0
    for contraction, variance, push in path(falling, c):
        reach, v = contraction * reach + push, contraction**2 * v + variance
    assert (result["Delta"], result["v"]) == pytest.approx((reach, v), rel=1e-9)
    assert result["mu"] == pytest.approx(reach / math.sqrt(v), rel=1e-9, abs=1e-300)


def test_chains_without_steps_differ_only_in_their_starts():
    """Without any step, two chains have an infinite mu if their starts differ, and a mu of 0 if they start at the same
    point."""
    for segments in ([], [(0, 0.1)]):
        assert shift(1.0, segments, 0.9) == "inf"
        assert shift(0.0, segments, 0.9) == 0.0


@pytest.mark.parametrize(
    ("segments", "c"), [([(5, 0.0), (5, 0.1)], 0.9), ([(5, 0.1), (5, 0.2)], 0.9), ([(30, 0.1)], 1.2)]
)
def test_growing_differences_cost_more_than_a_single_piece(segments, c):
    """Noise added before the data differ does not help. If the gradient difference grows or a map expands, mu therefore
    exceeds Delta / sqrt(v), the value for a single straight piece."""
    result = evaluate("shift_mu", {"z0": 0.0, "segments": segments, "c": c, "eta": 0.7, "sigma": 0.3})
    assert result["mu"] > 1.001 * result["Delta"] / math.sqrt(result["v"])


@given(z0=st.floats(0, 5), gap=st.floats(0.001, 1), T=st.integers(1, 500), K=st.integers(0, 500), c=st.floats(0.1, 1))
def test_shift_accountant_is_monotone(z0, gap, T, K, c):
    """Mu never falls as the initial distance or the gradient difference grows, and never rises with further steps after
    the deletion. Scaling the initial distance, the gradient difference and the noise by one factor leaves mu
    unchanged."""
    here = shift(z0, [(T, gap), (K, 0.0)], c)
    assert here <= shift(z0 + 1, [(T, gap), (K, 0.0)], c)
    assert here <= shift(z0, [(T, 2 * gap), (K, 0.0)], c)
    assert here >= shift(z0, [(T, gap), (K + 1, 0.0)], c)
    assert here == pytest.approx(shift(3 * z0, [(T, 3 * gap), (K, 0.0)], c, sigma=0.9), rel=1e-9)


@given(gap=st.floats(0.001, 1), T=st.integers(1, 300), K=st.integers(0, 300), cut=st.floats(0, 1), c=st.floats(0.1, 1))
def test_splitting_segments_does_not_change_mu(gap, T, K, cut, c):
    """Splitting segments into shorter ones with the same gradient difference does not change mu."""
    first, second = round(cut * T), round(cut * K)
    whole = shift(0.0, [(T, gap), (K, 0.0)], c)
    parts = shift(0.0, [(first, gap), (T - first, gap), (second, 0.0), (K - second, 0.0)], c)
    assert parts == pytest.approx(whole, rel=1e-9)


@given(
    curvature=st.floats(0.05, 1.3),
    T=st.integers(1, 60),
    K=st.integers(0, 60),
    mean=st.floats(-1, 1),
    gap=st.floats(0, 1),
)
def test_shift_accountant_is_exact_for_quadratics(curvature, T, K, mean, gap):
    """Two Gaussian chains on quadratics whose gradients differ by `gap` for T steps end at a distance of exactly mu."""
    eta, sigma = 0.7, 0.3
    first, second, variance = 0.0, 0.0, 0.0
    for t in range(T + K):
        first -= eta * curvature * (first - mean)
        second -= eta * (curvature * (second - mean) + (gap if t < T else 0.0))
        variance = (1 - eta * curvature) ** 2 * variance + 2 * eta * sigma**2
    c = evaluate("contraction", {"eta": eta, "m": curvature, "L": curvature})["c"]
    assert shift(0.0, [(T, gap), (K, 0.0)], c) == pytest.approx(abs(first - second) / math.sqrt(variance), abs=1e-9)


@given(
    noise=st.floats(0.005, 1),
    l2=st.floats(0.001, 0.5),
    fraction=st.floats(0.05, 0.99),
    learned=st.integers(1, 3000),
    runs=st.lists(st.tuples(st.integers(1, 200), st.integers(0, 5)), max_size=4),
)
def test_calculator_agrees_with_the_accountant(noise, l2, fraction, learned, runs):
    """For a mechanism's chain, the calculator returns the same mu as the accountant for unlearning, deletion and a
    release."""
    mechanism = Mechanism(
        objective=Objective.LOGISTIC_REGRESSION,
        num_slots=500,
        num_classes=2,
        l2=l2,
        step_size=fraction * 2 / (0.25 + 2 * l2),
        noise_scale=noise,
        radius=1.0,
        learn_steps=learned,
    )
    chain = accountant.replay(mechanism, [Run(steps=learned), *(Run(steps=k, records=g) for k, g in runs)])
    at = {"eta": mechanism.step_size, "sigma": noise, "c": mechanism.contraction}
    unit, deleted = mechanism.gradient_bound / 500, sum(g for _, g in runs)
    segments = [(learned, deleted * unit)]
    for k, g in runs:
        deleted -= g
        segments.append((k, deleted * unit))
    whole = evaluate("shift_mu", at | {"z0": 0.0, "segments": segments})["mu"]
    assert whole == pytest.approx(accountant.unlearning_mu(chain), rel=1e-9, abs=1e-15)
    alone = [(learned, 2 * unit), (chain.steps - learned, 0.0)]
    deletion = accountant.deletion_mu(chain, records=2, steps_present=learned)
    assert evaluate("shift_mu", at | {"z0": 0.0, "segments": alone})["mu"] == pytest.approx(deletion, rel=1e-9)
    release = accountant.release_mu(mechanism, steps=learned, adjacency=Adjacency.REPLACE)
    version = at | {"K": learned, "S": 1, "Mlip": mechanism.gradient_bound, "n": 500}
    assert evaluate("mu_release_segment", version)["mu"] == pytest.approx(release, rel=1e-9)


@given(eta=st.floats(0.01, 10), m=st.floats(0, 2), L=st.floats(0.01, 2))
def test_contraction_is_reported(eta, m, L):
    """Up to eta = 2/(m + L), the contraction is 1 - eta m. If the contraction is at least 1, the result reports that
    influence does not decay."""
    assume(m <= L)
    result = evaluate("contraction", {"eta": eta, "m": m, "L": L})
    assert result["decays"] == (result["c"] < 1)
    if eta <= 2 / (m + L):
        assert result["c"] == pytest.approx(1 - eta * m, rel=1e-9, abs=1e-9)
    with pytest.raises(DomainError, match="m="):
        evaluate("contraction", {"eta": eta, "m": L * 1.01, "L": L})


@given(S=st.integers(1, 50), K=st.integers(0, 300))
def test_long_training_is_stationary(S, K):
    """After long training, the mu of a deletion that was followed by K steps equals the stationary mu multiplied by
    c^K."""
    at = {"eta": MNIST["eta"], "sigma": 0.03, "c": 1 - MNIST["eta"] * 0.0119}
    segments = [(100_000, 2 * S / 11982), (K, 0)]
    stationary = evaluate("stationary_mu", MNIST | {"S": S})["mu"]
    assert evaluate("shift_mu", at | {"z0": 0, "segments": segments})["mu"] == pytest.approx(
        stationary * at["c"] ** K, rel=1e-9
    )
    assert evaluate("ru_mu_sequence", MNIST | {"ages": [K], "weights": [S]})["mu"] == pytest.approx(
        stationary * at["c"] ** K, rel=1e-9
    )


@given(edits=st.lists(st.tuples(st.integers(0, 500), st.integers(1, 50)), max_size=10))
def test_mu_of_a_sequence_is_additive(edits):
    """The mu of a sequence of edits is the sum of the individual edits' mu. It is 0 for an empty sequence."""

    def mu(chosen: list[tuple[int, int]]) -> float:
        return evaluate("ru_mu_sequence", MNIST | {"ages": [k for k, _ in chosen], "weights": [g for _, g in chosen]})[
            "mu"
        ]

    assert mu([]) == 0
    assert mu(edits) == pytest.approx(math.fsum(mu([edit]) for edit in edits), rel=1e-9)


@given(g=st.integers(1, 20), K=st.integers(1, 100))
def test_steady_state_is_the_limit_of_sequences(g, K):
    """For infinitely many requests with K steps each, the sum of their mu equals the steady state. For finitely many
    requests, the sum stays below it."""
    limit = evaluate("seq_mu_bound", MNIST | {"g": g, "K": K})["mu"]
    ages = [K * i for i in range(1, 5000 // K + 2)]
    many = evaluate("ru_mu_sequence", MNIST | {"ages": ages, "weights": [g] * len(ages)})["mu"]
    assert many == pytest.approx(limit, rel=1e-9)
    few = evaluate("ru_mu_sequence", MNIST | {"ages": ages[:3], "weights": [g] * 3})["mu"]
    assert few <= limit * (1 + 1e-12)
    assert evaluate("seq_mu_bound", MNIST | {"g": g, "K": K + 1})["mu"] < limit


def test_ages_and_weights_must_match():
    """Lists of ages and weights that differ in length are refused."""
    with pytest.raises(DomainError, match="as many ages as weights"):
        evaluate("ru_mu_sequence", MNIST | {"ages": [1], "weights": [1, 2]})


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("stationary_mu", {"S": 1}),
        ("ru_mu_sequence", {"ages": [1], "weights": [1]}),
        ("seq_mu_bound", {"g": 1, "K": 1}),
        ("greedy_K_schedule", {"eps_target": 1, "delta": 0.1, "batch": 1, "total": 1, "L": 0.2619}),
    ],
)
def test_expanding_steps_are_refused(name, rest):
    """A step size above 2/(m + L), a step size of at least 1/m, and a smoothness below m are refused, and the error
    names the violated condition."""
    evaluate(name, MNIST | rest | {"L": 0.2619, "eta": 2 / (0.2619 + 0.0119)})
    for wrong in ({"L": 0.2619, "eta": 7.4}, {"L": 0.0119, "eta": 1 / 0.0119}):
        with pytest.raises(PreconditionError, match=r"^step_size_contracts"):
            evaluate(name, MNIST | rest | wrong)
    with pytest.raises(PreconditionError, match=r"^convexity_below_smoothness"):
        evaluate(name, MNIST | rest | {"L": 0.01})


@given(K=st.integers(1, 1000), S=st.integers(1, 20), c=st.floats(0.0, 1.0))
def test_the_cost_of_a_version_matches_the_closed_form(K, S, c):
    """A version's mu equals its closed form, rises with the number of steps, and is proportional to the number of rows
    by which the data differ."""

    def mu(steps: int, rows: int) -> float:
        at = {"S": rows, "Mlip": 1, "n": 100, "eta": 0.5, "sigma": 0.1, "c": c}
        return evaluate("mu_release_segment", at | {"K": steps})["mu"]

    ratio = K if c > 1 - 1e-12 else (1 - c**K) / (1 + c**K) * (1 + c) / (1 - c)
    assert mu(K, S) == pytest.approx(2 * S / 100 * math.sqrt(0.5 / 0.02 * ratio), rel=1e-6)
    assert mu(K, S) <= mu(K + 1, S) * (1 + 1e-12)
    assert mu(K, 2 * S) == pytest.approx(2 * mu(K, S), rel=1e-12)


@pytest.mark.parametrize(("p", "eps"), [(1, 0.130), (10, 0.183), (100, 0.480)])
def test_adaptive_deletion_on_mnist_has_the_known_epsilon(p, eps):
    """A converged first version and p - 1 further versions, each four steps after the previous one, give the known
    epsilon at delta = 1/n."""
    first = evaluate("stationary_mu", MNIST | {"S": 1})["mu"]
    at = {"K": 4, "S": 1, "Mlip": 1, "n": 11982, "eta": MNIST["eta"], "sigma": 0.03, "c": 1 - MNIST["eta"] * 0.0119}
    later = evaluate("mu_release_segment", at)["mu"]
    mu = evaluate("mu_compose", {"mus": [first] + [later] * (p - 1)})["mu"]
    assert evaluate("gdp_eps", {"mu": mu, "delta": 1 / 11982})["eps"] == pytest.approx(eps, abs=1e-3)


@given(mus=st.lists(st.floats(0, 10), max_size=20))
def test_composition_adds_squares(mus):
    """Composition adds the squares of mu in any order. An empty list composes to 0."""
    assert evaluate("mu_compose", {"mus": mus})["mu"] ** 2 == pytest.approx(math.fsum(mu * mu for mu in mus), rel=1e-9)
    assert evaluate("mu_compose", {"mus": mus[::-1]})["mu"] == pytest.approx(evaluate("mu_compose", {"mus": mus})["mu"])


def test_different_notions_are_never_composed():
    """Values that share one notion compose, but composing deletion values with unlearning values is refused. The list
    of notions must have one entry per value."""
    at = {"mus": [0.1, 0.2]}
    assert evaluate("mu_compose", at | {"notions": ["deletion", "deletion"]}) == evaluate("mu_compose", at)
    with pytest.raises(NotionError, match=r"^notions: Expected one notion, not deletion, unlearning"):
        evaluate("mu_compose", at | {"notions": ["deletion", "unlearning"]})
    with pytest.raises(DomainError, match="as many notions"):
        evaluate("mu_compose", at | {"notions": ["deletion"]})


@given(R=st.floats(0.1, 1000), c=st.floats(0.05, 0.999), target=st.floats(0.001, 5), sigma=st.floats(0.01, 1))
def test_reset_steps_are_minimal(R, c, target, sigma):
    """The returned number of steps brings any two points of the ball within the target, and one step fewer does not."""
    K = evaluate("reset_K", {"R": R, "c": c, "eta": 0.7, "sigma": sigma, "mu_target": target})["K"]
    assert shift(2 * R, [(K, 0.0)], c, sigma=sigma) <= target * (1 + 1e-12)
    if K > 1:
        assert shift(2 * R, [(K - 1, 0.0)], c, sigma=sigma) > target * (1 - 1e-9)


def test_reset_on_mnist_takes_211_steps():
    """With the constants of MNIST, 211 steps reach (0.1, 1/n) from any point of a ball of radius 100."""
    target = evaluate("gdp_mu", {"eps": 0.1, "delta": 1 / 11982})["mu"]
    at = {"R": 100.0, "c": 1 - MNIST["eta"] * 0.0119, "eta": MNIST["eta"], "sigma": 0.03}
    assert evaluate("reset_K", at | {"mu_target": target})["K"] == 211


@given(eps=st.floats(0.05, 3), batch=st.integers(1, 20), requests=st.integers(1, 30))
def test_greedy_schedule_is_minimal(eps, batch, requests):
    """After every request, the distance from retraining meets the target. With one step fewer, it would not."""
    at = MNIST | {"L": 0.2619, "eps_target": eps, "delta": 1e-4, "batch": batch, "total": batch * requests}
    result = evaluate("greedy_K_schedule", at)
    allowed = evaluate("gdp_mu", {"eps": eps, "delta": 1e-4})["mu"]
    assert result["total"] == sum(result["K"])
    assert len(result["K"]) == requests

    def mu(steps: list[int]) -> float:
        ages = [sum(steps[i:]) for i in range(len(steps))]
        return evaluate("ru_mu_sequence", MNIST | {"ages": ages, "weights": [batch] * len(steps)})["mu"]

    for s in range(1, requests + 1):
        steps = result["K"][:s]
        assert mu(steps) <= allowed * (1 + 1e-9)
        if steps[-1] > 1:
            assert mu([*steps[:-1], steps[-1] - 1]) > allowed * (1 - 1e-9)


def test_indivisible_schedules_are_refused():
    """A total that is not a multiple of the batch size is refused, and so is a schedule that is too long to print."""
    at = MNIST | {"L": 0.2619, "eps_target": 1.0, "delta": 1e-4}
    for total, batch in [(11, 5), (100_001, 1)]:
        with pytest.raises(DomainError, match="multiple of batch"):
            evaluate("greedy_K_schedule", at | {"batch": batch, "total": total})
