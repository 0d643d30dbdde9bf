"""`/runs`: what the workers did and are doing."""

import datetime
from typing import Any

from fastapi import APIRouter
from sqlalchemy.orm import Session

from app.accounting import runtime_estimates
from app.api.calls import Call
from app.api.gateway import serves
from app.db import now
from app.db.tables import Run
from app.unlearning import repository
from app.unlearning import service as unlearning
from lethe.contract import runs
from lethe.contract.fields import PageOut
from lethe.contract.models import ProgressOut
from lethe.contract.runs import RunOut, RunQuery

router = APIRouter()


@serves(router, runs.LIST)
def list_runs(call: Call, query: RunQuery) -> PageOut[RunOut]:
    with call.reading() as session:
        page = repository.runs(session, **dict(query))
        return PageOut(items=[_to_response(session, run) for run in page.items], next_cursor=page.next_cursor)


@serves(router, runs.GET)
def get_run(call: Call, run_id: str) -> RunOut:
    with call.reading() as session:
        return _to_response(session, unlearning.get(session, run_id))


@serves(router, runs.CANCEL)
def cancel_run(call: Call, run_id: str) -> RunOut:
    with call.writing() as session:
        run = unlearning.get(session, run_id)
        unlearning.cancel(session, run)
        session.flush()  # what is shown is read back
        return _to_response(session, run)


def progress(session: Session, run: Run) -> ProgressOut:
    """Return how far a run under way is, as its model says it."""
    return ProgressOut(run_id=run.id, steps_done=run.steps_done, steps_total=run.steps_total, **_expected(session, run))


def _to_response(session: Session, run: Run) -> RunOut:
    fields = {name: getattr(run, name) for name in RunOut.model_fields.keys() - {"seconds_left", "expected_at"}}
    return RunOut.model_validate(fields | _expected(session, run))


def _expected(session: Session, run: Run) -> dict[str, Any]:
    at = now(session)
    left = runtime_estimates.seconds_left(session, run, at=at)
    return {
        "seconds_left": None if left is None else round(left, 3),
        "expected_at": None if left is None else at + datetime.timedelta(seconds=left),
    }
