"""What guesses prove: an advantage with an interval around it, and the guarantees that it refutes."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import refuting
from lethe.features.analysis.renyi import require_order
from lethe.proof import accountant, canary_test, conversion, methods
from lethe.proof.accountant import Exposure, Run
from lethe.proof.canary_test import Guesses
from lethe.proof.errors import require_nonnegative
from lethe.proof.mechanism import Mechanism

Said = NDArray[np.bool_]
"""For every sample, whether the attacker said that the person had been in."""

FAMILY_ERROR = 0.05
"""Probability at most that any interval or lower bound of a whole run of the experiment is wrong."""


def guesses(members: Said, nonmembers: Said) -> Guesses:
    return Guesses(
        true_positives=int(members.sum()),
        members=len(members),
        false_positives=int(nonmembers.sum()),
        nonmembers=len(nonmembers),
    )


def advantage(found: Guesses) -> float:
    """True minus false positive rate."""
    return found.true_positives / found.members - found.false_positives / found.nonmembers


def interval(found: Guesses, *, error: float) -> tuple[float, float]:
    """The advantage lies between; wrong with probability <= `error`."""
    each = error / 4
    true, false = (found.true_positives, found.members), (found.false_positives, found.nonmembers)
    low = canary_test.at_least(*true, error=each) - canary_test.at_most(*false, error=each)
    return low, canary_test.at_most(*true, error=each) - canary_test.at_least(*false, error=each)


def summary(found: Guesses, *, error: float) -> dict[str, Any]:
    low, high = interval(found, error=error)
    return {
        "true_positives": found.true_positives,
        "members": found.members,
        "false_positives": found.false_positives,
        "nonmembers": found.nonmembers,
        "advantage": advantage(found),
        "low": low,
        "high": high,
        "mu_at_least": refuting.mu_at_least(found, error=error / 2),
    }


def allowed(mu: float) -> float:
    """The largest advantage that mu-GDP allows: 2 Phi(mu/2) - 1."""
    return conversion.gdp_delta(epsilon=0.0, mu=mu)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certified:
    """What the accountant certifies of a person with one record, in a chain of `runs`.

    Their row became null before the run of that number, counted from 0, the run that learned.
    """

    mechanism: Mechanism
    runs: tuple[Run, ...]
    deleted_before: int

    @property
    def adaptive_mu(self) -> float:
        """Against whoever reads all versions and chooses requests by them."""
        steps = tuple(sorted(Counter(run.steps for run in self.runs[: self.deleted_before]).items()))
        return methods.adaptive_mu([Exposure(mechanism=self.mechanism, records=1, releases=steps)])

    @property
    def deletion_mu(self) -> float:
        """Of the version that the deletion's own run made, if requests do not depend on published versions."""
        runs = self.runs[: self.deleted_before + 1]
        present = sum(run.steps for run in runs[:-1])
        return accountant.deletion_mu(accountant.replay(self.mechanism, runs), records=1, steps_present=present)

    def summary(self, found: Guesses, *, error: float, delta: float) -> dict[str, Any]:
        """The certificate's numbers beside what the guesses prove."""
        adaptive, deletion = self.adaptive_mu, self.deletion_mu
        epsilon = conversion.gdp_epsilon(mu=adaptive, delta=delta)
        proved = summary(found, error=error)
        epsilon_at_least = refuting.epsilon_at_least(found, delta=delta, error=error / 2)
        return proved | {
            "epsilon_at_least": epsilon_at_least,
            "adaptive_mu": adaptive,
            "adaptive_epsilon": epsilon,
            "adaptive_holds": proved["mu_at_least"] <= adaptive and epsilon_at_least <= epsilon,
            "adaptive_allows": allowed(adaptive),
            "deletion_mu": deletion,
            "deletion_allows": allowed(deletion),
            "deletion_holds": proved["mu_at_least"] <= deletion,
            "steps": [run.steps for run in self.runs],
            "deleted_before": self.deleted_before,
        }


def renyi_divergence(*, mu: float, order: float) -> float:
    """Return the Renyi divergence bound D_alpha <= alpha mu^2 / 2 of mu-GDP, in both directions.

    Holds for mu >= 0 and every order alpha > 1 (Dong, Roth and Su 2022).

    >>> renyi_divergence(mu=0.5, order=8.0)
    1.0
    """
    require_nonnegative(mu=mu)
    require_order(order=order)
    return order * mu * mu / 2
