"""Endpoint that acknowledges a task with a search report."""

from fastapi import APIRouter

from app.api.calls import Call
from app.api.gateway import Mount, serves
from app.features.stores import service
from app.features.systems import service as systems
from app.features.systems.endpoints import task_out
from lethe.features.stores import contract
from lethe.features.systems.contract import TaskOut

router = APIRouter()


@serves(router, contract.REPORT)
def report_system_task(call: Call, task_id: str, body: contract.SearchReportIn) -> TaskOut:
    with call.writing() as session:
        row = systems.get_task(session, task_id)
        service.accept(session, row, body, caller=call.caller)
        return task_out(session, row)


MOUNTS = (Mount(router=router),)
