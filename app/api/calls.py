"""The context of every call: the installation, the caller, and whether the call was made before."""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import anyio.to_thread
from fastapi import Depends, Header, Query, Request, Security
from fastapi.dependencies.models import Dependant
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param
from pydantic import BaseModel
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session
from starlette.datastructures import Headers
from starlette.types import Scope as HTTPScope

from app.access import idempotency, subjects
from app.access import service as access
from app.access.callers import Callers, LastUses
from app.access.idempotency import Answer, Once
from app.access.rates import Rates
from app.access.service import Caller
from app.db.paging import Page
from app.db.tables import DeletionRequest
from app.installations import Installation
from lethe.contract.problems import FieldError, InputInvalid, Problem, RequestUnknown, Unauthenticated
from lethe.contract.sets import Scope

_bearer = HTTPBearer(auto_error=False, description="An API key")

WINDOW = "lethe.window"
"""The key in the scope of a call for what is left of its key's minute."""
CALLER = "lethe.caller"
"""The key in the scope for the caller whose key came, which may do what the route asks for."""
REFUSAL = "lethe.refusal"
"""The key in the scope for the reason why there is no caller, for a route that gives it in words of its own."""
_MOST_FAULTS = 10
_STRANGERS = 2
_AT_PROVIDERS = 4
Cursor = Annotated[str | None, Query(max_length=500)]
T = TypeVar("T")


def number_in(cursor: str | None) -> int | None:
    """A place in what is numbered. Raises `InputInvalid` for a cursor that no page gave."""
    if cursor is None:
        return None
    if not (cursor.isdecimal() and cursor.isascii() and len(cursor) < 10):
        message = "Expected the next_cursor of an earlier page"
        raise InputInvalid(message, [FieldError("cursor", message)])
    return int(cursor)


def page_of(found: Sequence[T], *, limit: int, cursor: str | None) -> Page[T]:
    """A page of a short list that only ever grows at its end."""
    start = number_in(cursor) or 0
    end = start + limit
    return Page(list(found[start:end]), str(end) if len(found) > end else None)


@contextmanager
def known(installation: Installation, *, read_only: bool = False) -> Iterator["Known"]:
    """Share what an application knows of its callers while the block lasts. `read_only`: it does not note that keys are
    used."""
    broker = installation.settings.broker_url
    rates = Rates(
        calls_per_minute=installation.settings.calls_per_minute,
        failed_calls_per_minute=installation.settings.failed_calls_per_minute,
        redis_url=broker.get_secret_value() if broker else None,
    )
    uses = None if read_only else LastUses(installation.database)
    try:
        callers = Callers(installation.database, used=uses.note if uses else None)
        yield Known(
            callers=callers,
            rates=rates,
            strangers=anyio.CapacityLimiter(_STRANGERS),
            providers=anyio.CapacityLimiter(_AT_PROVIDERS),
        )
    finally:
        rates.close()
        if uses is not None:
            uses.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The callers that an application knows, and how often they call."""

    callers: Callers
    rates: Rates
    strangers: anyio.CapacityLimiter
    """Limit of threads that look up keys which nobody has come with lately, and passwords."""
    providers: anyio.CapacityLimiter
    """Limit of threads that ask an identity provider."""


async def _installation(request: Request) -> Installation:
    installation: Installation = request.app.state.installation
    return installation


async def identified(known: Known, key: str | None, address: str) -> Caller:
    """Identify the caller of a key. Raises `Unauthenticated`, and `RateLimited` where too many wrong ones came from."""
    caller = known.callers.recall(key)
    if caller is not None:
        return caller
    if not key:
        raise access.unauthenticated()
    limiter = None
    if not known.callers.has_known(key):
        known.rates.admit(address)
        limiter = known.strangers
    try:
        return await anyio.to_thread.run_sync(known.callers.authenticate, key, limiter=limiter)
    except Unauthenticated:
        known.rates.failed(address)
        raise


async def let_in(known: Known, scope: HTTPScope, scopes: Iterable[Scope]) -> Caller:
    """Authenticate the key, enforce its rate limit, check that it has all `scopes`: from the head of the call alone."""
    key = _bearer_of(scope)
    try:
        caller = await identified(known, key, address_of(scope))
    except OperationalError:  # monitoring is to be told that there is no database
        before = known.callers.last_known(key) if set(scopes) == {Scope.METRICS_READ} else None
        if before is None:
            raise
        caller = before
    scope[WINDOW] = known.rates.count(caller)
    for one in scopes:
        caller.require(one)
    return caller


def _bearer_of(scope: HTTPScope) -> str | None:
    kind, key = get_authorization_scheme_param(Headers(scope=scope).get("authorization"))
    return key if kind.lower() == "bearer" else None


def address_of(scope: HTTPScope) -> str:
    """The address that a call comes from; empty if that cannot be said."""
    client = scope.get("client")
    return client[0] if client else ""


At = Annotated[Installation, Depends(_installation)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The caller, and what it can reach: its sessions act for the caller, and see the caller's tenant alone."""

    installation: Installation
    caller: Caller
    _found: dict[Callable[[Session], Any], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def find_once(self, session: Session, find: Callable[[Session], T]) -> T:
        """The answer of `find` for all that this call asks: the overview asks two endpoints how models stand."""
        if find not in self._found:
            self._found[find] = find(session)
        found: T = self._found[find]
        return found

    def reading(self) -> AbstractContextManager[Session]:
        return self.installation.database.reading(by=self.caller.reader)

    def writing(self) -> AbstractContextManager[Session]:
        return self.installation.database.writing(by=self.caller.actor)

    def perform(self, once: Once, make: Callable[[Session], Answer]) -> Answer:
        """Do what a call asks in one transaction, unless it was done before: then the answer is the first one.

        Raises `IdempotencyConflict`.
        """
        with self.writing() as session:
            return idempotency.perform(session, once, make)

    def own(self, request: DeletionRequest) -> DeletionRequest:
        """The request, where the caller may do anything with it. Raises `RequestUnknown`."""
        if self.caller.own_requests_only and request.maker != self.caller.maker:
            raise RequestUnknown(f"There is no deletion request {request.id!r}.")
        return request

    def subject_ref(self, subject_id: str, *, path: str = "subject_id") -> str:
        """The pseudonym of this person, by the tenant's rule for subject ids. Raises `InputInvalid`, at `path`."""
        return self.installation.keys.subject_ref(self.caller.tenant_id, self.normal(subject_id, path=path))

    def subject_refs(self, subject_ids: Iterable[str]) -> list[str]:
        """The pseudonyms of many people. Raises `InputInvalid`."""
        rule = self.caller.policy.subject_rule
        normal = subject_ids if rule == "exact" else map(self.normal, subject_ids)
        return self.installation.keys.subject_refs(self.caller.tenant_id, normal)

    def normal(self, subject_id: str, *, path: str = "subject_id") -> str:
        """The form by which the tenant compares subject ids."""
        found = subjects.normal(subject_id, self.caller.policy.subject_rule)
        if not found:
            fault = FieldError(path, "expected more than white space")
            raise InputInvalid("A subject id is more than white space.", [fault])
        return found


def call_with(scope: Scope) -> Any:
    """A dependency: the call, whose key must carry `scope`, which the OpenAPI document says too."""
    return Security(_authenticated(scope), scopes=[scope.value])


@functools.cache
def _authenticated(scope: Scope) -> Callable[..., Any]:
    async def authenticated(
        request: Request, header: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
    ) -> Call:
        """Return the call that was let in before its body was read, and may do this."""
        refusal: Problem | None = request.scope.get(REFUSAL)
        if refusal is not None:
            raise refusal
        caller: Caller = request.scope[CALLER]
        caller.require(scope)
        if request.scope["query_string"] and request.scope["path"].startswith("/v1/"):
            _check_query(request)
        return Call(installation=request.app.state.installation, caller=caller)

    _GUARDS[authenticated] = scope
    return authenticated


_GUARDS: dict[Callable[..., Any], Scope] = {}


def scopes_of(dependant: Dependant) -> frozenset[Scope]:
    """The scopes that a route asks of the key that it is called with; none if it asks for none."""
    mine = {_GUARDS[dependant.call]} if dependant.call in _GUARDS else set()
    return frozenset(mine).union(*(scopes_of(one) for one in dependant.dependencies))


def _check_query(request: Request) -> None:
    """Raises `InputInvalid` for a parameter that is there more than once."""
    times = Counter(name for name, _ in request.query_params.multi_items())
    faults = [FieldError(name, "expected it once") for name, count in times.items() if count > 1]
    if faults:
        raise InputInvalid("The query has the same parameter twice.", faults[:_MOST_FAULTS])


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
        fingerprint = call.installation.keys.fingerprint(
            request.method.encode(), f"{request.url.path}?{request.url.query}".encode(), body
        )
        name = idempotency_key and call.installation.keys.fingerprint(  # some name people in it
            b"once", call.caller.id.encode(), idempotency_key.encode()
        )
        return Once(name=name, fingerprint=fingerprint)

    return Depends(once)


def created(out: BaseModel, location: str) -> Answer:
    return Answer(status=201, location=location, body=out.model_dump(mode="json", by_alias=True))


def accepted(out: BaseModel, location: str) -> Answer:
    return Answer(status=202, location=location, body=out.model_dump(mode="json", by_alias=True))


def respond(answer: Answer) -> JSONResponse:
    return JSONResponse(answer.body, answer.status, {"Location": answer.location} if answer.location else None)
