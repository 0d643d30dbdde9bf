"""Endpoints, made from the operations of the contract: path, scope, parameters, answer and problems are theirs."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends
from fastapi import Query as InQuery
from fastapi.params import Form
from fastapi.responses import JSONResponse, Response

from app.access.idempotency import Once
from app.api import fields
from app.api.calls import Call, call_with, once_with
from app.api.problems import responses
from lethe.contract.operation import Operation

F = TypeVar("F", bound=Callable[..., Any])
_PREFIX = "/v1"
_SERVED: dict[Callable[..., Any], Operation[..., Any]] = {}


def operation_of(endpoint: Callable[..., Any]) -> Operation[..., Any]:
    """The operation that `endpoint` serves. Raises `TypeError` if it serves none."""
    if endpoint not in _SERVED:
        raise TypeError(f"{endpoint.__name__} serves no operation")
    return _SERVED[endpoint]


def serves(
    router: APIRouter, operation: Operation[..., Any], *, more: dict[int | str, dict[str, Any]] | None = None
) -> Callable[[F], F]:
    """Serve `operation` by the function below: its parameters are the ids of the path by name, `Call`, `Once`, the
    body, the query, and whatever else FastAPI knows. `more`: answers that are no problems."""

    def register(endpoint: F) -> F:
        _SERVED[endpoint] = operation
        router.add_api_route(
            operation.path.removeprefix(_PREFIX),
            _typed(endpoint, operation),
            methods=[operation.method],
            name=operation.name,
            description=operation.does,
            tags=[operation.tag],
            status_code=operation.status,
            response_model=None if operation.gives in (bytes, type(None)) else operation.gives,
            response_class=Response if operation.gives is bytes else JSONResponse,
            responses=responses(*operation.problems) | (more or {}),
            dependencies=[Depends(fields.known_only)] if _is_form(endpoint) else None,
        )
        return endpoint

    return register


def _is_form(endpoint: Callable[..., Any]) -> bool:
    """Return True if the endpoint takes fields of a form."""
    annotations = (one.annotation for one in inspect.signature(endpoint).parameters.values())
    return any(isinstance(marker, Form) for one in annotations for marker in getattr(one, "__metadata__", ()))


def _typed(endpoint: Callable[..., Any], operation: Operation[..., Any]) -> Callable[..., Any]:
    """The endpoint with parameters as FastAPI is to see them."""
    assert operation.scope is not None
    known: dict[Any, Any] = {
        Call: Annotated[Call, call_with(operation.scope)],
        Once: Annotated[Once, once_with(operation.scope)],
        operation.query: Annotated[operation.query, InQuery()],
    }
    parameters = list(inspect.signature(endpoint).parameters.values())
    taken = {parameter.annotation for parameter in parameters}
    if missing := {Call, *([operation.takes] if operation.takes else [])} - taken:
        raise TypeError(f"{endpoint.__name__} does not take {missing}")
    if operation.keyed != (Once in taken):
        raise TypeError(f"{endpoint.__name__} takes an Idempotency-Key where {operation} does not, or the other way")
    typed = [one.replace(annotation=known.get(one.annotation, one.annotation)) for one in parameters]
    if operation.query not in taken:  # unknown parameters are refused
        typed.append(inspect.Parameter("_query", inspect.Parameter.KEYWORD_ONLY, annotation=known[operation.query]))

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
