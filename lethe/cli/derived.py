"""Commands generated from the methods of the SDK: ids and options from the call's fields, help from the contract."""

import inspect
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from lethe import Client
from lethe.cli.gateway import RETRY_SECONDS, Key, Url, connect, console, new_group, show
from lethe.cli.options import OptionShape, arranged, id_of, leaves, parameters
from lethe.client import files, resource_classes
from lethe.client.methods import Resource, pages
from lethe.reading import to_json

_MAX_PAGE_SIZE = 500


@dataclass(frozen=True, slots=True)
class Group:
    """Group of commands about one resource of a client."""

    name: str
    resource: type[Resource[Any]]
    app: typer.Typer

    def has(self, verb: str) -> bool:
        """Return True if the group has a command of this name."""
        return any(command.name == verb for command in self.app.registered_commands)


GROUPS: dict[str, Group] = {}
"""Groups by the client's attribute."""

VERBS = {
    "datasets.upload": "create",
    "deletion_requests.create": "submit",
    "deletion_requests.proof": "certificate",
    "accounting.deletion_request": "request",
    "certificates.verify": "verdict",
    "ledger.verify": "verdict",
    "audit_log.verify": "verdict",
    "tenants.set_policy": "set",
}
"""Commands named differently from their method, including those of features. `verify` is left to offline commands."""


def add_group(attribute: str, name: str, does: str) -> typer.Typer:
    """Add and return the group of commands about a resource of the client."""
    GROUPS[attribute] = Group(name, resource_classes(Client)[attribute], new_group(does))
    return GROUPS[attribute].app


for _group in (
    ("datasets", "dataset", "Rows that models learn from."),
    ("models", "model", "Models that can forget."),
    ("runs", "run", "Past and current runs of the workers."),
    ("deletion_requests", "request", "Requests to forget people."),
    ("suppressions", "suppression", "People who asked to be forgotten, and whose rows are refused."),
    ("accounting", "account", "Influence that records still have on models, and the theorems that bound it."),
    ("certificates", "certificate", "Signed certificates about forgotten people."),
    ("ledger", "ledger", "Ledger of all published versions."),
    ("audit_log", "audit", "Log of actions and their actors."),
    ("overview", "overview", "State of the tenant's requests, in numbers."),
    ("api_keys", "key", "API keys, with their scopes and limits."),
    ("tenants", "tenant", "Tenants of the installation, and their policies."),
):
    add_group(*_group)


def verb_of(resource: str, method: str) -> str:
    """Return the name of the command for a method of the SDK."""
    return VERBS.get(f"{resource}.{method}", "show" if method == "get" else method.replace("_", "-"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCall:
    """Call that a command makes when it is invoked."""

    client: Client
    resource: str
    method: str
    ids: tuple[str, ...]
    arguments: dict[str, Any]

    def __call__(self, *positional: Any) -> Any:
        return getattr(getattr(self.client, self.resource), self.method)(*self.ids, *positional, **self.arguments)


def made(
    path: str,
    shape: OptionShape = OptionShape(),  # noqa: B008  frozen
    *,
    group: str | None = None,
    verb: str | None = None,
    retry_seconds: float = RETRY_SECONDS,
) -> Callable[[Callable[..., None]], None]:
    """Return a decorator that adds a command for a call of the SDK, such as `models.create`. The function receives the
    call, and its other parameters become options beside those of the call."""
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
    shape: OptionShape = OptionShape(),  # noqa: B008
    *,
    line: str | Callable[[Any], str] | None = None,
    group: str | None = None,
    verb: str | None = None,
) -> None:
    """Add a command that makes a call and prints its answer. Each item of a list is printed as JSON, or as the text of
    `line`, a template of the item's fields or a function."""
    resource, method = path.split(".")
    called = inspect.getattr_static(GROUPS[resource].resource, method)
    act = _saved if called.operation.gives is bytes else _show_answer
    if isinstance(called, pages):
        act = _listed if line is None else _listed_as(_filled(line) if isinstance(line, str) else line)
    made(path, shape, group=group, verb=verb)(act)


def methods() -> Iterator[tuple[str, str]]:
    """Yield the resource and the name of each method of the SDK that makes one call."""
    for resource, group in GROUPS.items():
        for kind in reversed(group.resource.__mro__):
            for name, method in vars(kind).items():
                if hasattr(method, "operation"):
                    yield resource, name


def derive_the_rest() -> None:
    """Add a command for each method of the SDK that has no command yet."""
    for resource, method in methods():
        if not GROUPS[resource].has(verb_of(resource, method)):
            derive(f"{resource}.{method}")


def _of_all(url: Url = None, key: Key = None) -> None:
    """Declare the options of every command that calls a gateway."""


def _show_answer(call: CommandCall) -> None:
    if (answer := call()) is not None:
        show(answer)


def _saved(call: CommandCall, to: Annotated[Path, typer.Argument(dir_okay=False, help="Where to write it")]) -> None:
    answer = call()
    files.write(to, [answer] if isinstance(answer, bytes) else answer)


Limit = Annotated[int | None, typer.Option(min=1, help="How many at most; default: all")]


def _lines(line: Callable[[Any], str], call: CommandCall, limit: int | None) -> None:
    if limit is not None:
        call.arguments["limit"] = min(limit, _MAX_PAGE_SIZE)
    for item in itertools.islice(call(), limit):
        console.print(line(item), markup=False, highlight=False, emoji=False)


def _filled(template: str) -> Callable[[Any], str]:
    """Return a function that fills the fields of an item, such as `{item.id}`, into a template."""
    return lambda item: template.format(item=item)


def _json(value: Any) -> str:
    return json.dumps(to_json(value))


def _listed(call: CommandCall, limit: Limit = None) -> None:
    _lines(_json, call, limit)


def _listed_as(line: Callable[[Any], str]) -> Callable[..., None]:
    as_json = Annotated[bool, typer.Option("--json", help="All that is known, as one JSON object a line")]

    def listed(call: CommandCall, limit: Limit = None, json: as_json = False) -> None:
        _lines(_json if json else line, call, limit)

    return listed
