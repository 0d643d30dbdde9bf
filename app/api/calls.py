"""Context of a call: the installation, the caller, and any response already stored for its Idempotency-Key."""

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
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

from app.access import idempotency, service as access, subjects
from app.access.callers import Callers, LastUses
from app.access.rates import Rates
from app.db import bulk, tables
from app.installations import Installation
from lethe import sockets
from lethe.contract import problems, sets

_bearer = HTTPBearer(auto_error=False, description="API key of the caller.")

WINDOW = "lethe.window"
"""ASGI scope key of the `RateWindow` of the caller's API key."""
CALLER = "lethe.caller"
"""ASGI scope key of the authenticated `Caller`, who has the scopes that the route requires."""
REFUSAL = "lethe.refusal"
"""ASGI scope key of the `Problem` that refused the caller, on routes outside `/v1`."""
MAX_KEY_LENGTH = 255
"""Maximum length of an Idempotency-Key."""
_MAX_FAULTS = 10
_AMBIGUOUS = re.compile(rb"(?:^|&)subject_id=[^&]*\+")
_STRANGERS = 2
_AT_PROVIDERS = 4
Cursor = Annotated[
    str | None, Query(max_length=500, description="`next_cursor` of the previous page. Default: the first page.")
]
T = TypeVar("T")


def number_in(cursor: str | None) -> int | None:
    """Return the sequence number in a cursor, or None if there is no cursor. Raises `InputInvalid`."""
    if cursor is None:
        return None
    if not (cursor.isdecimal() and cursor.isascii() and len(cursor) < 10):
        message = "Expected the next_cursor of an earlier page"
        raise problems.InputInvalid(message, [problems.FieldError("cursor", message)])
    return int(cursor)


def page_of(items: Sequence[T], *, limit: int, cursor: str | None) -> bulk.Page[T]:
    """Return one page of a short, append-only list."""
    start = number_in(cursor) or 0
    end = start + limit
    return bulk.Page(list(items[start:end]), str(end) if len(items) > end else None)


@contextmanager
def known(installation: Installation, *, read_only: bool = False) -> Iterator["Known"]:
    """Yield an application's cache of known callers. With `read_only`, keys' last uses are not stored."""
    broker = installation.settings.broker_url
    rates = Rates(
        calls_per_minute=installation.settings.calls_per_minute,
        failed_calls_per_minute=installation.settings.failed_calls_per_minute,
        broker_url=broker.get_secret_value() if broker else None,
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
    """An application's recently authenticated callers and their call rates."""

    callers: Callers
    rates: Rates
    strangers: anyio.CapacityLimiter
    """Maximum number of threads that look up unknown keys and check passwords."""
    providers: anyio.CapacityLimiter
    """Maximum number of threads that call an identity provider."""


async def _installation(request: Request) -> Installation:
    installation: Installation = request.app.state.installation
    return installation


async def identified(state: Known, key: str | None, address: str) -> access.Caller:
    """Return a key's caller. Raises `Unauthenticated`, or `RateLimited` after too many wrong keys from `address`."""
    caller = state.callers.recall(key)
    if caller is not None:
        return caller
    if not key:
        raise access.unauthenticated()
    limiter = None
    if not state.callers.has_known(key):
        state.rates.admit(address)
        limiter = state.strangers
    try:
        return await anyio.to_thread.run_sync(state.callers.authenticate, key, limiter=limiter)
    except problems.Unauthenticated:
        state.rates.failed(address)
        raise


async def let_in(state: Known, scope: HTTPScope, scopes: Iterable[sets.Scope]) -> access.Caller:
    """Return a request's caller based on its headers alone: authenticate the key, count the call, require `scopes`."""
    key = _bearer_of(scope)
    try:
        caller = await identified(state, key, address_of(scope))
    # Metrics report an unreachable database, so the last known caller may read them.
    except OperationalError:
        before = state.callers.recall(key, however_old=True) if set(scopes) == {sets.Scope.METRICS_READ} else None
        if before is None:
            raise
        caller = before
    scope[WINDOW] = state.rates.count(caller)
    for required in scopes:
        caller.require(required)
    return caller


def _bearer_of(scope: HTTPScope) -> str | None:
    kind, key = get_authorization_scheme_param(Headers(scope=scope).get("authorization"))
    return key if kind.lower() == "bearer" else None


def address_of(scope: HTTPScope) -> str:
    """Return the client address of a call; empty if unknown."""
    client = scope.get("client")
    return client[0] if client else ""


At = Annotated[Installation, Depends(_installation)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Context of a call to an endpoint. Its sessions act for the caller and are bound to the caller's tenant."""

    installation: Installation
    caller: access.Caller
    _cache: dict[Callable[[Session], Any], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def find_once(self, session: Session, find: Callable[[Session], T]) -> T:
        """Return `find(session)`, computed once for all endpoints that a dashboard page calls."""
        if find not in self._cache:
            self._cache[find] = find(session)
        result: T = self._cache[find]
        return result

    def reading(self) -> AbstractContextManager[Session]:
        return self.installation.database.reading(by=self.caller.reader)

    def writing(self) -> AbstractContextManager[Session]:
        return self.installation.database.writing(by=self.caller.actor)

    def perform(
        self, once: idempotency.Once, make: Callable[[Session], idempotency.StoredResponse]
    ) -> idempotency.StoredResponse:
        """Run `make` in one transaction and return its response; for a repeated call, return the first response.

        Raises `IdempotencyConflict`.
        """
        with self.writing() as session:
            return idempotency.perform(session, once, make)

    def require_room(self, num_bytes: int = 0, *, session: Session | None = None) -> None:
        """Raise `StorageQuotaExceeded` if `num_bytes` more bytes would exceed the tenant's storage quota (extension
        socket `QUOTAS`)."""
        for require in sockets.plugs("app.features", "hooks", "QUOTAS"):
            with nullcontext(session) if session else self.reading() as reading:
                require(reading, self.installation.settings, num_bytes)

    def own(self, request: tables.DeletionRequest) -> tables.DeletionRequest:
        """Return the request if the caller may change it, or raise `RequestUnknown`."""
        if self.caller.own_requests_only and request.maker != self.caller.maker:
            raise problems.RequestUnknown(request_id=request.id)
        return request

    def subject_ref(self, subject_id: str, *, path: str = "subject_id") -> str:
        """Return a subject id's pseudonym under the tenant's rule. Raises `InputInvalid`, naming `path`."""
        return self.installation.keys.subject_ref(self.caller.tenant_id, self.normal(subject_id, path=path))

    def subject_refs(self, subject_ids: Iterable[str]) -> list[str]:
        """Return the pseudonyms of many subject ids. Raises `InputInvalid`."""
        rule = self.caller.policy.subject_rule
        normal = subject_ids if rule == "exact" else map(self.normal, subject_ids)
        return self.installation.keys.subject_refs(self.caller.tenant_id, normal)

    def references(self, kind: str | None) -> Callable[[Iterable[str]], list[str]]:
        """Return a function that maps ids of `kind` (subject ids if None) to pseudonyms or raises `InputInvalid`."""
        if kind is None:
            return self.subject_refs
        for references in sockets.plugs("app.features", "hooks", "REFERENCES"):
            return references(self, kind)  # type: ignore[no-any-return]
        fault = problems.FieldError("kind", "expected none: this installation has no kinds of identifiers")
        raise problems.InputInvalid("This installation has no kinds of identifiers.", [fault])

    def in_other_cases(self, *subject_ids: str) -> list[str]:
        """Return pseudonyms for those case variants of ids that the tenant's rule treats as different ids."""
        rule = self.caller.policy.subject_rule
        others = {other for subject_id in subject_ids for other in subjects.in_other_cases(subject_id, rule)}
        return self.installation.keys.subject_refs(self.caller.tenant_id, others)

    def normal(self, subject_id: str, *, path: str = "subject_id") -> str:
        """Return a subject id's normal form under the tenant's rule. Raises `InputInvalid`, naming `path`."""
        normal_form = subjects.normal(subject_id, self.caller.policy.subject_rule)
        if fault := subjects.fault_of(normal_form):
            raise problems.InputInvalid("No row can have this subject id.", [problems.FieldError(path, fault)])
        return normal_form


def call_with(scope: sets.Scope) -> Any:
    """Return the dependency that gives an endpoint its `Call` and documents the required `scope`."""
    return Security(_authenticated(scope), scopes=[scope.value])


@functools.cache
def _authenticated(scope: sets.Scope) -> Callable[..., Any]:
    async def authenticated(
        request: Request, header: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
    ) -> Call:
        """Return the context of a call whose caller `KeyFirst` authenticated before the body was read."""
        refusal: problems.Problem | None = request.scope.get(REFUSAL)
        if refusal is not None:
            raise refusal
        caller: access.Caller = request.scope[CALLER]
        caller.require(scope)
        if request.scope["query_string"] and request.scope["path"].startswith("/v1/"):
            _check_query(request)
        return Call(installation=request.app.state.installation, caller=caller)

    _GUARDS[authenticated] = scope
    return authenticated


_GUARDS: dict[Callable[..., Any], sets.Scope] = {}


def scopes_of(dependant: Dependant) -> frozenset[sets.Scope]:
    """Return the scopes that a route requires of a key."""
    own = {_GUARDS[dependant.call]} if dependant.call in _GUARDS else set()
    return frozenset(own).union(*(scopes_of(dependency) for dependency in dependant.dependencies))


def _check_query(request: Request) -> None:
    """Raise `InputInvalid` for repeated query parameters, and for subject ids in which a `+` may stand for a space."""
    times = Counter(name for name, _ in request.query_params.multi_items())
    faults = [problems.FieldError(name, "expected it once") for name, count in times.items() if count > 1]
    if faults:
        raise problems.InputInvalid("The query has the same parameter twice.", faults[:_MAX_FAULTS])
    if _AMBIGUOUS.search(request.scope["query_string"]):
        fault = problems.FieldError(
            "subject_id", "expected %2B for a plus sign and %20 for a space, where + may be either"
        )
        raise problems.InputInvalid("The query leaves open whose subject id it has.", [fault])


def once_with(scope: sets.Scope) -> Any:
    """Return the dependency that supplies the `Once` of a POST: its Idempotency-Key and a keyed hash of the call."""

    async def once(
        request: Request,
        call: Annotated[Call, call_with(scope)],
        idempotency_key: Annotated[
            str | None,
            Header(
                min_length=1,
                max_length=MAX_KEY_LENGTH,
                description="Text of your choice that identifies this call. A repetition with the same text changes "
                "nothing and gets the first response.",
            ),
        ] = None,
    ) -> idempotency.Once:
        return await once_of(request, call, idempotency_key)

    return Depends(once)


async def once_of(request: Request, call: Call, idempotency_key: str | None) -> idempotency.Once:
    """Return the `Once` of a call with this Idempotency-Key."""
    kind = request.headers.get("content-type", "").lower()
    # The bytes of a form have been consumed by its parser.
    is_form = kind.startswith(("multipart/", "application/x-www-form-urlencoded"))
    body = b"" if is_form else await request.body()
    target = request.scope["path"].encode() + b"?" + request.scope["query_string"]
    fingerprint = call.installation.keys.fingerprint(request.method.encode(), target, body)
    # Some callers name people in the key, so only its keyed hash is stored.
    name = idempotency_key and call.installation.keys.fingerprint(
        b"once", call.caller.id.encode(), idempotency_key.encode()
    )
    return idempotency.Once(name=name, fingerprint=fingerprint)


def created(out: BaseModel, location: str) -> idempotency.StoredResponse:
    return idempotency.StoredResponse(status=201, location=location, body=out.model_dump(mode="json", by_alias=True))


def accepted(out: BaseModel, location: str) -> idempotency.StoredResponse:
    return idempotency.StoredResponse(status=202, location=location, body=out.model_dump(mode="json", by_alias=True))


def respond(answer: idempotency.StoredResponse) -> JSONResponse:
    return JSONResponse(answer.body, answer.status, {"Location": answer.location} if answer.location else None)
