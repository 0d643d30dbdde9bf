"""`/runs`: what the workers did and are doing."""

from typing import Annotated, Literal

from fastapi import APIRouter

from app.access.service import Scope
from app.api.calls import Call, Cursor, Limit, call_with
from app.api.problems import responses
from app.api.schemas import PageOut, RunOut
from app.db.tables import Run
from app.errors import RunNotCancellable, RunUnknown
from app.unlearning import repository
from app.unlearning import service as unlearning

router = APIRouter(prefix="/runs", tags=["Runs"])
Status = Literal["running", "published", "failed", "abandoned", "cancelled"]


@router.get("", responses=responses())
def list_runs(
    call: Annotated[Call, call_with(Scope.MODELS_READ)],
    model_id: str | None = None,
    status: Status | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> PageOut[RunOut]:
    """Of all models or of one, whatever became of them or those of one status, newest first."""
    with call.reading() as session:
        page = repository.runs(session, model_id=model_id, status=status, limit=limit, cursor=cursor)
    return PageOut(items=[_shown(run) for run in page.items], next_cursor=page.next_cursor)


@router.get("/{run_id}", responses=responses(RunUnknown))
def get_run(call: Annotated[Call, call_with(Scope.MODELS_READ)], run_id: str) -> RunOut:
    """How far a run is, or how it ended."""
    with call.reading() as session:
        return _shown(unlearning.get(session, run_id))


@router.post("/{run_id}/cancel", responses=responses(RunUnknown, RunNotCancellable))
def cancel_run(call: Annotated[Call, call_with(Scope.MODELS_WRITE)], run_id: str) -> RunOut:
    """Stop a run that learns or audits; 409 for one that has ended, or that somebody waits for who asked to be
    forgotten. What it computed is thrown away. A model without a version is `cancelled` then: relearn or retire it."""
    with call.writing() as session:
        run = unlearning.get(session, run_id)
        unlearning.cancel(session, run)
        session.flush()  # what is shown is read back
        return _shown(run)


def _shown(run: Run) -> RunOut:
    return RunOut.model_validate(run, from_attributes=True)
