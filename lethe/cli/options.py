"""Options of a command, made from the fields of what a call takes."""

import datetime
import inspect
import json
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import AwareDatetime, BaseModel
from pydantic.fields import FieldInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Differences between options and their fields. `positional`: fields that are arguments; `also`: further names of
    options, or, with a `/`, both names of one that is true or false;
    `defaults`: what is sent where nothing is said; `omit`: fields that the command fills in."""

    positional: Collection[str] = ()
    also: Mapping[str, str] | None = None
    defaults: Mapping[str, Any] | None = None
    omit: Collection[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A field that is no model itself. `path`: the fields above it, and its own name."""

    path: tuple[str, ...]
    field: FieldInfo
    required: bool

    @property
    def name(self) -> str:
        return "_".join(self.path)


def leaves(kind: type[BaseModel], above: tuple[str, ...] = (), *, required: bool = True) -> Iterator[Leaf]:
    """The fields of a model, those of the models in it among them."""
    for name, field in kind.model_fields.items():
        is_required = required and field.is_required()
        if (inner := _model_in(field)) is not None:
            yield from leaves(inner, (*above, name), required=is_required)
        else:
            yield Leaf(path=(*above, name), field=field, required=is_required)


def parameters(found: Collection[Leaf], shape: Shape, *, taken: Collection[str]) -> Iterator[inspect.Parameter]:
    """A parameter of a command for each leaf. The last name of a path alone is an option too, where no other option has
    it: neither that of another leaf nor one of those that are `taken`."""
    last = Counter([leaf.path[-1] for leaf in found] + list(taken))
    for leaf in sorted(found, key=lambda leaf: leaf.name == "idempotency_key"):
        name, default = leaf.name, (shape.defaults or {}).get(leaf.name)
        if leaf.required and default is None:
            default = inspect.Parameter.empty
        annotation, typed = _typed(leaf)
        said = {"help": _help(leaf), "show_default": False} | typed
        if name in shape.positional:
            info = typer.Argument(**said)
        else:
            names = [name] if len(leaf.path) == 1 or last[leaf.path[-1]] > 1 else [name, leaf.path[-1]]
            flags = [f"--{one}/--no-{one}" if annotation is bool else f"--{one}" for one in map(_dashed, names)]
            also = (shape.also or {}).get(name)
            info = typer.Option(*([] if also and "/" in also else flags), *([also] if also else []), **said)
        yield inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[annotation if default is inspect.Parameter.empty else annotation | None, info],
        )


def id_of(name: str) -> Any:
    """The annotation of an argument that is an id in the path of a call."""
    return Annotated[str, typer.Argument(**(_PERSON if name == "subject_id" else {}))]


def arranged(said: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """Values by the paths of their leaves, as arguments of a call; nothing that was not said."""
    arguments: dict[str, Any] = {}
    for path, value in said.items():
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
    """The text that the contract has for a field, and its default."""
    default = None if leaf.field.is_required() else leaf.field.get_default()
    known = f"[default: {json.dumps(default, default=str)}]" if default is not None else ""
    return f"{leaf.field.description or ''} {known}".strip() or None


def _typed(leaf: Leaf) -> tuple[Any, dict[str, Any]]:
    """The type of an option, and what else is said of it."""
    plain = _plain(leaf.field.annotation)
    if leaf.path[-1] == "subject_id":
        return str, _PERSON
    if plain in (str, int, float, bool) or get_origin(plain) is Literal or _is_set(plain):
        return plain, {}
    if plain in (AwareDatetime, datetime.date):
        return str, {"metavar": "RFC3339"}
    if get_origin(plain) in (list, tuple):
        item = _plain(get_args(plain)[0])
        if item is str or get_origin(item) is Literal or _is_set(item):
            return list[item if _is_set(item) else str], {}  # type: ignore[misc]
    return str, {"parser": _json, "metavar": "JSON|@FILE"}


def _plain(annotation: Any) -> Any:
    """Without what is said of it, and without None."""
    if get_origin(annotation) is Annotated:
        return _plain(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        kinds = [one for one in get_args(annotation) if one is not NoneType]
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
    """A person's id, for which `-` stands where no list of processes may show it."""
    return sys.stdin.readline().rstrip("\n") if text == "-" else text


_PERSON: dict[str, Any] = {
    "help": "Who; '-' reads it from standard input",
    "parser": _read_person,
    "metavar": "SUBJECT_ID",
}
