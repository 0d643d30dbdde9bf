import numpy as np
import pytest

from benchmarks.membership import problems, requests
from lethe.proof import calibration

PROBLEM = problems.digits(seed=3, l2=0.02)
DRAWN = requests.drawn(PROBLEM, seed=3)


def test_a_seed_draws_the_same_requests() -> None:
    """The same seed draws the same data and requests."""
    again = requests.drawn(problems.digits(seed=3, l2=0.02), seed=3)
    assert [request.slots.tolist() for request in again.values()] == [r.slots.tolist() for r in DRAWN.values()]


def test_the_telling_row_is_at_least_as_conspicuous_as_the_ordinary_row() -> None:
    """The row named "telling" is at least as conspicuous as the ordinary row, and the group is more conspicuous than
    both."""
    assert DRAWN["one"].foreseen <= DRAWN["telling"].foreseen < DRAWN["group"].foreseen


def test_the_group_shares_the_label_of_its_first_row() -> None:
    """The group consists of twenty different rows with the label of the telling row, which comes first."""
    group, labels = DRAWN["group"].slots, PROBLEM.rows.labels
    assert group[0] == DRAWN["telling"].slots[0]
    assert len(set(group.tolist())) == requests.GROUP
    assert len(set(labels[group].tolist())) == 1


@pytest.mark.parametrize("name", requests.NAMES)
def test_steps_match_the_planner(name: str) -> None:
    """A request takes the smallest number of steps that reaches the target, and these steps lower the request's mu."""
    request, records = DRAWN[name], len(DRAWN[name].slots)
    target = {"epsilon": problems.EPSILON, "delta": PROBLEM.delta}
    assert request.steps == calibration.least_steps(PROBLEM.learned, records=records, at_most=10**6, **target)
    assert request.mu_after < request.mu_before


def test_the_score_of_one_row_is_its_logit() -> None:
    """The attacker's score of a single row is the logit of its label, as in U-LiRA."""
    parameters = np.random.default_rng(0).normal(size=(3, 65))
    row = PROBLEM.rows.at(DRAWN["telling"].slots)
    sign = 1 if row.labels[0] == 1 else -1
    expected = sign * parameters @ row.features[0]
    assert DRAWN["telling"].scores(PROBLEM.rows, parameters) == pytest.approx(expected)
