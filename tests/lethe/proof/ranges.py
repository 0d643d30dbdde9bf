"""Ranges of the numbers to convert, and the delta for MNIST."""

from hypothesis import strategies as st

MNIST_DELTA = 1 / 11982


def powers_of_ten(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


mus = powers_of_ten(-6, 3)
epsilons = st.just(0.0) | powers_of_ten(-12, 6)
deltas = powers_of_ten(-300, -0.31) | powers_of_ten(-9, -0.01) | powers_of_ten(-15, -0.31).map(lambda rest: 1 - rest)
orders = powers_of_ten(-6, 6).map(lambda excess: 1 + excess)
divergences = powers_of_ten(-9, 3)
