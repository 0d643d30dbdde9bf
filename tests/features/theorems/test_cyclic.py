import math

import pytest
from hypothesis import given, settings, strategies as st

from lethe.features.analysis import taut_string
from lethe.features.analysis.taut_string import Stretch
from lethe.features.theorems import evaluate
from lethe.proof.errors import PreconditionError
from tests.lethe.proof.paths import calls

ADULT = {"B": 100, "T": 7100, "gap": 2 / 325, "c": 0.998, "eta": 7.9, "sigma": 0.0036}


@st.composite
def cycles(draw: st.DrawFn) -> dict[str, float]:
    steps = draw(st.integers(1, 40))
    return {
        "B": draw(st.integers(1, 12)),
        "T": steps,
        "K": draw(st.integers(0, 9)),
        "q": draw(st.integers(1, min(steps, 20))),
        "c": draw(st.just(1.0) | st.floats(0.2, 1.0)),
        "gap": draw(st.floats(0.01, 10)),
        "eta": draw(st.floats(0.1, 10)),
        "sigma": draw(st.floats(0.01, 10)),
    }


def place_mu(at: dict[str, float], place: int | None, *, share: float = 1.0) -> float:
    """Return the mu of a row that is read with one batch or, if `place` is None, at every step, computed step by
    step."""
    steps = []
    for t in range(int(at["T"] + at["K"])):
        size = min(1.0, (at["T"] - t) / at["q"]) if t < at["T"] else 1.0
        read = t < at["T"] and (place is None or t % at["B"] == place)
        steps.append(
            Stretch(
                steps=1,
                contraction=1 - (1 - at["c"]) * size,
                variance=2 * at["eta"] * size * at["sigma"] ** 2,
                push=at["eta"] * size * at["gap"] * share if read else 0.0,
            )
        )
    return taut_string.mu(steps)


@settings(max_examples=150)
@given(at=cycles())
def test_mu_matches_a_step_by_step_computation(at):
    """The largest and smallest mu over all batches match the extremes found by computing mu for every position, step by
    step."""
    result = evaluate("cyclic_batches", at)
    mus = [place_mu(at, place) for place in range(at["B"])]
    assert result["mu"] == pytest.approx(max(mus), rel=1e-12)
    assert result["mu_least"] == pytest.approx(min(mus), rel=1e-12)
    assert mus[(at["T"] - 1 - result["since_visit"]) % at["B"]] == pytest.approx(max(mus), rel=1e-12)
    assert result["mu_full_batch"] == pytest.approx(place_mu(at, None, share=1 / at["B"]), rel=1e-12)


@given(B=st.integers(2, 60), E=st.integers(1, 60), c=st.floats(0.05, 0.9999), gap=st.floats(0.01, 10))
def test_whole_passes_match_the_published_closed_form(B, E, c, gap):
    """After whole passes, the mu of the batch that is read last equals the closed form that Bok, Su and Altschuler
    (2024) give for noisy cyclic gradient descent."""
    result = evaluate("cyclic_batches", {"B": B, "T": B * E, "gap": gap, "c": c, "eta": 2.0, "sigma": 0.5})
    rest = c ** (B * (E - 1))
    square = 1 + c ** (2 * B - 2) * (1 - c * c) / (1 - c**B) ** 2 * (1 - rest) / (1 + rest)
    assert result["mu"] == pytest.approx(2 * gap * math.sqrt(square), rel=1e-9)
    assert result["since_visit"] == 0


@given(at=cycles())
def test_a_single_batch_is_full_batch_descent(at):
    """With a single batch, all positions are equivalent and each step reads all rows."""
    result = evaluate("cyclic_batches", at | {"B": 1})
    assert result["mu"] == result["mu_least"] == pytest.approx(result["mu_full_batch"], rel=1e-12)
    assert result["since_visit"] == 0


@given(at=cycles(), more=st.integers(1, 9), factor=st.floats(1.0, 10.0))
def test_mu_is_monotone_in_its_parameters(at, more, factor):
    """Mu is proportional to the `gap` between the gradients and inversely proportional to the noise. Further steps
    taken without the row never increase mu."""
    mu = evaluate("cyclic_batches", at)["mu"]
    assert evaluate("cyclic_batches", at | {"gap": factor * at["gap"]})["mu"] == pytest.approx(factor * mu, rel=1e-12)
    quieter = evaluate("cyclic_batches", at | {"sigma": at["sigma"] / factor})["mu"]
    assert quieter == pytest.approx(factor * mu, rel=1e-12)
    assert evaluate("cyclic_batches", at | {"K": at["K"] + more})["mu"] <= mu * (1 + 1e-12)


def test_a_cool_down_hides_the_last_batch():
    """Without a cool-down, the batch that is read last is hidden only by the noise of a single step. With a cool-down,
    all batches are hidden almost equally well."""
    abrupt, gentle = (evaluate("cyclic_batches", ADULT | {"q": q}) for q in (1, 64))
    assert abrupt["mu"] > 2.5 * abrupt["mu_full_batch"]
    assert gentle["mu"] < 1.2 * gentle["mu_full_batch"]
    assert abrupt["since_visit"] == 0 < gentle["since_visit"]


def test_unread_rows_have_no_influence():
    """A row in a batch that has not been read yet has an influence of 0."""
    result = evaluate("cyclic_batches", ADULT | {"T": 99})
    assert result["mu_least"] == 0 < result["mu"]


@pytest.mark.slow
@pytest.mark.parametrize("q", [1, 500])
def test_work_grows_with_the_cool_down(q):
    """The work needed to find the worst position grows with the number of cool-down steps, but not with the number of
    positions or the total number of steps."""

    def cost(B: int, T: int, q: int) -> int:
        return calls(lambda: evaluate("cyclic_batches", ADULT | {"B": B, "T": T, "q": q}))

    assert cost(10**12, 10**15, q) <= cost(1000, 10**4, q) + 100
    assert cost(7, 10**15, q) <= 3 * cost(1000, 10**4, q)
    assert cost(1000, 10**6, 5000) <= 20 * cost(1000, 10**6, 500)


def test_a_cool_down_longer_than_the_run_is_refused():
    """A cool-down with more steps than the run is refused."""
    with pytest.raises(PreconditionError, match=r"^cooldown_within_run: Expected q=65 <= T=64"):
        evaluate("cyclic_batches", ADULT | {"T": 64, "q": 65})
