"""Acknowledge tasks with search reports, and add the reports to a request's bundle."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.access.service import Caller
from app.db import now
from app.features.stores.tables import SearchReport
from app.features.systems import service as systems, tables
from lethe.contract.problems import FieldError, InputInvalid
from lethe.features.stores import contract, evidence
from lethe.features.systems import acknowledgements
from lethe.features.systems.contract import AcknowledgementIn
from lethe.proof.errors import PreconditionError


def accept(session: Session, task: tables.SystemTask, body: contract.SearchReportIn, *, caller: Caller) -> None:
    """Acknowledge a task with a signed search report, and store the report. Repeating the call is a no-op.

    Raises `InputInvalid` for a report that is malformed, differs from the signed one, or lists remaining data, and the
    errors of `systems.acknowledge`.
    """
    systems.acknowledge(session, task, AcknowledgementIn(jws=body.jws), caller=caller)
    signed = acknowledgements.read(task.jws or "", task.public_key or "")
    try:
        evidence.grade(signed or {}, body.report, (task.id, task.system_id, task.request_id))
    except PreconditionError as error:
        raise InputInvalid("The search report is not usable.", [FieldError("report", error.detail)]) from None
    if session.get(SearchReport, task.id) is None:
        session.add(SearchReport(task_id=task.id, tenant_id=task.tenant_id, report=body.report, at=now(session)))


def task_evidence(session: Session, task_ids: Sequence[str]) -> Mapping[str, dict[str, Any]]:
    """Return, for each task that has a report, its evidence beyond the signed acknowledgement."""
    query = sa.select(SearchReport.task_id, SearchReport.report).where(SearchReport.task_id.in_(task_ids))
    return {task_id: {"type": evidence.TYPE, "report": report} for task_id, report in session.execute(query)}
