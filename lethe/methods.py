"""Methods of a client's resources, made from the operations of the contract, for both clients."""

import dataclasses
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from pydantic import BaseModel, Field, ValidationError

from lethe.contract.fields import PageOut
from lethe.contract.operation import Operation
from lethe.contract.problems import FieldError, InputInvalid
from lethe.http import AsyncHttp, Http, Options

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
H = TypeVar("H", bound=Http | AsyncHttp)

_UPLOAD_SECONDS = 600.0


class Resource(Generic[H]):
    """The calls about one kind of thing, of either client."""

    def __init__(self, http: H) -> None:
        self._http = http


class Keyed(BaseModel):
    """With your own `idempotency_key`, another process may repeat the call."""

    idempotency_key: str | None = Field(
        default=None, exclude=True, description="With your own, another process may repeat the call."
    )


def makes(operation: Operation[..., Any]) -> Callable[[F], F]:
    """Say of a function written by hand which operation it makes."""

    def said(function: F) -> F:
        function.operation = operation  # type: ignore[attr-defined]
        return function

    return said


class _Method(Generic[P]):
    """A method that makes one call. `takes`: its keyword arguments, where they are not those of the operation."""

    def __init__(
        self, operation: Operation[..., Any], takes: Any = None, *, timeout_seconds: float | None = None
    ) -> None:
        self.operation: Operation[..., Any] = operation
        self.takes: Any = takes or operation.takes or operation.query
        self._timeout_seconds = timeout_seconds
        self.__doc__ = operation.does

    def made(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """The method of a client's resource, of which `make` makes the call."""

        def method(*ids: str | int, **arguments: Any) -> Any:
            if len(ids) != len(self.operation.ids):
                raise TypeError(f"Expected {', '.join(self.operation.ids) or 'named arguments alone'}")
            given = checked(self.takes, arguments)
            options: dict[str, Any] = {}
            if isinstance(given, Keyed) or self._timeout_seconds is not None:
                key = given.idempotency_key if isinstance(given, Keyed) else None
                options = {"options": Options(idempotency_key=key, timeout_seconds=self._timeout_seconds)}
            return make(self.operation, *ids, given=given, **options)

        method.__name__, method.__doc__ = self.operation.name, self.operation.does
        method.__signature__ = self.signature  # type: ignore[attr-defined]
        return method

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """Ids by position, the rest by name."""
        ids = [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY, annotation=str) for name in self.operation.ids
        ]
        return inspect.Signature([*ids, *inspect.signature(self.takes).parameters.values()])


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
        return self if resource is None else self.made(resource._http.call)


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
        return self if resource is None else self.made(resource._http.pages)


class pieces(_Method[P]):
    """A long answer as it comes."""

    def __init__(self, operation: Operation[P, bytes]) -> None:
        super().__init__(operation)

    @overload
    def __get__(self, resource: Resource[Http], owner: Any) -> Callable[P, Iterator[bytes]]: ...
    @overload
    def __get__(self, resource: Resource[AsyncHttp], owner: Any) -> Callable[P, AsyncIterator[bytes]]: ...
    def __get__(self, resource: Any, owner: Any) -> Any:
        return self if resource is None else self.made(resource._http.pieces)


@dataclass(frozen=True, slots=True)
class Upload:
    """A file to be sent as a form. `idempotency_key`: with your own, another process may repeat the call."""

    path: str | Path
    _: KW_ONLY
    idempotency_key: str | None = None

    def fields(self) -> dict[str, str]:
        """The fields of the form beside the file."""
        said = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        return {name: str(value) for name, value in said.items() if name not in _OF_UPLOADS and value is not None}

    @contextmanager
    def options(self) -> Iterator[Options]:
        """How the call is made, while the file is open."""
        with Path(self.path).open("rb") as file:
            content = {"data": self.fields(), "files": {"file": (Path(self.path).name, file)}}
            yield Options(idempotency_key=self.idempotency_key, timeout_seconds=_UPLOAD_SECONDS, content=content)


_OF_UPLOADS = frozenset({"path", "idempotency_key"})


class upload(Generic[P, T]):
    """A call that sends a file: rows are encoded while the caller waits."""

    def __init__(self, operation: Operation[..., T], takes: Callable[P, Upload]) -> None:
        self.operation: Operation[..., T] = operation
        self.takes: Callable[..., Upload] = takes
        self.__doc__ = operation.does

    @overload
    def __get__(self, resource: Resource[Http], owner: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, resource: Resource[AsyncHttp], owner: Any) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, resource: Any, owner: Any) -> Any:
        if resource is None:
            return self
        http = resource._http

        def sent(*ids_and_path: Any, **arguments: Any) -> Any:
            ids = ids_and_path[: len(self.operation.ids)]
            with self.takes(*ids_and_path[len(ids) :], **arguments).options() as options:
                return http.call(self.operation, *ids, options=options)

        async def sent_later(*ids_and_path: Any, **arguments: Any) -> Any:
            ids = ids_and_path[: len(self.operation.ids)]
            with self.takes(*ids_and_path[len(ids) :], **arguments).options() as options:
                return await http.call(self.operation, *ids, options=options)

        return sent_later if isinstance(http, AsyncHttp) else sent


def upload_one(operation: Operation[..., T], takes: Callable[P, Upload]) -> upload[Concatenate[str, P], T]:
    """A file for the thing whose id comes first."""
    return upload(operation, takes)  # type: ignore[arg-type]


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
