"""epsilon-hat, by which the NeurIPS 2023 machine unlearning competition scored entries, and a bound in its place.

As published in google-deepmind/unlearning_evaluation (2024; E. Triantafillou et al., "Are we making progress in
unlearning?", 2024): for each forgotten row, its logit in so many unlearned and so many retrained models; over a grid of
rules, the greatest max(ln((1 - delta - FPR) / FNR), ln((1 - delta - FNR) / FPR)). Rules are one threshold (what lies
above it is of the law with the larger median) and two (what lies between them is of the law with the smaller range). A
rule with exactly one rate of zero is dropped, with both it gives the cap, and so does a range of less than 1 % of the
other. The score of an entry is the mean over rows of 2^-bin, with bins of 0.5.

This is an estimate, and a biased one: rates are those of the rule that did best on the very models it is counted on.
`epsilon_bound` says what the same models prove: one half fixes the rule, the other is counted.
"""

import math

import numpy as np
from numpy.typing import NDArray

from benchmarks import refuting
from benchmarks.membership import likelihood
from benchmarks.membership.likelihood import Scores
from lethe.proof import canary_test

DELTA = 1e-5
CAP = 50.0
_PER_UNIT = 100  # thresholds
_BUFFER = 2.0
_NARROW = 0.01
_BIN = 0.5


def epsilon_hat(unlearned: Scores, retrained: Scores, *, two_thresholds: bool = True) -> float:
    """Of one forgotten row, from its logits in both kinds of models; without `two_thresholds`, from one alone."""
    spans = float(np.ptp(unlearned)), float(np.ptp(retrained))
    if min(spans) < _NARROW * max(spans):
        return CAP
    errors = [_one_threshold(unlearned, retrained)]
    if two_thresholds:
        errors.append(_two_thresholds(unlearned, retrained))
    return max(_greatest(*pair) for pair in errors)


def score(epsilons: NDArray[np.float64], *, num_models: int) -> float:
    """The score of forgetting, between 0 and 1, from the epsilon-hat of all forgotten rows."""
    bins = math.floor(math.ceil(math.log(num_models - 1)) / _BIN)
    found = np.floor(epsilons / _BIN)
    return float(np.where(found < bins, 0.5**found, 0.0).mean())


def epsilon_bound(unlearned: Scores, retrained: Scores, *, delta: float, error: float) -> float:
    """A lower bound on epsilon, wrong with probability `error` at most, from the same models as `epsilon_hat`."""

    def proves(guesses: canary_test.Guesses) -> float:
        return refuting.epsilon_at_least(guesses, delta=delta, error=error)

    (shadows, tests), (shadows_without, tests_without) = np.array_split(unlearned, 2), np.array_split(retrained, 2)
    rule = likelihood.fixed_on(members=shadows, nonmembers=shadows_without, proves=proves)
    return proves(rule.guess(members=tests, nonmembers=tests_without))


def _one_threshold(one: Scores, other: Scores) -> tuple[Scores, Scores]:
    """False negative and false positive rates  # (thresholds,) twice"""
    low, high = sorted((one, other), key=np.median)
    both = np.concatenate([low, high])
    thresholds = np.linspace(both.min(), both.max(), math.ceil(np.ptp(both) * _PER_UNIT))
    return _below(high, thresholds), 1 - _below(low, thresholds)


def _two_thresholds(one: Scores, other: Scores) -> tuple[Scores, Scores]:
    """The same for intervals about the law that is narrower  # (pairs,) twice"""
    narrow, wide = sorted((one, other), key=np.ptp)
    width = float(np.ptp(narrow))
    first, last = narrow.min() + width - _BUFFER, narrow.max() + _BUFFER
    right = np.linspace(first, last, math.ceil((last - first) * _PER_UNIT))[:, None]
    left = right - width + np.linspace(-_BUFFER, _BUFFER, math.ceil(2 * _BUFFER * _PER_UNIT))
    missed, caught = (1 - _within(scores, left, right) for scores in (narrow, wide))
    return missed.ravel(), 1 - caught.ravel()


def _below(scores: Scores, thresholds: NDArray[np.float64]) -> Scores:
    rates: Scores = np.searchsorted(np.sort(scores), thresholds, "left") / len(scores)
    return rates


def _within(scores: Scores, left: NDArray[np.float64], right: NDArray[np.float64]) -> Scores:
    ordered = np.sort(scores)
    inside = np.searchsorted(ordered, right, "right") - np.searchsorted(ordered, left, "left")
    rates: Scores = np.maximum(inside, 0) / len(scores)
    return rates


def _greatest(misses: Scores, alarms: Scores) -> float:
    """The greatest epsilon-hat of all rules; 0 where no rule is left."""
    if ((misses == 0) & (alarms == 0)).any():
        return CAP
    kept = (misses > 0) & (alarms > 0)
    pairs = ((misses[kept], alarms[kept]), (alarms[kept], misses[kept]))
    with np.errstate(divide="ignore", invalid="ignore"):
        found = [np.log(1 - DELTA - one) - np.log(other) for one, other in pairs]
    return float(np.clip(np.nanmax(np.concatenate([*found, [0.0]])), 0, CAP))
