"""Kinds of runs that publish no version (requested tests, added by features), and every run's canary test."""

import datetime
import functools
from dataclasses import dataclass
from typing import Protocol

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.catalogue import service as catalogue
from app.db.tables import Dataset, Model, Run, Version
from app.errors import RunDiffersFromPlan
from app.unlearning.planner import Plan
from lethe import sockets
from lethe.contract.sets import QueueRule, RunKind
from lethe.proof.canary_test import CanaryPlan, Observed


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """Planned run of a test. `live` is the version that the run continues, or None if it starts from scratch."""

    model: Model
    plan: Plan
    live: Version | None


class AskedKind(Protocol):
    """Kind of run that is started on request and publishes no version. It changes neither rows nor requests.

    Features register their kinds in `ASKED_KINDS` in their `hooks` module.
    """

    kind: RunKind
    rule: QueueRule

    def due(self, models: sa.Select[str, str]) -> sa.Select[str, str, datetime.datetime]:
        """Restrict `models`, a query for the dataset and tenant of each model, to models with a waiting test, and add
        the time at which the test was requested."""

    def model_due(self, session: Session, *, dataset_id: str) -> Model | None:
        """Return the dataset's model whose test was requested first; None if no test is waiting."""

    def canaries(self, run: Run, model: Model) -> CanaryPlan | None:
        """Return a test run's canary lanes if the model's runs have them; None if the test must run without lanes."""

    def plan(self, session: Session, dataset: Dataset) -> PlannedRun:
        """Plan the test of the model that `model_due` returns."""

    def start(self, session: Session, run: Run) -> None:
        """Record that a run carries out the test planned by `plan`."""

    def lose(self, session: Session, run: Run, *, max_runs: int) -> None:
        """Request a lost run's test again, unless `max_runs` runs of the test have been lost."""

    def cancel(self, session: Session, run: Run) -> None:
        """End the test of a cancelled run."""

    def drop_measured(self, session: Session, *, dataset_id: str) -> None:
        """Delete the measurements made on a dataset's rows, because some of these rows have since been erased."""

    def drop_model(self, session: Session, *, model_id: str) -> None:
        """Delete the tests of a retired model."""


@functools.cache
def asked_kinds() -> dict[str, AskedKind]:
    """Return the kinds of tests, keyed by name, in the order in which their runs on a dataset are claimed."""
    tests: tuple[AskedKind, ...] = sockets.plugs("app.features", "hooks", "ASKED_KINDS")
    by_kind: dict[str, AskedKind] = {test.kind: test for test in tests}
    assert len(by_kind) == len(tests), "two tests have the same kind"
    return by_kind


def asked_kind_of(run: Run) -> AskedKind | None:
    """Return the kind of a run that is a test; None for any other run."""
    return asked_kinds().get(run.kind)


def planned(run: Run, model: Model) -> CanaryPlan | None:
    """Return a run's planned canary lanes; None if its model is not tested or the run is a test without lanes."""
    if not model.audit_lanes:
        return None
    if asked_kind := asked_kind_of(run):
        return asked_kind.canaries(run, model)
    return CanaryPlan(lanes=model.audit_lanes, steps_before=run.first_step, steps=run.steps_total)


def findings(run: Run, model: Model, observed: Observed | None) -> tuple[str, ...]:
    """Return the faults that a run's canary test found, or raise `RunDiffersFromPlan` if it did not run as planned."""
    if (observed and observed.plan) != planned(run, model):
        raise RunDiffersFromPlan(f"Run {run.id} did not have the canary test that was planned.")
    return observed.findings(catalogue.mechanism_of(model)) if observed else ()
