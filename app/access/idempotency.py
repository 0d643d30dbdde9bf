"""The same answer to the same call: kept in the transaction that did what was asked."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.access import repository
from app.db import now
from app.db.tables import IdempotentAnswer
from app.errors import IdempotencyConflict


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """A call that may be repeated. `fingerprint` is a keyed hash of method, path and body (which may name a person)."""

    api_key_id: str
    idempotency_key: str | None
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    location: str | None
    body: dict[str, Any]


def replay(session: Session, once: Once) -> Answer | None:
    """The first answer, if this call was made before. Raises `IdempotencyConflict` if it was another call."""
    if once.idempotency_key is None:
        return None
    row = repository.answer(session, api_key_id=once.api_key_id, idempotency_key=once.idempotency_key)
    if row is None:
        return None
    if row.fingerprint != once.fingerprint:
        raise IdempotencyConflict(
            "This Idempotency-Key came before with another body; use a new key for a new request."
        )
    return Answer(status=row.status, location=row.location, body=row.answer)


def remember(session: Session, once: Once, answer: Answer) -> Answer:
    """Keep `answer` for repetitions of this call; returns it."""
    if once.idempotency_key is not None:
        row = IdempotentAnswer(
            api_key_id=once.api_key_id,
            idempotency_key=once.idempotency_key,
            fingerprint=once.fingerprint,
            status=answer.status,
            location=answer.location,
            answer=answer.body,
            created_at=now(session),
        )
        session.add(row)
    return answer
