"""`/models/{model_id}/rehearsals`: forget people drawn at random on a scratch copy, and see what that does."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from app.access.idempotency import Answer, Once
from app.api.calls import Call, accepted, respond
from app.api.gateway import serves
from app.api.runs import progress
from app.catalogue import service as catalogue
from app.db.tables import Rehearsal
from app.unlearning import rehearsals, repository, tests_repository
from lethe.contract import rehearsals as contract
from lethe.contract.fields import PageOut, Paging
from lethe.contract.rehearsals import RehearsalIn, RehearsalOut, RehearsalReport
from lethe.contract.sets import RehearsalStatus

router = APIRouter()


@serves(router, contract.ASK)
def rehearse(call: Call, model_id: str, body: RehearsalIn, once: Once) -> JSONResponse:
    def ask(session: Session) -> Answer:
        made = rehearsals.ask(session, catalogue.get_model(session, model_id), people=body.people)
        session.flush()  # what is shown is read back
        return accepted(_to_response(session, made), f"/v1/models/{model_id}/rehearsals/{made.id}")

    answer = call.perform(once, ask)
    call.installation.notifier.wake()
    return respond(answer)


@serves(router, contract.LIST)
def list_rehearsals(call: Call, model_id: str, query: Paging) -> PageOut[RehearsalOut]:
    with call.reading() as session:
        catalogue.get_model(session, model_id)
        page = tests_repository.rehearsals(session, model_id=model_id, limit=query.limit, cursor=query.cursor)
        items = [_to_response(session, one) for one in page.items]
    return PageOut(items=items, next_cursor=page.next_cursor)


@serves(router, contract.GET)
def get_rehearsal(call: Call, model_id: str, rehearsal_id: str) -> RehearsalOut:
    with call.reading() as session:
        return _to_response(session, rehearsals.get(session, model_id=model_id, rehearsal_id=rehearsal_id))


def _to_response(session: Session, rehearsal: Rehearsal) -> RehearsalOut:
    is_running = rehearsal.status == RehearsalStatus.RUNNING
    run = repository.run(session, rehearsal.run_id) if is_running and rehearsal.run_id else None
    return RehearsalOut(
        id=rehearsal.id,
        model_id=rehearsal.model_id,
        people=rehearsal.people,
        status=RehearsalStatus(rehearsal.status),
        run_id=rehearsal.run_id,
        progress=progress(session, run) if run else None,
        report=RehearsalReport(**rehearsal.report) if rehearsal.report else None,
        limits=contract.LIMITS,
        error_code=rehearsal.error_code,
        asked_at=rehearsal.asked_at,
        finished_at=rehearsal.finished_at,
    )
