"""The menu of the dashboard. Features add entries by the tuple `MENU` of their modules `pages`."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.api import accounting, audit_log, datasets, deletion_requests, models, operations, runs, tenants
from app.features.desk.languages import marked
from app.features.desk.rendering import ROOT
from app.features.desk.request_context import RequestContext
from lethe import sockets


@dataclass(frozen=True, slots=True, kw_only=True)
class MenuEntry:
    """An entry of the menu for callers who may call `endpoint` of the API. Entries are sorted by `place`."""

    place: int
    title: str
    path: str
    endpoint: Callable[..., Any]


_OWN = (
    MenuEntry(place=0, title=marked("Overview"), path=ROOT, endpoint=operations.get_overview),
    MenuEntry(
        place=10, title=marked("Requests"), path=f"{ROOT}/requests", endpoint=deletion_requests.list_deletion_requests
    ),
    MenuEntry(place=20, title=marked("Models"), path=f"{ROOT}/models", endpoint=models.list_models),
    MenuEntry(place=30, title=marked("Accounting"), path=f"{ROOT}/accounting", endpoint=accounting.get_dataset_account),
    MenuEntry(place=40, title=marked("Ledger"), path=f"{ROOT}/ledger", endpoint=accounting.get_ledger_head),
    MenuEntry(place=60, title=marked("Datasets"), path=f"{ROOT}/datasets", endpoint=datasets.list_datasets),
    MenuEntry(place=80, title=marked("Runs"), path=f"{ROOT}/runs", endpoint=runs.list_runs),
    MenuEntry(
        place=90,
        title=marked("Suppressions"),
        path=f"{ROOT}/suppressions",
        endpoint=deletion_requests.list_suppressions,
    ),
    MenuEntry(place=130, title=marked("Keys"), path=f"{ROOT}/keys", endpoint=tenants.list_api_keys),
    MenuEntry(place=140, title=marked("Policy"), path=f"{ROOT}/tenant", endpoint=tenants.get_own_tenant),
    MenuEntry(place=150, title=marked("Audit log"), path=f"{ROOT}/audit-log", endpoint=audit_log.list_audit_entries),
    MenuEntry(place=160, title=marked("Tenants"), path=f"{ROOT}/tenants", endpoint=tenants.list_tenants),
    MenuEntry(place=170, title=marked("Settings"), path=f"{ROOT}/settings", endpoint=tenants.list_tenants),
)


@functools.cache
def entries() -> list[MenuEntry]:
    """Return the entries of the desk and of all features in the order of the menu."""
    return sorted((*_OWN, *sockets.plugs("app.features", "pages", "MENU")), key=lambda entry: entry.place)


def menu_of(context: RequestContext) -> list[MenuEntry]:
    """Return the entries that the caller of `context` may open."""
    return [entry for entry in entries() if context.may(entry.endpoint)]


def is_at(path: str, entry: MenuEntry) -> bool:
    """Return True if the page at `path` belongs to `entry`."""
    return path == entry.path or (entry.path != ROOT and path.startswith(f"{entry.path}/"))
