"""Methods of a client's resources, generated from the contract's operations for both clients.

Before a call is sent, its arguments are validated as the gateway would validate them. `help` describes them.
"""

import functools
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MethodType
from typing import Any, BinaryIO, ClassVar, Concatenate, Generic, ParamSpec, TypeVar, get_args, get_type_hints, overload

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import to_jsonable_python

from lethe.client import files
from lethe.client.http import AsyncHttp, Calls, Http, Options, drive
from lethe.contract.fields import PageOut, fields_of
from lethe.contract.operation import Operation
from lethe.contract.problems import FieldError, InputInvalid

B = TypeVar("B", bound=BaseModel)

_FRAME_NAME = "table.parquet"
"""File name under which frames are sent."""
_LAST = ("limit", "cursor", "idempotency_key")
_PAGING = {"limit": "Number of items per page; all are returned.", "cursor": "Page to start with."}


def checked(takes: type[B], named: Mapping[str, Any]) -> B:
    """Validate arguments as the gateway does. Raises `InputInvalid`, which quotes no argument, and `TypeError` for an
    unknown name."""
    _check_names(named, fields_of(takes))
    texts = (f"{json.dumps(name)}:{_as_json(name, value)}" for name, value in named.items() if value is not None)
    try:
        return takes.model_validate_json("{" + ",".join(texts) + "}")
    except ValidationError as error:
        faults = _faults(error, takes)
    raise InputInvalid("The arguments are not what the call takes.", faults)


def checked_values(takes: type[B], named: Mapping[str, Any]) -> B:
    """Validate arguments that are not JSON, such as paths. Raises the same errors as `checked`."""
    _check_names(named, fields_of(takes))
    try:
        return takes.model_validate(dict(named))
    except ValidationError as error:
        faults = _faults(error, takes)
    raise InputInvalid("The arguments are not what the call takes.", faults)


@contextmanager
def form_of(file: str | Path | files.Frame, fields: BaseModel) -> Iterator[dict[str, Any]]:
    """Yield a form as httpx arguments while its file is open. `name` defaults to the file's name. Raises `InputInvalid`
    for anything but a path or a frame."""
    if not isinstance(file, str | Path | files.Frame):
        faults = [FieldError("path", "expected a path or a frame")]
        raise InputInvalid("The arguments are not what the call takes.", faults)
    path = Path(_FRAME_NAME if isinstance(file, files.Frame) else file)
    kind = type(fields).model_fields
    values = {field.alias or name: getattr(fields, name) for name, field in kind.items() if not field.exclude}
    if "name" in values and values["name"] is None:
        values["name"] = path.stem
    texts = {name: _as_text(value) for name, value in values.items() if value is not None}
    with files.to_parquet(file) if isinstance(file, files.Frame) else path.open("rb") as content:
        yield {"data": texts, "files": {"file": (path.name, content)}}


@functools.cache
def signature(
    operation: Operation[..., Any], takes: type[BaseModel], first: tuple[inspect.Parameter, ...], answers: Any
) -> inspect.Signature:
    """Return the signature of a method: ids by position, other arguments by name, types without metadata."""
    hints = get_type_hints(takes)
    types = {field.alias or attribute: hints[attribute] for attribute, field in takes.model_fields.items()}
    own_parameters = inspect.signature(takes).parameters
    named = [own_parameters[name].replace(annotation=types[name]) for name in sorted(types, key=_place)]
    # The types of ids are those of `of_one` and `of_two`.
    kinds = [str] * len(operation.ids) if len(operation.ids) < 2 else [str, str | int]
    ids = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY, annotation=kind)
        for name, kind in zip(operation.ids, kinds, strict=True)
    ]
    return inspect.Signature([*ids, *first, *named], return_annotation=answers)


def explained(operation: Operation[..., Any], takes: type[BaseModel]) -> str:
    """Return the docstring of a method: its effect, the meaning of its arguments, and its errors."""
    fields = fields_of(takes)
    described = {name: fields[name].description or _PAGING.get(name) for name in sorted(fields, key=_place)}
    meanings = [f"`{name}`: {meaning}" for name, meaning in described.items() if meaning]
    raised = ", ".join(f"`{problem.__name__}`" for problem in operation.problems)
    return "\n\n".join(part for part in (operation.does, "\n".join(meanings), raised and f"Raises {raised}.") if part)


def _place(name: str) -> int:
    """Return the sort key of a parameter: fields of the call first, then paging and the idempotency key."""
    return _LAST.index(name) + 1 if name in _LAST else 0


def _check_names(named: Iterable[str], allowed: Iterable[str]) -> None:
    if unknown := set(named).difference(allowed):
        raise TypeError(f"Unexpected arguments: {', '.join(sorted(unknown))}")


def _as_text(value: Any) -> str:
    """Return a form field as text: a file as its content, a list or an object as JSON."""
    if isinstance(value, Path):
        return value.read_text()
    return (
        str(value)
        if isinstance(value, str | float)
        else json.dumps(value if isinstance(value, Mapping) else list(value))
    )


def _as_json(name: str, value: Any) -> str:
    """Return an argument as JSON. A model contains only the fields that were set."""
    try:
        if isinstance(value, BaseModel):
            value = value.model_dump(mode="json", by_alias=True, exclude_unset=True)
        text = json.dumps(to_jsonable_python(value, inf_nan_mode="constants"), allow_nan=False, ensure_ascii=False)
        text.encode()
    except (ValueError, RecursionError):
        fault = FieldError(name, "cannot be sent as JSON")
    else:
        return text
    raise InputInvalid("The arguments are not what the call takes.", [fault])


def _faults(error: ValidationError, kind: Any) -> list[FieldError]:
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    return [FieldError(_path(fault["loc"], kind), str(fault["msg"])) for fault in errors]


def _path(where: tuple[int | str, ...], kind: Any) -> str:
    """Return the path of a fault, made of field names and list positions. Dictionary keys are omitted, because they are
    the caller's content."""
    path: list[str] = []
    for part in where:
        if isinstance(part, str):
            fields = _fields(kind)
            if part not in fields:
                break
            kind = fields[part]
        path.append(str(part))
    return ".".join(path) or "body"


def _fields(kind: Any) -> dict[str, Any]:
    if isinstance(kind, dict):
        return kind
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {name: field.annotation for name, field in fields_of(kind).items()}
    return {name: annotation for part in get_args(kind) for name, annotation in _fields(part).items()}


P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
H = TypeVar("H", bound=Http | AsyncHttp)
Target = str | Path | BinaryIO
"""File, given by its path or as an open file."""
File = str | Path | files.Frame
"""File, given by its path, or a frame from pandas, polars or Arrow."""
_UPLOAD_SECONDS = 600.0


class Resource(Generic[H]):
    """Calls about one kind of object, for either client."""

    def __init__(self, http: H) -> None:
        self._http = http
        self._calls: Calls = http.calls if isinstance(http, Http) else http


class Keyed(BaseModel):
    """Optional `idempotency_key`, which lets another process safely repeat the call."""

    idempotency_key: str | None = Field(
        default=None, exclude=True, description="Your own key, so that another process may repeat the call."
    )


def makes(operation: Operation[..., Any]) -> Callable[[F], F]:
    """Return a decorator that marks a hand-written function with the operation it performs."""

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
        self.__doc__ = explained(operation, self.takes)

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def made(self, make: Callable[..., Any], answer: Any) -> Callable[..., Any]:
        """Return the bound method, which calls `make` and has the return annotation `answer`."""

        def method(*positional: Any, **named: Any) -> Any:
            expected = [*self.operation.ids, *(parameter.name for parameter in self.first)]
            if len(positional) != len(expected):
                raise TypeError(f"Expected by position: {', '.join(expected) or 'nothing'}")
            return self._called(make, *positional, **named)

        method.__name__ = method.__qualname__ = self._name
        method.__doc__ = self.__doc__
        described = signature(self.operation, self.takes, self.first, answer)
        method.__signature__ = described  # type: ignore[attr-defined]
        return method

    def _called(self, make: Callable[..., Any], *positional: Any, **named: Any) -> Any:
        body = checked(self.takes, named)
        has_options = isinstance(body, Keyed) or self._timeout_seconds is not None
        return make(
            self.operation, *positional, arguments=body, **({"options": self._options(body)} if has_options else {})
        )

    def _options(self, body: BaseModel, content: dict[str, Any] | None = None) -> Options:
        key = body.idempotency_key if isinstance(body, Keyed) else None
        return Options(idempotency_key=key, timeout_seconds=self._timeout_seconds, content=content)


class call(_Method[P], Generic[P, T]):
    """Method that makes one call and returns its result."""

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
    """Return a method that makes one call about an object, whose id is the first argument."""
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
    """Method that yields a long response in pieces as they arrive."""

    def __init__(self, operation: Operation[P, bytes]) -> None:
        super().__init__(operation)

    @overload
    def __get__(self, resource: Resource[Http], owner: Any) -> Callable[P, Iterator[bytes]]: ...
    @overload
    def __get__(self, resource: Resource[AsyncHttp], owner: Any) -> Callable[P, AsyncIterator[bytes]]: ...
    def __get__(self, resource: Any, owner: Any) -> Any:
        return self if resource is None else self.made(resource._http.pieces, _each(resource, bytes))


class saved(_Method[P]):
    """Method that writes a long response to an open file, or to a path that only a complete response replaces."""

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

        return self.made(either(resource, save, drive), _answer(resource, None))


class _Upload(_Method[P], Generic[P, T]):
    """Method that sends a file. The call returns once the file's rows are encoded."""

    first = (inspect.Parameter("path", inspect.Parameter.POSITIONAL_ONLY, annotation=File),)

    @overload
    def __get__(self, resource: Resource[Http], owner: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, resource: Resource[AsyncHttp], owner: Any) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, resource: Any, owner: Any) -> Any:
        if resource is None:
            return self

        async def send(file: File, fields: BaseModel, *ids: str) -> Any:
            with form_of(file, fields) as form:
                return await resource._calls.call(self.operation, *ids, options=self._options(fields, form))

        return self.made(either(resource, send, drive), _answer(resource, self.operation.gives))

    def _called(self, make: Callable[..., Any], *positional: Any, **named: Any) -> Any:
        *ids, file = positional
        return make(file, checked_values(self.takes, named), *ids)


def upload(operation: Operation[..., T], takes: Callable[P, BaseModel]) -> _Upload[Concatenate[File, P], T]:
    """Return a method that uploads a file with the form fields `takes`."""
    return _Upload(operation, takes, timeout_seconds=_UPLOAD_SECONDS)


def upload_one(operation: Operation[..., T], takes: Callable[P, BaseModel]) -> _Upload[Concatenate[str, File, P], T]:
    """Return a method that uploads a file to an existing object, whose id is the first argument."""
    return _Upload(operation, takes, timeout_seconds=_UPLOAD_SECONDS)


class composed(Generic[P, T]):
    """Decorator for a client method that makes several calls, written as a coroutine; blocking clients run it."""

    def __init__(self, function: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        self._function = function
        self.__doc__ = function.__doc__
        vars(self).update(vars(function))

    @overload
    def __get__(self, resource: Resource[Http], owner: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, resource: Resource[AsyncHttp], owner: Any) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, resource: Any, owner: Any) -> Any:
        return self if resource is None else either(resource, MethodType(self._function, resource), drive)


def either(resource: Resource[Any], function: Callable[..., Any], run: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return `function`, wrapped in a method that passes its result to `run` if the client is a blocking one."""
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
