"""Reasons for leaving, randomised where people give them: what is sent is private, against any reader with any
knowledge.

`answer = randomise("cost")` is for the device, or the process, that the person trusts. It needs no network and no API
key, and of the true reason nothing else is kept. To send it:
`client.leaving_reasons.submit(answer=answer.answer, odds=answer.odds)`.
"""

import math
import secrets
from dataclasses import dataclass

from lethe.contract.sets import LeavingReason
from lethe.errors import InputInvalid

REASONS = tuple(LeavingReason)
ODDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomisedAnswer:
    """The answer that may be sent. `odds`: how many times likelier the true reason was than each other one."""

    answer: LeavingReason
    odds: int

    @property
    def epsilon(self) -> float:
        """No two reasons are told apart by more than e^epsilon; each further answer of the same person adds as much."""
        return math.log(self.odds)


def randomise(reason: str, *, odds: int = ODDS) -> RandomisedAnswer:
    """The true reason with probability odds/(odds + 4), each of the four others with probability 1/(odds + 4).

    Exactly so: one fair choice among odds + 4 integers, by the operating system's randomness; no float is involved.
    Randomise once for each person, keep what came out, and repeat that: answers drawn anew are further answers.
    """
    if reason not in REASONS:
        raise InputInvalid(f"Expected a reason out of {', '.join(REASONS)}.")
    if type(odds) is not int or odds < 2:
        raise InputInvalid("Expected odds that are an integer of at least 2.")
    others = [other for other in REASONS if other != reason]
    drawn = secrets.randbelow(odds + len(others))
    return RandomisedAnswer(answer=LeavingReason(reason) if drawn < odds else others[drawn - odds], odds=odds)
