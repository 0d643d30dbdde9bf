"""Methods of a client's resources, made from the operations of the contract, for both clients."""

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Generic, ParamSpec, TypeVar, overload

from pydantic import BaseModel, Field, ValidationError

from lethe.contract.fields import Page
from lethe.contract.operation import Operation
from lethe.contract.problems import FieldError, InputInvalid
from lethe.http import AsyncHttp, Http, Options

P = ParamSpec("P")
T = TypeVar("T")
H = TypeVar("H", Http, AsyncHttp)


class Resource(Generic[H]):
    """The calls about one kind of thing, of either client."""

    def __init__(self, http: H) -> None:
        self._http = http


class Keyed(BaseModel):
    """An argument of calls that take an `Idempotency-Key`: with your own, the call may be repeated by another process."""

    idempotency_key: str | None = Field(default=None, exclude=True)


class _Method(Generic[P]):
    """A method that makes one call. `takes`: its keyword arguments, where they are not those of the operation."""

    def __init__(self, operation: Operation[P, Any], takes: type[BaseModel] | None = None) -> None:
        self.operation: Operation[..., Any] = operation
        self.takes: type[BaseModel] = takes or operation.takes or operation.query
        self.__doc__ = operation.does

    def made(self, resource: Resource[Any], make: Callable[..., Any]) -> Callable[..., Any]:
        """The method, of a client's resource; `make` makes the call."""

        def method(*ids: str | int, **arguments: Any) -> Any:
            if len(ids) != len(self.operation.ids):
                raise TypeError(f"Expected {', '.join(self.operation.ids) or 'no ids'}")
            given = checked(self.takes, arguments)
            key = given.idempotency_key if isinstance(given, Keyed) else None
            return make(*ids, given=given, **({"options": Options(idempotency_key=key)} if key else {}))

        method.__name__, method.__doc__ = self.operation.name, self.operation.does
        method.__signature__ = self.signature  # type: ignore[attr-defined]
        return method

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """Ids by position, the rest by name."""
        ids = [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY, annotation=str) for name in self.operation.ids
        ]
        named = inspect.signature(self.takes).parameters.values()
        return inspect.Signature([*ids, *named])


class call(_Method[P], Generic[P, T]):
    """One call, and what it is answered."""

    @overload
    def __init__(self, operation: Operation[P, T]) -> None: ...
    @overload
    def __init__(self, operation: Operation[..., T], takes: Callable[P, BaseModel]) -> None: ...
    def __init__(self, operation: Any, takes: Any = None) -> None:
        super().__init__(operation, takes)

    @overload
    def __get__(self, resource: Resource[Http], owner: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, resource: Resource[AsyncHttp], owner: Any) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, resource: Any, owner: Any) -> Any:
        if resource is None:
            return self
        return self.made(resource, functools.partial(resource._http.call, self.operation))


class pages(_Method[P], Generic[P, T]):
    """Every item of a list; a page is fetched when its first item is asked for."""

    def __init__(self, operation: Operation[P, Page[T]]) -> None:
        super().__init__(operation)

    @overload
    def __get__(self, resource: Resource[Http], owner: Any) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, resource: Resource[AsyncHttp], owner: Any) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, resource: Any, owner: Any) -> Any:
        if resource is None:
            return self
        return self.made(resource, functools.partial(resource._http.pages, self.operation))


class pieces(_Method[P]):
    """A long answer as it comes."""

    def __init__(self, operation: Operation[P, bytes]) -> None:
        super().__init__(operation)

    @overload
    def __get__(self, resource: Resource[Http], owner: Any) -> Callable[P, Iterator[bytes]]: ...
    @overload
    def __get__(self, resource: Resource[AsyncHttp], owner: Any) -> Callable[P, AsyncIterator[bytes]]: ...
    def __get__(self, resource: Any, owner: Any) -> Any:
        if resource is None:
            return self
        return self.made(resource, functools.partial(resource._http.pieces, self.operation))


def checked(takes: type[BaseModel], arguments: dict[str, Any]) -> BaseModel:
    """Arguments as the gateway takes them. Raises `InputInvalid` before anything is sent, which quotes none of them,
    and `TypeError` for one that there is not."""
    if unknown := arguments.keys() - takes.model_fields.keys():
        raise TypeError(f"Unexpected arguments: {', '.join(sorted(unknown))}")
    try:
        return takes(**{name: value for name, value in arguments.items() if value is not None})
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
    raise InputInvalid(
        "The arguments are not what the call takes.",
        [FieldError(".".join(map(str, fault["loc"])) or "body", str(fault["msg"])) for fault in faults],
    )
