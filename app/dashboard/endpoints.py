"""A page asks what callers of the API ask: the same functions, which need the same scopes."""

import functools
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import Response
from fastapi.params import Security

from app.access.idempotency import Once
from app.api.calls import Call
from app.api.intake import Intake
from lethe.contract.sets import Scope

T = TypeVar("T")


@functools.cache
def scopes_of(endpoint: Callable[..., Any]) -> frozenset[Scope]:
    """What `endpoint` asks of the key it is called with. Raises `TypeError` if it asks for nothing."""
    scopes = frozenset(
        Scope(scope)
        for annotation in typing.get_type_hints(endpoint, include_extras=True).values()
        for marker in typing.get_args(annotation)[1:]
        if isinstance(marker, Security)
        for scope in marker.scopes or ()
    )
    if not scopes:
        raise TypeError(f"{endpoint.__name__} asks for no scope")
    return scopes


def may(call: Call, endpoint: Callable[..., Any]) -> bool:
    """Whether `call` may ask `endpoint`: what somebody may not do is not offered to them."""
    return all(call.caller.has(scope) for scope in scopes_of(endpoint))


def require(call: Call, endpoint: Callable[..., Any]) -> None:
    """Raises `ScopeMissing` where `call` may not ask `endpoint`."""
    for scope in sorted(scopes_of(endpoint)):
        call.caller.require(scope)


def ask(call: Call, intake: Intake, endpoint: Callable[..., T], /, **arguments: Any) -> T:
    """What `endpoint` answers to `call`, as if it had come over HTTP. Raises `ScopeMissing`, and what it raises."""
    require(call, endpoint)
    known = {Call: call, Intake: intake, Once: Once(name=None, fingerprint=""), Response: Response()}
    given = {name: known[annotation] for name, annotation in _types(endpoint).items() if annotation in known}
    return endpoint(**given, **arguments)


@functools.cache
def _types(endpoint: Callable[..., Any]) -> dict[str, Any]:
    """Of the parameters of `endpoint`."""
    return {name: found for name, found in typing.get_type_hints(endpoint).items() if name != "return"}
