"""The same answer to the same call: kept in the transaction that did what was asked."""

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.access import repository
from app.db import now
from lethe.contract.problems import IdempotencyConflict


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """A call that may be repeated. `name`: what its repetitions have in common, a keyed hash of its API key and its
    Idempotency-Key; None for a call that has none. `fingerprint`: one of method, path and body (which may name a
    person)."""

    name: str | None
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    location: str | None
    body: dict[str, Any]


def replay(session: Session, once: Once) -> Answer | None:
    """The first answer, if this call was made before. Raises `IdempotencyConflict` if it was another call."""
    [found] = replay_all(session, [once])
    if isinstance(found, IdempotencyConflict):
        raise found
    return found


def replay_all(session: Session, calls: Sequence[Once]) -> list[Answer | IdempotencyConflict | None]:
    """For each call its first answer, None if it was not made before, or the conflict if that was another call."""
    names = [once.name for once in calls if once.name is not None]
    answered = repository.answers(session, names) if names else {}
    return [_replayed(once, answered.get(once.name) if once.name else None) for once in calls]


def perform(session: Session, once: Once, make: Callable[[Session], Answer]) -> Answer:
    """Return the first answer to this call: if it was not made before, `make` makes one, which its repetitions get.

    Raises `IdempotencyConflict` if it was another call.
    """
    answer = replay(session, once)
    if answer is None:
        answer = make(session)
        remember_all(session, [(once, answer)])
    return answer


def remember_all(
    session: Session, answered: Sequence[tuple[Once, Answer]], *, at: datetime.datetime | None = None
) -> None:
    """Keep each answer for repetitions of its call; no two of the calls are the same. `at`: now, if that is known."""
    kept = [(once, answer) for once, answer in answered if once.name is not None]
    if not kept:
        return
    at = at or now(session)
    repository.add_answers(
        session,
        [
            {
                "name": once.name,
                "fingerprint": once.fingerprint,
                "status": answer.status,
                "location": answer.location,
                "answer": answer.body,
                "created_at": at,
            }
            for once, answer in kept
        ],
    )


def _replayed(once: Once, row: Any) -> Answer | IdempotencyConflict | None:
    if row is None:
        return None
    if row.fingerprint != once.fingerprint:
        return IdempotencyConflict(
            "This Idempotency-Key came before with another body; use a new key for a new request."
        )
    return Answer(status=row.status, location=row.location, body=row.answer)
