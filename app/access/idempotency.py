"""Idempotency: the response to a call is stored in the same transaction that performs the call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.access import repository
from app.db import bulk, now, tables
from lethe.contract.problems import IdempotencyConflict


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """Call that may be repeated. `name` is a keyed hash of the API key and the Idempotency-Key, shared by all
    repetitions, or None if the call has no Idempotency-Key. `fingerprint` is a hash of method, path and body, keyed
    because the body may name a person."""

    name: str | None
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    status: int
    location: str | None
    body: dict[str, Any]


def replay(session: Session, once: Once) -> StoredResponse | None:
    """Return the stored response to a call, or None if the call is new. Raises `IdempotencyConflict` if the original
    call differed."""
    [answer] = replay_all(session, [once])
    if isinstance(answer, IdempotencyConflict):
        raise answer
    return answer


def replay_all(session: Session, calls: Sequence[Once]) -> list[StoredResponse | IdempotencyConflict | None]:
    """Return each call's stored response, None if the call is new, or a conflict if the original call differed."""
    names = [once.name for once in calls if once.name is not None]
    stored = repository.answers(session, names) if names else {}
    return [_replayed(once, stored.get(once.name) if once.name else None) for once in calls]


def perform(session: Session, once: Once, make: Callable[[Session], StoredResponse]) -> StoredResponse:
    """Return the stored response to a call. If the call is new, perform it with `make` and store the response for
    repetitions. Raises `IdempotencyConflict` if the first call with this Idempotency-Key differed."""
    answer = replay(session, once)
    if answer is None:
        answer = make(session)
        remember_all(session, [(once, answer)])
    return answer


def remember_all(session: Session, answered: Sequence[tuple[Once, StoredResponse]]) -> None:
    """Store the response to each call, to be returned when the call is repeated. The calls must be distinct."""
    named = [(once, answer) for once, answer in answered if once.name is not None]
    if not named:
        return
    at = now(session)
    bulk.store(
        session,
        tables.IdempotentAnswer,
        [
            {
                "name": once.name,
                "fingerprint": once.fingerprint,
                "status": answer.status,
                "location": answer.location,
                "answer": answer.body,
                "created_at": at,
            }
            for once, answer in named
        ],
    )


def _replayed(once: Once, row: Any) -> StoredResponse | IdempotencyConflict | None:
    if row is None:
        return None
    _, fingerprint, status, location, body, _ = row
    is_repeated = fingerprint == once.fingerprint
    return StoredResponse(status=status, location=location, body=body) if is_repeated else IdempotencyConflict()
