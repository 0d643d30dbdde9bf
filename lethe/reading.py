"""Parsing of JSON responses into the contract's types."""

from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from lethe.contract.sets import newer_members
from lethe.errors import AnswerInvalid

T = TypeVar("T")


def read(kind: type[T], content: bytes, *, of: str) -> T:
    """Parse `content`, the response to the call `of`, into the type `kind`.

    Raises `AnswerInvalid`, naming the invalid field. The error does not quote the content and has no cause.
    """
    if kind is bytes:
        return content  # type: ignore[return-value]
    if kind is type(None):
        return None
    try:
        with newer_members():
            value: T = _adapter(cast(Any, kind)).validate_json(content, strict=True, extra="ignore")
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    else:
        return value
    field = next((part for part in fault["loc"] if isinstance(part, str)), "it")
    raise AnswerInvalid(f"the answer to {of} is not Lethe's: {field} ({fault['type']})")


def to_json(value: Any) -> Any:
    """Return a value in the form sent by the gateway, ready for `json.dumps`."""
    return to_jsonable_python(value, by_alias=True)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
