"""What a call of the gateway is, before it is made: each resource declares the ones it makes."""

from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote

from lethe.errors import InputInvalid

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[T]):
    """`keyed`: it takes an `Idempotency-Key`. `idempotent`: making it twice is the same, whatever its method."""

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    answer: type[T]
    keyed: bool = False
    idempotent: bool = False

    @property
    def repeatable(self) -> bool:
        """Whether the call may be made again when it is not known what became of it."""
        return self.method == "GET" or self.keyed or self.idempotent

    @property
    def name(self) -> str:
        """For error texts: without ids, which may name people."""
        return f"{self.method} {self.path}"

    def path_with(self, *ids: str | int) -> str:
        """The path, with `ids` in their places. Raises `Malformed` for one that cannot be part of a path."""
        if any(str(one) in ("", ".", "..") for one in ids):
            raise InputInvalid(f"An id for {self.name} is empty, or is dots.")
        given = iter(ids)
        parts = self.path.split("/")
        return "/".join(quote(str(next(given)), safe="") if part.startswith("{") else part for part in parts)


def given(**values: Any) -> dict[str, Any]:
    """What was said: the rest is for the gateway to choose."""
    return {name: value for name, value in values.items() if value is not None}
