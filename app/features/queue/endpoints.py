"""Endpoint for the work queue."""

import datetime

from fastapi import APIRouter

from app.api import calls, gateway, runs
from app.db import now
from app.features.queue import service
from app.unlearning import repository
from lethe.contract.sets import RunStatus
from lethe.features.queue import contract

router = APIRouter()

_HOUR = datetime.timedelta(hours=1)
_MAX_RUNNING_RUNS = 100


@gateway.serves(router, contract.QUEUE)
def get_queue(call: calls.Call) -> contract.QueueOut:
    with call.installation.database.reading() as session:
        queued = service.backlog(session, tenant_id=call.caller.tenant_id, at=now(session))
    with call.reading() as session:
        at = now(session)
        begins = [at - hours * _HOUR for hours in range(24, 0, -1)]
        running = repository.runs(
            session, model_id=None, status=RunStatus.RUNNING, unresolved=False, limit=_MAX_RUNNING_RUNS, cursor=None
        )
        counts = service.runs_by_hour(session, begins=begins, hour=_HOUR)
        return contract.QueueOut(
            at=at,
            next=[contract.QueuedOut.of(dataset) for dataset in queued],
            running=[runs.to_response(session, run) for run in running.items],
            hours=[
                contract.HourOut(begins_at=begin, published=published, failed=failed)
                for begin, (published, failed) in zip(begins, counts, strict=True)
            ],
        )


MOUNTS = (gateway.Mount(router=router),)
