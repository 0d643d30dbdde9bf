"""Rehearsals: ask for one, draw the people whom it forgets, keep its report as long as it may be kept.

People are drawn by the operating system's randomness when the run begins. Who they are is in the memory of its worker
alone, and in nothing that is stored, logged or answered.

What is measured is one row of each person, drawn at random, so that a mean is of people and not of somebody with many
rows. Of the others at least half are left out by every draw, so that no two reports differ by a known person.
"""

import itertools
import operator
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import SystemRandom
from typing import Any

from sqlalchemy.orm import Session

from app.audit import service as audit
from app.catalogue import service as catalogue
from app.db import now
from app.db.tables import Dataset, Model, Rehearsal, Run, new_id
from app.deletion import repository as deletion_repository
from app.rows import records
from app.unlearning import tests_repository
from lethe.contract.problems import RehearsalDone, RehearsalPending, RehearsalTooLarge, RehearsalUnknown
from lethe.contract.rehearsals import LEAST_PEOPLE
from lethe.contract.sets import RehearsalStatus

_RANDOM = SystemRandom()
SAMPLE = 5_000
"""The most people of a set on whom a rehearsal measures, but for the forget set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """The slots that a rehearsal is about: `forget`, all rows of the people who were drawn, and `measured`, one of each
    of them; `retain` and `test`, one row each of others on whom it measures."""

    forget: tuple[int, ...]
    measured: tuple[int, ...]
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
    places, people = set(_RANDOM.sample(range(count), rehearsal.people)), itertools.count()
    chosen: list[str] = []
    measured, others = array("q"), array("q")
    for ref, slot in _one_row_each(tests_repository.rows_of_who_did_not_ask(session, **among)):
        if ref is not None and next(people) in places:
            chosen.append(ref.decode())
            measured.append(slot)
        else:
            others.append(slot)
    theirs = tests_repository.records_of(session, dataset_id=run.dataset_id, subject_refs=chosen)
    forget = records.verified_slots(session, run.dataset_id, theirs)
    test: tuple[int, ...] = ()
    if model.evaluation_dataset_id is not None:
        among["dataset_id"] = model.evaluation_dataset_id
        rows = _one_row_each(tests_repository.rows_of_who_did_not_ask(session, **among))
        test = sampled(array("q", (slot for _, slot in rows)))
    return Drawn(
        forget=forget,
        measured=tuple(sorted(measured)),
        retain=sampled(others),
        test=test if len(test) >= LEAST_PEOPLE else None,
    )


def _one_row_each(rows: Iterator[tuple[bytes | None, int]]) -> Iterator[tuple[bytes | None, int]]:
    """One row of each person, drawn at random, of rows in the order of their people. A row without a person counts as a
    person of its own."""
    for ref, theirs in itertools.groupby(rows, key=operator.itemgetter(0)):
        if ref is None:
            yield from theirs
        else:
            yield _RANDOM.choice(list(theirs))


def sampled(slots: Sequence[int]) -> tuple[int, ...]:
    """Half of the slots, drawn at random, and as many as are measured on at most; in ascending order."""
    return tuple(sorted(_RANDOM.sample(slots, min(len(slots) // 2, SAMPLE))))


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
    """The number of people who may be drawn: at least twice as many as are, with enough of others left of whom half are
    measured. Raises `RehearsalTooLarge`."""
    dataset = session.get_one(Dataset, model.dataset_id)
    count, of_nobody = tests_repository.count_who_did_not_ask(
        session, dataset_id=dataset.id, tenant_id=dataset.tenant_id
    )
    if people > count // 2 or (count + of_nobody - people) // 2 < LEAST_PEOPLE:
        raise RehearsalTooLarge(
            f"A rehearsal forgets at most half of the people of dataset {dataset.id} who did not ask to be forgotten, "
            f"and measures on half of the others, who have to be {2 * LEAST_PEOPLE} at least: draw fewer, "
            f"{LEAST_PEOPLE} at least. A dataset of fewer than {3 * LEAST_PEOPLE} has no rehearsals."
        )
    return count
