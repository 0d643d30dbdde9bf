"""Epsilon of ledgers, compared with closed forms, quadrature, and dp-accounting."""

import json
import math
import random
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event, privacy_accountant
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, MixtureGaussianPrivacyLoss
from scipy import optimize, stats

from lethe.features.ledgers import accountant
from lethe.features.ledgers.accountant import bound, epsilon, read
from lethe.proof.errors import PreconditionError

ROUNDING = 0.001


def opacus(*history: tuple[float, float, int]) -> accountant.Steps:
    return read({"format": "opacus", "history": [list(entry) for entry in history]})


def event(name: str, **fields: Any) -> dict[str, Any]:
    return {"class_name": name} | fields


def tree(root: dict[str, Any]) -> dict[str, Any]:
    return {"format": "dp_event", "event": root}


def of_gaussian(mu: float, delta: float) -> float:
    """Return the epsilon of the Gaussian mechanism with sensitivity mu and noise 1 (Balle and Wang 2018, Theorem 8)."""

    def excess(epsilon: float) -> float:
        upper = stats.norm.cdf(mu / 2 - epsilon / mu)
        return float(upper - math.exp(epsilon + stats.norm.logcdf(-mu / 2 - epsilon / mu)) - delta)

    return float(optimize.brentq(excess, 0, 100))


@pytest.mark.parametrize(("noise", "steps", "rows"), [(1.0, 1, 1), (4.0, 9, 1), (4.0, 9, 3), (20.0, 100, 7)])
def test_steps_without_sampling_match_the_closed_form(noise: float, steps: int, rows: int) -> None:
    """For g rows, steps without sampling together equal one Gaussian mechanism with g times the sensitivity. The stated
    epsilon is never below the closed form."""
    exact = of_gaussian(rows * math.sqrt(steps) / noise, 1e-6)
    found = epsilon(opacus((noise, 1.0, steps)), rows=rows, delta=1e-6)
    assert found is not None
    assert exact <= found <= exact + 2 * ROUNDING


def test_a_laplace_mechanism_approaches_its_pure_epsilon() -> None:
    """For g rows, a Laplace mechanism of scale b has an epsilon of at most g / b and approaches this bound as delta
    becomes small."""
    found = epsilon(read(tree(event("LaplaceDpEvent", noise_multiplier=2.0))), rows=3, delta=1e-9)
    assert found == pytest.approx(1.5, abs=2 * ROUNDING)


@pytest.mark.parametrize(("noise", "rate", "rows"), [(1.0, 0.1, 1), (0.8, 0.05, 3), (1.5, 0.3, 6), (2.0, 0.9, 2)])
def test_one_sampled_step_matches_its_divergence(noise: float, rate: float, rows: int) -> None:
    """At the stated epsilon, both divergences of the Gaussian mixture, computed to 40 digits, are at most delta. At a
    slightly smaller epsilon, the larger one exceeds delta."""
    delta = 1e-5
    found = epsilon(opacus((noise, rate, 1)), rows=rows, delta=delta)
    assert found is not None
    with mpmath.workdps(40):
        q = mpmath.mpf(rate)
        weights = [mpmath.binomial(rows, k) * q**k * (1 - q) ** (rows - k) for k in range(rows + 1)]

        def mixed(x: Any, of: Callable[..., Any]) -> Any:
            return sum(weight * of(x, k, noise) for k, weight in enumerate(weights))

        def worst(at: float) -> Any:
            """Return the larger of the two hockey-stick divergences between mixture and noise, each computed on its
            optimal half-line."""
            both = []
            for sign in (1, -1):
                level = mpmath.exp(sign * at)

                def ratio(x: Any, level: Any = level) -> Any:
                    return mpmath.log(mixed(x, mpmath.npdf) / mpmath.npdf(x, 0, noise) / level)

                if mpmath.log(weights[0] / level) >= 0:
                    continue
                x = mpmath.findroot(ratio, (-60 * noise, rows + 60 * noise), solver="illinois", tol=1e-60, verify=False)
                alone, with_rows = mpmath.ncdf(x, 0, noise), mixed(x, mpmath.ncdf)
                above = (1 - with_rows) - level * (1 - alone)
                both.append(above if sign == 1 else alone - with_rows / level)
            return max(both)

        assert worst(found) <= delta
        assert worst(found - 3 * ROUNDING) > delta


@pytest.mark.parametrize("adjacency", [AdjacencyType.ADD, AdjacencyType.REMOVE])
@pytest.mark.parametrize(("noise", "rate", "rows"), [(1.0, 0.01, 4), (0.5, 0.2, 9), (6.0, 0.001, 30)])
def test_the_fast_inverse_matches_dp_accounting(adjacency: AdjacencyType, noise: float, rate: float, rows: int) -> None:
    """The mixture's divergences equal those found by dp-accounting's own, slower search."""
    held = np.arange(rows + 1)
    weights = stats.binom.pmf(held, rows, rate)
    ours = accountant._mixture(noise, held, weights, adjacency)
    theirs = MixtureGaussianPrivacyLoss(noise, held.astype(float), weights, adjacency_type=adjacency)
    bounds = theirs.connect_dots_bounds()
    at = np.linspace(max(bounds.epsilon_lower, -5), min(bounds.epsilon_upper, 20), 300)
    np.testing.assert_allclose(ours.get_delta_for_epsilon(at), theirs.get_delta_for_epsilon(at), atol=1e-11)


def test_epsilon_matches_dp_accounting() -> None:
    """For one row and every kind of event, the stated epsilon equals the one computed by dp-accounting, rounded up."""
    parts = [
        dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.02, dp_event.GaussianDpEvent(1.3)), 400),
        dp_event.ComposedDpEvent([dp_event.GaussianDpEvent(8.0), dp_event.NoOpDpEvent(), dp_event.LaplaceDpEvent(9.0)]),
    ]
    whole = dp_event.ComposedDpEvent(parts)
    theirs = PLDAccountant(value_discretization_interval=1e-3).compose(whole).get_epsilon(1e-5)
    document = json.loads(json.dumps(accountant.from_dp_event(whole)))
    assert theirs <= epsilon(read(document), rows=1, delta=1e-5) <= theirs + 2 * ROUNDING  # type: ignore[operator]
    relation = privacy_accountant.NeighboringRelation.REPLACE_SPECIAL
    special = PLDAccountant(relation, value_discretization_interval=1e-3).compose(parts[0]).get_epsilon(1e-5)
    only = read(accountant.from_dp_event(parts[0]))
    assert special <= epsilon(only, rows=1, delta=1e-5) <= special + 2 * ROUNDING  # type: ignore[operator]
    group = dp_event.MixtureOfGaussiansDpEvent(3.0, [0, 1, 2], [0.9604, 0.0392, 0.0004])
    mixed = PLDAccountant(value_discretization_interval=1e-3).compose(group, 400).get_epsilon(1e-5)
    assert epsilon(opacus((3.0, 0.02, 400)), rows=2, delta=1e-5) == pytest.approx(mixed, abs=2 * ROUNDING)


def test_epsilon_is_between_published_numbers() -> None:
    """For sigma 1.1, 256 of 60,000 rows and 60 epochs at delta 1e-5, epsilon lies between the Gaussian limit of 2.2 and
    the 3.0 of the moments accountant (MNIST tutorial of TensorFlow Privacy)."""
    steps = opacus((1.1, 256 / 60000, 60 * 60000 // 256))
    found = epsilon(steps, rows=1, delta=1e-5)
    assert found is not None
    assert 2.2 < found < 3.0


@pytest.mark.slow
def test_parts_of_a_history_compose() -> None:
    """Two ledger entries for the same kind of step equal one entry with their total, and the order of entries does not
    matter. More steps, more rows, a higher sampling rate or less noise never give a smaller epsilon."""
    whole = epsilon(opacus((1.2, 0.02, 300)), rows=2, delta=1e-5)
    assert epsilon(opacus((1.2, 0.02, 100), (1.2, 0.02, 200)), rows=2, delta=1e-5) == whole
    first, second = (1.2, 0.02, 100), (2.0, 0.05, 50)
    there, back = (epsilon(opacus(*order), rows=2, delta=1e-5) for order in ((first, second), (second, first)))
    assert there == pytest.approx(back, abs=ROUNDING)
    base = (1.2, 0.02, 100)
    worse = [((1.2, 0.02, 150), 2), ((1.2, 0.02, 100), 3), ((1.2, 0.03, 100), 2), ((1.0, 0.02, 100), 2)]
    least = bound(opacus(base), rows=2, delta=1e-5)
    assert least is not None
    assert all((bound(opacus(history), rows=rows, delta=1e-5) or math.inf) > least for history, rows in worse)


@pytest.mark.slow
def test_the_curve_gives_the_rows_within_a_budget() -> None:
    """The largest number of rows found for a budget stays within the budget, and one more row exceeds it. Each point on
    the curve is the epsilon for that number of rows. If the budget is never exceeded, the result is the maximum number
    of rows computed."""
    steps = opacus((1.1, 0.01, 1000))
    points = accountant.curve(steps, delta=1e-5, budget=8.0)
    rows = accountant.rows_within(points, 8.0)
    assert points[rows] == epsilon(steps, rows=rows, delta=1e-5) <= 8.0 < points[rows + 1]  # type: ignore[operator]
    assert accountant.rows_within({1: 9.0}, 8.0) == 0
    faint = opacus((1e6, 1.0, 1))
    assert accountant.rows_within(accountant.curve(faint, delta=1e-5, budget=1.0), 1.0) == accountant.MAX_ROWS
    assert epsilon(faint, rows=0, delta=1e-5) == 0


@pytest.mark.parametrize(
    ("history", "rows"),
    [((0.001, 0.5, 1), 1), ((1.0, 0.01, 10_000_000), 1), ((0.01, 1.0, 1), 1), ((1.0, 0.5, 10), 1000)],
)
def test_a_useless_bound_is_not_computed(history: tuple[float, float, int], rows: int) -> None:
    """If no useful bound exists for a ledger, the accountant returns no epsilon, and takes hardly any memory or time to
    find this out."""
    assert epsilon(opacus(history), rows=rows, delta=1e-5) is None


def test_a_false_epsilon_is_refused() -> None:
    """A stated epsilon is refused if it is below the recomputed bound or far above it."""
    steps = opacus((1.2, 0.02, 300))
    stated = epsilon(steps, rows=2, delta=1e-5)
    assert stated is not None
    judged = {one: accountant.is_epsilon(one, steps, rows=2, delta=1e-5) for one in (stated, stated - ROUNDING, 50.0)}
    assert list(judged.values()) == [True, False, False]
    assert not accountant.is_epsilon(math.nan, steps, rows=2, delta=1e-5)
    assert not accountant.is_epsilon(None, steps, rows=2, delta=1e-5)


GAUSSIAN = event("GaussianDpEvent", noise_multiplier=1.0)
SAMPLED = event("PoissonSampledDpEvent", sampling_probability=0.1, event=GAUSSIAN)
UNKNOWN = [
    event("NonPrivateDpEvent"),
    event("UnsupportedDpEvent"),
    event("ZCDpEvent", rho=1.0, xi=0.0),
    event("SampledWithoutReplacementDpEvent", source_dataset_size=10, sample_size=2, event=GAUSSIAN),
    event("PoissonSampledDpEvent", sampling_probability=0.1, event=event("LaplaceDpEvent", noise_multiplier=1.0)),
    event("PoissonSampledDpEvent", sampling_probability=0.1, event=SAMPLED),
    event("SingleEpochTreeAggregationDpEvent", noise_multiplier=1.0, step_counts=4),
    event("GaussianDpEvent", noise_multiplier=1.0, extra=1),
    event("GaussianDpEvent"),
]


@pytest.mark.parametrize("unknown", UNKNOWN, ids=lambda one: one["class_name"])
def test_an_event_without_a_bound_is_named(unknown: dict[str, Any]) -> None:
    """An event without a known bound is refused with an error that names it, even if it is nested in other events."""
    with pytest.raises(PreconditionError) as refused:
        read(tree(event("ComposedDpEvent", events=[GAUSSIAN, event("SelfComposedDpEvent", event=unknown, count=3)])))
    assert refused.value.name == "event_known"
    assert unknown["class_name"] in refused.value.detail


def _deep(levels: int) -> dict[str, Any]:
    found = GAUSSIAN
    for _ in range(levels):
        found = event("ComposedDpEvent", events=[found])
    return found


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {"format": "pickle", "data": "gASV"},
        {"format": "opacus", "history": []},
        {"format": "opacus", "history": [[1.0, 0.1]]},
        {"format": "opacus", "history": [[math.nan, 0.1, 1]]},
        {"format": "opacus", "history": [[1.0, 1.5, 1]]},
        {"format": "opacus", "history": [[1.0, 0.1, 2.0]]},
        {"format": "opacus", "history": [[1.0, 0.1, True]]},
        {"format": "opacus", "history": [[0, 0.1, 1]]},
        {"format": "opacus", "history": [[10**400, 0.1, 1]]},
        {"format": "opacus", "history": [[1.0, 0.1, 1]], "more": 1},
        {"format": "opacus", "history": [[1.0, random.Random(n).random(), 1] for n in range(60)]},
        {"format": "opacus", "history": [[1.0, 0.1, 10_000_000], [1.0, 0.1, 1]]},
        tree({}),
        tree(event("ComposedDpEvent", events=[1])),
        tree(event("SelfComposedDpEvent", event=GAUSSIAN, count=0)),
        tree(_deep(100)),
        tree(event("ComposedDpEvent", events=[GAUSSIAN] * 5000)),
        *(tree(GAUSSIAN | {"module_name": module}) for module in (1, ["x"], "\ud800", "a\x00b", "x" * 101)),
    ],
)
def test_a_malformed_ledger_is_refused(document: Any) -> None:
    """A ledger is refused if it has a number out of range, an additional field, a name that a database cannot store, or
    too many events to account for."""
    with pytest.raises(PreconditionError) as refused:
        read(document)
    assert refused.value.name == "ledger_whole"


def test_an_opacus_accountant_is_read() -> None:
    """An Opacus accountant's state is converted into a ledger that can be sent as JSON."""
    state = {"history": [(1.1, 0.01, 5), (0.9, 0.02, 7)], "mechanism": "prv"}
    ledger = accountant.from_opacus(state)
    assert ledger == {"format": "opacus", "history": [[1.1, 0.01, 5], [0.9, 0.02, 7]]}
    assert sum(read(json.loads(json.dumps(ledger))).values()) == 12
