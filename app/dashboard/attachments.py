"""Files that are attached to a request: added, saved and deleted on its page."""

from fastapi import Response
from starlette.datastructures import UploadFile

from app.api import request_attachments
from app.dashboard import decisions, pages
from app.dashboard.languages import gettext
from app.dashboard.pages import ROOT
from app.dashboard.request_context import Form, TheContext
from lethe.contract.problems import FieldError, InputInvalid, NotFound, Problem

router = pages.new_router()


@router.post("/requests/{request_id}/attachments")
def attach_file(context: TheContext, form: Form, request_id: str) -> Response:
    """Attach the file that was chosen, or show why it is refused."""
    context.require(request_attachments.add_request_attachment)
    try:
        file = _file(form.get("file"))
        context.ask(request_attachments.add_request_attachment, request_id=request_id, file=file)
    except NotFound:
        raise
    except Problem as error:
        return decisions.page_of(context, request_id, error=error)
    return pages.see(f"{ROOT}/requests/{request_id}", done="attached")


@router.get("/requests/{request_id}/attachments/{attachment_id}")
def save_attachment(context: TheContext, request_id: str, attachment_id: str) -> Response:
    """A file, to be saved; browsers are told not to show it."""
    return context.ask(request_attachments.get_request_attachment, request_id=request_id, attachment_id=attachment_id)


@router.post("/requests/{request_id}/attachments/{attachment_id}/delete")
def delete_attachment(context: TheContext, request_id: str, attachment_id: str) -> Response:
    """Erase it."""
    context.ask(request_attachments.delete_request_attachment, request_id=request_id, attachment_id=attachment_id)
    return pages.see(f"{ROOT}/requests/{request_id}", done="detached")


def _file(found: object) -> UploadFile:
    if not isinstance(found, UploadFile) or not found.filename:
        raise InputInvalid(gettext("No file was chosen."), [FieldError("file", gettext("expected a file"))])
    return found
