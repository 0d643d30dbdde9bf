"""Options of a command, generated from the fields of a call."""

import datetime
import inspect
import json
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import AwareDatetime, BaseModel
from pydantic.fields import FieldInfo

from lethe.contract.fields import fields_of


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionShape:
    """Differences between options and their fields. `positional` fields are arguments. `also` has further names of
    options or, with a `/`, both names of a boolean. `defaults` are sent if an option is absent, and fields in `omit`
    are filled in by the command. `parsers` has the metavar and the parser of options that are written differently from
    JSON."""

    positional: Collection[str] = ()
    also: Mapping[str, str] | None = None
    defaults: Mapping[str, Any] | None = None
    omit: Collection[str] = ()
    parsers: Mapping[str, tuple[str, Callable[[str], Any]]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """Field that is not itself a model. `path` has the names of the fields above it, and its own."""

    path: tuple[str, ...]
    field: FieldInfo
    required: bool

    @property
    def name(self) -> str:
        return "_".join(self.path)


def leaves(kind: type[BaseModel], above: tuple[str, ...] = (), *, required: bool = True) -> Iterator[Leaf]:
    """Yield the fields of a model, including those of the models in it."""
    for name, field in fields_of(kind).items():
        is_required = required and field.is_required()
        if (inner := _model_in(field)) is not None:
            yield from leaves(inner, (*above, name), required=is_required)
        else:
            yield Leaf(path=(*above, name), field=field, required=is_required)


def parameters(
    fields: Collection[Leaf], shape: OptionShape, *, reserved: Collection[str]
) -> Iterator[inspect.Parameter]:
    """Yield a parameter of a command for each leaf. The last name of a path is an option of its own too, unless another
    leaf or a `reserved` option has it."""
    last = Counter([leaf.path[-1] for leaf in fields] + list(reserved))
    for leaf in sorted(fields, key=lambda leaf: leaf.name == "idempotency_key"):
        name, default = leaf.name, (shape.defaults or {}).get(leaf.name)
        if leaf.required and default is None:
            default = inspect.Parameter.empty
        annotation, typed = _typed(leaf)
        if shape.parsers and name in shape.parsers:
            metavar, parser = shape.parsers[name]
            annotation, typed = str, {"metavar": metavar, "parser": parser}
        details = {"help": _help(leaf), "show_default": False} | typed
        if name in shape.positional:
            info = typer.Argument(**details)
        else:
            names = [name] if len(leaf.path) == 1 or last[leaf.path[-1]] > 1 else [name, leaf.path[-1]]
            flags = [f"--{flag}/--no-{flag}" if annotation is bool else f"--{flag}" for flag in map(_dashed, names)]
            also = (shape.also or {}).get(name)
            info = typer.Option(*([] if also and "/" in also else flags), *([also] if also else []), **details)
        yield inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[annotation if default is inspect.Parameter.empty else annotation | None, info],
        )


def spread(act: Callable[..., None]) -> Callable[..., None]:
    """Return the command with an option per field of a frozen value in place of its parameter of that type."""
    own = inspect.signature(act, eval_str=True).parameters
    values: dict[str, Any] = {name: arg.annotation for name, arg in own.items() if is_dataclass(arg.annotation)}

    def command(**arguments: Any) -> None:
        for name, kind in values.items():
            arguments[name] = kind(**{field: arguments.pop(field) for field in inspect.signature(kind).parameters})
        act(**arguments)

    options = [
        option
        for name, arg in own.items()
        for option in (inspect.signature(values[name], eval_str=True).parameters.values() if name in values else (arg,))
    ]
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options]
    )
    command.__doc__ = act.__doc__
    return command


def id_of(name: str) -> Any:
    """Return the annotation of an argument that is an id in the path of a call."""
    return Annotated[str, typer.Argument(**(_PERSON if name == "subject_id" else {}))]


def arranged(values: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """Arrange values by the paths of their leaves into arguments of a call. Absent values are omitted."""
    arguments: dict[str, Any] = {}
    for path, value in values.items():
        if value not in (None, []):
            within = arguments
            for above in path[:-1]:
                within = within.setdefault(above, {})
            within[path[-1]] = value
    return arguments


def _model_in(field: FieldInfo) -> type[BaseModel] | None:
    plain = _plain(field.annotation)
    return plain if isinstance(plain, type) and issubclass(plain, BaseModel) else None


def _help(leaf: Leaf) -> str | None:
    """Return the description of a field in the contract, with its default."""
    default = None if leaf.field.is_required() else leaf.field.get_default()
    ending = f"[default: {json.dumps(default, default=str)}]" if default is not None else ""
    return f"{leaf.field.description or ''} {ending}".strip() or None


def _typed(leaf: Leaf) -> tuple[Any, dict[str, Any]]:
    """Return the type of an option, and further arguments of its declaration."""
    plain = _plain(leaf.field.annotation)
    if leaf.path[-1] == "subject_id":
        return str, _PERSON
    if plain in (str, int, float, bool) or get_origin(plain) is Literal or _is_set(plain):
        return plain, {}
    if plain in (AwareDatetime, datetime.date):
        return str, {"metavar": "RFC3339"}
    if plain is Path:
        return Path, {"exists": True, "dir_okay": False}
    if get_origin(plain) in (list, tuple):
        item = _plain(get_args(plain)[0])
        if item is str or get_origin(item) is Literal or _is_set(item):
            return list[item if _is_set(item) else str], {}  # type: ignore[misc]
    return str, {"parser": _json, "metavar": "JSON|@FILE"}


def _plain(annotation: Any) -> Any:
    """Strip `Annotated` metadata and `None` from a type."""
    if get_origin(annotation) is Annotated:
        return _plain(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
        # The option of a field that takes a document or its file takes the file.
        if Path in kinds:
            return Path
        return _plain(kinds[0]) if len(kinds) == 1 else Any
    return annotation


def _is_set(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _json(text: str) -> Any:
    try:
        return json.loads(Path(text[1:]).read_text() if text.startswith("@") else text)
    except ValueError:
        raise typer.BadParameter("Expected JSON, or @ and a file of JSON.") from None


def _read_person(text: str) -> str:
    """Return a person's id. `-` reads it from standard input, so that no process list shows it."""
    return sys.stdin.readline().rstrip("\n") if text == "-" else text


_PERSON: dict[str, Any] = {
    "help": "Who; '-' reads it from standard input",
    "parser": _read_person,
    "metavar": "SUBJECT_ID",
}
