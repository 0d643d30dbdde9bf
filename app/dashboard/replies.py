"""The reply to a person: what became of their request, in their language, with the certificate in plain words."""

from fastapi import Response

from app.api import deletion_requests
from app.api import replies as replying
from app.api.reply_texts import reply_to
from app.api.reply_wordings import LANGUAGES
from app.dashboard import pages
from app.dashboard.request_context import TheContext
from lethe.contract.sets import ReplyFormat, ReplyLanguage

router = pages.new_router()


@router.get("/requests/{request_id}/reply")
def show_reply(context: TheContext, request_id: str, language: ReplyLanguage = ReplyLanguage.EN) -> Response:
    """Show the reply, to be copied, printed or saved."""
    found = context.ask(deletion_requests.get_certificates, request_id=request_id)
    request = context.ask(deletion_requests.get_deletion_request, request_id=request_id)
    reply = reply_to(request, found, language, policy=context.caller.policy)
    return context.page(
        "requests/reply.html",
        request=request,
        language=language.value,
        languages=LANGUAGES,
        reply=reply,
        may_save=context.may(replying.get_reply),
    )


@router.get("/requests/{request_id}/reply/file")
def save_reply(
    context: TheContext,
    request_id: str,
    language: ReplyLanguage = ReplyLanguage.EN,
    format: ReplyFormat = ReplyFormat.PDF,  # noqa: A002  as the API calls it
) -> Response:
    """The reply and what was erased, to be saved and sent."""
    return context.ask(replying.get_reply, request_id=request_id, language=language, format=format)
