import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.tables import each
from tests.worker.langevin.conftest import mechanism_of
from worker.langevin import chain, engines
from worker.langevin.noise import SystemNoise
from worker.langevin.step import State, projected_noisy_step

Rows = Callable[..., tuple[Any, Any]]


@pytest.mark.slow
@pytest.mark.parametrize(("l2", "steps"), [(0.05, 1), (0.05, 200), (1e-9, 30)])
def test_the_law_without_data_is_stationary(l2: float, steps: int) -> None:
    """On null rows, every coordinate ends distributed as N(0, nu^2 (1 - c^2T) / (1 - c^2)) with c = 1 - eta * l2. On
    20,000 coordinates a chi-squared test of the variance and a Kolmogorov-Smirnov test of the law each have a
    false-alarm rate of 1e-9."""
    width, step_size, noise_scale = 20_000, 2.0, 0.3
    ran = chain.run(
        mechanism=mechanism_of(num_slots=1, l2=l2, step_size=step_size, noise_scale=noise_scale, radius=1e9, grid=0.0),
        features=np.zeros((1, width), np.float32),
        labels=np.zeros(1, np.int32),
        initial=np.zeros((1, width)),
        steps=steps,
        noise=SystemNoise(),
        on_progress=lambda steps_done: None,
    )
    squared = (1 - step_size * l2) ** 2
    std = math.sqrt(2 * step_size * noise_scale**2 * sum(squared**t for t in range(steps)))
    spread = float((ran.parameters**2).sum()) / std**2
    assert stats.chi2.ppf(5e-10, width) < spread < stats.chi2.isf(5e-10, width)
    assert stats.kstest(ran.parameters.ravel(), "norm", args=(0, std)).pvalue > 1e-9


@pytest.mark.parametrize(("num_classes", "curvature"), [(2, 0.25), (3, 0.5)])
@pytest.mark.parametrize("rate", [0.5, 1.0, 2.0])
def test_chains_on_equal_data_contract(
    num_classes: int, curvature: float, rate: float, random_rows: Rows, replayable_noise: Any
) -> None:
    """The distance between two runs with the same noise and data shrinks by c = max(|1 - eta m|, |1 - eta L|)
    at every step."""
    features, labels = random_rows(40, 5, num_classes)
    l2, shape = 0.1, (1 if num_classes == 2 else num_classes, 5)
    step_size = rate / (curvature + 2 * l2)  # rate 2 is the fastest, 2 / (L + m)
    contraction = max(abs(1 - step_size * l2), abs(1 - step_size * (curvature + l2)))
    here = [np.zeros(shape), np.random.default_rng(1).standard_normal(shape)]
    mechanism = mechanism_of(
        num_classes=num_classes, l2=l2, step_size=step_size, noise_scale=0.1, radius=50.0, grid=0.0
    )
    distances = [float(np.linalg.norm(here[0] - here[1]))]
    for step in range(30):
        here = [
            chain.run(
                mechanism=mechanism,
                features=features,
                labels=labels,
                initial=start,
                steps=1,
                noise=replayable_noise(step),
                on_progress=lambda steps_done: None,
            ).parameters
            for start in here
        ]
        distances.append(float(np.linalg.norm(here[0] - here[1])))
    assert all(later <= contraction * earlier + 1e-6 for earlier, later in itertools.pairwise(distances))


def test_influence_of_a_record_stays_under_the_recursion(random_rows: Rows, replayable_noise: Any) -> None:
    """With the same noise, two chains whose data differ in one record stay within a distance that follows the recursion
    W <- c W + eta M / n. After the record is deleted, the distance shrinks by c at every step."""
    features, labels = random_rows(40, 5)
    without = features.copy()
    without[7] = 0
    l2, step_size = 0.1, 2 / (0.25 + 2 * 0.1)
    contraction, influence = 1 - step_size * l2, 0.0
    settings = {
        "mechanism": mechanism_of(l2=l2, step_size=step_size, noise_scale=0.1, radius=50.0, grid=0.0),
        "labels": labels,
        "steps": 1,
        "on_progress": lambda steps_done: None,
    }
    here, there = np.zeros((1, 5)), np.zeros((1, 5))
    for step in range(60):
        present = step < 30
        here = chain.run(
            features=features if present else without, initial=here, noise=replayable_noise(step), **settings
        ).parameters
        there = chain.run(features=without, initial=there, noise=replayable_noise(step), **settings).parameters
        influence = contraction * influence + present * step_size / 40
        assert np.linalg.norm(here - there) <= influence + 1e-6


@pytest.mark.parametrize("num_classes", [2, 4])
def test_a_run_separates_the_classes(num_classes: int, random_rows: Rows) -> None:
    """A run that starts at the origin with little noise finds weights that separate the classes."""
    features, labels = random_rows(2000, 10, num_classes)
    ran = chain.run(
        mechanism=mechanism_of(
            num_slots=2000, num_classes=num_classes, l2=1e-3, step_size=3.0, noise_scale=1e-3, radius=100.0
        ),
        features=features,
        labels=labels,
        initial=np.zeros((1 if num_classes == 2 else num_classes, 10)),
        steps=300,
        noise=SystemNoise(),
        on_progress=lambda steps_done: None,
    )
    scores = features @ ran.parameters.T
    guesses = scores[:, 0] > 0 if num_classes == 2 else scores.argmax(axis=1)
    assert (guesses == labels).mean() > 0.95


def test_progress_is_reported_after_every_step(random_rows: Rows, settings: dict[str, Any]) -> None:
    """A run of three steps reports 1, 2 and 3, and returns 3 as the number of steps taken."""
    features, labels = random_rows(40, 5)
    told: list[int] = []
    ran = chain.run(features=features, labels=labels, noise=SystemNoise(), **settings | {"on_progress": told.append})
    assert told == [1, 2, 3]
    assert ran.steps == 3
    assert (ran.parameters.shape, ran.parameters.dtype) == ((1, 5), np.float64)


@pytest.fixture
def iterates(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the list in which every buffer with an iterate of a run is collected."""
    held: list[Any] = []

    def probed(*args: Any, **settings: Any) -> State:
        state = projected_noisy_step(*args, **settings)
        held.append(state.parameters)
        assert state.parameters.any()
        return state

    monkeypatch.setattr(chain, "projected_noisy_step", probed)
    return held


def test_a_progress_callback_can_stop_the_run(
    random_rows: Rows, settings: dict[str, Any], replayable_noise: Any, iterates: list[Any]
) -> None:
    """An exception raised in `on_progress` ends the run immediately, and no iterate remains in the buffers."""
    features, labels = random_rows(40, 5)
    noise = replayable_noise(1)

    def stop_at_two(steps_done: int) -> None:
        if steps_done == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        chain.run(features=features, labels=labels, noise=noise, **settings | {"on_progress": stop_at_two})
    assert len(iterates) == 2
    assert not any(buffer.any() for buffer in [*iterates, *noise.drawn])


def test_only_the_last_iterate_is_returned(
    random_rows: Rows, settings: dict[str, Any], replayable_noise: Any, iterates: list[Any]
) -> None:
    """After a run, every buffer that contained an iterate is zeroed. The result is a copy, and the initial parameters
    are unchanged."""
    features, labels = random_rows(40, 5)
    noise, start = replayable_noise(1), np.ones((1, 5))
    start.setflags(write=False)
    ran = chain.run(features=features, labels=labels, noise=noise, **settings | {"initial": start})
    assert ran.parameters.any()
    assert len(iterates) == len(noise.drawn) == 3
    assert not any(buffer.any() for buffer in [*iterates, *noise.drawn])
    np.testing.assert_array_equal(start, np.ones((1, 5)))


def test_a_failing_step_leaves_nothing_behind(
    random_rows: Rows, settings: dict[str, Any], replayable_noise: Any, iterates: list[Any]
) -> None:
    """If a step fails, the iterate before that step is overwritten."""
    features, labels = random_rows(40, 5)
    noise = replayable_noise(1)
    draw = noise.normal

    def fail_at_three(size: int) -> Any:
        numbers = draw(size)
        return numbers.fill_(math.nan) if len(noise.drawn) == 3 else numbers

    noise.normal = fail_at_three
    with pytest.raises(FloatingPointError):
        chain.run(features=features, labels=labels, noise=noise, **settings | {"steps": 4})
    assert len(iterates) == 2
    assert not any(buffer.any() for buffer in [*iterates, *noise.drawn])


def test_the_last_iterate_lies_on_the_grid(random_rows: Rows, settings: dict[str, Any]) -> None:
    """Every coordinate of the released parameters is a multiple of the mechanism's grid."""
    features, labels = random_rows(40, 5)
    ran = chain.run(
        features=features, labels=labels, noise=SystemNoise(), **settings | {"mechanism": mechanism_of(grid=2.0**-12)}
    )
    assert ((ran.parameters * 2**12) % 1 == 0).all()


def test_two_runs_differ(random_rows: Rows, settings: dict[str, Any]) -> None:
    """Two one-step runs from the same start and on the same data have different results."""
    features, labels = random_rows(40, 5)
    ends = [
        chain.run(features=features, labels=labels, noise=SystemNoise(), **settings | {"steps": 1}).parameters
        for _ in range(2)
    ]
    assert (ends[0] != ends[1]).all()


@each(
    ("name", "value", "condition"),
    [
        ("steps", 0, "steps=0 >= 1"),
        ("steps", -1, "steps=-1 >= 1"),
        ("backend", engines.Backend(device="abacus"), "abacus"),
        ("mechanism", mechanism_of(num_slots=41), "one row of features for each of num_slots"),
        ("mechanism", mechanism_of(num_classes=3), r"initial parameters of shape \(3, 5\)"),
        ("initial", np.zeros(5), r"initial parameters of shape \(1, 5\)"),
        ("initial", np.zeros((1, 5), np.float32), "float64"),
        ("initial", np.full((1, 5), 7.0), "inside the ball"),
        ("initial", np.full((1, 5), math.nan), "inside the ball"),
    ],
)
def test_unusable_settings_are_refused(
    name: str, value: Any, condition: str, random_rows: Rows, settings: dict[str, Any]
) -> None:
    """A setting outside its range is refused before the first step, and the error states the violated condition."""
    features, labels = random_rows(40, 5)
    told: list[int] = []
    with pytest.raises(ValueError, match=condition):
        chain.run(
            features=features,
            labels=labels,
            noise=SystemNoise(),
            **settings | {"on_progress": told.append, name: value},
        )
    assert told == []


@each(
    ("spoil", "condition"),
    [
        (lambda features, labels: (features * np.float32(1.01), labels), "every row of features to be of norm <= 1"),
        (
            lambda features, labels: (features * np.float32(math.nan), labels),
            "every row of features to be of norm <= 1",
        ),
        (lambda features, labels: (features.astype(np.float64), labels), "features to be a float32 matrix"),
        (lambda features, labels: (features[:, 0], labels), "features to be a float32 matrix"),
        (lambda features, labels: (features, labels[:-1]), "one for each row of features"),
        (lambda features, labels: (features, labels.astype(np.int64)), "labels to be int32"),
        (lambda features, labels: (features[:0], labels[:0]), "one row of features for each of num_slots"),
        (lambda features, labels: (features, labels + np.int32(1)), "0 <= label < num_classes"),
        (lambda features, labels: (features, labels - np.int32(1)), "0 <= label < num_classes"),
    ],
)
def test_unusable_rows_are_refused_without_being_quoted(
    spoil: Callable[[Any, Any], tuple[Any, Any]], condition: str, random_rows: Rows, settings: dict[str, Any]
) -> None:
    """Rows that the guarantee does not cover are refused. The error states the violated condition but no value of a
    record."""
    features, labels = spoil(*random_rows(40, 5))
    with pytest.raises(ValueError, match=condition) as refused:
        chain.run(features=features, labels=labels, noise=SystemNoise(), **settings)
    assert "." not in str(refused.value)


def test_one_long_row_among_many_is_refused(random_rows: Rows, settings: dict[str, Any]) -> None:
    """The norm of every row is checked, so that a single long row among many is refused."""
    features, labels = random_rows(10_000, 5)
    features[9_999] *= 1.001
    with pytest.raises(ValueError, match="norm <= 1"):
        chain.run(
            features=features,
            labels=labels,
            noise=SystemNoise(),
            **settings | {"mechanism": mechanism_of(num_slots=10_000)},
        )
