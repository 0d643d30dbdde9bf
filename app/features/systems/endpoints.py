"""Endpoints under `/systems` and `/system-tasks`, and for a request's systems and bundle."""

import datetime

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from app.access.idempotency import Once, StoredResponse
from app.api import calls, gateway
from app.db import now, tables
from app.deletion import service as deletion
from app.features.systems import service, systems
from app.features.systems.tables import System, SystemTask
from app.features.webhooks import receiver
from lethe.contract import fields, sets
from lethe.features.systems import bundle, contract

router = APIRouter()
_NO_IDS = {"task_id": None, "certificate_id": None}


@gateway.serves(router, contract.CREATE)
def create_system(call: calls.Call, once: Once, body: contract.SystemIn) -> JSONResponse:
    _check_url(call, body.webhook_url)

    def register(session: Session) -> StoredResponse:
        row = service.register(session, **dict(body))
        return calls.created(_system(call, systems.of_task(row)), f"/v1/systems/{row.id}")

    return calls.respond(call.perform(once, register))


@gateway.serves(router, contract.LIST)
def list_systems(call: calls.Call, query: fields.Paging) -> fields.PageOut[contract.SystemOut]:
    with call.reading() as session:
        rows = [row for kind in systems.kinds() for row in kind.systems(session)]
    page = calls.page_of(rows, limit=query.limit, cursor=query.cursor)
    return fields.PageOut(items=[_system(call, row) for row in page.items], next_cursor=page.next_cursor)


@gateway.serves(router, contract.GET)
def get_system(call: calls.Call, system_id: str) -> contract.SystemOut:
    with call.reading() as session:
        rows = {row.id: row for kind in systems.kinds() for row in kind.systems(session)}
    return _system(call, contract.SystemUnknown.if_none(rows.get(system_id), system_id=system_id))


@gateway.serves(router, contract.CHANGE)
def change_system(call: calls.Call, system_id: str, body: contract.SystemChangeIn) -> contract.SystemOut:
    changes = {name: value for name, value in dict(body).items() if value is not None}
    if body.webhook_url is not None:
        _check_url(call, body.webhook_url)
    with call.writing() as session:
        row = service.get(session, system_id)
        service.change(session, row, **changes)
        return _system(call, systems.of_task(row))


@gateway.serves(router, contract.RETIRE)
def retire_system(call: calls.Call, system_id: str) -> None:
    with call.writing() as session:
        service.retire(session, service.get(session, system_id))


@gateway.serves(router, contract.TASKS)
def list_system_tasks(call: calls.Call, query: contract.TasksQuery) -> fields.PageOut[contract.TaskOut]:
    with call.reading() as session:
        page = service.tasks(session, **dict(query))
        items = [task_out(session, row) for row in page.items]
    return fields.PageOut(items=items, next_cursor=page.next_cursor)


@gateway.serves(router, contract.TASK)
def get_system_task(call: calls.Call, task_id: str) -> contract.TaskWithEvidenceOut:
    with call.reading() as session:
        row = service.get_task(session, task_id)
        return contract.TaskWithEvidenceOut(
            **task_out(session, row).model_dump(),
            by=row.confirmed_by,
            evidence_sha256=row.evidence_sha256,
            note=(row.note.text or None) if not row.note.is_damaged else None,
            jws=row.jws,
            api_key_id=row.acknowledged_with,
        )


@gateway.serves(router, contract.ACKNOWLEDGE)
def acknowledge_system_task(call: calls.Call, task_id: str, body: contract.AcknowledgementIn) -> contract.TaskOut:
    with call.writing() as session:
        row = service.get_task(session, task_id)
        service.acknowledge(session, row, body, caller=call.caller)
        return task_out(session, row)


@gateway.serves(router, contract.CLOSE)
def close_system_task(call: calls.Call, task_id: str, body: contract.TaskClosureIn) -> contract.TaskOut:
    with call.writing() as session:
        row = service.get_task(session, task_id)
        service.close(session, row, reason=body.reason)
        return task_out(session, row)


@gateway.serves(router, contract.OF_REQUEST)
def get_request_systems(call: calls.Call, request_id: str) -> contract.RequestSystemsOut:
    with call.reading() as session:
        request = deletion.get(session, request_id)
        lines = systems.lines_of(session, call.installation.keys, request)
    headline = bundle.headline_of(lines)
    return contract.RequestSystemsOut(
        request_id=request_id,
        grade=headline["grade"],
        for_person=headline["person"],
        for_officer=headline["officer"],
        waits_for=[line["system"]["name"] for line in lines if line["waiting"]],
        lines=[contract.LineOut.model_validate(_NO_IDS | line["evidence"] | line["system"] | line) for line in lines],
    )


@gateway.serves(router, contract.BUNDLE)
def get_request_bundle(call: calls.Call, request_id: str) -> contract.BundleOut:
    with call.reading() as session:
        request = deletion.get(session, request_id)
        statement = systems.statement_of(session, call.installation.keys, request)
    return contract.BundleOut(
        request_id=request_id,
        grade=statement["headline"]["grade"],
        issued_at=datetime.datetime.fromisoformat(statement["issued_at"]),
        jws=systems.sign(call.installation.keys, statement),
        statement=statement,
    )


def _check_url(call: calls.Call, url: str) -> None:
    receiver.check_url(url, call.installation.settings.webhook_networks(), path="webhook_url")


def _system(call: calls.Call, row: systems.RegisteredSystem) -> contract.SystemOut:
    return contract.SystemOut.of(row, webhook_url=row.webhook_url if call.caller.has(sets.Scope.ADMIN) else None)


def task_out(session: Session, row: SystemTask) -> contract.TaskOut:
    """Return a task as the API represents it."""
    deadline = session.get_one(tables.DeletionRequest, row.request_id).deadline
    return contract.TaskOut.of(
        row,
        system_name=session.get_one(System, row.system_id).name,
        due_at=deadline,
        overdue=row.status == contract.TaskStatus.OPEN and deadline <= now(session),
    )


MOUNTS = (gateway.Mount(router=router),)
