"""Randomisation by clients: exactly the stated probabilities, and the gateway's estimates."""

import secrets
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from scipy import stats

from lethe.errors import Malformed
from lethe.features.leaving.local import RandomisedResponse
from lethe.features.leaving.randomised import ODDS, REASONS, randomise


@pytest.mark.parametrize("odds", [2, 3, 17])
@pytest.mark.parametrize("reason", REASONS)
def test_answers_have_the_stated_probabilities(monkeypatch: pytest.MonkeyPatch, odds: int, reason: str) -> None:
    """Over all equally likely outcomes of the system's random generator, each answer occurs with the probability that
    randomised response prescribes."""
    response = RandomisedResponse(odds=odds, num_answers=len(REASONS))
    draws: list[int] = []

    def draw(below: int) -> int:
        assert below == odds + len(REASONS) - 1
        return draws.pop()

    monkeypatch.setattr(secrets, "randbelow", draw)
    sent: Counter[str] = Counter()
    for drawn in range(total := odds + len(REASONS) - 1):
        draws.append(drawn)
        answer = randomise(reason, odds=odds)
        assert (answer.odds, answer.epsilon) == (odds, response.epsilon)
        sent[answer.answer] += 1
    assert {one: Fraction(times, total) for one, times in sent.items()} == {
        one: response.truth if one == reason else response.other for one in REASONS
    }


def test_drawn_answers_have_the_expected_distribution() -> None:
    """10,000 answers drawn with the system's random generator are distributed as expected by a chi-squared test. A
    correct sampler fails this test once in a billion runs."""
    sent = Counter(randomise("cost").answer for _ in range(10_000))
    response = RandomisedResponse(odds=ODDS, num_answers=len(REASONS))
    expected = [10_000 * float(response.truth if one == "cost" else response.other) for one in REASONS]
    assert stats.chisquare([sent[one] for one in REASONS], expected).pvalue > 1e-9


@pytest.mark.parametrize(("reason", "odds"), [("boredom", 3), ("cost", 1), ("cost", 2.5), ("cost", True)])
def test_invalid_reasons_and_odds_are_refused(reason: str, odds: Any) -> None:
    """A reason that is not on the list is refused and not quoted in the error. Invalid odds are refused too."""
    with pytest.raises(Malformed) as refused:
        randomise(reason, odds=odds)
    assert "boredom" not in str(refused.value)
