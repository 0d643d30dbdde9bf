"""All pages below /admin."""

from fastapi import APIRouter, Request, Response

from app.api import problems
from app.dashboard import (
    account,
    accounting,
    attachments,
    audit_log,
    audits,
    bulk,
    calculator,
    canaries,
    certificates,
    chosen_language,
    comparison,
    curves,
    datasets,
    decisions,
    deliveries,
    find,
    home,
    keys,
    leaving_reasons,
    ledger,
    login,
    models,
    networks,
    new_model,
    new_request,
    pages,
    people,
    plans,
    provider,
    quality,
    rehearsals,
    replies,
    requests,
    runs,
    saved_views,
    settings_in_force,
    suppressions,
    tenants,
    welcome,
    what_if,
)
from app.dashboard.languages import gettext
from app.dashboard.menu import is_at, menu_of
from app.dashboard.pages import ROOT
from app.dashboard.request_context import TheContext
from lethe.contract.problems import NotFound, Problem

_PAGES = (
    login,
    chosen_language,
    provider,
    welcome,
    account,
    home,
    find,
    requests,
    saved_views,
    bulk,
    new_request,
    replies,
    attachments,
    decisions,
    certificates,
    new_model,
    models,
    quality,
    rehearsals,
    audits,
    canaries,
    comparison,
    curves,
    plans,
    what_if,
    accounting,
    ledger,
    calculator,
    datasets,
    networks,
    suppressions,
    leaving_reasons,
    runs,
    deliveries,
    keys,
    people,
    tenants,
    audit_log,
    settings_in_force,
)
"""Modules with a `router`."""


def install(served: APIRouter) -> None:
    """Serve the pages below /admin."""
    pages.environment().globals |= {"menu_of": menu_of, "is_at": is_at}
    pages.environment().globals |= {"between": audits.between, "findings": audits.findings}
    served.mount(f"{ROOT}/static", pages.Assets())
    for module in _PAGES:
        served.include_router(module.router)
    served.include_router(_elsewhere)


def refused(request: Request, error: Problem) -> Response:
    """Answer what is refused before anybody knows where it leads: by a page to browsers at pages, else by a problem."""
    is_here = f"{request.url.path}/".startswith(f"{ROOT}/")
    return pages.refused(request, error) if is_here else problems.problem(error)


_elsewhere = pages.new_router()


@_elsewhere.api_route("/{path:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
def nothing_here(_context: TheContext) -> Response:
    raise NotFound(gettext("There is no such page."))
