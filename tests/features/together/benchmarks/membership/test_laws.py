import numpy as np
import pytest

from benchmarks.membership import laws, problems, requests
from benchmarks.membership.laws import Method

PROBLEM = problems.digits(seed=3, l2=0.02)
REQUEST = requests.drawn(PROBLEM, seed=3)["group"]


def test_every_kind_of_model_is_trained() -> None:
    """Each method produces the requested number of models, trained with and without the forgotten rows, in the
    predicted number of steps. All models differ."""
    steps: list[int] = []
    found = laws.models(PROBLEM, [REQUEST], {"group": 3}, done=steps.append)["group"]
    assert sum(steps) == laws.num_steps(PROBLEM, [REQUEST], {"group": 3})
    every = np.concatenate([kind[method] for kind in (found.members, found.nonmembers) for method in Method])
    assert every.shape == (18, 65)
    assert len(np.unique(every, axis=0)) == 18
    assert found.retrained is found.nonmembers[Method.NOTHING]


def test_fine_tuning_descends_on_remaining_rows() -> None:
    """Fine-tuning takes noiseless steps on the rows that remain after nulling, starting with the batch after the last
    training batch."""
    left = PROBLEM.rows.nulled(REQUEST.slots)
    start = np.random.default_rng(0).normal(size=(1, 65))
    expected, mechanism = start[0].copy(), PROBLEM.mechanism
    batches = np.arange(mechanism.num_batches + 1) * mechanism.num_slots // mechanism.num_batches
    for done in range(REQUEST.steps):
        here = slice(*batches[(mechanism.learn_steps + done) % mechanism.num_batches :][:2])
        features = left.features[here].astype(float)
        residuals = 1 / (1 + np.exp(-features @ expected)) - left.labels[here]
        slope = residuals @ features / len(features) + mechanism.l2 * expected
        share = min(1.0, (REQUEST.steps - done) / mechanism.cool_down)
        expected -= mechanism.step_size * share * slope
    tuned = laws.go_on(PROBLEM, left, REQUEST, Method.FINE_TUNING, start, lambda steps: None)
    assert tuned[0] == pytest.approx(expected, abs=1e-5)


def test_unlearning_adds_noise() -> None:
    """Unlearning the same model twice gives two different models. The method that ignores the request returns the model
    unchanged."""
    left = PROBLEM.rows.nulled(REQUEST.slots)
    start = np.zeros((1, 65))
    one, other = (laws.go_on(PROBLEM, left, REQUEST, Method.UNLEARNING, start, lambda steps: None) for _ in "ab")
    assert (one != other).all()
    assert laws.go_on(PROBLEM, left, REQUEST, Method.NOTHING, start, lambda steps: None) is start


def test_nulled_rows_have_no_features() -> None:
    """Nulled slots have no features and all other slots are unchanged. The original rows are not modified."""
    left = PROBLEM.rows.nulled(REQUEST.slots)
    assert not left.features[REQUEST.slots].any()
    kept = np.setdiff1d(np.arange(PROBLEM.mechanism.num_slots), REQUEST.slots)
    assert (left.features[kept] == PROBLEM.rows.features[kept]).all()
    assert PROBLEM.rows.features[REQUEST.slots].any(axis=1).all()
