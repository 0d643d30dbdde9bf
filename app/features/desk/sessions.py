"""Dashboard sessions: after login, a browser holds a random token instead of the API key or password.

Only a hash of the token is stored. A session ends at a fixed time, after a period of inactivity, when its API key ends,
when its user is disabled or is given another role or password, or at logout.

Over https, the names of login cookies begin with `__Host-` (RFC 6265bis). Browsers accept such a cookie only over TLS,
from this very host and for all its paths, so neither a sibling domain nor an attacker who alters pages sent without TLS
can replace it with another session. Over plain http, browsers reject the prefix, so the plain name is used.
"""

import datetime
import hashlib
import secrets
from typing import Any

from fastapi import Request, Response
from sqlalchemy.orm import Session

from app.access import service as access
from app.audit import service as audit
from app.config import Settings
from app.db import now, tables
from app.features.desk import rendering, repository
from app.features.desk.tables import DashboardSession
from app.features.people import users
from app.features.people.tables import User
from lethe.contract.problems import Unauthenticated

_PREFIX = "__Host-"


def is_https(request: Request) -> bool:
    """Return True if the configured origin or this request shows that browsers reach the dashboard over https."""
    origin = request.app.state.installation.settings.dashboard_origin
    return str(origin or request.url.scheme).startswith("https")


def read(request: Request, name: str) -> str:
    """Return the value of a cookie, or "" if it is missing. Over https, only the `__Host-` name is read."""
    plain = "" if is_https(request) else request.cookies.get(name, "")
    return request.cookies.get(_PREFIX + name, plain)


def put(
    request: Request, response: Response, name: str, value: str, *, path: str = rendering.ROOT, **options: Any
) -> None:
    """Set a cookie that scripts cannot read, limited to `path` unless its name gets the prefix `__Host-`. `secure`
    states that the browser uses https even if `is_https` returns False."""
    is_secure = options.pop("secure", False) or is_https(request)
    name, path = (_PREFIX + name, "/") if is_secure else (name, path)
    options = {"samesite": "strict"} | options
    response.set_cookie(name, value, path=path, secure=is_secure, httponly=True, **options)


def drop(request: Request, response: Response, name: str, *, path: str = rendering.ROOT) -> None:
    """Delete a cookie under both its plain name and its `__Host-` name."""
    if _PREFIX + name in request.cookies:
        response.delete_cookie(_PREFIX + name, path="/", secure=True, httponly=True)
    response.delete_cookie(name, path=path)


_SEEN_EVERY = datetime.timedelta(minutes=1)
"""Minimum interval between updates of the time at which a session was last used."""


def new_token() -> str:
    """Return a token of 256 random bits."""
    return secrets.token_urlsafe(32)


def form_token(token: str) -> str:
    """Derive the token that a session's forms send. The session's own token cannot be computed from it."""
    return hashlib.sha256(f"lethe dashboard form {token}".encode()).hexdigest()


def open_session(session: Session, *, token: str, caller: access.Caller, settings: Settings) -> None:
    """Open a session in which the bearer of `token` acts as `caller`."""
    at = now(session)
    ends = at + datetime.timedelta(hours=settings.dashboard_session_hours)
    opening = DashboardSession(token_hash=_hash_of(token), opened_at=at, seen_at=at, expires_at=ends)
    if caller.is_person:
        opening.user_id = caller.id
    else:
        opening.api_key_id = caller.id
    session.add(opening)
    audit.record(session, "dashboard.session_opened", caller.id)


def caller_of(session: Session, token: str | None, *, settings: Settings) -> tuple[access.Caller, bool]:
    """Return a session's caller, and whether `touch` should be called to record that the session was used.

    Raises `Unauthenticated` if the session does not exist or has ended.
    """
    stored = repository.dashboard_session(session, _hash_of(token)) if token else None
    at = now(session)
    if stored is None or stored.expires_at <= at or stored.seen_at <= _idle_since(at, settings):
        raise Unauthenticated("Log in: there is no session, or it has ended.")
    return _caller(session, stored, at), at - stored.seen_at >= _SEEN_EVERY


def _caller(session: Session, stored: DashboardSession, at: datetime.datetime) -> access.Caller:
    """Return a session's caller. Raises `Unauthenticated` if the caller's key or account is no longer valid."""
    if stored.user_id is not None:
        user = session.get_one(User, stored.user_id)
        if user.disabled_at is not None:
            raise Unauthenticated("This account can no longer log in.")
        return users.caller_as(session, user)
    key = session.get_one(tables.ApiKey, stored.api_key_id)
    if not access.is_in_force(key, at=at):
        raise Unauthenticated("Log in with another key: the one of this session is no longer valid.")
    return access.caller_with(session, key)


def touch(session: Session, token: str) -> None:
    """Record that a session was used, which resets its idle time."""
    if stored := repository.dashboard_session(session, _hash_of(token)):
        stored.seen_at = now(session)


def close_session(session: Session, *, token: str, caller: access.Caller) -> None:
    """End a session at logout."""
    repository.end_dashboard_session(session, _hash_of(token))
    audit.record(session, "dashboard.session_closed", caller.id)


def is_any_over(session: Session, *, settings: Settings) -> bool:
    """Return True if any stored session has ended."""
    at = now(session)
    return repository.is_any_session_over(session, at=at, idle_since=_idle_since(at, settings))


def purge(session: Session, *, settings: Settings, limit: int) -> int:
    """Delete up to `limit` sessions that have ended, and return their number."""
    at = now(session)
    return repository.drop_ended_sessions(session, at=at, idle_since=_idle_since(at, settings), limit=limit)


def _idle_since(at: datetime.datetime, settings: Settings) -> datetime.datetime:
    """Return the cut-off time: sessions last used at or before it have ended."""
    return at - datetime.timedelta(minutes=settings.dashboard_idle_minutes)


def _hash_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
