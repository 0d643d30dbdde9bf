"""Endpoint that acknowledges a task with a search report."""

from fastapi import APIRouter

from app.api import calls, gateway
from app.features.stores import service
from app.features.systems import endpoints, service as systems
from lethe.features.stores import contract
from lethe.features.systems.contract import TaskOut

router = APIRouter()


@gateway.serves(router, contract.REPORT)
def report_system_task(call: calls.Call, task_id: str, body: contract.SearchReportIn) -> TaskOut:
    with call.writing() as session:
        row = systems.get_task(session, task_id)
        service.accept(session, row, body, caller=call.caller)
        return endpoints.task_out(session, row)


MOUNTS = (gateway.Mount(router=router),)
