"""`/runs`: what the workers did and are doing."""

from fastapi import APIRouter

from app.access.service import Scope
from app.api.calls import At, Cursor, Limit, caller_with
from app.api.problems import responses
from app.api.schemas import PageOut, RunOut
from app.db.tables import Run
from app.errors import RunUnknown
from app.unlearning import repository
from app.unlearning import service as unlearning

router = APIRouter(prefix="/runs", tags=["Runs"], dependencies=[caller_with(Scope.MODELS_READ)])


@router.get("", responses=responses())
def list_runs(at: At, model_id: str | None = None, limit: Limit = 50, cursor: Cursor = None) -> PageOut[RunOut]:
    with at.database.reading() as session:
        page = repository.runs(session, model_id=model_id, limit=limit, cursor=cursor)
    return PageOut(items=[_shown(run) for run in page.items], next_cursor=page.next_cursor)


@router.get("/{run_id}", responses=responses(RunUnknown))
def get_run(at: At, run_id: str) -> RunOut:
    with at.database.reading() as session:
        return _shown(unlearning.get(session, run_id))


def _shown(run: Run) -> RunOut:
    return RunOut.model_validate(run, from_attributes=True)
