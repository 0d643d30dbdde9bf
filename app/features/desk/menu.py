"""The menu of the dashboard. Features add entries by the tuple `MENU` of their modules `pages`."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.api import accounting, audit_log, datasets, deletion_requests, models, runs, tenants
from app.features.desk.languages import marked
from app.features.desk.rendering import ROOT
from app.features.desk.request_context import RequestContext
from app.features.insight import endpoints as insight
from app.features.overview import endpoints as overview
from lethe import sockets

GROUPS = {
    "work": marked("Work"),
    "models": marked("Models"),
    "evidence": marked("Evidence"),
    "settings": marked("Settings"),
}
"""Titles of the groups of the menu, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MenuEntry:
    """An entry of the menu for callers who may call `endpoint` of the API, in one of `GROUPS`, sorted by `place`."""

    place: int
    title: str
    path: str
    endpoint: Callable[..., Any]
    group: str = "work"

    def __post_init__(self) -> None:
        assert self.group in GROUPS, f"The menu has no group {self.group}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MenuGroup:
    """A group of the menu with the entries that the caller may open. At most one group is open."""

    title: str
    entries: list[MenuEntry]
    is_open: bool


_OWN = (
    MenuEntry(place=0, title=marked("Inbox"), path=ROOT, endpoint=deletion_requests.list_deletion_requests),
    MenuEntry(
        place=10, title=marked("Requests"), path=f"{ROOT}/requests", endpoint=deletion_requests.list_deletion_requests
    ),
    MenuEntry(
        place=12, title=marked("Calendar"), path=f"{ROOT}/calendar", endpoint=insight.summarise_deletion_requests
    ),
    MenuEntry(place=14, title=marked("Overview"), path=f"{ROOT}/overview", endpoint=overview.get_overview),
    MenuEntry(place=20, title=marked("Models"), path=f"{ROOT}/models", endpoint=models.list_models, group="models"),
    MenuEntry(
        place=30,
        title=marked("Accounting"),
        path=f"{ROOT}/accounting",
        endpoint=insight.get_dataset_account,
        group="evidence",
    ),
    MenuEntry(
        place=40, title=marked("Ledger"), path=f"{ROOT}/ledger", endpoint=accounting.get_ledger_head, group="evidence"
    ),
    MenuEntry(
        place=60, title=marked("Datasets"), path=f"{ROOT}/datasets", endpoint=datasets.list_datasets, group="models"
    ),
    MenuEntry(place=80, title=marked("Runs"), path=f"{ROOT}/runs", endpoint=runs.list_runs, group="models"),
    MenuEntry(
        place=90,
        title=marked("Suppressions"),
        path=f"{ROOT}/suppressions",
        endpoint=deletion_requests.list_suppressions,
    ),
    MenuEntry(place=130, title=marked("Keys"), path=f"{ROOT}/keys", endpoint=tenants.list_api_keys, group="settings"),
    MenuEntry(
        place=140, title=marked("Policy"), path=f"{ROOT}/tenant", endpoint=tenants.get_own_tenant, group="settings"
    ),
    MenuEntry(
        place=150,
        title=marked("Audit log"),
        path=f"{ROOT}/audit-log",
        endpoint=audit_log.list_audit_entries,
        group="evidence",
    ),
    MenuEntry(
        place=160, title=marked("Tenants"), path=f"{ROOT}/tenants", endpoint=tenants.list_tenants, group="settings"
    ),
    MenuEntry(
        place=170,
        title=marked("Installation"),
        path=f"{ROOT}/settings",
        endpoint=tenants.list_tenants,
        group="settings",
    ),
)


@functools.cache
def entries() -> list[MenuEntry]:
    """Return the entries of the desk and of all features in the order of the menu."""
    return sorted((*_OWN, *sockets.plugs("app.features", "pages", "MENU")), key=lambda entry: entry.place)


def menu_of(context: RequestContext, path: str) -> list[MenuGroup]:
    """Return the groups with the entries that the caller of `context` may open, for the page at `path`.

    The group of the page is open; the first one if the page is in none.
    """
    allowed = [entry for entry in entries() if context.may(entry.endpoint)]
    groups = {name: [entry for entry in allowed if entry.group == name] for name in GROUPS}
    shown = [name for name in GROUPS if groups[name]]
    at = next((entry.group for entry in allowed if is_at(path, entry)), next(iter(shown), ""))
    return [MenuGroup(title=GROUPS[name], entries=groups[name], is_open=name == at) for name in shown]


def is_at(path: str, entry: MenuEntry) -> bool:
    """Return True if the page at `path` belongs to `entry`."""
    return path == entry.path or (entry.path != ROOT and path.startswith(f"{entry.path}/"))
