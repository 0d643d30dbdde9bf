"""Arguments of methods: validated as the gateway would before a call is sent, and described for `help`."""

import functools
import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from lethe.client.files import Frame, to_parquet
from lethe.contract.fields import fields_of
from lethe.contract.operation import Operation
from lethe.contract.problems import FieldError, InputInvalid

B = TypeVar("B", bound=BaseModel)

_FRAME_NAME = "table.parquet"
"""File name of a frame."""
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
    """Validate arguments that are not JSON, such as paths. Raises what `checked` raises."""
    _check_names(named, fields_of(takes))
    try:
        return takes.model_validate(dict(named))
    except ValidationError as error:
        faults = _faults(error, takes)
    raise InputInvalid("The arguments are not what the call takes.", faults)


@contextmanager
def form_of(file: str | Path | Frame, fields: BaseModel) -> Iterator[dict[str, Any]]:
    """Yield a form as arguments of httpx while its file is open. A `name` defaults to that of the file. Raises
    `InputInvalid` for anything but a path or a frame."""
    if not isinstance(file, str | Path | Frame):
        faults = [FieldError("path", "expected a path or a frame")]
        raise InputInvalid("The arguments are not what the call takes.", faults)
    path = Path(_FRAME_NAME if isinstance(file, Frame) else file)
    kind = type(fields).model_fields
    values = {field.alias or name: getattr(fields, name) for name, field in kind.items() if not field.exclude}
    if "name" in values and values["name"] is None:
        values["name"] = path.stem
    texts = {name: _as_text(value) for name, value in values.items() if value is not None}
    with to_parquet(file) if isinstance(file, Frame) else path.open("rb") as content:
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
    """Return a field of a form as text: the text of a file, a list or an object as JSON."""
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
    """Return the path of a fault by names of fields and positions in lists. Keys of dictionaries are omitted, because
    they are the caller's content."""
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
