"""`/deletion-requests/{id}/notes`: what those who decide write about a request for each other."""

from collections.abc import Mapping

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from app.access import service as access
from app.api.calls import Call, created, respond
from app.api.deletion_requests import PlainRoute
from app.api.gateway import serves
from app.db.tables import RequestNote
from app.deletion import notes
from app.deletion import notes_repository as repository
from app.deletion import service as deletion
from lethe.contract import request_notes as contract
from lethe.contract.fields import PageOut, Paging
from lethe.contract.request_notes import NoteIn, NoteOut

router = APIRouter(route_class=PlainRoute)


@serves(router, contract.ADD)
def add_request_note(call: Call, request_id: str, body: NoteIn) -> JSONResponse:
    with call.writing() as session:
        note = notes.add(session, deletion.get(session, request_id), text=body.text, policy=call.caller.policy)
        made = _to_response(note, access.names_of(session, {note.author}))
    return respond(created(made, f"/v1/deletion-requests/{request_id}/notes"))


@serves(router, contract.LIST)
def list_request_notes(call: Call, request_id: str, query: Paging) -> PageOut[NoteOut]:
    with call.reading() as session:
        deletion.get(session, request_id)
        page = repository.of_request(session, request_id=request_id, limit=query.limit, cursor=query.cursor)
        names = access.names_of(session, {one.author for one in page.items})
    return PageOut(items=[_to_response(one, names) for one in page.items], next_cursor=page.next_cursor)


def _to_response(note: RequestNote, names: Mapping[str, str]) -> NoteOut:
    return NoteOut(id=note.id, at=note.at, author=note.author, author_name=names.get(note.author), text=note.text.text)
