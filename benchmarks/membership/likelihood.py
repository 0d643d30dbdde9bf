"""U-LiRA: guess from how a model scores a row whether it ever saw the row, by a rule that was fixed on other models.

For one request, models that had its rows and models that never had them are learned many times over. A normal law is
fitted to the scores of each kind, and the rule says "had them" where the likelihood ratio is large (Carlini et al.
2022 for membership, Hayes et al. 2024, "Inexact unlearning needs more careful evaluations", for unlearning). Laws and
threshold are fixed on shadow models; the guesses are counted on other models, so that what
`lethe.proof.canary_test` makes of the counts is a valid lower bound.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lethe.proof.canary_test import Guesses

Scores = NDArray[np.float64]  # (models,)

_CANDIDATES = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal:
    """A fitted normal law."""

    mean: float
    std: float

    @classmethod
    def of(cls, scores: Scores) -> "Normal":
        return cls(mean=float(scores.mean()), std=float(scores.std(ddof=1)))

    def log_density(self, scores: Scores) -> Scores:
        """But for a constant that all normal laws share."""
        density: Scores = -0.5 * ((scores - self.mean) / self.std) ** 2 - np.log(self.std)
        return density


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Says "had the rows" where the log of the likelihood ratio is above `threshold`."""

    members: Normal
    nonmembers: Normal
    threshold: float = 0.0

    def log_ratio(self, scores: Scores) -> Scores:
        return self.members.log_density(scores) - self.nonmembers.log_density(scores)

    def guess(self, *, members: Scores, nonmembers: Scores) -> Guesses:
        return Guesses(
            true_positives=int((self.log_ratio(members) > self.threshold).sum()),
            members=len(members),
            false_positives=int((self.log_ratio(nonmembers) > self.threshold).sum()),
            nonmembers=len(nonmembers),
        )


def fixed_on(*, members: Scores, nonmembers: Scores, proves: Callable[[Guesses], float]) -> Rule:
    """The rule that `proves` most about the shadow models it is fitted to; where nothing is proved, threshold 0."""
    fitted = Rule(members=Normal.of(members), nonmembers=Normal.of(nonmembers))
    ratios = fitted.log_ratio(np.concatenate([members, nonmembers]))
    thresholds = np.quantile(ratios, np.arange(1, _CANDIDATES + 1) / (_CANDIDATES + 1))
    rules = [fitted, *(replace(fitted, threshold=float(threshold)) for threshold in thresholds)]
    return max(rules, key=lambda rule: proves(rule.guess(members=members, nonmembers=nonmembers)))


def separation(*, members: Scores, nonmembers: Scores) -> float:
    """The distance of the means in standard deviations: a point estimate, and no bound on anything."""
    pooled = np.sqrt((members.var(ddof=1) + nonmembers.var(ddof=1)) / 2)
    return float(abs(members.mean() - nonmembers.mean()) / pooled)


def roc(rule: Rule, *, members: Scores, nonmembers: Scores) -> tuple[Scores, Scores]:
    """False and true positive rates at every threshold, without confidence limits  # (thresholds,) twice"""
    had, had_not = np.sort(rule.log_ratio(members)), np.sort(rule.log_ratio(nonmembers))
    thresholds = np.unique(np.concatenate([had, had_not]))
    false, true = (1 - np.searchsorted(ratios, thresholds, "left") / len(ratios) for ratios in (had_not, had))
    return false, true
