import math

import pytest
from hypothesis import given, strategies as st

from lethe.features.theorems import evaluate
from lethe.features.theorems.bound import NotionError
from lethe.proof.errors import DomainError, PreconditionError

MNIST = {"Mlip": 1, "m": 0.011982, "L": 0.1947, "n": 11982, "eps": 1.0, "delta": "1/n"}


@given(I=st.integers(1, 200), eps=st.floats(0.01, 5))
def test_noise_falls_with_steps_and_target(I, eps):  # noqa: E741
    """More steps or a weaker target require less noise. The result states that the method is not stateless."""
    here = evaluate("n1_sigma", MNIST | {"I": I, "eps": eps})
    assert evaluate("n1_sigma", MNIST | {"I": I + 1, "eps": eps})["sigma"] < here["sigma"]
    assert evaluate("n1_sigma", MNIST | {"I": I, "eps": eps + 0.1})["sigma"] < here["sigma"]
    assert here["stateless"] is False
    assert here["T"] is None


def test_training_steps_grow_with_the_radius():
    """The number of training steps is `I` plus the number needed to shrink the ball's radius to the scale of the noise.
    For a tiny radius, it is exactly `I`."""
    rate = math.log((0.1947 + 0.011982) / (0.1947 - 0.011982))
    T = evaluate("n1_sigma", MNIST | {"I": 5, "R": 100.0})["T"]
    assert 5 + math.ceil(math.log(100.0 * 0.011982 * 11982) / rate) == T
    assert evaluate("n1_sigma", MNIST | {"I": 5, "R": 1e-9})["T"] == 5


def test_a_secret_state_is_never_certified():
    """The variant that keeps its noiseless model secret cannot be used for a certificate."""
    with pytest.raises(PreconditionError, match=r"^stateless: "):
        evaluate("n1_sigma", MNIST | {"I": 5, "purpose": "certificate"})


@given(i=st.integers(1, 10**6), d=st.integers(1, 10**6), eps=st.floats(0.01, 5))
def test_iterations_are_monotone(i, d, eps):
    """The number of iterations grows slowly with the request number and never falls with the dimension. A weaker target
    never needs more iterations."""
    at = MNIST | {"d": d, "i": i, "eps": eps}
    here = evaluate("n2_d2d", at)
    assert 1 <= here["I"] <= here["iters"]
    assert here["iters"] <= evaluate("n2_d2d", at | {"i": 10 * i})["iters"] <= here["iters"] + 60
    assert here["I"] <= evaluate("n2_d2d", at | {"d": 10 * d})["I"]
    assert evaluate("n2_d2d", at | {"eps": 2 * eps})["I"] <= here["I"]


@pytest.mark.parametrize(("name", "rest"), [("n1_sigma", {"I": 1}), ("n2_d2d", {"d": 1, "i": 1})])
def test_degenerate_convexity_is_refused(name, rest):
    """The case m = L, which has no convergence rate, is refused. The replacement adjacency is refused too, because its
    sensitivity differs."""
    with pytest.raises(DomainError, match=r"m=0\.1947 < L=0\.1947"):
        evaluate(name, MNIST | rest | {"m": 0.1947})
    with pytest.raises(NotionError, match="add_remove"):
        evaluate(name, MNIST | rest | {"add_remove": False})
