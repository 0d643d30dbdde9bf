import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lethe.features.analysis import taut_string
from lethe.features.analysis.taut_string import Stretch
from lethe.proof.errors import DomainError
from tests.features.analysis.stretches import (
    any_contraction,
    chain_of,
    chains,
    nonnegative,
    positive,
    random_steps,
    stretches_with,
)
from tests.lethe.proof.paths import calls
from tests.tables import each

# --- laws ------------------------------------------------------------------------------------------------------------


def changed(stretches: list[Stretch], index: int, **factors: float) -> list[Stretch]:
    """Return the chain with some fields of one stretch multiplied by the given factors."""
    index %= len(stretches)
    stretch: Any = stretches[index]
    fields = {name: getattr(stretch, name) for name in ("steps", "contraction", "variance", "push", "every")}
    fields |= {name: fields[name] * factor for name, factor in factors.items()}
    return [*stretches[:index], Stretch(**fields), *stretches[index + 1 :]]


def at_most(mu: float, bound: float) -> bool:
    """Return True if `mu` is at most `bound`, up to rounding."""
    return mu <= bound * (1 + 1e-12) + 1e-300


@given(stretches=chains, apart=nonnegative, index=st.integers(0, 5), factor=st.floats(1.0, 100.0))
def test_mu_is_monotone_in_differences_and_noise(stretches, apart, index, factor):
    """Pushing the chains further apart, starting them further apart or contracting them less never lowers mu, and more
    noise never raises it."""
    here = taut_string.mu(stretches, apart=apart)
    assert at_most(here, taut_string.mu(changed(stretches, index, push=factor), apart=apart))
    assert at_most(here, taut_string.mu(stretches, apart=apart * factor))
    assert at_most(here, taut_string.mu(changed(stretches, index, contraction=factor), apart=apart))
    assert at_most(taut_string.mu(changed(stretches, index, variance=factor), apart=apart), here)


@given(stretches=chains, apart=nonnegative, more=stretches_with(any_contraction))
def test_steps_on_equal_data_never_raise_mu(stretches, apart, more):
    """Steps on equal data never make two distributions easier to distinguish."""
    quiet = Stretch(steps=more.steps, contraction=more.contraction, variance=more.variance)
    assert at_most(taut_string.mu([*stretches, quiet], apart=apart), taut_string.mu(stretches, apart=apart))


@given(first=chains, second=chains)
def test_composition_bounds_the_chain(first, second):
    """The mu of a chain lies between the mu of its last part and the composed mu of its two parts."""
    both, parts = taut_string.mu([*first, *second]), (taut_string.mu(first), taut_string.mu(second))
    assert at_most(parts[1], both)
    assert at_most(both, math.hypot(*parts))


@given(stretch=stretches_with(any_contraction, steps=40), cut=st.integers(1, 40), others=chains)
def test_splitting_a_stretch_changes_nothing(stretch, cut, others):
    """Splitting a stretch at the start of any of its periods does not change mu."""
    first = min(stretch.every * cut, stretch.steps - 1) // stretch.every * stretch.every
    if not first:
        return
    parts = [
        Stretch(
            steps=steps,
            contraction=stretch.contraction,
            variance=stretch.variance,
            push=stretch.push,
            every=stretch.every,
        )
        for steps in (first, stretch.steps - first)
    ]
    whole = taut_string.mu([others[0], stretch, *others[1:]])
    assert taut_string.mu([others[0], *parts, *others[1:]]) == pytest.approx(whole, rel=1e-12, abs=1e-300)


@given(stretches=chains, apart=nonnegative, factor=positive)
def test_mu_is_scale_invariant(stretches, apart, factor):
    """Scaling differences and noise together does not change mu."""
    scaled = stretches
    for index in range(len(stretches)):
        scaled = changed(scaled, index, push=factor, variance=factor**2)
    expected = taut_string.mu(stretches, apart=apart)
    assert taut_string.mu(scaled, apart=factor * apart) == pytest.approx(expected, rel=1e-12, abs=1e-300)


@given(seeds=st.lists(st.integers(0, 2**32), min_size=2, max_size=4), place=st.integers(0, 2**32))
def test_mu_of_several_slots_is_subadditive(seeds, place):
    """If several slots differ together, mu is at most the sum of the slots' individual mu, with equality if the slots
    coincide."""
    chain = random_steps(place, most=12)
    slots = [np.random.default_rng(seed).exponential(size=len(chain)) for seed in seeds]

    def mu_with(pushes: Sequence[float]) -> float:
        return taut_string.mu(
            chain_of([(c, variance, push) for (c, variance, _), push in zip(chain, pushes, strict=True)])
        )

    each = [mu_with(pushes) for pushes in slots]
    assert at_most(mu_with(sum(slots)), math.fsum(each))
    assert mu_with(3 * slots[0]) == pytest.approx(3 * each[0], rel=1e-12)


# --- ends ------------------------------------------------------------------------------------------------------------


def test_mu_is_zero_without_a_difference_and_infinite_without_noise():
    """Mu is 0 if nothing differs, and infinite if the starting points differ and no noise has been added yet."""
    quiet = Stretch(steps=10, contraction=0.9, variance=1.0)
    assert taut_string.mu([]) == taut_string.mu([quiet]) == 0.0
    assert taut_string.mu([], apart=1e-300) == math.inf
    assert taut_string.mu([Stretch(steps=3, contraction=2.0, variance=1.0)]) == 0.0


def test_a_decayed_difference_is_never_rounded_to_zero():
    """A difference that has decayed below the smallest float counts as the smallest float."""
    gone = [
        Stretch(steps=1, contraction=0.5, variance=0.25, push=1.0),
        Stretch(steps=10**7, contraction=0.5, variance=0.25),
    ]
    assert 0 < taut_string.mu(gone) < 1e-300


@each(
    ("field", "wrong"),
    [
        *[(field, value) for field in ("steps", "every") for value in (0, -1, 1.5, True, math.nan)],
        *[(field, value) for field in ("contraction", "variance", "push") for value in (-1.0, math.nan, math.inf)],
        ("variance", 0.0),
    ],
)
def test_invalid_numbers_are_refused(field, wrong):
    """Counts below 1, negative or infinite numbers, and steps without noise are refused with a specific error."""
    given: dict[str, Any] = {"steps": 3, "contraction": 0.9, "variance": 1.0, "push": 1.0, "every": 1}
    with pytest.raises(DomainError, match=f"{field}="):
        Stretch(**given | {field: wrong})


@pytest.mark.parametrize("apart", [-1.0, math.nan, math.inf])
def test_invalid_distances_are_refused(apart):
    """An infinite or negative initial distance is refused."""
    with pytest.raises(DomainError, match="apart="):
        taut_string.mu([], apart=apart)


# --- what it costs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("contraction", [0.999, 1.0, 1.001])
def test_work_is_proportional_to_stretches(contraction):
    """The work is linear in the number of stretches and at most logarithmic in the number of steps of each stretch."""

    def chain(pieces: int, steps: int) -> list[Stretch]:
        pushes = (0.3, 0.0, 1.0, 0.2)
        return [
            Stretch(steps=steps, contraction=contraction, variance=1 + index % 3, push=pushes[index % 4], every=7)
            for index in range(pieces)
        ]

    def cost(pieces: int, steps: int) -> int:
        stretches = chain(pieces, steps)
        return calls(lambda: taut_string.mu(stretches))

    if contraction <= 1:
        assert cost(10, 10**9) <= cost(10, 100) + 100
        assert cost(400, 10**9) <= 41 * cost(10, 10**9)
    else:
        assert cost(10, 10**9) <= 10 * cost(10, 100)
        assert cost(100, 10**9) <= 11 * cost(10, 10**9)
