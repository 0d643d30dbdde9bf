"""Randomised reasons for leaving: the answer that is sent is private against any reader with any knowledge.

`answer = randomise("cost")` runs on a device or in a process that the person trusts. It needs no network and no API
key, and stores nothing about the true reason. To send the answer, call
`client.leaving_reasons.submit(answer=answer.answer, odds=answer.odds)`.
"""

import math
import secrets
from dataclasses import dataclass

from lethe.contract.sets import ClosedSet
from lethe.errors import InputInvalid


class LeavingReason(ClosedSet):
    """Reason for leaving. The set is the same for every tenant, because estimates depend on the client's randomiser."""

    PRIVACY = "privacy"
    NOT_USING = "not_using"
    COST = "cost"
    SWITCHED = "switched"
    OTHER = "other"


REASONS = tuple(LeavingReason)
ODDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomisedAnswer:
    """Answer that may be sent. `odds` is the ratio of the probability of the true reason to that of each other."""

    answer: LeavingReason
    odds: int

    @property
    def epsilon(self) -> float:
        """Local privacy of the answer, in nats: log(odds). Each further answer of the same person adds as much."""
        return math.log(self.odds)


def randomise(reason: str, *, odds: int = ODDS) -> RandomisedAnswer:
    """Return the true reason with probability odds/(odds + 4), or each of the four others with 1/(odds + 4).

    The probabilities are exact: a fair choice among odds + 4 integers by the operating system's randomness, without
    floats. Randomise once per person, and repeat that answer: an answer drawn again is a further answer.
    """
    if reason not in REASONS:
        raise InputInvalid(f"Expected a reason out of {', '.join(REASONS)}.")
    if type(odds) is not int or odds < 2:
        raise InputInvalid("Expected odds that are an integer of at least 2.")
    others = [other for other in REASONS if other != reason]
    number = secrets.randbelow(odds + len(others))
    return RandomisedAnswer(answer=LeavingReason(reason) if number < odds else others[number - odds], odds=odds)
