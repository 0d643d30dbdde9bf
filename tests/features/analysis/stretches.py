from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from lethe.features.analysis.taut_string import Stretch
from tests.lethe.proof.paths import Step

positive = st.floats(1e-3, 1e3)
nonnegative = st.just(0.0) | positive


def stretches_with(contractions: st.SearchStrategy[float], *, steps: int = 12) -> st.SearchStrategy[Stretch]:
    return st.builds(
        Stretch,
        steps=st.integers(1, steps),
        contraction=contractions,
        variance=positive,
        push=nonnegative,
        every=st.integers(1, 5),
    )


contracting = st.just(1.0) | st.floats(0.3, 1.0)
any_contraction = st.just(0.0) | contracting | st.floats(1.0, 1.9)
chains = st.lists(stretches_with(any_contraction), min_size=1, max_size=6)


def steps_of(stretches: Sequence[Stretch]) -> list[Step]:
    return [
        (stretch.contraction, stretch.variance, 0.0 if step % stretch.every else stretch.push)
        for stretch in stretches
        for step in range(stretch.steps)
    ]


def chain_of(steps: Sequence[Step]) -> list[Stretch]:
    return [Stretch(steps=1, contraction=c, variance=variance, push=push) for c, variance, push in steps]


def random_steps(seed: int, *, most: int = 7) -> list[Step]:
    """Return a small chain in which the constants change in every step and differences occur only in some steps."""
    generator = np.random.default_rng(seed)
    count = int(generator.integers(2, most + 1))
    pushes = generator.uniform(0, 1, count) * generator.integers(0, 2, count)
    pushes[int(generator.integers(count))] = 1.0
    return list(zip(generator.uniform(0.4, 1, count), generator.uniform(0.2, 2, count), pushes, strict=True))
