"""Count randomised answers, and estimate from them why people leave.

What is kept of an answer is one more in a counter of its week: no row, no person, no request, no key, no time of day.
The audit log has no entry of it either, which would say when it came.
"""

import datetime
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.db import actor, now
from app.db.tables import LeavingCount
from app.leaving import repository
from lethe.contract.sets import LeavingReason
from lethe.theorems.local import Estimate, RandomisedResponse

CONFIDENCE = 0.95
"""Confidence with which all intervals of one estimate hold at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The answers that clients with the same odds sent, and what follows from them for each reason."""

    response: RandomisedResponse
    num_answers: int
    reasons: dict[LeavingReason, Estimate]


def count(session: Session, *, answer: LeavingReason, odds: int) -> datetime.date:
    """One more of these in this week, whose Monday is returned. Writers hold the write lock, so none is lost."""
    tenant_id, week = actor(session).tenant_id, week_of(now(session))
    row = repository.of_week(session, tenant_id=tenant_id, week=week, odds=odds, answer=answer)
    if row is None:
        session.add(LeavingCount(tenant_id=tenant_id, week=week, odds=odds, answer=str(answer), num_sent=1))
    else:
        row.num_sent += 1
    return week.date()


def surveys(
    session: Session, *, since: datetime.date | None = None, until: datetime.date | None = None
) -> list[Survey]:
    """By odds, of the weeks that begin on or after `since` and before `until`. Answers of different odds are not mixed:
    their rates mean different things."""
    first, end = (None if day is None else _midnight(day) for day in (since, until))
    found = repository.counts(session, since=first, until=end)
    return [_survey(odds, sent) for odds, sent in found.items()]


def week_of(at: datetime.datetime) -> datetime.datetime:
    """The beginning of its week: Monday, midnight UTC."""
    day = at.astimezone(datetime.UTC).date()
    return _midnight(day - datetime.timedelta(days=day.weekday()))


def _midnight(day: datetime.date) -> datetime.datetime:
    return datetime.datetime.combine(day, datetime.time(), tzinfo=datetime.UTC)


def _survey(odds: int, sent: dict[str, int]) -> Survey:
    response = RandomisedResponse(odds=odds, num_answers=len(LeavingReason))
    counts = [sent.get(reason, 0) for reason in LeavingReason]
    estimates = response.estimates(counts, confidence=CONFIDENCE)
    return Survey(response=response, num_answers=sum(counts), reasons=dict(zip(LeavingReason, estimates, strict=True)))
