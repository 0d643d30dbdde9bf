"""Operations of the HTTP API, each declared once. Gateway, SDK and command line are built from these declarations."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Required, TypedDict, TypeVar, Unpack, overload

from lethe.contract import fields, sets
from lethe.contract.problems import IdempotencyConflict, Problem

P = ParamSpec("P")
T = TypeVar("T", covariant=True)
Method = Literal["GET", "POST", "PATCH", "DELETE"]
Repeat = Literal["never", "keyed", "idempotent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[P, T]):
    """Operation of the API, with the Python parameters `P` and the response type `T`.

    `name` is unique and is the operation's ID in the OpenAPI document. `scope` is the scope the key needs; None if no
    key is needed. `takes` is the type of the JSON body, `query` that of the query parameters. `repeat` states what
    makes a repetition safe if the method alone does not. `keyed`: the call takes an `Idempotency-Key` and fails with
    `IdempotencyConflict` if it was used for another body; `idempotent`: calling twice has the effect of calling once.
    """

    name: str
    method: Method
    path: str
    does: str
    tag: str
    scope: sets.Scope | None
    gives: type[T]
    takes: type[fields.Body] | None
    query: type[fields.Query]
    status: int
    problems: tuple[type[Problem], ...]
    repeat: Repeat

    @property
    def repeatable(self) -> bool:
        """True if the call can safely be repeated when its outcome is unknown."""
        return self.method == "GET" or self.repeat != "never"

    @property
    def keyed(self) -> bool:
        """True if the call takes an `Idempotency-Key`."""
        return self.repeat == "keyed"

    @property
    def ids(self) -> tuple[str, ...]:
        """Names of the IDs in the path, in order."""
        return tuple(part.strip("{}") for part in self.path.split("/") if part.startswith("{"))

    def __str__(self) -> str:
        """Return the method and path template for error messages, without IDs, because IDs may name people."""
        return f"{self.method} {self.path}"


class _Declared(TypedDict, total=False):
    """Fields of an `Operation` that any operation may declare."""

    scope: Required[sets.Scope | None]
    does: Required[str]
    status: int
    problems: tuple[type[Problem], ...]
    repeat: Repeat


class ResourceOperations:
    """Operations on one kind of resource, which share `tag` and the prefix `path`. Operations with an ID in the path
    fail with `unknown` if no resource of this kind has the ID."""

    def __init__(self, tag: str, path: str, unknown: type[Problem] | None = None) -> None:
        self._tag, self._path, self._unknown = tag, path, (unknown,) if unknown else ()

    @overload
    def operation(
        self, name: str, method: Method, path: str = "", *, gives: type[T], **declared: Unpack[_Declared]
    ) -> Operation[[], T]: ...
    @overload
    def operation(
        self,
        name: str,
        method: Method,
        path: str = "",
        *,
        gives: type[T],
        takes: Callable[P, fields.Body],
        query: type[fields.Query] = ...,
        **declared: Unpack[_Declared],
    ) -> Operation[P, T]: ...
    @overload
    def operation(
        self,
        name: str,
        method: Method,
        path: str = "",
        *,
        gives: type[T],
        query: Callable[P, fields.Query],
        **declared: Unpack[_Declared],
    ) -> Operation[P, T]: ...
    def operation(self, name: str, method: Method, path: str = "", **declared: Any) -> Operation[..., Any]:
        """Declare an operation without an ID in its path."""
        defaults = {"takes": None, "query": fields.Query, "status": 200, "problems": (), "repeat": "never"}
        all_declared = defaults | declared
        if all_declared["repeat"] == "keyed":
            all_declared["problems"] += (IdempotencyConflict,)
        return Operation(name=name, method=method, path=self._path + path, tag=self._tag, **all_declared)

    @overload
    def of_one(
        self, name: str, method: Method, path: str = "", *, gives: type[T], **declared: Unpack[_Declared]
    ) -> Operation[[str], T]: ...
    @overload
    def of_one(
        self,
        name: str,
        method: Method,
        path: str = "",
        *,
        gives: type[T],
        takes: Callable[P, fields.Body],
        query: type[fields.Query] = ...,
        **declared: Unpack[_Declared],
    ) -> Operation[Concatenate[str, P], T]: ...
    @overload
    def of_one(
        self,
        name: str,
        method: Method,
        path: str = "",
        *,
        gives: type[T],
        query: Callable[P, fields.Query],
        **declared: Unpack[_Declared],
    ) -> Operation[Concatenate[str, P], T]: ...
    def of_one(self, name: str, method: Method, path: str = "", **declared: Any) -> Operation[..., Any]:
        """Declare an operation with one ID in its full path; the ID is its first argument."""
        problems = self._unknown + declared.pop("problems", ())
        return self.operation(name, method, path, problems=problems, **declared)

    @overload
    def of_two(
        self, name: str, method: Method, path: str, *, gives: type[T], **declared: Unpack[_Declared]
    ) -> Operation[[str, str | int], T]: ...
    @overload
    def of_two(
        self,
        name: str,
        method: Method,
        path: str,
        *,
        gives: type[T],
        takes: Callable[P, fields.Body],
        **declared: Unpack[_Declared],
    ) -> Operation[Concatenate[str, str | int, P], T]: ...
    def of_two(self, name: str, method: Method, path: str, **declared: Any) -> Operation[..., Any]:
        """Declare an operation with two IDs in its full path; the IDs are its first arguments."""
        return self.of_one(name, method, path, **declared)
