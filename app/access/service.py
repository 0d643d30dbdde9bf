"""API keys: made once, stored as hashes, carrying scopes."""

import hashlib
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy.orm import Session

from app.access import repository
from app.db import Database, now
from app.db.tables import ApiKey, new_id
from app.errors import KeyUnknown, ScopeMissing, Unauthenticated

_BELIEVED_SECONDS = 1.0
"""A key that another process revokes is refused that much later at the latest."""
_MOST_BELIEVED = 1000
_revocations = 0
"""How many keys this process has revoked: what was believed before is asked again."""


class Scope(StrEnum):
    REQUESTS_READ = "requests:read"
    REQUESTS_WRITE = "requests:write"
    MODELS_READ = "models:read"
    MODELS_WRITE = "models:write"
    ACCOUNTING_READ = "accounting:read"
    ADMIN = "admin"
    """Everything, and the keys themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Whose key a call came with."""

    key_id: str
    scopes: frozenset[str]

    def require(self, scope: Scope) -> None:
        """Raises `ScopeMissing`."""
        if not self.scopes & {scope, Scope.ADMIN}:
            raise ScopeMissing(f"This key does not have the scope {scope.value!r}.")


def new_key() -> str:
    """A fresh API key, 256 random bits."""
    return "lethe_" + secrets.token_urlsafe(32)


def add_key(session: Session, *, name: str, key: str, scopes: Iterable[Scope]) -> ApiKey:
    """Let `key` in. Only its hash is stored: 256 random bits need no slow hash."""
    row = ApiKey(id=new_id("key"), name=name, key_hash=_hash(key), scopes=sorted(set(scopes)), created_at=now(session))
    session.add(row)
    return row


def ensure_key(session: Session, *, name: str, key: str, scopes: Iterable[Scope]) -> None:
    """Let `key` in if it is not."""
    if repository.by_hash(session, _hash(key)) is None:
        add_key(session, name=name, key=key, scopes=scopes)


def revoke_key(session: Session, key_id: str) -> None:
    """Raises `KeyUnknown`."""
    global _revocations
    _revocations += 1
    if not repository.revoke(session, key_id, at=now(session)):
        raise KeyUnknown(f"There is no API key {key_id!r} in force.")


def authenticate(session: Session, key: str | None) -> Caller:
    """Raises `Unauthenticated`."""
    row = repository.by_hash(session, _hash(key)) if key else None
    if row is None or row.revoked_at is not None:
        raise Unauthenticated("Send 'Authorization: Bearer <API key>' with a key that is in force.")
    return Caller(key_id=row.id, scopes=frozenset(row.scopes))


class Callers:
    """Whose keys they are; the database is asked about each once in `_BELIEVED_SECONDS`, not at every call."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, tuple[float, int, Caller]] = {}

    def recall(self, key: str | None) -> Caller | None:
        """At once; None where the database must be asked."""
        if not key or (found := self._known.get(_hash(key))) is None:
            return None
        until, revocations, caller = found
        return caller if time.monotonic() < until and revocations == _revocations else None

    def authenticate(self, key: str | None) -> Caller:
        """Ask the database. Raises `Unauthenticated`."""
        until, revocations = time.monotonic() + _BELIEVED_SECONDS, _revocations
        with self._database.reading() as session:
            caller = authenticate(session, key)
        if len(self._known) >= _MOST_BELIEVED:
            self._known.clear()
        if key:
            self._known[_hash(key)] = until, revocations, caller
        return caller


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
