"""A page asks what callers of the API ask: the same functions, which need the same scopes."""

import functools
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import Response

from app.access.idempotency import Once
from app.api.calls import Call
from app.api.gateway import operation_of
from app.api.intake import Intake

T = TypeVar("T")


def may(call: Call, endpoint: Callable[..., Any]) -> bool:
    """True if `call` may ask `endpoint`: what somebody may not do is not offered to them."""
    scope = operation_of(endpoint).scope
    return scope is None or call.caller.has(scope)


def require(call: Call, endpoint: Callable[..., Any]) -> None:
    """Raises `ScopeMissing` where `call` may not ask `endpoint`."""
    scope = operation_of(endpoint).scope
    if scope is not None:
        call.caller.require(scope)


def ask(call: Call, intake: Intake, endpoint: Callable[..., T], /, **arguments: Any) -> T:
    """The answer of `endpoint` to `call`, as if it had come over HTTP: its ids, its body, and what its query may say.
    Raises `ScopeMissing`, and what it raises."""
    require(call, endpoint)
    query = operation_of(endpoint).query
    said = {name: arguments.pop(name) for name in query.model_fields.keys() & arguments.keys()}
    known = {
        Call: call,
        Intake: intake,
        Once: Once(name=None, fingerprint=""),
        Response: Response(),
        query: query.model_validate(said),
    }
    given = {name: known[annotation] for name, annotation in _types(endpoint).items() if annotation in known}
    return endpoint(**given, **arguments)


@functools.cache
def _types(endpoint: Callable[..., Any]) -> dict[str, Any]:
    """The types of the parameters of `endpoint`."""
    return {name: found for name, found in typing.get_type_hints(endpoint).items() if name != "return"}
