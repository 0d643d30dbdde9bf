"""Endpoints for runs."""

import datetime
from typing import Any

from fastapi import APIRouter
from sqlalchemy.orm import Session

from app.accounting import runtime_estimates
from app.api import calls, gateway, sentences
from app.db import now, tables
from app.unlearning import repository, service as unlearning
from lethe.contract import models, runs
from lethe.contract.fields import PageOut

router = APIRouter()


@gateway.serves(router, runs.LIST)
def list_runs(call: calls.Call, query: runs.RunQuery) -> PageOut[runs.RunOut]:
    with call.reading() as session:
        page = repository.runs(session, **dict(query))
        return PageOut(items=[to_response(session, run) for run in page.items], next_cursor=page.next_cursor)


@gateway.serves(router, runs.GET)
def get_run(call: calls.Call, run_id: str) -> runs.RunOut:
    with call.reading() as session:
        return to_response(session, unlearning.get(session, run_id))


@gateway.serves(router, runs.CANCEL)
def cancel_run(call: calls.Call, run_id: str) -> runs.RunOut:
    with call.writing() as session:
        run = unlearning.get(session, run_id)
        unlearning.cancel(session, run)
        # The queries behind the answer must see this change.
        session.flush()
        return to_response(session, run)


def progress(session: Session, run: tables.Run) -> models.ProgressOut:
    """Return the progress of a run that has not ended."""
    return models.ProgressOut(
        run_id=run.id, steps_done=run.steps_done, steps_total=run.steps_total, **_expected(session, run)
    )


def to_response(session: Session, run: tables.Run) -> runs.RunOut:
    computed = {"reason": sentences.of_plan(run.reason, run.reason_facts)} | _expected(session, run)
    fields = {name: getattr(run, name) for name in runs.RunOut.model_fields.keys() - computed.keys()}
    return runs.RunOut.model_validate(fields | computed)


def _expected(session: Session, run: tables.Run) -> dict[str, Any]:
    at = now(session)
    seconds_left = runtime_estimates.seconds_left(session, run, at=at)
    return {
        "seconds_left": None if seconds_left is None else round(seconds_left, 3),
        "expected_at": None if seconds_left is None else at + datetime.timedelta(seconds=seconds_left),
    }
