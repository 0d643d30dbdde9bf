"""One operation of the HTTP surface, declared once: the gateway, the SDK and the command line are made from it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, overload

from lethe.contract.fields import Body, Query
from lethe.contract.problems import Problem
from lethe.contract.sets import Scope

P = ParamSpec("P")
T = TypeVar("T", covariant=True)
Method = Literal["GET", "POST", "PATCH", "DELETE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[P, T]):
    """A call that a gateway answers; `P`: how it is called from Python, `T`: with which type it is answered.

    `name`: unique, and the operation's id in the OpenAPI document. `scope`: of the key that it needs, None if none;
    `takes`: the JSON body; `query`: the parameters.
    `keyed`: it takes an `Idempotency-Key`. `idempotent`: making it twice is the same as once, whatever its method.
    """

    name: str
    method: Method
    path: str
    does: str
    tag: str
    scope: Scope | None
    gives: type[T]
    takes: type[Body] | None
    query: type[Query]
    status: int
    problems: tuple[type[Problem], ...]
    keyed: bool
    idempotent: bool

    @property
    def repeatable(self) -> bool:
        """True if the call may be made again when it is not known what became of it."""
        return self.method == "GET" or self.keyed or self.idempotent

    @property
    def ids(self) -> tuple[str, ...]:
        """The names of the ids in the path, in their order."""
        return tuple(part.strip("{}") for part in self.path.split("/") if part.startswith("{"))

    def __str__(self) -> str:
        """For error texts: without ids, which may name people."""
        return f"{self.method} {self.path}"


class Resource:
    """Operations about one kind of thing: what they have in common. The path of each begins with `path`."""

    def __init__(self, tag: str, path: str) -> None:
        self._tag, self._path = tag, path

    @overload
    def operation(
        self,
        name: str,
        method: Method,
        path: str = "",
        *,
        scope: Scope | None,
        gives: type[T],
        does: str,
        status: int = ...,
        problems: tuple[type[Problem], ...] = ...,
        keyed: bool = ...,
        idempotent: bool = ...,
    ) -> Operation[[], T]: ...
    @overload
    def operation(
        self,
        name: str,
        method: Method,
        path: str = "",
        *,
        scope: Scope | None,
        gives: type[T],
        does: str,
        status: int = ...,
        problems: tuple[type[Problem], ...] = ...,
        keyed: bool = ...,
        idempotent: bool = ...,
        takes: Callable[P, Body],
        query: type[Query] = ...,
    ) -> Operation[P, T]: ...
    @overload
    def operation(
        self,
        name: str,
        method: Method,
        path: str = "",
        *,
        scope: Scope | None,
        gives: type[T],
        does: str,
        status: int = ...,
        problems: tuple[type[Problem], ...] = ...,
        keyed: bool = ...,
        idempotent: bool = ...,
        query: Callable[P, Query],
    ) -> Operation[P, T]: ...
    def operation(self, name: str, method: Method, path: str = "", **declared: Any) -> Operation[..., Any]:
        """An operation without an id in its path."""
        defaults = {"takes": None, "query": Query, "status": 200, "problems": (), "keyed": False, "idempotent": False}
        return Operation(name=name, method=method, path=self._path + path, tag=self._tag, **(defaults | declared))


def of_one(operation: Operation[P, T]) -> Operation[Concatenate[str, P], T]:
    """The operation, called with the id in its path first."""
    return operation  # type: ignore[return-value]  # only the signature differs


def of_two(operation: Operation[P, T]) -> Operation[Concatenate[str, str | int, P], T]:
    """The operation, called with both ids in its path first."""
    return operation  # type: ignore[return-value]
