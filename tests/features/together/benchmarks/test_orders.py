"""The theorems about orders of reads, compared with chains that are small enough to be computed exactly."""

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray
from scipy.stats import norm

from benchmarks import orders, page
from lethe.proof import accountant, conversion
from lethe.proof.mechanism import Adjacency

MATHEMATICS = page.ROOT / "docs" / "mathematics"
STRONG_CONVEXITY, NOISE_SCALE = 0.3, 0.4
EPSILONS = (0.0, 0.1, 0.4, 1.0, 2.0)

Array = NDArray[np.float64]
Order = Sequence[Sequence[int]]
"""Slots that each step reads."""

gradients = st.lists(st.floats(-1, 1), min_size=5, max_size=5)


def last_iterate(
    order: Order, pulls: Sequence[float], step_sizes: Sequence[float], noise_scale: float = NOISE_SCALE
) -> tuple[float, float]:
    """Return the mean and variance of the last iterate, starting from 0, for linear losses with these gradients."""
    mean = variance = 0.0
    for slots, size in zip(order, step_sizes, strict=True):
        contraction = 1 - size * STRONG_CONVEXITY
        mean = contraction * mean - size * sum(pulls[slot] for slot in slots) / len(slots)
        variance = contraction**2 * variance + 2 * size * noise_scale**2
    return mean, variance


def divergence(
    found: Iterable[Order],
    pulls: Array,
    others: Array,
    sizes: Sequence[float],
    epsilon: float,
    noise_scale: float = NOISE_SCALE,
) -> float:
    """Return the hockey-stick divergence between the last iterates on two data sets, over equally likely orders."""
    found = list(found)
    one, other = ([last_iterate(order, each, sizes, noise_scale) for order in found] for each in (pulls, others))
    spread, means = math.sqrt(one[0][1]), np.array([[mean for mean, _ in side] for side in (one, other)])
    grid = np.linspace(means.min() - 9 * spread, means.max() + 9 * spread, 4_001)
    densities = [norm.pdf(grid[:, None], side, spread).mean(axis=1) for side in means]
    excess = np.maximum(densities[0] - math.exp(epsilon) * densities[1], 0)
    return float(np.trapezoid(excess, grid))


def places(step_sizes: Sequence[float], batches: Sequence[int], noise_scale: float = NOISE_SCALE) -> Array:
    return orders.mu_by_place(
        step_sizes=np.array(step_sizes),
        batches=np.array(batches, float),
        strong_convexity=STRONG_CONVEXITY,
        noise_scale=noise_scale,
        moved=2.0,
    )


def replaced(pulls: Sequence[float], *, largest: bool = False) -> tuple[Array, Array]:
    """Return two sets of gradients: one with a record in slot 0, the other with its opposite there."""
    mine = 1.0 if largest else pulls[0]
    return np.array([mine, *pulls[1:]]), np.array([-mine, *pulls[1:]])


@pytest.mark.slow
@settings(max_examples=20)
@given(gradients, st.lists(st.floats(0.1, 1.5), min_size=2, max_size=2))
def test_secret_slots_amplify(pulls: list[float], sizes: list[float]) -> None:
    """If slots are drawn in secret, delta over all ordered draws does not exceed the delta of Theorem 2, in either
    direction."""
    batches = (2, 1)
    drawn = [(order[:2], order[2:3]) for order in itertools.permutations(range(5), 3)]
    mus, shares = places(sizes, batches), np.array(batches) / 5
    one, other = replaced(pulls)
    for epsilon in EPSILONS:
        bound = orders.mean_delta(mus, shares, epsilon)
        amplified = math.log1p(shares.sum() * math.expm1(epsilon))
        assert divergence(drawn, one, other, sizes, amplified) <= bound + 1e-7
        assert divergence(drawn, other, one, sizes, amplified) <= bound + 1e-7


@settings(max_examples=20)
@given(gradients, st.lists(st.floats(0.1, 1.5), min_size=2, max_size=2))
def test_random_batches_average_over_positions(pulls: list[float], sizes: list[float]) -> None:
    """If fixed batches are read in random order, delta over all orders does not exceed the delta of Theorem 1."""
    batches = ((0, 1), (2, 3), (4, 4))
    mus, shares = places(sizes, (2, 2)), np.full(2, 1 / 3)
    one, other = replaced(pulls)
    for epsilon in EPSILONS:
        bound = orders.mean_delta(mus, shares, epsilon)
        assert divergence(itertools.permutations(batches, 2), one, other, sizes, epsilon) <= bound + 1e-7


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_theorem_1_is_attained_by_distinct_batches(epsilon: float) -> None:
    """In one step with four batches whose other rows are far apart, delta is a quarter of the delta for a batch that is
    known to be read. A secret order therefore adds no further protection, and Theorem 2 is false for batches."""
    batch, size, quiet = 40, 1.0, 0.035
    batches = [tuple(range(batch * number, batch * (number + 1))) for number in range(4)]
    pulls = np.concatenate([np.full(batch, pull) for pull in (1.0, -1.0, -1.0, -1.0)])
    other = pulls.copy()
    other[0] = -1.0
    [mu] = places([size], [batch], quiet)
    found = divergence([(one,) for one in batches], pulls, other, [size], epsilon, quiet)
    assert found == pytest.approx(conversion.gdp_delta(epsilon=epsilon, mu=mu) / 4, rel=1e-3)
    amplified = math.log1p(math.expm1(epsilon) / 4)
    if epsilon:
        at_amplified = divergence([(one,) for one in batches], pulls, other, [size], amplified, quiet)
        assert at_amplified > orders.mean_delta(np.array([mu]), np.array([0.25]), epsilon) * 1.05


@pytest.mark.slow
@given(st.integers(1, 6), st.data())
def test_no_schedule_reads_fewer_records_than_the_minimum(steps: int, data: st.DataObject) -> None:
    """In any schedule, the number of records read is at least the minimum implied by the most exposed record's mu."""
    sizes = data.draw(st.lists(st.floats(0.05, 3.0), min_size=steps, max_size=steps))
    order = data.draw(st.lists(st.sets(st.integers(0, 7), min_size=1), min_size=steps, max_size=steps))
    read, slots = set().union(*order), [sorted(step) for step in order]
    mus = []
    for slot in read:
        pulls = np.zeros(8)
        pulls[slot] = 1.0
        (mean, variance), (opposite, _) = (last_iterate(slots, sign * pulls, sizes) for sign in (1, -1))
        mus.append(abs(mean - opposite) / math.sqrt(variance))
    least = orders.fewest(
        step_sizes=np.array(sizes),
        strong_convexity=STRONG_CONVEXITY,
        noise_scale=NOISE_SCALE,
        gradient_bound=1.0,
        mu=max(mus),
    )
    assert least <= len(read) * (1 + 1e-9)
    forgotten = 1 - math.prod(1 - size * STRONG_CONVEXITY for size in sizes)
    closed = math.sqrt(2 * forgotten / STRONG_CONVEXITY) / (NOISE_SCALE * max(mus))
    assert closed <= least * (1 + 1e-9)
    if steps == 1:
        assert least == pytest.approx(len(read)) == closed


@pytest.mark.parametrize("steps", [1, 16, 100])
def test_the_worst_position_matches_the_accountant(steps: int) -> None:
    """A run's `release` value equals the worst position's mu, as found by examining each position separately with the
    accountant."""
    made = orders.mechanism_of(10_000)
    assert made.num_batches <= 128
    worst = accountant.release_mu(made, steps=steps, adjacency=Adjacency.REPLACE)
    assert orders.places(made, steps).max() == pytest.approx(worst, rel=1e-9)


def test_random_orders_never_reveal_more() -> None:
    """In each row of the table, a random order reveals no more than the worst position, and secret slots reveal no more
    than a random order."""
    for row in page.read("orders")["random"]:
        assert row["random_slots"] <= row["random_batches"] <= row["in_turn"] <= row["accountant"]


@pytest.mark.parametrize("name", ["secret-order", "fewest-reads"])
def test_pages_match_the_results(name: str) -> None:
    """The table on the page is generated from the stored results, which the current defaults reproduce."""
    results = page.read("orders")
    assert orders.printed(results)[name] in (MATHEMATICS / f"{name}.md").read_text()
    assert orders.printed(results) == orders.printed(
        {"random": orders.random_orders(), "fewest": orders.fewest_reads()}
    )
