"""Endpoints of the desk, and the dashboard's pages under /admin."""

from fastapi import APIRouter, Response

from app.api.gateway import Mount
from app.features.desk import case_endpoints, languages, rendering as pages, request_context
from app.features.desk.menu import is_at, menu_of
from app.features.desk.pages import (
    administration,
    audit_log,
    datasets,
    evidence,
    home,
    inbox,
    login,
    models,
    new_model,
    reply,
    request,
    requests,
    runs,
)
from lethe import sockets
from lethe.contract.problems import NotFound

# Fixed paths such as /requests/decide and /models/new precede /requests/{request_id} and /models/{model_id}.
_OWN = (
    login,
    inbox,
    home,
    requests,
    reply,
    request,
    new_model,
    models,
    evidence,
    evidence,
    audit_log,
    datasets,
    runs,
    administration,
)

_unknown = pages.new_router()


@_unknown.api_route("/{path:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
def refuse_unknown_page(_context: request_context.TheContext) -> Response:
    raise NotFound(languages.gettext("There is no such page."))


def routers() -> list[APIRouter]:
    """Return the routers of all pages: the desk's own, and `PAGES` from each feature's `pages` module."""
    return [*(module.router for module in _OWN), *sockets.plugs("app.features", "pages", "PAGES")]


def install(gateway: APIRouter) -> None:
    """Serve the pages and static files under /admin, and the public certificate check at /verify."""
    pages.environment().globals |= {
        "menu_of": menu_of,
        "is_at": is_at,
        "between": evidence.between,
        "findings": evidence.findings,
    }
    gateway.mount(f"{pages.ROOT}/static", pages.Assets())
    for router in (*routers(), reply.public, _unknown):
        gateway.include_router(router)


MOUNTS = (Mount(router=case_endpoints.router), Mount(router=case_endpoints.files))
INSTALLERS = (install,)
REFUSALS = ((pages.ROOT, pages.refused), (reply.public.prefix, pages.refused))
