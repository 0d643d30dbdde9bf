"""Saved views of the list of requests: its address under a name, for the reader who saved it."""

from fastapi import Response

from app.api import saved_views
from app.dashboard import filters, pages
from app.dashboard.pages import ROOT
from app.dashboard.request_context import Form, TheContext
from app.dashboard.requests import address, checked, once_more, text
from lethe.contract.problems import Problem
from lethe.contract.saved_views import SavedViewIn

router = pages.new_router()


@router.post("/requests/views")
def save_view(context: TheContext, form: Form) -> Response:
    """Keep what the list shows and how, and show it; or say why not."""
    try:
        body = checked(SavedViewIn, name=text(form, "name"), **filters.to_keep(address(form)))
        context.ask(saved_views.create_saved_view, body=body)
    except Problem as error:
        return once_more(context, form, error)
    return pages.see(f"{ROOT}/requests", **address(form))


@router.post("/requests/views/{view_id}/delete")
def delete_view(context: TheContext, form: Form, view_id: str) -> Response:
    """Forget it, and go on showing what it showed."""
    context.ask(saved_views.delete_saved_view, view_id=view_id)
    return pages.see(f"{ROOT}/requests", **address(form))
