import math

import pytest
from hypothesis import given, strategies as st

from lethe.features.theorems import evaluate
from lethe.features.theorems.bound import NotionError
from lethe.proof.errors import DomainError, InfeasibleError, PreconditionError
from tests.tables import each

MNIST = {"Mlip": 1, "m": 0.0119, "L": 0.2619, "n": 11982, "delta": "1/n"}
RATE = 0.0119 / 0.2619


def sequence(alpha: float, steps: list[int], slope: float) -> float:
    return evaluate("c34_sequence", {"alpha": alpha, "Ks": steps, "eps0_coef": slope, "eta": 1.0, "m": 0.1})["eps"]


@given(alpha=st.floats(1.1, 50), steps=st.lists(st.integers(0, 200), min_size=1, max_size=8), slope=st.floats(0, 5))
def test_sequences_follow_the_weak_triangle_inequality(alpha, steps, slope):
    """The bound for sequences equals the corollary's recursion, is linear in the privacy loss of training, and falls
    with the number of steps for the last request."""

    def recursion(order: float, left: list[int]) -> float:
        if len(left) == 1:
            return math.exp(-0.1 * left[0] / order) * slope * order
        triangle = (order - 0.5) / (order - 1)
        inner = slope * 2 * order + recursion(2 * order, left[:-1])
        return math.exp(-0.1 * left[-1] / order) * triangle * inner

    here = sequence(alpha, steps, slope)
    assert here == pytest.approx(recursion(alpha, steps), rel=1e-9)
    assert sequence(alpha, steps, 2 * slope) == pytest.approx(2 * here, rel=1e-9)
    assert sequence(alpha, [*steps[:-1], steps[-1] + 1], slope) <= here


def test_sequences_without_a_valid_length_are_refused():
    """An empty sequence is refused, and so is a sequence with more requests than the doubled orders can cover."""
    assert sequence(2.0, [5] * 200, 0.01) > 0
    for steps in ([], [5] * 201):
        with pytest.raises(DomainError, match="number of requests"):
            sequence(2.0, steps, 0.01)


def epsilon(K: int, sigma: float, S: int) -> float:
    """Return the smallest epsilon of K steps over all orders. Epsilon is convex in the order, so ternary search finds
    it."""
    slope, loss = 4 * (S / (sigma * 11982)) ** 2 / 0.0119, math.log(11982)

    def at(log_excess: float) -> float:
        order = 1 + math.exp(log_excess)
        return math.exp(-RATE * K / order) * slope * order + loss / (order - 1)

    low, high = -5.0, 15.0
    for _ in range(120):
        left, right = (2 * low + high) / 3, (low + 2 * high) / 3
        low, high = (low, right) if at(left) < at(right) else (left, high)
    return at(low)


@each("S", [1, 5, 100])
@each("eps", [0.01, 0.1, 1.0, 5.0])
def test_returned_steps_are_minimal(S, eps):
    """The returned number of steps reaches the target at the best order, and one step fewer does not reach it at any
    order."""
    found = evaluate("alg5_K", MNIST | {"eps_target": eps, "sigma": 0.03, "S": S})
    K = found["K"]
    assert found["K_as_listed"] == K + 1
    assert epsilon(K, 0.03, S) <= eps * (1 + 1e-12)
    if K > 1:
        assert epsilon(K - 1, 0.03, S) > eps


@pytest.mark.parametrize("S", [1, 5, 100])
@pytest.mark.parametrize("K", [1, 2, 100])
def test_returned_noise_is_minimal(K, S):
    """The returned noise is sufficient for the number of steps, but 0.01 % less noise is not."""
    budget = MNIST | {"eps_target": 1.0, "S": S}
    sigma = evaluate("alg4_sigma", budget | {"K": K})["sigma"]
    assert evaluate("alg5_K", budget | {"sigma": sigma})["K"] <= K
    assert evaluate("alg5_K", budget | {"sigma": sigma * 0.9999})["K"] > K
    assert epsilon(K, sigma, S) == pytest.approx(1.0, rel=1e-7)


@given(eps=st.floats(0.05, 5), sigma=st.floats(0.01, 0.1), S=st.integers(1, 100))
def test_required_steps_are_monotone(eps, sigma, S):
    """More noise, a weaker target or a smaller batch never needs more steps."""

    def least(**more: object) -> int:
        return evaluate("alg5_K", MNIST | {"eps_target": eps, "sigma": sigma, "S": S} | more)["K"]

    assert least(sigma=2 * sigma) <= least()
    assert least(eps_target=2 * eps) <= least()
    assert least() <= least(S=S + 1)


def test_each_step_count_in_the_list_is_minimal():
    """Each K in the list is the smallest possible given the previous ones. The first K is the same as for a single
    batch."""
    given_list = MNIST | {"eps_target": 1.0, "sigma": 0.03, "total": 20, "batch": 5}
    found = evaluate("alg6_K_list", given_list)
    assert found["total"] == sum(found["K"])
    assert found["K"][0] == evaluate("alg5_K", MNIST | {"eps_target": 1.0, "sigma": 0.03, "S": 5})["K"]
    slope = 4 * (5 / (0.03 * 11982)) ** 2 / 0.0119
    privacy = {"eps0_coef": slope, "eta": 1 / 0.2619, "m": 0.0119}

    def best(steps: list[int]) -> float:
        return min(
            evaluate("c34_sequence", privacy | {"alpha": alpha, "Ks": steps})["eps"] + math.log(11982) / (alpha - 1)
            for alpha in (1 + 10 ** (e / 100) for e in range(250))
        )

    for s in range(1, 5):
        earlier, last = found["K"][: s - 1], found["K"][s - 1]
        assert best([*earlier, last]) <= 1.001
        assert best([*earlier, last - 1]) > 1.0


def test_targets_out_of_reach_raise():
    """If the target cannot be reached within the limit on the steps, InfeasibleError is raised."""
    at = MNIST | {"eps_target": 1.0, "sigma": 0.03, "at_most": 358}
    for name, rest in [("alg5_K", {"S": 5}), ("alg6_K_list", {"total": 5, "batch": 5})]:
        with pytest.raises(InfeasibleError, match="at most 358 steps"):
            evaluate(name, at | rest)
        assert evaluate(name, at | rest | {"at_most": 359})["K"] in (359, [359])


def test_indivisible_totals_are_refused():
    """A total that is not a multiple of the batch size is refused, and so is a total with too many batches."""
    for total, batch in [(11, 5), (201, 1)]:
        with pytest.raises(DomainError, match="multiple of batch"):
            evaluate("alg6_K_list", MNIST | {"eps_target": 1.0, "sigma": 0.03, "total": total, "batch": batch})


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("c34_sequence", {"alpha": 2, "Ks": [1], "eps0_coef": 1, "eta": 1.0, "m": 0.1}),
        ("alg4_sigma", MNIST | {"eps_target": 1.0, "K": 1, "S": 1}),
        ("alg5_K", MNIST | {"eps_target": 1.0, "sigma": 0.03, "S": 1}),
        ("alg6_K_list", MNIST | {"eps_target": 1.0, "sigma": 0.03, "total": 5, "batch": 5}),
    ],
)
def test_invalid_smoothness_is_refused(name, at):
    """A smoothness below the strong convexity and a step size above the inverse smoothness are refused."""
    with pytest.raises(PreconditionError, match=r"^convexity_below_smoothness"):
        evaluate(name, at | {"L": 0.01})
    if name == "c34_sequence":
        with pytest.raises(PreconditionError, match=r"^step_size_at_most_inverse_smoothness"):
            evaluate(name, at | {"L": 1.01})


@given(alpha=st.floats(1.1, 50), a=st.floats(0, 5), b=st.floats(0, 5), c=st.floats(0, 5))
def test_insufficient_training_raises_the_bound(alpha, a, b, c):
    """The bound is at least the sum of the three divergences that it combines: training at the orders 2 alpha and 4
    alpha, and unlearning at 4 alpha. It rises with each of them. Divergences at other orders are refused."""

    def total(**more: object) -> float:
        return evaluate("insufficient_training", {"alpha": alpha, "epsT_2a": a, "epsT_4a": b, "eps_ru_4a": c} | more)[
            "eps"
        ]

    assert total() >= a + b + c
    for name, value in [("epsT_2a", a), ("epsT_4a", b), ("eps_ru_4a", c)]:
        assert total(**{name: value + 1}) > total()
    assert total(orders=[2 * alpha, 4 * alpha, 4 * alpha]) == total()
    with pytest.raises(NotionError, match=r"^orders: "):
        total(orders=[2 * alpha, 2 * alpha, 4 * alpha])
