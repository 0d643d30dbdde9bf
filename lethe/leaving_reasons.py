"""`client.leaving_reasons`: why people leave, by answers that they randomised before they sent them."""

import datetime
from dataclasses import dataclass

from lethe.endpoints import Endpoint, given
from lethe.http import Http
from lethe.randomised import RandomisedAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """`week`: the Monday (UTC) of the week in whose counter the answer is; nothing else is kept of it."""

    week: datetime.date


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonEstimate:
    """`share` is unbiased, and may lie outside [0, 1] by chance; [`low`, `high`] does not."""

    reason: str
    sent: int
    share: float
    standard_error: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What follows from the answers of all clients that used the same odds."""

    odds: int
    epsilon: float
    num_answers: int
    reasons: tuple[ReasonEstimate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingReasonsFound:
    """With probability `confidence` all intervals of a survey hold at once; `method` has the formulas."""

    confidence: float
    method: str
    surveys: tuple[Survey, ...]


COUNT = Endpoint("POST", "/v1/leaving-reasons", Counted)
GET = Endpoint("GET", "/v1/leaving-reasons", LeavingReasonsFound)


class LeavingReasons:
    def __init__(self, http: Http) -> None:
        self._http = http

    def submit(self, answer: RandomisedAnswer) -> Counted:
        """Send what `lethe.randomised.randomise` gave, where the person said it; needs the scope requests:write.

        It is not made again by itself, for then it might be counted twice: an answer that is lost takes nothing from
        what is right about the others. Whoever repeats it sends this same answer, and never randomises anew.
        """
        return self._http.call(COUNT, json={"answer": answer.answer, "odds": answer.odds})

    def estimate(
        self, *, since: datetime.date | None = None, until: datetime.date | None = None
    ) -> LeavingReasonsFound:
        """Which share leaves for which reason, of the weeks that begin in [since, until)."""
        query = given(since=since and since.isoformat(), until=until and until.isoformat())
        return self._http.call(GET, params=query)
