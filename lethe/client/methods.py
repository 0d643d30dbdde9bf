"""Methods of a client's resources, generated from the operations of the contract for both clients."""

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from types import MethodType
from typing import Any, BinaryIO, ClassVar, Concatenate, Generic, ParamSpec, TypeVar, get_args, overload

from pydantic import BaseModel, Field

from lethe.client import arguments, files
from lethe.client.files import Frame
from lethe.client.http import AsyncHttp, Calls, Http, Options, drive, drive_each
from lethe.contract.fields import PageOut
from lethe.contract.operation import Operation

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
H = TypeVar("H", bound=Http | AsyncHttp)
Target = str | Path | BinaryIO
"""File by its path, or an open file."""
File = str | Path | Frame
"""File by its path, or a frame of pandas, polars or Arrow."""
_UPLOAD_SECONDS = 600.0


class Resource(Generic[H]):
    """Calls about one kind of object, for either client."""

    def __init__(self, http: H) -> None:
        self._http = http
        self._calls: Calls = http.calls if isinstance(http, Http) else http


class Keyed(BaseModel):
    """Optional `idempotency_key`, with which another process may repeat the call."""

    idempotency_key: str | None = Field(
        default=None, exclude=True, description="Your own, so that another process may repeat the call."
    )


def makes(operation: Operation[..., Any]) -> Callable[[F], F]:
    """Record on a hand-written function which operation it performs."""

    def marked(function: F) -> F:
        function.operation = operation  # type: ignore[attr-defined]
        return function

    return marked


class _Method(Generic[P]):
    """Method that makes one call. `takes` declares its keyword arguments if they differ from the operation's."""

    first: ClassVar[tuple[inspect.Parameter, ...]] = ()
    """Parameters between the ids and the keyword arguments."""

    def __init__(
        self, operation: Operation[..., Any], takes: Any = None, *, timeout_seconds: float | None = None
    ) -> None:
        self.operation: Operation[..., Any] = operation
        self.takes: Any = takes or operation.takes or operation.query
        self._timeout_seconds = timeout_seconds
        self._name = operation.name
        self.__doc__ = arguments.explained(operation, self.takes)

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def made(self, make: Callable[..., Any], answer: Any) -> Callable[..., Any]:
        """Return the bound method, which calls `make` and returns `answer`."""

        def method(*positional: Any, **named: Any) -> Any:
            expected = [*self.operation.ids, *(parameter.name for parameter in self.first)]
            if len(positional) != len(expected):
                raise TypeError(f"Expected by position: {', '.join(expected) or 'nothing'}")
            return self._called(make, *positional, **named)

        method.__name__ = method.__qualname__ = self._name
        method.__doc__ = self.__doc__
        signature = arguments.signature(self.operation, self.takes, self.first, answer)
        method.__signature__ = signature  # type: ignore[attr-defined]
        return method

    def _called(self, make: Callable[..., Any], *positional: Any, **named: Any) -> Any:
        body = arguments.checked(self.takes, named)
        has_options = isinstance(body, Keyed) or self._timeout_seconds is not None
        return make(
            self.operation, *positional, arguments=body, **({"options": self._options(body)} if has_options else {})
        )

    def _options(self, body: BaseModel, content: dict[str, Any] | None = None) -> Options:
        key = body.idempotency_key if isinstance(body, Keyed) else None
        return Options(idempotency_key=key, timeout_seconds=self._timeout_seconds, content=content)


class call(_Method[P], Generic[P, T]):
    """Method that makes one call and returns its answer."""

    @overload
    def __init__(self, operation: Operation[P, T], *, timeout_seconds: float | None = None) -> None: ...
    @overload
    def __init__(self, operation: Operation[..., T], takes: Callable[P, BaseModel]) -> None: ...
    def __init__(self, operation: Any, takes: Any = None, *, timeout_seconds: float | None = None) -> None:
        super().__init__(operation, takes, timeout_seconds=timeout_seconds)

    @overload
    def __get__(self, resource: Resource[Http], owner: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, resource: Resource[AsyncHttp], owner: Any) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, resource: Any, owner: Any) -> Any:
        return self if resource is None else self.made(resource._http.call, _answer(resource, self.operation.gives))


def call_one(operation: Operation[..., T], takes: Callable[P, BaseModel]) -> call[Concatenate[str, P], T]:
    """Return a method that makes one call about the object whose id comes first."""
    return call(operation, takes)  # type: ignore[arg-type]


class pages(_Method[P], Generic[P, T]):
    """Method that yields every item of a list. A page is fetched when its first item is consumed."""

    def __init__(self, operation: Operation[P, PageOut[T]]) -> None:
        super().__init__(operation)

    @overload
    def __get__(self, resource: Resource[Http], owner: Any) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, resource: Resource[AsyncHttp], owner: Any) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, resource: Any, owner: Any) -> Any:
        if resource is None:
            return self
        [item] = get_args(self.operation.gives.model_fields["items"].annotation)
        return self.made(resource._http.pages, _each(resource, item))


class pieces(_Method[P]):
    """Method that yields a long answer in pieces as they arrive."""

    def __init__(self, operation: Operation[P, bytes]) -> None:
        super().__init__(operation)

    @overload
    def __get__(self, resource: Resource[Http], owner: Any) -> Callable[P, Iterator[bytes]]: ...
    @overload
    def __get__(self, resource: Resource[AsyncHttp], owner: Any) -> Callable[P, AsyncIterator[bytes]]: ...
    def __get__(self, resource: Any, owner: Any) -> Any:
        return self if resource is None else self.made(resource._http.pieces, _each(resource, bytes))


class saved(_Method[P]):
    """Method that writes a long answer to an open file, or to a path, which is replaced only by a complete answer."""

    first = (inspect.Parameter("to", inspect.Parameter.POSITIONAL_ONLY, annotation=Target),)

    def __init__(self, operation: Operation[P, bytes]) -> None:
        super().__init__(operation)

    @overload
    def __get__(self, resource: Resource[Http], owner: Any) -> Callable[Concatenate[Target, P], None]: ...
    @overload
    def __get__(
        self, resource: Resource[AsyncHttp], owner: Any
    ) -> Callable[Concatenate[Target, P], Awaitable[None]]: ...
    def __get__(self, resource: Any, owner: Any) -> Any:
        if resource is None:
            return self

        async def save(operation: Operation[..., Any], *ids_and_to: Any, arguments: BaseModel) -> None:
            *ids, to = ids_and_to
            with files.opened(to) as file:
                async for piece in resource._calls.pieces(operation, *ids, arguments=arguments):
                    file.write(piece)

        return self.made(_either(resource, save, drive), _answer(resource, None))


class _Upload(_Method[P], Generic[P, T]):
    """Method that sends a file. The call returns when its rows are encoded."""

    first = (inspect.Parameter("path", inspect.Parameter.POSITIONAL_ONLY, annotation=File),)

    @overload
    def __get__(self, resource: Resource[Http], owner: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, resource: Resource[AsyncHttp], owner: Any) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, resource: Any, owner: Any) -> Any:
        if resource is None:
            return self

        async def send(file: File, fields: BaseModel, *ids: str) -> Any:
            with arguments.form_of(file, fields) as form:
                return await resource._calls.call(self.operation, *ids, options=self._options(fields, form))

        return self.made(_either(resource, send, drive), _answer(resource, self.operation.gives))

    def _called(self, make: Callable[..., Any], *positional: Any, **named: Any) -> Any:
        *ids, file = positional
        return make(file, arguments.checked_values(self.takes, named), *ids)


def upload(operation: Operation[..., T], takes: Callable[P, BaseModel]) -> _Upload[Concatenate[File, P], T]:
    """Return a method that sends a file and the fields `takes` of its form."""
    return _Upload(operation, takes, timeout_seconds=_UPLOAD_SECONDS)


def upload_one(operation: Operation[..., T], takes: Callable[P, BaseModel]) -> _Upload[Concatenate[str, File, P], T]:
    """Return a method that sends a file for the object whose id comes first."""
    return _Upload(operation, takes, timeout_seconds=_UPLOAD_SECONDS)


class composed(Generic[P, T]):
    """Method of several calls, written once as a coroutine on `self._calls`; blocking clients run it to its end."""

    def __init__(self, function: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        self._function = function
        self.__doc__ = function.__doc__
        vars(self).update(vars(function))

    @overload
    def __get__(self, resource: Resource[Http], owner: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, resource: Resource[AsyncHttp], owner: Any) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, resource: Any, owner: Any) -> Any:
        return self if resource is None else _either(resource, MethodType(self._function, resource), drive)


class composed_list(Generic[P, T]):
    """List of several calls, written once as an asynchronous generator on `self._calls`, for both clients."""

    def __init__(self, function: Callable[Concatenate[Any, P], AsyncIterator[T]]) -> None:
        self._function = function
        self.__doc__ = function.__doc__
        vars(self).update(vars(function))

    @overload
    def __get__(self, resource: Resource[Http], owner: Any) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, resource: Resource[AsyncHttp], owner: Any) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, resource: Any, owner: Any) -> Any:
        return self if resource is None else _either(resource, MethodType(self._function, resource), drive_each)


def _either(resource: Resource[Any], function: Callable[..., Any], run: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return the function for an asynchronous client, or a method that runs it by `run` for a blocking client."""
    if isinstance(resource._http, AsyncHttp):
        return function

    @functools.wraps(function)
    def method(*positional: Any, **named: Any) -> Any:
        return run(function(*positional, **named))

    return method


def _answer(resource: Resource[Any], kind: Any) -> Any:
    return Awaitable[kind] if isinstance(resource._http, AsyncHttp) else kind


def _each(resource: Resource[Any], kind: Any) -> Any:
    return AsyncIterator[kind] if isinstance(resource._http, AsyncHttp) else Iterator[kind]
