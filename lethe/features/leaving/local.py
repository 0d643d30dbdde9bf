"""Local differential privacy: people randomise their values before sending them, and only aggregates are estimated.

A randomiser is epsilon-locally private if for every y, a, b

    P[sent = y | true = a] <= e^epsilon P[sent = y | true = b].

No processing of the sent values distinguishes two true values by more than a factor of e^epsilon. In the central model,
the holder of all data adds noise once; in the local model, each person adds noise, and the error of a mean is larger by
about sqrt(n). For values in [0, 1], the theorems `central_mean_mse` and `local_mean_mse` give a Laplace mechanism's
errors in both models; this module provides randomised response and two further estimators of a mean.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from lethe.proof import canary_test, errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Estimate of the share of people with a given true answer. `share` is unbiased and may lie outside [0, 1]; the
    limits `low` and `high` never do."""

    sent: int
    share: float
    standard_error: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomisedResponse:
    """Randomised response over k = `num_answers` >= 2: the true answer is `odds` >= 2 times as likely as any other.

    Formal guarantee: epsilon-local privacy with epsilon = log(odds). It is exact, because both probabilities are ratios
    of integers: odds/(odds + k - 1) and 1/(odds + k - 1). A person who answers m times has spent m epsilon.

    Reference: Warner, JASA 60 (1965), for k = 2; Kairouz, Bonawitz and Ramage, "Discrete distribution estimation under
    local privacy", ICML 2016, for any k, where it is order-optimal if odds >= k.

    >>> response = RandomisedResponse(odds=3, num_answers=5)
    >>> response.truth, response.other, round(response.epsilon, 4)
    (Fraction(3, 7), Fraction(1, 7), 1.0986)
    """

    odds: int
    num_answers: int

    def __post_init__(self) -> None:
        errors.require_count(2, odds=self.odds, num_answers=self.num_answers)

    @property
    def truth(self) -> Fraction:
        """Probability that the true answer is sent."""
        return Fraction(self.odds, self.odds + self.num_answers - 1)

    @property
    def other(self) -> Fraction:
        """Probability that one particular answer other than the true one is sent."""
        return Fraction(1, self.odds + self.num_answers - 1)

    @property
    def epsilon(self) -> float:
        return math.log(self.odds)

    def rate(self, share: float) -> float:
        """Return the probability that an answer is sent if it is the true answer for a fraction `share` of people."""
        return float(self.other) + share * float(self.truth - self.other)

    def variance(self, *, n: int, share: float) -> float:
        """Return the variance of a share estimated from n independently drawn people if the true share is `share`.

        The variance is r(1 - r)/(n (truth - other)^2), where r is `rate(share)`. Sampling people contributes share (1 -
        share)/n, and randomisation contributes the rest.
        """
        errors.require_count(1, n=n)
        _require_share(share=share)
        rate = self.rate(share)
        return rate * (1 - rate) / (n * float(self.truth - self.other) ** 2)

    def estimates(self, sent: Sequence[int], *, confidence: float) -> list[Estimate]:
        """Estimate each answer's share from the number of times it was sent.

        All intervals hold simultaneously with probability >= `confidence` (Clopper and Pearson for each rate,
        Bonferroni over the answers). They are valid for people drawn independently, and for people with fixed answers:
        in that case the number sent is a sum of two kinds of coin flips, whose tails are bounded by a binomial with the
        same mean (Hoeffding, Annals of Mathematical Statistics 27, 1956, Theorem 4). `standard_error` is the square
        root of `variance` at the observed rate.

        >>> response = RandomisedResponse(odds=3, num_answers=2)
        >>> [round(estimate.share, 6) for estimate in response.estimates([625, 375], confidence=0.95)]
        [0.75, 0.25]
        """
        errors.require_fraction(confidence=confidence)
        if len(sent) != self.num_answers:
            raise errors.DomainError(f"Expected {self.num_answers} counts, not {len(sent)}")
        errors.require_count(0, **{f"sent_{place}": count for place, count in enumerate(sent)})
        n = sum(sent)
        errors.require_count(1, n=n)
        error = (1 - confidence) / (2 * self.num_answers)
        return [self._estimate(count, n, error) for count in sent]

    def _estimate(self, sent: int, n: int, error: float) -> Estimate:
        contrast = self.truth - self.other
        rate = sent / n
        low, high = canary_test.at_least(sent, n, error=error), canary_test.at_most(sent, n, error=error)
        return Estimate(
            sent=sent,
            share=float((Fraction(sent, n) - self.other) / contrast),
            standard_error=math.sqrt(rate * (1 - rate) / n) / float(contrast),
            low=self._share_at(low),
            high=self._share_at(high),
        )

    def _share_at(self, rate: float) -> float:
        """Return the share in [0, 1] for which `self.rate` is closest to `rate`."""
        return min(1.0, max(0.0, (rate - float(self.other)) / float(self.truth - self.other)))


def _require_share(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value <= 1:
            raise errors.DomainError(f"Expected 0 <= {name}={value} <= 1")
