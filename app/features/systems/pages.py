"""Pages about systems and their open tasks, and a case's systems."""

from fastapi import Response

from app.features.desk import forms, glossary, languages, lists, menu, rendering as pages, request_context
from app.features.systems import endpoints
from lethe.contract.problems import Problem
from lethe.features.systems.contract import TaskClosureIn, TaskStatus

router = pages.new_router()

_MAX_TASKS = 100


@router.get("/systems")
def list_systems(context: request_context.TheContext, place: lists.ThePlace) -> Response:
    """List all systems, and the newest open tasks."""
    return _list(context, place)


@router.get("/system-tasks/overdue")
def list_overdue_tasks(context: request_context.TheContext) -> Response:
    """Show the number of overdue tasks, for the overview."""
    overdue = context.ask(endpoints.list_system_tasks, overdue=True, limit=_MAX_TASKS).items
    return context.page("systems/overdue.html", overdue=overdue)


@router.post("/system-tasks/{task_id}/close")
def close_task(context: request_context.TheContext, form: request_context.Form, task_id: str) -> Response:
    """Close a task whose system does not respond, or show why closing it was refused."""
    try:
        body = forms.checked(TaskClosureIn, reason=forms.text(form, "reason"))
        context.ask(endpoints.close_system_task, task_id=task_id, body=body)
    except Problem as error:
        return _list(context, lists.PagePosition(), error=error)
    return pages.see(f"{pages.ROOT}/systems")


@router.get("/requests/{request_id}/systems")
def show_systems(context: request_context.TheContext, request_id: str) -> Response:
    """Show the systems that a request concerns, with a headline for the officer."""
    found = context.ask(endpoints.get_request_systems, request_id=request_id)
    return context.page(
        "systems/of_request.html",
        found=found,
        headline=found.for_officer[languages.spoken()],
        has_bundle=context.may(endpoints.get_request_bundle),
        labels=glossary.labels,
    )


@router.get("/requests/{request_id}/bundle.json")
def download_bundle(context: request_context.TheContext, request_id: str) -> Response:
    """Download the bundle as the API returns it."""
    bundle = context.ask(endpoints.get_request_bundle, request_id=request_id)
    return pages.json_file(f"{request_id}.bundle.json", bundle)


def _list(
    context: request_context.RequestContext, place: lists.PagePosition, *, error: Problem | None = None
) -> Response:
    open_tasks = context.ask_if_allowed(endpoints.list_system_tasks, status=TaskStatus.OPEN, limit=_MAX_TASKS)
    return context.page(
        "systems/list.html",
        **context.listing(endpoints.list_systems, place, "system", "systems"),
        tasks=open_tasks.items if open_tasks else [],
        may_close=context.may(endpoints.close_system_task),
        labels=glossary.labels,
        error=error,
    )


PAGES = (router,)
MENU = (menu.MenuEntry(70, languages.marked("Systems"), f"{pages.ROOT}/systems", endpoints.list_systems, "settings"),)
