"""What every endpoint is given: the installation, the caller, and whether the call was made before."""

import functools
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from app.access.idempotency import Answer, Once
from app.access.service import Caller, Callers, Scope
from app.installation import Installation

_bearer = HTTPBearer(auto_error=False, description="An API key")

Limit = Annotated[int, Query(ge=1, le=500)]
Cursor = Annotated[str | None, Query(max_length=500)]


async def _installation(request: Request) -> Installation:
    at: Installation = request.app.state.installation
    return at


async def _callers(request: Request) -> Callers:
    state = request.app.state
    if not hasattr(state, "callers"):
        state.callers = Callers(state.installation.database)
    callers: Callers = state.callers
    return callers


At = Annotated[Installation, Depends(_installation)]


def caller_with(scope: Scope) -> Any:
    """A dependency: the caller, whose key must carry `scope`."""
    return Depends(_authenticated(scope))


@functools.cache
def _authenticated(scope: Scope) -> Callable[..., Any]:
    async def authenticated(
        callers: Annotated[Callers, Depends(_callers)],
        header: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
    ) -> Caller:
        key = header.credentials if header else None
        caller = callers.recall(key)
        if caller is None:
            caller = await run_in_threadpool(callers.authenticate, key)
        caller.require(scope)
        return caller

    return authenticated


def once_with(scope: Scope) -> Any:
    """A dependency for a creating POST: its key, its `Idempotency-Key`, and a keyed hash of what it asks."""

    async def once(
        request: Request,
        at: At,
        caller: Annotated[Caller, caller_with(scope)],
        idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255)] = None,
    ) -> Once:
        kind = request.headers.get("content-type", "").lower()
        form = kind.startswith(("multipart/", "application/x-www-form-urlencoded"))  # read already, and not kept
        body = b"" if form else await request.body()
        fingerprint = at.keys.fingerprint(
            request.method.encode(), f"{request.url.path}?{request.url.query}".encode(), body
        )
        return Once(api_key_id=caller.key_id, idempotency_key=idempotency_key, fingerprint=fingerprint)

    return Depends(once)


def respond(answer: Answer) -> JSONResponse:
    return JSONResponse(answer.body, answer.status, {"Location": answer.location} if answer.location else None)
