"""Endpoints under `/models/{model_id}/rehearsals`: random people are forgotten in a scratch copy, which is measured."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from app.access.idempotency import Once, StoredResponse
from app.api import calls, gateway, runs
from app.catalogue import service as catalogue
from app.features.rehearsals import service as rehearsals, tables
from app.unlearning import repository
from lethe.contract.fields import PageOut, Paging
from lethe.features.rehearsals import contract

router = APIRouter()


@gateway.serves(router, contract.ASK)
def rehearse(call: calls.Call, model_id: str, body: contract.RehearsalIn, once: Once) -> JSONResponse:
    def ask(session: Session) -> StoredResponse:
        rehearsal = rehearsals.ask(session, catalogue.get_model(session, model_id), people=body.people)
        # The answer is made of the stored row, with its defaults.
        session.flush()
        return calls.accepted(_to_response(session, rehearsal), f"/v1/models/{model_id}/rehearsals/{rehearsal.id}")

    answer = call.perform(once, ask)
    call.installation.notifier.wake()
    return calls.respond(answer)


@gateway.serves(router, contract.LIST)
def list_rehearsals(call: calls.Call, model_id: str, query: Paging) -> PageOut[contract.RehearsalOut]:
    with call.reading() as session:
        catalogue.get_model(session, model_id)
        page = rehearsals.rehearsals(session, model_id=model_id, limit=query.limit, cursor=query.cursor)
        items = [_to_response(session, rehearsal) for rehearsal in page.items]
    return PageOut(items=items, next_cursor=page.next_cursor)


@gateway.serves(router, contract.GET)
def get_rehearsal(call: calls.Call, model_id: str, rehearsal_id: str) -> contract.RehearsalOut:
    with call.reading() as session:
        return _to_response(session, rehearsals.get(session, model_id=model_id, rehearsal_id=rehearsal_id))


def _to_response(session: Session, rehearsal: tables.Rehearsal) -> contract.RehearsalOut:
    is_running = rehearsal.status == contract.RehearsalStatus.RUNNING
    run = repository.run(session, rehearsal.run_id) if is_running and rehearsal.run_id else None
    return contract.RehearsalOut.of(
        rehearsal, progress=runs.progress(session, run) if run else None, limits=contract.LIMITS
    )


MOUNTS = (gateway.Mount(router=router),)
