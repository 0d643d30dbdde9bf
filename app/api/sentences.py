"""The sentences that answers tell of events: made here, of their kinds and facts, and nowhere looked at again."""

from collections.abc import Mapping
from typing import Any, assert_never

from app.deletion.views import Event
from lethe.contract.sets import EventKind, RunStatus


def of_event(event: Event) -> str | None:
    """None where the status says all. What a release before said of an event stays as it was said."""
    return _sentence(event.kind, event.facts or {}) if event.words is None else event.words


def _sentence(kind: EventKind, facts: Mapping[str, Any]) -> str | None:
    match kind:
        case EventKind.RECEIVED | EventKind.IN_REVIEW | EventKind.ACCEPTED | EventKind.RUNNING:
            return None
        case EventKind.COMPLETED | EventKind.REJECTED | EventKind.CANCELLED:
            return None
        case EventKind.NOTHING_HELD:
            return "nothing is held about this subject"
        case EventKind.HANDED_BACK:
            end = " again; it is tried until it succeeds" if facts["again"] else "; it will be tried again"
            return _ending(RunStatus(facts["run_status"]), facts["error_code"]) + end
        case EventKind.EXTENDED:
            return "the deadline was extended"
        case EventKind.PAUSED:
            return "the clock was paused"
        case EventKind.RESUMED:
            return "the clock runs again"
        case EventKind.AT_RISK:
            return "the deadline is near"
        case EventKind.OVERDUE:
            return "the deadline has passed"
        case EventKind.ROWS_ERASED:
            rows = "1 row" if facts["num_rows"] == 1 else f"{facts['num_rows']} rows"
            return f"{rows} erased from dataset {facts['dataset_id']}"
        case EventKind.NOTED:
            return None
    assert_never(kind)


def _ending(status: RunStatus, error_code: str | None) -> str:
    match status:
        case RunStatus.FAILED:
            return f"its run failed ({error_code})"
        case RunStatus.CANCELLED:
            return "its run was cancelled"
        case _:
            return "its worker stopped"
