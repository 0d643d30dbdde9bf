"""Commands made from the methods of the SDK: ids and options from what a call takes, help from what it does."""

import inspect
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from lethe import (
    Client,
    accounting,
    agents,
    api_keys,
    audit_log,
    certificates,
    datasets,
    deletion_requests,
    files,
    identity_issuers,
    leaving_reasons,
    ledger,
    lineage,
    models,
    networks,
    overview,
    runs,
    saved_views,
    suppressions,
    tenants,
    users,
    webhooks,
)
from lethe.cli.gateway import RETRY_SECONDS, Key, Url, connect
from lethe.cli.options import Shape, arranged, id_of, leaves, parameters
from lethe.cli.output import console, new_group, show
from lethe.methods import Resource, pages
from lethe.reading import to_json

_LARGEST_PAGE = 500


@dataclass(frozen=True, slots=True)
class Group:
    """The commands about one resource of a client."""

    name: str
    resource: type[Resource[Any]]
    app: typer.Typer

    def has(self, verb: str) -> bool:
        """True if there is such a command."""
        return any(command.name == verb for command in self.app.registered_commands)


GROUPS = {
    attribute: Group(name, resource, new_group(does))
    for attribute, name, resource, does in (
        ("datasets", "dataset", datasets.Datasets, "Rows that models learn from."),
        ("networks", "network", networks.Networks, "Public networks, by whose features models are learned."),
        ("models", "model", models.Models, "Models that can forget."),
        ("runs", "run", runs.Runs, "What workers did and are doing."),
        ("deletion_requests", "request", deletion_requests.DeletionRequests, "People who ask to be forgotten."),
        ("saved_views", "saved-view", saved_views.SavedViews, "How you look at requests."),
        ("suppressions", "suppression", suppressions.Suppressions, "Who is not taken in again."),
        ("lineage", "lineage", lineage.Lineage, "Which models, versions and copies a person's rows fed."),
        ("accounting", "account", accounting.Accounting, "How much of anybody is left, and why: the theorems."),
        ("certificates", "certificate", certificates.Certificates, "What was signed."),
        ("ledger", "ledger", ledger.Ledger, "What was accounted for."),
        ("audit_log", "audit", audit_log.AuditLog, "Who did what."),
        ("overview", "overview", overview.Overview, "How requests stand, in numbers."),
        ("leaving_reasons", "leaving-reason", leaving_reasons.LeavingReasons, "Why people leave."),
        ("api_keys", "key", api_keys.ApiKeys, "Who may call."),
        ("users", "user", users.Users, "People who log in to the dashboard."),
        ("tenants", "tenant", tenants.Tenants, "The organisations of an installation, and their policies."),
        ("identity_issuers", "identity-issuer", identity_issuers.IdentityIssuers, "Who vouches for identities."),
        ("agents", "agent", agents.Agents, "Agents of the Data Rights Protocol that are let in."),
        ("webhooks", "webhook", webhooks.Webhooks, "What receivers of callbacks were told."),
    )
}
"""By the attribute of a client."""

_VERBS = {
    "datasets.upload": "create",
    "networks.upload": "create",
    "deletion_requests.create": "submit",
    "deletion_requests.proof": "certificate",
    "accounting.deletion_request": "request",
    "accounting.bounds": "list-bounds",
    "accounting.evaluate": "evaluate-bound",
    "accounting.sweep": "sweep-bound",
    "certificates.verify": "verdict",
    "ledger.verify": "verdict",
    "audit_log.verify": "verdict",
    "tenants.set_policy": "set",
}
"""Commands called otherwise than the method: `verify`, `bounds` and `sweep` ask no gateway."""


def verb_of(resource: str, method: str) -> str:
    """The name of the command for a method of the SDK."""
    return _VERBS.get(f"{resource}.{method}", "show" if method == "get" else method.replace("_", "-"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The call that a command was asked to make: `asked()` makes it."""

    client: Client
    resource: str
    method: str
    ids: tuple[str, ...]
    given: dict[str, Any]

    def __call__(self) -> Any:
        return getattr(getattr(self.client, self.resource), self.method)(*self.ids, **self.given)


def made(
    path: str,
    shape: Shape = Shape(),  # noqa: B008  frozen
    *,
    group: str | None = None,
    verb: str | None = None,
    retry_seconds: float = RETRY_SECONDS,
) -> Callable[[Callable[..., None]], None]:
    """Add a command that makes a call of the SDK, such as `models.create`: the function that follows is given the call,
    and its own parameters are options beside those of the call."""
    resource, method = path.split(".")
    called = inspect.getattr_static(GROUPS[resource].resource, method)
    operation = called.operation
    takes = getattr(called, "takes", None) or operation.takes or operation.query
    omitted = {*shape.omit, *({"limit", "cursor"} if isinstance(called, pages) else ())}

    def decorate(act: Callable[..., None]) -> None:
        own = list(inspect.signature(act, eval_str=True).parameters.values())[1:]
        found = [leaf for leaf in leaves(takes) if leaf.name not in omitted]
        ids = [inspect.Parameter(one, inspect.Parameter.KEYWORD_ONLY, annotation=id_of(one)) for one in operation.ids]
        options = parameters(found, shape, taken=[one.name for one in own])
        of_all = inspect.signature(_of_all).parameters.values()

        def command(*, url: str | None, key: str | None, **said: Any) -> None:
            given = arranged({leaf.path: said.pop(leaf.name) for leaf in found})
            by_path = tuple(said.pop(one) for one in operation.ids)
            with connect(url, key, retry_seconds=retry_seconds) as client:
                act(Asked(client=client, resource=resource, method=method, ids=by_path, given=given), **said)

        command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*ids, *options, *own, *of_all)]
        )
        command.operation = operation  # type: ignore[attr-defined]
        GROUPS[group or resource].app.command(verb or verb_of(resource, method), help=act.__doc__ or operation.does)(
            command
        )

    return decorate


def derive(
    path: str,
    shape: Shape = Shape(),  # noqa: B008
    *,
    line: Callable[[Any], str] | None = None,
    group: str | None = None,
    verb: str | None = None,
) -> None:
    """Add a command that makes a call and prints its answer; of a list, each item as JSON, or as `line` says it."""
    resource, method = path.split(".")
    called = inspect.getattr_static(GROUPS[resource].resource, method)
    act = _saved if called.operation.gives is bytes else _show_answer
    if isinstance(called, pages):
        act = _listed if line is None else _listed_as(line)
    made(path, shape, group=group, verb=verb)(act)


def methods() -> Iterator[tuple[str, str]]:
    """Each method of the SDK that makes one call: its resource, and its own name."""
    for resource, group in GROUPS.items():
        for kind in reversed(group.resource.__mro__):
            for name, method in vars(kind).items():
                if hasattr(method, "operation"):
                    yield resource, name


def derive_the_rest() -> None:
    """Add a command for each method of the SDK that has none."""
    for resource, method in methods():
        if not GROUPS[resource].has(verb_of(resource, method)):
            derive(f"{resource}.{method}")


def _of_all(url: Url = None, key: Key = None) -> None:
    """The options of every command that talks to a gateway."""


def _show_answer(asked: Asked) -> None:
    if (found := asked()) is not None:
        show(found)


def _saved(asked: Asked, to: Annotated[Path, typer.Argument(dir_okay=False, help="Where to write it")]) -> None:
    found = asked()
    files.write(to, [found] if isinstance(found, bytes) else found)


Limit = Annotated[int | None, typer.Option(min=1, help="How many at most; default: all")]


def _lines(line: Callable[[Any], str], asked: Asked, limit: int | None) -> None:
    if limit is not None:
        asked.given["limit"] = min(limit, _LARGEST_PAGE)
    for found in itertools.islice(asked(), limit):
        console.print(line(found), markup=False, highlight=False, emoji=False)


def _json(found: Any) -> str:
    return json.dumps(to_json(found))


def _listed(asked: Asked, limit: Limit = None) -> None:
    _lines(_json, asked, limit)


def _listed_as(line: Callable[[Any], str]) -> Callable[..., None]:
    as_json = Annotated[bool, typer.Option("--json", help="All that is known, as one JSON object a line")]

    def listed(asked: Asked, limit: Limit = None, json: as_json = False) -> None:
        _lines(_json if json else line, asked, limit)

    return listed
