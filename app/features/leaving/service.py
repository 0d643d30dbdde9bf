"""Count randomised answers, and estimate from the counts why people leave.

An answer increments its week's counter and leaves no other trace: no row, person, request, key or time of day. It has
no audit entry either, because the entry's time would reveal when the answer was sent.
"""

import datetime
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import actor, now
from app.features.leaving.tables import LeavingCount
from lethe.features.leaving import local, randomised

CONFIDENCE = 0.95
"""Simultaneous confidence level of all intervals of one estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Number of answers that clients randomised with the same odds, and the resulting estimate for each reason."""

    response: local.RandomisedResponse
    num_answers: int
    reasons: dict[randomised.LeavingReason, local.Estimate]


def count(session: Session, *, answer: randomised.LeavingReason, odds: int) -> datetime.date:
    """Count an answer in the current week, and return the week's Monday."""
    tenant_id, week = actor(session).tenant_id, week_of(now(session))
    key = {"tenant_id": tenant_id, "week": week, "odds": odds, "answer": str(answer)}
    row = session.get(LeavingCount, key)
    if row is None:
        session.add(LeavingCount(**key, num_sent=1))
    # The transaction holds the write lock, so no increment is lost.
    else:
        row.num_sent += 1
    return week.date()


def surveys(
    session: Session, *, since: datetime.date | None = None, until: datetime.date | None = None
) -> list[Survey]:
    """Return one survey for each value of `odds`, covering the weeks that start on or after `since` and before `until`.

    Answers randomised with different odds are not pooled, because their frequencies are not comparable.
    """
    first, end = (None if day is None else _midnight(day) for day in (since, until))
    return [_survey(odds, sent) for odds, sent in _counts(session, since=first, until=end).items()]


def week_of(at: datetime.datetime) -> datetime.datetime:
    """Return the start of the week that contains `at`: Monday, midnight UTC."""
    day = at.astimezone(datetime.UTC).date()
    return _midnight(day - datetime.timedelta(days=day.weekday()))


def _midnight(day: datetime.date) -> datetime.datetime:
    return datetime.datetime.combine(day, datetime.time(), tzinfo=datetime.UTC)


def _survey(odds: int, sent: dict[str, int]) -> Survey:
    response = local.RandomisedResponse(odds=odds, num_answers=len(randomised.LeavingReason))
    counts = [sent.get(reason, 0) for reason in randomised.LeavingReason]
    estimates = response.estimates(counts, confidence=CONFIDENCE)
    return Survey(
        response=response, num_answers=sum(counts), reasons=dict(zip(randomised.LeavingReason, estimates, strict=True))
    )


def _counts(
    session: Session, *, since: datetime.datetime | None, until: datetime.datetime | None
) -> dict[int, dict[str, int]]:
    """Return how often each answer was sent in the weeks starting in [since, until), keyed by odds and answer."""
    query = sa.select(LeavingCount.odds, LeavingCount.answer, sa.func.sum(LeavingCount.num_sent))
    if since is not None:
        query = query.where(LeavingCount.week >= since)
    if until is not None:
        query = query.where(LeavingCount.week < until)
    by_odds: dict[int, dict[str, int]] = {}
    grouped = query.group_by(LeavingCount.odds, LeavingCount.answer).order_by(LeavingCount.odds)
    for odds, answer, sent in session.execute(grouped):
        by_odds.setdefault(odds, {})[answer] = int(sent)
    return by_odds
