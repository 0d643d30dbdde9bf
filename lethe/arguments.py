"""Arguments of methods: checked as the gateway would, before anything is sent; and how `help` shows them."""

import dataclasses
import functools
import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.dataclasses import dataclass
from pydantic_core import to_jsonable_python

from lethe.contract.operation import Operation
from lethe.contract.problems import FieldError, InputInvalid
from lethe.frames import Frame, to_parquet
from lethe.http import Options

B = TypeVar("B", bound=BaseModel)
U = TypeVar("U", bound="Sent")

_UPLOAD_SECONDS = 600.0
_FRAME = "table"
"""The name of what comes without one."""
_OF_UPLOADS = frozenset({"path", "idempotency_key"})
_LAST = ("limit", "cursor", "idempotency_key")
_PAGING = {"limit": "How many are fetched at a time; all are given.", "cursor": "Of the page to begin with."}


@dataclass(frozen=True, slots=True, config=ConfigDict(strict=True, arbitrary_types_allowed=True))
class Sent:
    """A file, or a frame of pandas, polars or Arrow, to be sent as a form."""

    path: str | Path | Frame

    @property
    def file_name(self) -> str:
        return f"{_FRAME}.parquet" if isinstance(self.path, Frame) else Path(self.path).name

    def fields(self) -> dict[str, str]:
        """The fields of the form beside the file."""
        said = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        return {name: str(value) for name, value in said.items() if name not in _OF_UPLOADS and value is not None}

    @contextmanager
    def options(self) -> Iterator[Options]:
        """Options of the call, while the file is open."""
        with to_parquet(self.path) if isinstance(self.path, Frame) else open(self.path, "rb") as file:
            content = {"data": self.fields(), "files": {"file": (self.file_name, file)}}
            yield Options(idempotency_key=self._key(), timeout_seconds=_UPLOAD_SECONDS, content=content)

    def _key(self) -> str | None:
        return None


@dataclass(frozen=True, slots=True, config=ConfigDict(strict=True, arbitrary_types_allowed=True))
class Upload(Sent):
    """A file, or a frame of pandas, polars or Arrow, to be sent as a form. `idempotency_key`: with your own, another
    process may repeat the call."""

    _: KW_ONLY
    idempotency_key: str | None = None

    def _key(self) -> str | None:
        return self.idempotency_key


def checked(takes: type[B], named: Mapping[str, Any]) -> B:
    """Arguments as the gateway takes them. Raises `InputInvalid`, which quotes none of them, and `TypeError` for one
    that there is not."""
    _check_names(named, takes.model_fields)
    texts = (f"{json.dumps(name)}:{_as_json(name, value)}" for name, value in named.items() if value is not None)
    try:
        return takes.model_validate_json("{" + ",".join(texts) + "}")
    except ValidationError as error:
        faults = _faults(error, takes)
    raise InputInvalid("The arguments are not what the call takes.", faults)


def upload(takes: type[U], path: str | Path | Frame, named: Mapping[str, Any]) -> U:
    """The file to be sent. Raises what `checked` raises."""
    _check_names(named, [one.name for one in dataclasses.fields(takes) if one.name != "path"])
    try:
        return takes(path=path, **named)
    except ValidationError as error:
        faults = _faults(error, get_type_hints(takes))
    raise InputInvalid("The arguments are not what the call takes.", faults)


@functools.cache
def signature(
    operation: Operation[..., Any], takes: type[Any], first: tuple[inspect.Parameter, ...], answers: Any
) -> inspect.Signature:
    """Ids by position, the rest by name; types without what else is asked of them."""
    hints = get_type_hints(takes)
    taken = dict(inspect.signature(takes).parameters)
    for one in first:
        taken.pop(one.name, None)
    named = [taken[name].replace(annotation=hints[name]) for name in sorted(taken, key=_place)]
    kinds = [str] * len(operation.ids) if len(operation.ids) < 2 else [str, str | int]  # as `of_one` and `of_two` say
    ids = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY, annotation=kind)
        for name, kind in zip(operation.ids, kinds, strict=True)
    ]
    return inspect.Signature([*ids, *first, *named], return_annotation=answers)


def explained(operation: Operation[..., Any], takes: type[Any]) -> str:
    """The docstring of a method: what it does, what its arguments mean, and what it may raise."""
    fields = takes.model_fields if issubclass(takes, BaseModel) else {}
    described = {name: fields[name].description or _PAGING.get(name) for name in sorted(fields, key=_place)}
    meanings = [inspect.getdoc(takes) or ""] if issubclass(takes, Sent) else []
    meanings += [f"`{name}`: {meaning}" for name, meaning in described.items() if meaning]
    raised = ", ".join(f"`{one.__name__}`" for one in operation.problems)
    return "\n\n".join(part for part in (operation.does, "\n".join(meanings), raised and f"Raises {raised}.") if part)


def _place(name: str) -> int:
    """First what the call is about, then how it is made."""
    return _LAST.index(name) + 1 if name in _LAST else 0


def _check_names(named: Iterable[str], known: Iterable[str]) -> None:
    if unknown := set(named).difference(known):
        raise TypeError(f"Unexpected arguments: {', '.join(sorted(unknown))}")


def _as_json(name: str, value: Any) -> str:
    """An argument as it is sent: of a body that is given as a whole, no more than was said."""
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
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [FieldError(_path(fault["loc"], kind), str(fault["msg"])) for fault in found]


def _path(where: tuple[int | str, ...], kind: Any) -> str:
    """The place of a fault, by names of fields and places in lists: keys of dictionaries are the caller's words."""
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
        return {name: field.annotation for name, field in kind.model_fields.items()}
    return {name: found for part in get_args(kind) for name, found in _fields(part).items()}
