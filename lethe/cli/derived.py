"""Commands generated from the SDK's methods: ids and options from the call's fields, help texts from the contract."""

import datetime
import inspect
import itertools
import json
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import AwareDatetime, BaseModel
from pydantic.fields import FieldInfo

from lethe import Client, reading
from lethe.cli.gateway import RETRY_SECONDS, Key, Url, connect, console, new_group, show
from lethe.client import files, resource_classes
from lethe.client.methods import Resource, pages
from lethe.contract.fields import fields_of


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionShape:
    """Differences between a command's options and the call's fields. `positional` fields are arguments. `also` gives
    additional option names or, with a `/`, both names of a boolean option. `defaults` are sent if an option is absent,
    and the command itself fills in the fields in `omit`. `parsers` gives the metavar and parser of options that are not
    written as JSON."""

    positional: Collection[str] = ()
    also: Mapping[str, str] | None = None
    defaults: Mapping[str, Any] | None = None
    omit: Collection[str] = ()
    parsers: Mapping[str, tuple[str, Callable[[str], Any]]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """Field that is not itself a model. `path` lists the names of its parent fields, then its own name."""

    path: tuple[str, ...]
    field: FieldInfo
    required: bool

    @property
    def name(self) -> str:
        return "_".join(self.path)


def leaves(kind: type[BaseModel], above: tuple[str, ...] = (), *, required: bool = True) -> Iterator[Leaf]:
    """Yield the leaf fields of a model, including those of nested models."""
    for name, field in fields_of(kind).items():
        is_required = required and field.is_required()
        if (inner := _model_in(field)) is not None:
            yield from leaves(inner, (*above, name), required=is_required)
        else:
            yield Leaf(path=(*above, name), field=field, required=is_required)


def parameters(
    fields: Collection[Leaf], shape: OptionShape, *, reserved: Collection[str]
) -> Iterator[inspect.Parameter]:
    """Yield a command parameter for each leaf. The last name of the leaf's path is an additional option name, unless
    another leaf or a `reserved` option uses that name."""
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
            dashed = [name.replace("_", "-") for name in names]
            flags = [f"--{flag}/--no-{flag}" if annotation is bool else f"--{flag}" for flag in dashed]
            also = (shape.also or {}).get(name)
            info = typer.Option(*([] if also and "/" in also else flags), *([also] if also else []), **details)
        yield inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[annotation if default is inspect.Parameter.empty else annotation | None, info],
        )


def id_of(name: str) -> Any:
    """Return the annotation for an argument that is an id in a call's path."""
    return Annotated[str, typer.Argument(**(_PERSON if name == "subject_id" else {}))]


def arranged(values: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """Nest values according to the paths of their leaves to form a call's arguments. Absent values are omitted."""
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
    """Return a field's description from the contract, with its default."""
    default = None if leaf.field.is_required() else leaf.field.get_default()
    ending = f"[default: {json.dumps(default, default=str)}]" if default is not None else ""
    return f"{leaf.field.description or ''} {ending}".strip() or None


def _typed(leaf: Leaf) -> tuple[Any, dict[str, Any]]:
    """Return the type of an option, and further arguments for declaring it."""
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
    return str, {"parser": _from_json, "metavar": "JSON|@FILE"}


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


def _from_json(text: str) -> Any:
    try:
        return json.loads(Path(text[1:]).read_text() if text.startswith("@") else text)
    except ValueError:
        raise typer.BadParameter("Expected JSON, or @ and a file of JSON.") from None


def _read_person(text: str) -> str:
    """Return a person's id; for `-`, read the id from standard input, so that no process list shows it."""
    return sys.stdin.readline().rstrip("\n") if text == "-" else text


_PERSON: dict[str, Any] = {
    "help": "Who; '-' reads it from standard input",
    "parser": _read_person,
    "metavar": "SUBJECT_ID",
}


_MAX_PAGE_SIZE = 500


@dataclass(frozen=True, slots=True)
class Group:
    """Group of commands for one of a client's resources."""

    name: str
    resource: type[Resource[Any]]
    app: typer.Typer

    def has(self, verb: str) -> bool:
        """Return True if the group has a command with this name."""
        return any(command.name == verb for command in self.app.registered_commands)


GROUPS: dict[str, Group] = {}
"""Command groups, keyed by client attribute."""

VERBS = {
    "datasets.upload": "create",
    "deletion_requests.create": "submit",
    "deletion_requests.proof": "certificate",
    "accounting.deletion_request": "request",
    "certificates.verify": "verdict",
    "tenants.set_policy": "set",
}
"""Commands not named after their method, including those of features. `verify` is left to offline commands."""


def add_group(attribute: str, name: str, does: str) -> typer.Typer:
    """Add the group of commands for one of the client's resources, and return its app."""
    GROUPS[attribute] = Group(name, resource_classes(Client).get(attribute, Resource), new_group(does))
    return GROUPS[attribute].app


for _group in (
    ("datasets", "dataset", "Rows that models learn from."),
    ("models", "model", "Models that can forget."),
    ("runs", "run", "Past and current runs of the workers."),
    ("deletion_requests", "request", "Requests to forget people."),
    ("accounting", "account", "Influence that records still have on models, and the theorems that bound it."),
    ("certificates", "certificate", "Signed certificates about forgotten people."),
    ("ledger", "ledger", "Ledger of all published versions."),
    ("api_keys", "key", "API keys, with their scopes and limits."),
    ("tenants", "tenant", "Tenants of the installation, and their policies."),
):
    add_group(*_group)


def verb_of(resource: str, method: str) -> str:
    """Return the name of the command for a method of the SDK."""
    return VERBS.get(f"{resource}.{method}", "show" if method == "get" else method.replace("_", "-"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCall:
    """API call that a command makes when it is invoked."""

    client: Client
    resource: str
    method: str
    ids: tuple[str, ...]
    arguments: dict[str, Any]

    def __call__(self, *positional: Any) -> Any:
        return getattr(getattr(self.client, self.resource), self.method)(*self.ids, *positional, **self.arguments)


def made(
    path: str,
    shape: OptionShape = OptionShape(),
    *,
    group: str | None = None,
    verb: str | None = None,
    retry_seconds: float = RETRY_SECONDS,
) -> Callable[[Callable[..., None]], None]:
    """Return a decorator that adds a command for an SDK call, such as `models.create`. The decorated function receives
    the call, and its other parameters become options in addition to the call's own."""
    resource, method = path.split(".")
    called = inspect.getattr_static(GROUPS[resource].resource, method)
    operation = called.operation
    takes = getattr(called, "takes", None) or operation.takes or operation.query
    omitted = {*shape.omit, *({"limit", "cursor"} if isinstance(called, pages) else ())}

    def decorate(act: Callable[..., None]) -> None:
        own = list(inspect.signature(act, eval_str=True).parameters.values())[1:]
        call_leaves = [leaf for leaf in leaves(takes) if leaf.name not in omitted]
        ids = [inspect.Parameter(id_, inspect.Parameter.KEYWORD_ONLY, annotation=id_of(id_)) for id_ in operation.ids]
        options = parameters(call_leaves, shape, reserved=[parameter.name for parameter in own])
        of_all = inspect.signature(_of_all).parameters.values()

        def command(*, url: str | None, key: str | None, **values: Any) -> None:
            fields = arranged({leaf.path: values.pop(leaf.name) for leaf in call_leaves})
            by_path = tuple(values.pop(name) for name in operation.ids)
            with connect(url, key, retry_seconds=retry_seconds) as client:
                act(
                    CommandCall(client=client, resource=resource, method=method, ids=by_path, arguments=fields),
                    **values,
                )

        command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in (*ids, *options, *own, *of_all)]
        )
        command.operation = operation  # type: ignore[attr-defined]
        GROUPS[group or resource].app.command(verb or verb_of(resource, method), help=act.__doc__ or operation.does)(
            command
        )

    return decorate


def derive(
    path: str,
    shape: OptionShape = OptionShape(),
    *,
    line: str | Callable[[Any], str] | None = None,
    group: str | None = None,
    verb: str | None = None,
) -> None:
    """Add a command that makes a call and prints the result. Each item of a list is printed as JSON, or as text
    formatted by `line`, which is a template with the item's fields or a function."""
    resource, method = path.split(".")
    called = inspect.getattr_static(GROUPS[resource].resource, method)
    act = _saved if called.operation.gives is bytes else _show_answer
    if isinstance(called, pages):
        act = _listed if line is None else _listed_as(_filled(line) if isinstance(line, str) else line)
    made(path, shape, group=group, verb=verb)(act)


def methods() -> Iterator[tuple[str, str]]:
    """Yield the resource and name of each SDK method that makes a single call."""
    for resource, group in GROUPS.items():
        for kind in reversed(group.resource.__mro__):
            for name, method in vars(kind).items():
                if hasattr(method, "operation"):
                    yield resource, name


def derive_the_rest() -> None:
    """Add a command for each SDK method that has no command yet."""
    for resource, method in methods():
        if not GROUPS[resource].has(verb_of(resource, method)):
            derive(f"{resource}.{method}")


def _of_all(url: Url = None, key: Key = None) -> None:
    """Declare the options of every command that calls a gateway."""


def _show_answer(call: CommandCall) -> None:
    if (answer := call()) is not None:
        show(answer)


def _saved(call: CommandCall, to: Annotated[Path, typer.Argument(dir_okay=False, help="File to write to")]) -> None:
    answer = call()
    files.write(to, [answer] if isinstance(answer, bytes) else answer)


Limit = Annotated[int | None, typer.Option(min=1, help="Maximum number; default: all")]


def _lines(line: Callable[[Any], str], call: CommandCall, limit: int | None) -> None:
    if limit is not None:
        call.arguments["limit"] = min(limit, _MAX_PAGE_SIZE)
    for item in itertools.islice(call(), limit):
        console.print(line(item), markup=False, highlight=False, emoji=False)


def _filled(template: str) -> Callable[[Any], str]:
    """Return a function that fills an item's fields, such as `{item.id}`, into a template."""
    return lambda item: template.format(item=item)


def _json_line(value: Any) -> str:
    return json.dumps(reading.to_json(value))


def _listed(call: CommandCall, limit: Limit = None) -> None:
    _lines(_json_line, call, limit)


def _listed_as(line: Callable[[Any], str]) -> Callable[..., None]:
    as_json = Annotated[bool, typer.Option("--json", help="All fields, as one JSON object per line")]

    def listed(call: CommandCall, limit: Limit = None, json: as_json = False) -> None:
        _lines(_json_line if json else line, call, limit)

    return listed
