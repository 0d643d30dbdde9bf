"""Endpoints generated from the contract's operations, which declare path, scope, parameters, response and problems."""

import copy
import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, TypeVar

import anyio.to_thread
from fastapi import APIRouter, Depends, FastAPI, Path as InPath, Query as InQuery, Request
from fastapi.params import Form
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, compile_path

from app.access.idempotency import Once
from app.api import calls, document, problems
from lethe import sockets
from lethe.contract.fields import expected
from lethe.contract.operation import Operation
from lethe.contract.problems import FieldError, InputInvalid
from lethe.encoding.columns import is_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """Router with a prefix.

    The OpenAPI document leaves out routers that are not `described`. The accounting service, whose database is
    read-only, serves the routers with `by_accounting`.
    """

    router: APIRouter
    prefix: str = "/v1"
    described: bool = True
    by_accounting: bool = False

    def routes(self) -> Iterator[BaseRoute]:
        """Yield copies of the router's routes at their full paths. FastAPI would match an included router twice for
        each call, and its route within it twice again."""
        for route in self.router.routes:
            assert isinstance(route, APIRoute)
            placed = copy.copy(route)
            placed.path = self.prefix + route.path
            placed.path_regex, placed.path_format, placed.param_convertors = compile_path(placed.path)
            placed.unique_id = document.operation_id(placed)
            placed.include_in_schema = self.described and route.include_in_schema
            yield placed


def of_features() -> tuple[Mount, ...]:
    """Return the `MOUNTS` of every feature's `endpoints` module."""
    return sockets.plugs("app.features", "endpoints", "MOUNTS")


Lifespan: TypeAlias = Callable[[FastAPI], AbstractContextManager[None]]
"""Context that a feature enters for the lifetime of an application: a gateway or the accounting service (the
`LIFESPANS` socket)."""


@contextmanager
def lifespans_of_features(app: FastAPI) -> Iterator[None]:
    """Keep the `LIFESPANS` of every feature's `endpoints` module open for the duration of the block."""
    with ExitStack() as opened:
        for lifespan in sockets.plugs("app.features", "endpoints", "LIFESPANS"):
            opened.enter_context(lifespan(app))
        yield


def limit_threads() -> None:
    """Limit the running event loop to executing at most `_THREADS` endpoints at a time."""
    anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS


_THREADS = 12
"""Maximum number of endpoints running concurrently. Database pools have 15 connections, so each of them can get one."""
_MAX_SHOWN_LENGTH = 60
_KINDS = {
    "request": "deletion request",
    "key": "API key",
    "subject": "person, as the rows of the dataset have it",
    "user": "person who logs in",
    "issuer": "identity issuer",
    "network": "public network",
    "delivery": "webhook delivery",
    "agent": "authorised agent",
}
"""Nouns for the objects that ids in paths identify, where the parameter name does not provide one."""
F = TypeVar("F", bound=Callable[..., Any])
_PREFIX = "/v1"
SERVED: dict[Callable[..., Any], Operation[..., Any]] = {}
"""Operation served by each endpoint."""


def serves(
    router: APIRouter, operation: Operation[..., Any], *, more: dict[int | str, dict[str, Any]] | None = None
) -> Callable[[F], F]:
    """Decorate the endpoint of `operation`. Its parameters are `Call`, `Once`, the body, the query, the ids in the path
    by name, and any others that FastAPI resolves. `more` documents additional responses."""

    def register(endpoint: F) -> F:
        SERVED[endpoint] = operation
        router.add_api_route(
            operation.path.removeprefix(_PREFIX),
            _typed(endpoint, operation),
            methods=[operation.method],
            name=operation.name,
            generate_unique_id_function=document.operation_id,
            description=operation.does,
            tags=[operation.tag],
            status_code=operation.status,
            response_model=None if operation.gives in (bytes, type(None)) else operation.gives,
            response_class=Response if operation.gives is bytes else JSONResponse,
            responses=problems.responses(*operation.problems) | (more or {}),
            dependencies=[Depends(_known_fields_only)] if _is_form(endpoint) else None,
        )
        return endpoint

    return register


def _is_form(endpoint: Callable[..., Any]) -> bool:
    """Return True if the endpoint takes form fields."""
    annotations = (annotation.annotation for annotation in inspect.signature(endpoint).parameters.values())
    return any(
        isinstance(marker, Form) for annotation in annotations for marker in getattr(annotation, "__metadata__", ())
    )


async def _known_fields_only(request: Request) -> None:
    """Raise `InputInvalid` for unknown form fields, which FastAPI would ignore."""
    fields = {field.alias for field in request.scope["route"].dependant.body_params}
    names = dict.fromkeys(name for name, _ in (await request.form()).multi_items())
    repeatable = [name for name in names if is_name(name) and len(name) <= _MAX_SHOWN_LENGTH]
    faults = [
        FieldError(name if name in repeatable else "form", f"is no field of this form: {expected(fields, found=name)}")
        for name in names
        if name not in fields
    ]
    if faults:
        raise InputInvalid("The form has what this call does not know.", faults)


def _described(parameter: inspect.Parameter, operation: Operation[..., Any]) -> Any:
    """Return the annotation of a parameter, with a description if the parameter is an id in the path."""
    kind, _, suffix = parameter.name.rpartition("_")
    if not kind or suffix != "id" or f"{{{parameter.name}}}" not in operation.path:
        return parameter.annotation
    return Annotated[parameter.annotation, InPath(description=f"ID of the {_KINDS.get(kind, kind)}.")]


def _typed(endpoint: Callable[..., Any], operation: Operation[..., Any]) -> Callable[..., Any]:
    """Return the endpoint with a signature that FastAPI can resolve."""
    assert operation.scope is not None
    resolved: dict[Any, Any] = {
        calls.Call: Annotated[calls.Call, calls.call_with(operation.scope)],
        Once: Annotated[Once, calls.once_with(operation.scope)],
        operation.query: Annotated[operation.query, InQuery()],
    }
    parameters = list(inspect.signature(endpoint).parameters.values())
    annotations = {parameter.annotation for parameter in parameters}
    if missing := {calls.Call, *([operation.takes] if operation.takes else [])} - annotations:
        raise TypeError(f"{endpoint.__name__} does not take {missing}")
    if operation.keyed != (Once in annotations):
        raise TypeError(f"{endpoint.__name__} takes an Idempotency-Key where {operation} does not, or the other way")
    typed = [
        parameter.replace(annotation=resolved.get(parameter.annotation, _described(parameter, operation)))
        for parameter in parameters
    ]
    # FastAPI refuses unknown query parameters only if the endpoint takes a query.
    if operation.query not in annotations:
        typed.append(inspect.Parameter("_query", inspect.Parameter.KEYWORD_ONLY, annotation=resolved[operation.query]))

    if inspect.iscoroutinefunction(endpoint):

        @functools.wraps(endpoint)
        async def answered(*, _query: Any = None, **arguments: Any) -> Any:
            return await endpoint(**arguments)
    else:

        @functools.wraps(endpoint)
        def answered(*, _query: Any = None, **arguments: Any) -> Any:
            return endpoint(**arguments)

    answered.__signature__ = inspect.Signature(typed)  # type: ignore[attr-defined]
    return answered
