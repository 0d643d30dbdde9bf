"""Methods of a client's resources, made from the operations of the contract, for both clients."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Concatenate, Generic, ParamSpec, TypeVar, get_args, overload

from pydantic import BaseModel, Field

from lethe import arguments, files
from lethe.arguments import Sent
from lethe.contract.fields import PageOut
from lethe.contract.operation import Operation
from lethe.frames import Frame
from lethe.http import AsyncHttp, Http, Options

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
H = TypeVar("H", bound=Http | AsyncHttp)
Target = str | Path | BinaryIO
"""A file by its path, or one that is open."""


class Resource(Generic[H]):
    """The calls about one kind of thing, of either client."""

    def __init__(self, http: H) -> None:
        self._http = http


class Keyed(BaseModel):
    """With your own `idempotency_key`, another process may repeat the call."""

    idempotency_key: str | None = Field(
        default=None, exclude=True, description="Your own, so that another process may repeat the call."
    )


def makes(operation: Operation[..., Any]) -> Callable[[F], F]:
    """Say of a function written by hand which operation it makes."""

    def marked(function: F) -> F:
        function.operation = operation  # type: ignore[attr-defined]
        return function

    return marked


class _Method(Generic[P]):
    """A method that makes one call. `takes`: its keyword arguments, where they are not those of the operation."""

    first: ClassVar[tuple[inspect.Parameter, ...]] = ()
    """Parameters of its own, between the ids and the keyword arguments."""

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
        """The method of a client's resource: `make` makes the call, which gives `answer`."""

        def method(*given: Any, **named: Any) -> Any:
            expected = [*self.operation.ids, *(one.name for one in self.first)]
            if len(given) != len(expected):
                raise TypeError(f"Expected by position: {', '.join(expected) or 'nothing'}")
            return self._called(make, *given, **named)

        method.__name__ = method.__qualname__ = self._name
        method.__doc__ = self.__doc__
        signature = arguments.signature(self.operation, self.takes, self.first, answer)
        method.__signature__ = signature  # type: ignore[attr-defined]
        return method

    def _called(self, make: Callable[..., Any], *given: Any, **named: Any) -> Any:
        body = arguments.checked(self.takes, named)
        options: dict[str, Any] = {}
        if isinstance(body, Keyed) or self._timeout_seconds is not None:
            key = body.idempotency_key if isinstance(body, Keyed) else None
            options = {"options": Options(idempotency_key=key, timeout_seconds=self._timeout_seconds)}
        return make(self.operation, *given, given=body, **options)


class call(_Method[P], Generic[P, T]):
    """One call, and what it is answered."""

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
    """One call about the thing whose id comes first."""
    return call(operation, takes)  # type: ignore[arg-type]


class pages(_Method[P], Generic[P, T]):
    """Every item of a list; a page is fetched when its first item is asked for."""

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
    """A long answer as it comes."""

    def __init__(self, operation: Operation[P, bytes]) -> None:
        super().__init__(operation)

    @overload
    def __get__(self, resource: Resource[Http], owner: Any) -> Callable[P, Iterator[bytes]]: ...
    @overload
    def __get__(self, resource: Resource[AsyncHttp], owner: Any) -> Callable[P, AsyncIterator[bytes]]: ...
    def __get__(self, resource: Any, owner: Any) -> Any:
        return self if resource is None else self.made(resource._http.pieces, _each(resource, bytes))


class saved(_Method[P]):
    """A long answer, written as it comes to a file, which is complete or left as it was, or to an open one."""

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
        http = resource._http

        def save(operation: Operation[..., Any], *ids_and_to: Any, given: BaseModel) -> None:
            *ids, to = ids_and_to
            files.write(to, http.pieces(operation, *ids, given=given))

        async def save_later(operation: Operation[..., Any], *ids_and_to: Any, given: BaseModel) -> None:
            *ids, to = ids_and_to
            with files.opened(to) as file:
                async for piece in http.pieces(operation, *ids, given=given):
                    file.write(piece)

        return self.made(save_later if isinstance(http, AsyncHttp) else save, _answer(resource, None))


class upload(_Method[P], Generic[P, T]):
    """A call that sends a file: rows are encoded while the caller waits."""

    first = (inspect.Parameter("path", inspect.Parameter.POSITIONAL_ONLY, annotation=str | Path | Frame),)

    def __init__(self, operation: Operation[..., T], takes: Callable[P, Sent]) -> None:
        super().__init__(operation, takes)

    @overload
    def __get__(self, resource: Resource[Http], owner: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, resource: Resource[AsyncHttp], owner: Any) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, resource: Any, owner: Any) -> Any:
        if resource is None:
            return self
        http = resource._http

        def send(sent: Sent, *ids: str) -> Any:
            with sent.options() as options:
                return http.call(self.operation, *ids, options=options)

        async def send_later(sent: Sent, *ids: str) -> Any:
            with sent.options() as options:
                return await http.call(self.operation, *ids, options=options)

        later = isinstance(http, AsyncHttp)
        return self.made(send_later if later else send, _answer(resource, self.operation.gives))

    def _called(self, make: Callable[..., Any], *given: Any, **named: Any) -> Any:
        *ids, path = given
        return make(arguments.upload(self.takes, path, named), *ids)


def upload_one(operation: Operation[..., T], takes: Callable[P, Sent]) -> upload[Concatenate[str, P], T]:
    """A file for the thing whose id comes first."""
    return upload(operation, takes)  # type: ignore[arg-type]


def _answer(resource: Resource[Any], kind: Any) -> Any:
    return Awaitable[kind] if isinstance(resource._http, AsyncHttp) else kind


def _each(resource: Resource[Any], kind: Any) -> Any:
    return AsyncIterator[kind] if isinstance(resource._http, AsyncHttp) else Iterator[kind]
