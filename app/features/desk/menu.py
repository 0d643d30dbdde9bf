"""Dashboard menu. Features add entries through the `MENU` tuple in their `pages` modules."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.api import datasets, deletion_requests, models, runs, tenants
from app.features.custody import endpoints as custody
from app.features.desk import languages, rendering, request_context
from app.features.insight import endpoints as insight
from app.features.overview import endpoints as overview
from app.features.suppressions import endpoints as suppressions
from lethe import sockets

GROUPS = {
    "work": languages.marked("Work"),
    "models": languages.marked("Models"),
    "evidence": languages.marked("Evidence"),
    "settings": languages.marked("Settings"),
}
"""Titles of the menu's groups, in order."""


@dataclass(frozen=True, slots=True)
class MenuEntry:
    """Menu entry in one of `GROUPS`, sorted by `place`. Only callers who may call the API's `endpoint` see it."""

    place: int
    title: str
    path: str
    endpoint: Callable[..., Any]
    group: str = "work"

    def __post_init__(self) -> None:
        assert self.group in GROUPS, f"The menu has no group {self.group}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MenuGroup:
    """Menu group with the entries that the caller may open. At most one group is expanded."""

    title: str
    entries: list[MenuEntry]
    is_open: bool


_OWN = (
    MenuEntry(0, languages.marked("Inbox"), rendering.ROOT, deletion_requests.list_deletion_requests),
    MenuEntry(10, languages.marked("Requests"), f"{rendering.ROOT}/requests", deletion_requests.list_deletion_requests),
    MenuEntry(12, languages.marked("Calendar"), f"{rendering.ROOT}/calendar", insight.summarise_deletion_requests),
    MenuEntry(14, languages.marked("Overview"), f"{rendering.ROOT}/overview", overview.get_overview),
    MenuEntry(20, languages.marked("Models"), f"{rendering.ROOT}/models", models.list_models, "models"),
    MenuEntry(
        30, languages.marked("Accounting"), f"{rendering.ROOT}/accounting", insight.get_dataset_account, "evidence"
    ),
    MenuEntry(40, languages.marked("Ledger"), f"{rendering.ROOT}/ledger", custody.get_ledger_head, "evidence"),
    MenuEntry(60, languages.marked("Datasets"), f"{rendering.ROOT}/datasets", datasets.list_datasets, "models"),
    MenuEntry(80, languages.marked("Runs"), f"{rendering.ROOT}/runs", runs.list_runs, "models"),
    MenuEntry(90, languages.marked("Suppressions"), f"{rendering.ROOT}/suppressions", suppressions.list_suppressions),
    MenuEntry(130, languages.marked("Keys"), f"{rendering.ROOT}/keys", tenants.list_api_keys, "settings"),
    MenuEntry(140, languages.marked("Policy"), f"{rendering.ROOT}/tenant", tenants.get_own_tenant, "settings"),
    MenuEntry(
        150, languages.marked("Audit log"), f"{rendering.ROOT}/audit-log", custody.list_audit_entries, "evidence"
    ),
    MenuEntry(160, languages.marked("Tenants"), f"{rendering.ROOT}/tenants", tenants.list_tenants, "settings"),
    MenuEntry(170, languages.marked("Installation"), f"{rendering.ROOT}/settings", tenants.list_tenants, "settings"),
)


@functools.cache
def entries() -> list[MenuEntry]:
    """Return the entries of the desk and all features in menu order."""
    return sorted((*_OWN, *sockets.plugs("app.features", "pages", "MENU")), key=lambda entry: entry.place)


def menu_of(context: request_context.RequestContext, path: str) -> list[MenuGroup]:
    """Return the menu groups for the page at `path`, with only the entries that the caller may open.

    The page's group is expanded, or the first group if the page belongs to none.
    """
    allowed = [entry for entry in entries() if context.may(entry.endpoint)]
    groups = {name: [entry for entry in allowed if entry.group == name] for name in GROUPS}
    shown = [name for name in GROUPS if groups[name]]
    at = next((entry.group for entry in allowed if is_at(path, entry)), next(iter(shown), ""))
    return [MenuGroup(title=GROUPS[name], entries=groups[name], is_open=name == at) for name in shown]


def is_at(path: str, entry: MenuEntry) -> bool:
    """Return True if the page at `path` belongs to `entry`."""
    return path == entry.path or (entry.path != rendering.ROOT and path.startswith(f"{entry.path}/"))
