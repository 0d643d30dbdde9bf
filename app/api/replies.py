"""`/deletion-requests/{id}/reply`: what a person is told, as text or as a PDF. Nothing of it is kept."""

from fastapi import APIRouter
from fastapi.responses import Response

from app.api import deletion_requests, forms, reply_texts
from app.api.calls import Call
from app.api.deletion_requests import TheIntake
from app.api.gateway import serves
from lethe.contract import replies as contract
from lethe.contract.replies import ReplyQuery
from lethe.contract.sets import ReplyFormat

router = APIRouter()


@serves(router, contract.REPLY)
def get_reply(call: Call, intake: TheIntake, request_id: str, query: ReplyQuery) -> Response:
    request = deletion_requests.get_deletion_request(call, intake, request_id)
    found = deletion_requests.get_certificates(call, request_id)
    reply = reply_texts.reply_to(request, found, query.language, policy=call.caller.policy)
    if query.format is ReplyFormat.PDF:
        from app.api import reply_pdf  # its libraries take longer to import than the gateway's other parts

        folder = forms.folder(call.installation.settings)
        content, media_type, end = reply_pdf.as_pdf(reply, folder=folder), "application/pdf", "pdf"
    else:
        content, media_type, end = reply_texts.as_text(reply).encode(), "text/plain; charset=utf-8", "txt"
    headers = {
        "Content-Disposition": f'attachment; filename="reply-{request.id}.{end}"',
        "Content-Language": query.language.value,
        "Cache-Control": "no-store",
    }
    return Response(content, media_type=media_type, headers=headers)
