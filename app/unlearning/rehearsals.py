"""Rehearsals: ask for one, draw the people whom it forgets, keep its report as long as it may be kept.

People are drawn by the operating system's randomness when the run begins. Who they are is in the memory of its worker
alone, and in nothing that is stored, logged or answered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import SystemRandom
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from app.audit import service as audit
from app.catalogue import service as catalogue
from app.db import now
from app.db.tables import Dataset, Model, Rehearsal, Run, new_id
from app.deletion import repository as deletion_repository
from app.rows import records
from app.unlearning import tests_repository
from lethe.contract.problems import RehearsalDone, RehearsalPending, RehearsalTooLarge, RehearsalUnknown
from lethe.contract.sets import RehearsalStatus

SAMPLE = 5_000
"""The most rows of a set on which a rehearsal measures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """The slots that a rehearsal is about: `forget`, all rows of the people who were drawn; `retain` and `test`, rows
    of others on which it measures."""

    forget: tuple[int, ...]
    retain: tuple[int, ...]
    test: tuple[int, ...] | None


def ask(session: Session, model: Model, *, people: int) -> Rehearsal:
    """Raises `ModelNotLive`, `ModelRetired`, `RehearsalPending`, `RehearsalDone`, `RehearsalTooLarge`."""
    live = catalogue.get_live_version(session, model)
    if pending := tests_repository.open_rehearsal(session, model_id=model.id):
        raise RehearsalPending(f"Rehearsal {pending.id} of model {model.id} is {pending.status}; wait until it ended.")
    _require_new(session, model, version_id=live.id)
    _require_spare(session, model, people)
    made = Rehearsal(
        id=new_id("reh"),
        tenant_id=model.tenant_id,
        model_id=model.id,
        people=people,
        status=RehearsalStatus.WAITING,
        asked_at=now(session),
        lost_runs=0,
    )
    session.add(made)
    audit.record(session, "model.rehearsal_asked", model.id, rehearsal_id=made.id, people=people)
    return made


def get(session: Session, *, model_id: str, rehearsal_id: str) -> Rehearsal:
    """Raises `ModelUnknown`, `RehearsalUnknown`."""
    catalogue.get_model(session, model_id)
    found = tests_repository.rehearsal(session, rehearsal_id)
    if found is None or found.model_id != model_id:
        raise RehearsalUnknown(f"Model {model_id} has no rehearsal {rehearsal_id!r}.")
    return found


def draw(session: Session, *, run_id: str) -> Drawn:
    """Draw the people of a run's rehearsal, among those of whom no request is open. Raises `RehearsalTooLarge` where
    too few of them are left, `RehearsalDone`, `DatasetDamaged`."""
    run = session.get_one(Run, run_id)
    rehearsal, model = _of(session, run), session.get_one(Model, run.model_id)
    assert run.parent_version_id is not None
    _require_new(session, model, version_id=run.parent_version_id)
    among = {"dataset_id": run.dataset_id, "tenant_id": run.tenant_id}
    count = _require_spare(session, model, rehearsal.people)
    places = set(SystemRandom().sample(range(count), rehearsal.people))
    people = enumerate(tests_repository.who_did_not_ask(session, **among))
    chosen = [ref.decode() for place, ref in people if place in places]
    theirs = tests_repository.records_of(session, dataset_id=run.dataset_id, subject_refs=chosen)
    forget = records.verified_slots(session, run.dataset_id, theirs)
    others = np.setdiff1d(tests_repository.slots_of_who_did_not_ask(session, **among), forget)
    test = None
    if model.evaluation_dataset_id is not None:
        among["dataset_id"] = model.evaluation_dataset_id
        test = sampled(tests_repository.slots_of_who_did_not_ask(session, **among))
    return Drawn(forget=forget, retain=sampled(others), test=test)


def sampled(slots: NDArray[np.int64] | Sequence[int]) -> tuple[int, ...]:
    """As many of the slots as are measured on, drawn at random, in ascending order."""
    places = sorted(SystemRandom().sample(range(len(slots)), min(len(slots), SAMPLE)))
    return tuple(int(slots[place]) for place in places)


def complete(session: Session, run: Run, report: dict[str, Any]) -> None:
    """Keep what the run of a rehearsal measured, but for what it measured on rows that were erased meanwhile."""
    model = session.get_one(Model, run.model_id)
    rehearsal = _of(session, run)
    if model.evaluation_dataset_id is not None and deletion_repository.is_anybody_erased_since(
        session, dataset_id=model.evaluation_dataset_id, at=run.started_at
    ):
        for name in ("before", "forgotten", "relearned"):
            report[name]["sets"]["test"], report[name]["attack"] = None, None
    rehearsal.report, rehearsal.error_code = report, None
    rehearsal.status, rehearsal.finished_at = RehearsalStatus.COMPLETED, now(session)


def lose(session: Session, run: Run, *, at_most: int) -> None:
    """Let the rehearsal of a run that came to nothing be made again, up to so many times."""
    rehearsal = _of(session, run)
    rehearsal.lost_runs += 1
    if rehearsal.lost_runs < at_most:
        rehearsal.status, rehearsal.run_id = RehearsalStatus.WAITING, None
        return
    rehearsal.status, rehearsal.error_code, rehearsal.finished_at = RehearsalStatus.FAILED, run.error_code, now(session)


def cancel(session: Session, run: Run) -> None:
    """End the rehearsal whose run was stopped."""
    rehearsal = _of(session, run)
    rehearsal.status, rehearsal.finished_at = RehearsalStatus.CANCELLED, now(session)


def _of(session: Session, run: Run) -> Rehearsal:
    found = tests_repository.rehearsal_of(session, run_id=run.id)
    assert found is not None
    return found


def _require_new(session: Session, model: Model, *, version_id: str) -> None:
    """Raises `RehearsalDone`: two reports of one version could be subtracted, and many averaged."""
    if done := tests_repository.rehearsal_done(session, model_id=model.id, version_id=version_id):
        raise RehearsalDone(
            f"Rehearsal {done.id} has measured the live version of model {model.id}; the next one is possible when "
            "another version is live."
        )


def _require_spare(session: Session, model: Model, people: int) -> int:
    """The number of people who may be drawn: at least twice as many as are. Raises `RehearsalTooLarge`."""
    dataset = session.get_one(Dataset, model.dataset_id)
    count = tests_repository.count_who_did_not_ask(session, dataset_id=dataset.id, tenant_id=dataset.tenant_id)
    if people > count // 2:
        raise RehearsalTooLarge(
            f"A rehearsal forgets at most half of the people of dataset {dataset.id} who did not ask to be forgotten: "
            "draw fewer, 10 at least. A dataset of fewer than 20 has no rehearsals."
        )
    return count
