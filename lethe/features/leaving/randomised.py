"""Randomised reasons for leaving: the answer sent protects the person's privacy from any reader, whatever they know.

`answer = randomise("cost")` runs on a device or in a process that the person trusts. It needs no network or API key,
and stores nothing about the true reason. To send the answer, call `client.leaving_reasons.submit(answer=answer.answer,
odds=answer.odds)`.
"""

import math
import secrets
from dataclasses import dataclass

from lethe.contract.sets import ClosedSet
from lethe.errors import InputInvalid


class LeavingReason(ClosedSet):
    """Reason for leaving. All tenants share one set: estimates assume that clients randomise over exactly this set."""

    PRIVACY = "privacy"
    NOT_USING = "not_using"
    COST = "cost"
    SWITCHED = "switched"
    OTHER = "other"


REASONS = tuple(LeavingReason)
ODDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomisedAnswer:
    """Randomised answer to send. `odds`: how many times as likely the true reason is as any other."""

    answer: LeavingReason
    odds: int

    @property
    def epsilon(self) -> float:
        """Local privacy of the answer, in nats: log(odds). Each further answer by the same person adds this much."""
        return math.log(self.odds)


def randomise(reason: str, *, odds: int = ODDS) -> RandomisedAnswer:
    """Return the true reason with probability odds/(odds + 4), and each of the four others with 1/(odds + 4).

    The probabilities are exact: the operating system's randomness picks one of odds + 4 integers, without floats.
    Randomise once per person and reuse that answer: drawing again counts as another answer.
    """
    if reason not in REASONS:
        raise InputInvalid(f"Expected a reason out of {', '.join(REASONS)}.")
    if type(odds) is not int or odds < 2:
        raise InputInvalid("Expected odds that are an integer of at least 2.")
    others = [other for other in REASONS if other != reason]
    number = secrets.randbelow(odds + len(others))
    return RandomisedAnswer(answer=LeavingReason(reason) if number < odds else others[number - odds], odds=odds)
