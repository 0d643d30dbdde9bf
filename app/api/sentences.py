"""Human-readable sentences about events and plans, built from their codes and facts. No code depends on the wording."""

from collections.abc import Mapping
from typing import assert_never

from app.deletion.views import Event
from app.unlearning.planner import PlanReason
from lethe.contract.sets import EventKind, RunStatus


def of_event(event: Event) -> str | None:
    """Return a sentence about an event; None if its kind needs no explanation."""
    facts = event.facts or {}
    match event.kind:
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
    assert_never(event.kind)


def _ending(status: RunStatus, error_code: str | None) -> str:
    match status:
        case RunStatus.FAILED:
            return f"its run failed ({error_code})"
        case RunStatus.CANCELLED:
            return "its run was cancelled"
        case _:
            return "its worker stopped"


def of_plan(reason: str, facts: Mapping[str, int]) -> str:
    """Return a sentence about a plan's reason; `reason` may be the stored text of a `PlanReason`."""
    match PlanReason(reason):
        case PlanReason.REQUESTED:
            return "asked for"
        case PlanReason.CANARY_TEST_REQUESTED:
            return "asked for: canaries alone are learned and forgotten"
        case PlanReason.REHEARSAL_REQUESTED:
            return "asked for: people drawn at random are forgotten on a copy"
        case PlanReason.FEWEST_STEPS:
            return f"least steps to the target; relearning takes {facts['relearn_steps']}"
        case PlanReason.UNLEARNING_NO_SHORTER:
            return "unlearning would take as many steps as relearning"
        case PlanReason.ROWS_ADDED:
            return "rows were added since it learned"
        case PlanReason.NO_MODEL_DUE:
            return "no model of this dataset is to be run"
        case PlanReason.ONE_BATCH:
            return f"one run for {facts['requests']} requests, once all are in"
        case PlanReason.ONE_BY_ONE:
            return f"{facts['steps']} steps for {facts['requests']} requests one by one"
        case PlanReason.FRESH_NOISE:
            return "each version is learned from scratch, with fresh noise"
        case PlanReason.NO_INFLUENCE:
            return "nothing deleted has any influence on it"
