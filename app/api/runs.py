"""`/runs`: what the workers did and are doing."""

from fastapi import APIRouter

from app.api.calls import Call
from app.api.gateway import serves
from app.db.tables import Run
from app.unlearning import repository
from app.unlearning import service as unlearning
from lethe.contract import runs
from lethe.contract.fields import PageOut
from lethe.contract.runs import RunOut, RunQuery

router = APIRouter()


@serves(router, runs.LIST)
def list_runs(call: Call, query: RunQuery) -> PageOut[RunOut]:
    with call.reading() as session:
        page = repository.runs(session, **dict(query))
    return PageOut(items=[_to_response(run) for run in page.items], next_cursor=page.next_cursor)


@serves(router, runs.GET)
def get_run(call: Call, run_id: str) -> RunOut:
    with call.reading() as session:
        return _to_response(unlearning.get(session, run_id))


@serves(router, runs.CANCEL)
def cancel_run(call: Call, run_id: str) -> RunOut:
    with call.writing() as session:
        run = unlearning.get(session, run_id)
        unlearning.cancel(session, run)
        session.flush()  # what is shown is read back
        return _to_response(run)


def _to_response(run: Run) -> RunOut:
    return RunOut.model_validate(run, from_attributes=True)
