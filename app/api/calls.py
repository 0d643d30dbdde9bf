"""What every endpoint is given: the installation, the caller, and whether the call was made before."""

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request, Security
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy.orm import Session

from app.access.callers import Callers, LastUses
from app.access.idempotency import Answer, Once
from app.access.rates import Rates
from app.access.service import Caller, Scope
from app.errors import Unauthenticated
from app.installation import Installation

_bearer = HTTPBearer(auto_error=False, description="An API key")

WINDOW = "lethe.window"
"""Where the scope of a call says what is left of its key's minute."""
Limit = Annotated[int, Query(ge=1, le=500)]
Cursor = Annotated[str | None, Query(max_length=500)]


@contextmanager
def known(at: Installation, *, read_only: bool = False) -> Iterator["Known"]:
    """What an application knows of its callers while the block lasts. `read_only`: it does not note that keys are
    used."""
    broker = at.settings.broker_url
    rates = Rates(
        calls_per_minute=at.settings.calls_per_minute,
        failed_calls_per_minute=at.settings.failed_calls_per_minute,
        redis_url=broker.get_secret_value() if broker else None,
    )
    uses = None if read_only else LastUses(at.database)
    try:
        yield Known(callers=Callers(at.database, used=uses.note if uses else None), rates=rates)
    finally:
        rates.close()
        if uses is not None:
            uses.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Whose keys come, and how often."""

    callers: Callers
    rates: Rates


async def _installation(request: Request) -> Installation:
    at: Installation = request.app.state.installation
    return at


async def identified(known: Known, key: str | None, address: str) -> Caller:
    """Whose key it is. Raises `Unauthenticated`, and `RateLimited` where too many wrong ones came from."""
    caller = known.callers.recall(key)
    if caller is not None:
        return caller
    if key and not known.callers.has_known(key):
        known.rates.admit(address)
    try:
        return await run_in_threadpool(known.callers.authenticate, key)
    except Unauthenticated:
        if key:
            known.rates.failed(address)
        raise


At = Annotated[Installation, Depends(_installation)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Who calls, and what it can reach: its sessions act for the caller, and see the caller's tenant alone."""

    at: Installation
    caller: Caller

    def reading(self) -> AbstractContextManager[Session]:
        return self.at.database.reading(by=self.caller.actor)

    def writing(self) -> AbstractContextManager[Session]:
        return self.at.database.writing(by=self.caller.actor)

    def subject_ref(self, subject_id: str) -> str:
        return self.at.keys.subject_ref(self.caller.tenant_id, subject_id)


def call_with(scope: Scope) -> Any:
    """A dependency: the call, whose key must carry `scope`, which the OpenAPI document says too."""
    return Security(_authenticated(scope), scopes=[scope.value])


@functools.cache
def _authenticated(scope: Scope) -> Callable[..., Any]:
    async def authenticated(
        request: Request, header: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
    ) -> Call:
        """Whose key it is, that it may still call in this minute, and may do this."""
        known: Known = request.app.state.known
        address = request.client.host if request.client else ""
        caller = await identified(known, header.credentials if header else None, address)
        request.scope[WINDOW] = known.rates.count(caller)
        caller.require(scope)
        return Call(at=request.app.state.installation, caller=caller)

    return authenticated


def once_with(scope: Scope) -> Any:
    """A dependency for a creating POST: its key, its `Idempotency-Key`, and a keyed hash of what it asks."""

    async def once(
        request: Request,
        call: Annotated[Call, call_with(scope)],
        idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255)] = None,
    ) -> Once:
        kind = request.headers.get("content-type", "").lower()
        form = kind.startswith(("multipart/", "application/x-www-form-urlencoded"))  # read already, and not kept
        body = b"" if form else await request.body()
        fingerprint = call.at.keys.fingerprint(
            request.method.encode(), f"{request.url.path}?{request.url.query}".encode(), body
        )
        name = idempotency_key and call.at.keys.fingerprint(  # some name people in it
            b"once", call.caller.key_id.encode(), idempotency_key.encode()
        )
        return Once(name=name, fingerprint=fingerprint)

    return Depends(once)


def respond(answer: Answer) -> JSONResponse:
    return JSONResponse(answer.body, answer.status, {"Location": answer.location} if answer.location else None)
