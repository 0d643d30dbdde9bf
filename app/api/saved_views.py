"""`/saved-views`: filters, order and columns of the list of requests, kept under a name."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from app.access import repository, saved_views
from app.access.idempotency import Answer, Once
from app.api.calls import Call, created, respond
from app.api.gateway import serves
from app.db.tables import SavedView
from lethe.contract import saved_views as contract
from lethe.contract.fields import PageOut, Paging
from lethe.contract.saved_views import SavedViewIn, SavedViewOut

router = APIRouter()


@serves(router, contract.CREATE)
def create_saved_view(call: Call, once: Once, body: SavedViewIn) -> JSONResponse:
    def create(session: Session) -> Answer:
        view = saved_views.create(session, body, by=call.caller)
        return created(_to_response(view), f"/v1/saved-views/{view.id}")

    return respond(call.perform(once, create))


@serves(router, contract.LIST)
def list_saved_views(call: Call, query: Paging) -> PageOut[SavedViewOut]:
    with call.reading() as session:
        page = repository.saved_views(session, call.caller.maker, limit=query.limit, cursor=query.cursor)
    return PageOut(items=[_to_response(view) for view in page.items], next_cursor=page.next_cursor)


@serves(router, contract.DELETE)
def delete_saved_view(call: Call, view_id: str) -> None:
    with call.writing() as session:
        saved_views.delete(session, view_id, by=call.caller)


def _to_response(view: SavedView) -> SavedViewOut:
    return SavedViewOut(id=view.id, name=view.name, created_at=view.created_at, **view.shows)
