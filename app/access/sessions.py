"""Sessions of the dashboard: a browser keeps a random token instead of the API key or the password it logged in with.

Only the token's hash is stored. A session is over after a while of silence, at its end, with its key, when its person
is disabled or gets another role or password, or at logout.
"""

import datetime
import hashlib
import secrets

from sqlalchemy.orm import Session

from app.access import repository
from app.access import service as access
from app.access.service import Caller
from app.audit import service as audit
from app.config import Settings
from app.db import now
from app.db.tables import ApiKey, DashboardSession, User
from lethe.contract.problems import Unauthenticated

_SEEN_EVERY = datetime.timedelta(minutes=1)
"""Interval at which it is noted that a session is used."""


def new_token() -> str:
    """256 random bits."""
    return secrets.token_urlsafe(32)


def form_token(token: str) -> str:
    """The token that the pages of a session put into their forms: it follows from the session's token, and not the
    other way round."""
    return hashlib.sha256(f"lethe dashboard form {token}".encode()).hexdigest()


def open_session(session: Session, *, token: str, caller: Caller, settings: Settings) -> None:
    """Let the holder of `token` do what `caller` may."""
    at = now(session)
    ends = at + datetime.timedelta(hours=settings.dashboard_session_hours)
    opened = DashboardSession(token_hash=_hash_of(token), opened_at=at, seen_at=at, expires_at=ends)
    if caller.is_person:
        opened.user_id = caller.id
    else:
        opened.api_key_id = caller.id
    session.add(opened)
    audit.record(session, "dashboard.session_opened", caller.id)


def caller_of(session: Session, token: str | None, *, settings: Settings) -> tuple[Caller, bool]:
    """The caller of a session, and True if it should be noted (`seen`) that it is used. Raises `Unauthenticated`."""
    found = repository.dashboard_session(session, _hash_of(token)) if token else None
    at = now(session)
    if found is None or found.expires_at <= at or found.seen_at <= at - _patience(settings):
        raise Unauthenticated("Log in: there is no session, or it is over.")
    return _caller(session, found, at), at - found.seen_at >= _SEEN_EVERY


def _caller(session: Session, found: DashboardSession, at: datetime.datetime) -> Caller:
    """Raises `Unauthenticated`."""
    if found.user_id is not None:
        user = session.get_one(User, found.user_id)
        if user.disabled_at is not None:
            raise Unauthenticated("Nobody gets in as this person any more.")
        return access.caller_as(session, user)
    key = session.get_one(ApiKey, found.api_key_id)
    if not access.is_in_force(key, at=at):
        raise Unauthenticated("Log in with another key: the one of this session is not in force any more.")
    return access.caller_with(session, key)


def seen(session: Session, token: str) -> None:
    """Somebody uses the session: it lasts a while longer."""
    if found := repository.dashboard_session(session, _hash_of(token)):
        found.seen_at = now(session)


def close_session(session: Session, *, token: str, caller: Caller) -> None:
    repository.end_dashboard_session(session, _hash_of(token))
    audit.record(session, "dashboard.session_closed", caller.id)


def is_anything_to_purge(session: Session, *, settings: Settings) -> bool:
    at = now(session)
    return repository.is_any_dashboard_session_over(session, at=at, silent_since=at - _patience(settings))


def purge(session: Session, *, settings: Settings, limit: int) -> int:
    """Forget sessions that are over; returns how many."""
    at = now(session)
    return repository.drop_dashboard_sessions(session, at=at, silent_since=at - _patience(settings), limit=limit)


def _patience(settings: Settings) -> datetime.timedelta:
    return datetime.timedelta(minutes=settings.dashboard_idle_minutes)


def _hash_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
