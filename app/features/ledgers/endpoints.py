"""Endpoints under `/dp-models`."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from app.access.idempotency import Once, StoredResponse
from app.api import calls, gateway
from app.features.ledgers import service, tables
from lethe.contract.fields import PageOut, Paging
from lethe.features.ledgers import contract

router = APIRouter()


@gateway.serves(router, contract.CREATE)
def create_dp_model(call: calls.Call, once: Once, body: contract.DpModelIn) -> JSONResponse:
    numbers = service.recompute(body)

    def register(session: Session) -> StoredResponse:
        row = service.register(session, body, numbers, name=body.name, dataset_ids=body.dataset_ids)
        call.require_room(session=session)
        return calls.created(_model(session, row), f"/v1/dp-models/{row.id}")

    return calls.respond(call.perform(once, register))


@gateway.serves(router, contract.LIST)
def list_dp_models(call: calls.Call, query: Paging) -> PageOut[contract.DpModelOut]:
    with call.reading() as session:
        page = service.models(session, limit=query.limit, cursor=query.cursor)
        return PageOut(items=[_model(session, row) for row in page.items], next_cursor=page.next_cursor)


@gateway.serves(router, contract.GET)
def get_dp_model(call: calls.Call, dp_model_id: str) -> contract.DpModelOut:
    with call.reading() as session:
        return _model(session, service.get(session, dp_model_id))


@gateway.serves(router, contract.RENEW)
def renew_dp_model(call: calls.Call, dp_model_id: str, body: contract.LedgerIn) -> contract.DpModelOut:
    with call.reading() as session:
        service.get(session, dp_model_id)
    numbers = service.recompute(body)
    with call.writing() as session:
        row = service.get(session, dp_model_id)
        service.renew(session, row, body, numbers)
        return _model(session, row)


@gateway.serves(router, contract.RETIRE)
def retire_dp_model(call: calls.Call, dp_model_id: str) -> None:
    with call.writing() as session:
        service.retire(session, service.get(session, dp_model_id))


def _model(session: Session, row: tables.DpModel) -> contract.DpModelOut:
    ledger = service.ledger_of(session, row)
    counted, waiting = service.counts(session, row, ledger)
    forgotten = counted * ledger.max_rows_per_person
    names = ("ledger", "relation", "delta", "max_rows_per_person", "trained_from", "epsilon", "budget_epsilon")
    return contract.DpModelOut.of(
        row,
        ledger_id=ledger.id,
        **{name: getattr(ledger, name) for name in names},
        curve=[contract.CurvePoint(rows=rows, epsilon=epsilon) for rows, epsilon in ledger.curve],
        budget_rows=ledger.budget_rows,
        forgotten_rows=forgotten,
        retraining_due=forgotten + (0 if waiting else ledger.max_rows_per_person) > ledger.budget_rows,
        waiting_requests=waiting,
    )


MOUNTS = (gateway.Mount(router=router),)
