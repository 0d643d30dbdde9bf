"""The menu: what of the pages is offered to whom."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.api import (
    accounting,
    api_keys,
    audit_log,
    bounds,
    datasets,
    deletion_requests,
    leaving_reasons,
    ledger,
    models,
    networks,
    overview,
    runs,
    suppressions,
    tenants,
    users,
    webhook_deliveries,
)
from app.dashboard.languages import marked
from app.dashboard.pages import ROOT
from app.dashboard.request_context import RequestContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line of the menu, for callers who may ask `endpoint` of the API."""

    title: str
    path: str
    endpoint: Callable[..., Any]


MENU = (
    Entry(title=marked("Overview"), path=ROOT, endpoint=overview.get_overview),
    Entry(title=marked("Requests"), path=f"{ROOT}/requests", endpoint=deletion_requests.list_deletion_requests),
    Entry(title=marked("Models"), path=f"{ROOT}/models", endpoint=models.list_models),
    Entry(title=marked("Accounting"), path=f"{ROOT}/accounting", endpoint=accounting.get_dataset_account),
    Entry(title=marked("Ledger"), path=f"{ROOT}/ledger", endpoint=ledger.get_ledger_head),
    Entry(title=marked("Calculator"), path=f"{ROOT}/calculator", endpoint=bounds.list_bounds),
    Entry(title=marked("Datasets"), path=f"{ROOT}/datasets", endpoint=datasets.list_datasets),
    Entry(title=marked("Networks"), path=f"{ROOT}/networks", endpoint=networks.list_networks),
    Entry(title=marked("Runs"), path=f"{ROOT}/runs", endpoint=runs.list_runs),
    Entry(title=marked("Suppressions"), path=f"{ROOT}/suppressions", endpoint=suppressions.list_suppressions),
    Entry(
        title=marked("Leaving reasons"), path=f"{ROOT}/leaving-reasons", endpoint=leaving_reasons.get_leaving_reasons
    ),
    Entry(title=marked("Deliveries"), path=f"{ROOT}/deliveries", endpoint=webhook_deliveries.list_webhook_deliveries),
    Entry(title=marked("People"), path=f"{ROOT}/people", endpoint=users.list_users),
    Entry(title=marked("Keys"), path=f"{ROOT}/keys", endpoint=api_keys.list_api_keys),
    Entry(title=marked("Policy"), path=f"{ROOT}/tenant", endpoint=tenants.get_own_tenant),
    Entry(title=marked("Audit log"), path=f"{ROOT}/audit-log", endpoint=audit_log.list_audit_entries),
    Entry(title=marked("Tenants"), path=f"{ROOT}/tenants", endpoint=tenants.list_tenants),
    Entry(title=marked("Settings"), path=f"{ROOT}/settings", endpoint=tenants.list_tenants),
)


def menu_of(context: RequestContext) -> list[Entry]:
    return [entry for entry in MENU if context.may(entry.endpoint)]


def is_at(here: str, entry: Entry) -> bool:
    """Return True if a page belongs to this line of the menu."""
    return here == entry.path or (entry.path != ROOT and here.startswith(f"{entry.path}/"))
