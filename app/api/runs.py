"""Endpoints for runs."""

import datetime
from typing import Any

from fastapi import APIRouter
from sqlalchemy.orm import Session

from app.accounting import runtime_estimates
from app.api.calls import Call
from app.api.gateway import serves
from app.api.sentences import of_plan
from app.db import now
from app.db.tables import Run
from app.unlearning import repository, service as unlearning
from lethe.contract import runs
from lethe.contract.fields import PageOut
from lethe.contract.models import ProgressOut

router = APIRouter()


@serves(router, runs.LIST)
def list_runs(call: Call, query: runs.RunQuery) -> PageOut[runs.RunOut]:
    with call.reading() as session:
        page = repository.runs(session, **dict(query))
        return PageOut(items=[to_response(session, run) for run in page.items], next_cursor=page.next_cursor)


@serves(router, runs.GET)
def get_run(call: Call, run_id: str) -> runs.RunOut:
    with call.reading() as session:
        return to_response(session, unlearning.get(session, run_id))


@serves(router, runs.CANCEL)
def cancel_run(call: Call, run_id: str) -> runs.RunOut:
    with call.writing() as session:
        run = unlearning.get(session, run_id)
        unlearning.cancel(session, run)
        # The queries behind the answer must see this change.
        session.flush()
        return to_response(session, run)


def progress(session: Session, run: Run) -> ProgressOut:
    """Return the progress of a run that has not ended."""
    return ProgressOut(run_id=run.id, steps_done=run.steps_done, steps_total=run.steps_total, **_expected(session, run))


def to_response(session: Session, run: Run) -> runs.RunOut:
    computed = {"reason": of_plan(run.reason, run.reason_facts)} | _expected(session, run)
    fields = {name: getattr(run, name) for name in runs.RunOut.model_fields.keys() - computed.keys()}
    return runs.RunOut.model_validate(fields | computed)


def _expected(session: Session, run: Run) -> dict[str, Any]:
    at = now(session)
    seconds_left = runtime_estimates.seconds_left(session, run, at=at)
    return {
        "seconds_left": None if seconds_left is None else round(seconds_left, 3),
        "expected_at": None if seconds_left is None else at + datetime.timedelta(seconds=seconds_left),
    }
