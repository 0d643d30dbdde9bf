"""Rehearsals: people drawn at random are forgotten on request; the report is kept until a measured person is erased.

People are drawn with the operating system's randomness when the run begins. Their identity exists only in the worker's
memory: it is never stored, logged or returned.

One row per person, drawn at random, is measured, so that a mean is taken over people and not dominated by a person with
many rows. Each draw leaves out at least half of the other people, so that no two reports differ by a known person.
"""

import datetime
import itertools
import operator
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import SystemRandom
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.accounting import repository as accounting_repository
from app.audit import service as audit
from app.catalogue import service as catalogue
from app.db import bulk, functions, now
from app.db.tables import Addition, Dataset, DeletionRequest, Model, Record, RequestAlias, Run, new_id
from app.deletion import repository as deletion_repository, status
from app.features.rehearsals.tables import Rehearsal, RehearsedRows
from app.rows import records, repository
from app.unlearning import kinds, planner, queue, service
from lethe.contract.sets import AdditionStatus, QueueRule, RunKind
from lethe.features.rehearsals import contract
from lethe.proof.canary_test import CanaryPlan

_AT_ONCE = 10_000
_OPEN = (contract.RehearsalStatus.WAITING, contract.RehearsalStatus.RUNNING)
_DONE = (contract.RehearsalStatus.COMPLETED, contract.RehearsalStatus.OUTDATED)
_RANDOM = SystemRandom()
SAMPLE = 5_000
"""Maximum number of people in the retain set, and in the test set."""


def rehearsals(session: Session, *, model_id: str, limit: int, cursor: str | None) -> bulk.Page[Rehearsal]:
    query = sa.select(Rehearsal).where(Rehearsal.model_id == model_id)
    return bulk.page(session, query, Rehearsal.asked_at, Rehearsal.id, limit=limit, cursor=cursor)


def open_rehearsal(session: Session, *, dataset_id: str) -> Rehearsal | None:
    """Return an unfinished rehearsal of one of the dataset's models, or None if there is none."""
    query = sa.select(Rehearsal).join(Model, Model.id == Rehearsal.model_id)
    return session.scalars(query.where(Model.dataset_id == dataset_id, Rehearsal.status.in_(_OPEN)).limit(1)).first()


def rehearsal_done(session: Session, *, model: Model, version_id: str) -> str | None:
    """Return the id of the completed rehearsal of a version or, failing that, of the current rows in the model's
    dataset, even if its report has been deleted; None if neither was rehearsed."""
    query = sa.select(Rehearsal.id).join(Run, Run.id == Rehearsal.run_id)
    query = query.where(Rehearsal.model_id == model.id, Rehearsal.status.in_(_DONE))
    of_version = session.scalars(query.where(Run.parent_version_id == version_id).limit(1)).first()
    return of_version or session.scalars(_rows_rehearsed(model.dataset_id)).one_or_none()


def is_measured(session: Session, *, dataset_id: str) -> bool:
    """Return True if a rehearsal has measured a dataset's current rows, or is running for one of its models."""
    running = sa.select(Rehearsal.id).join(Model, Model.id == Rehearsal.model_id)
    running = running.where(Model.dataset_id == dataset_id, Rehearsal.status == contract.RehearsalStatus.RUNNING)
    return session.scalars(sa.union_all(_rows_rehearsed(dataset_id), running)).first() is not None


def mark_measured(session: Session, rehearsal: Rehearsal, *, dataset_id: str) -> None:
    """Record that a rehearsal has measured a dataset's current rows."""
    revision = session.get_one(Dataset, dataset_id).revision
    mark = {"dataset_id": dataset_id, "tenant_id": rehearsal.tenant_id, "rehearsal_id": rehearsal.id}
    session.merge(RehearsedRows(**mark, revision=revision))


def _rows_rehearsed(dataset_id: str) -> sa.Select[str]:
    """Return a query for the id of the rehearsal that has measured a dataset's current rows."""
    joined = sa.select(RehearsedRows.rehearsal_id).join(Dataset, Dataset.id == RehearsedRows.dataset_id)
    return joined.where(Dataset.id == dataset_id, Dataset.revision == RehearsedRows.revision)


def rehearsal_to_make(session: Session, *, dataset_id: str) -> Rehearsal | None:
    """Return the oldest waiting rehearsal of a dataset's models, or None if there is none."""
    query = sa.select(Rehearsal).join(Model, Model.id == Rehearsal.model_id)
    query = query.where(Model.dataset_id == dataset_id, Rehearsal.status == contract.RehearsalStatus.WAITING)
    return session.scalars(query.order_by(Rehearsal.asked_at, Rehearsal.id).limit(1)).first()


def with_waiting(models: sa.Select[str, str]) -> sa.Select[str, str, datetime.datetime]:
    """Restrict a query to models with a waiting rehearsal, and add the time at which it was requested."""
    joined = models.add_columns(Rehearsal.asked_at).join(Rehearsal, Rehearsal.model_id == Model.id)
    return joined.where(Rehearsal.status == contract.RehearsalStatus.WAITING)


def rehearsal_of(session: Session, *, run_id: str) -> Rehearsal | None:
    """Return the rehearsal that a run carries out, or None if there is none."""
    query = sa.select(Rehearsal).where(Rehearsal.run_id == run_id, Rehearsal.status == contract.RehearsalStatus.RUNNING)
    return session.scalars(query).one_or_none()


def drop_rehearsals(session: Session, *, model_id: str) -> None:
    session.execute(sa.delete(Rehearsal).where(Rehearsal.model_id == model_id))


def forget_reports(session: Session, *, dataset_id: str) -> None:
    """Delete the reports of rehearsals that measured rows of a dataset from which people have since been erased."""
    measured = sa.select(Model.id).where(
        sa.or_(Model.dataset_id == dataset_id, Model.evaluation_dataset_id == dataset_id)
    )
    completed = sa.and_(Rehearsal.model_id.in_(measured), Rehearsal.status == contract.RehearsalStatus.COMPLETED)
    outdated = sa.update(Rehearsal).where(completed).values(report=None, status=contract.RehearsalStatus.OUTDATED)
    session.execute(outdated, execution_options={"synchronize_session": False})


def _has_no_request(dataset_id: str, tenant_id: str) -> sa.ColumnElement[bool]:
    """Return the SQL condition that a dataset's record occupies its slot and that its person has no open request."""
    is_open = sa.and_(DeletionRequest.tenant_id == tenant_id, DeletionRequest.status.in_(status.OPEN))
    aliases = sa.select(RequestAlias.subject_ref).join(DeletionRequest, DeletionRequest.id == RequestAlias.request_id)
    requested = sa.union_all(sa.select(DeletionRequest.subject_ref).where(is_open), aliases.where(is_open))
    applied = sa.and_(Addition.dataset_id == dataset_id, Addition.status == AdditionStatus.APPLIED)
    return sa.and_(
        Record.dataset_id == dataset_id,
        Record.erasure_id.is_(None),
        sa.or_(Record.addition_id.is_(None), Record.addition_id.in_(sa.select(Addition.id).where(applied))),
        sa.or_(Record.subject_ref.is_(None), Record.subject_ref.not_in(requested)),
    )


def count_without_requests(session: Session, *, dataset_id: str, tenant_id: str) -> tuple[int, int]:
    """Return the number of people in a dataset who have no open request, and the number of rows without a person."""
    people = sa.func.count(Record.subject_ref.distinct())
    without_a_person = sa.func.count() - sa.func.count(Record.subject_ref)
    query = sa.select(people, without_a_person).where(_has_no_request(dataset_id, tenant_id))
    num_people, num_unlinked = session.execute(query).one()
    return num_people, num_unlinked


def records_of(session: Session, *, dataset_id: str, subject_refs: list[str]) -> list[repository.StoredRecord]:
    """Return the given people's records in a dataset."""
    mine = sa.and_(Record.dataset_id == dataset_id, Record.subject_ref.in_(subject_refs))
    return repository.stored_records(session, mine)


def rows_without_requests(session: Session, *, dataset_id: str, tenant_id: str) -> Iterator[tuple[bytes | None, int]]:
    """Yield the person and slot of each row whose person has no open request, and of each row without a person.

    Rows of the same person are adjacent.
    """
    person = functions.raw(Record.subject_ref)
    query = sa.select(person, Record.slot).where(_has_no_request(dataset_id, tenant_id)).order_by(person, Record.slot)
    for row in session.execute(query.execution_options(yield_per=_AT_ONCE)):
        yield row[0], row[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Slots used by a rehearsal: `forget`, all rows of the people drawn; `measured`, one row of each person drawn;
    `retain` and `test`, one row of each of the other people who are measured."""

    forget: tuple[int, ...]
    measured: tuple[int, ...]
    retain: tuple[int, ...]
    test: tuple[int, ...] | None


def ask(session: Session, model: Model, *, people: int) -> Rehearsal:
    """Add a rehearsal of the live version to the queue.

    Raises `ModelNotLive`, `ModelRetired`, `RehearsalPending`, `RehearsalDone`, `RehearsalTooLarge`, and
    `PreconditionFailed` for a model whose method has no steps to rehearse.
    """
    live = catalogue.get_live_version(session, model)
    catalogue.langevin_of(model)
    if pending := open_rehearsal(session, dataset_id=model.dataset_id):
        raise contract.RehearsalPending(rehearsal_id=pending.id, model_id=pending.model_id, status=pending.status)
    _require_new(session, model, version_id=live.id)
    _require_spare(session, model, people)
    rehearsal = Rehearsal(
        id=new_id("reh"),
        tenant_id=model.tenant_id,
        model_id=model.id,
        people=people,
        status=contract.RehearsalStatus.WAITING,
        asked_at=now(session),
        lost_runs=0,
    )
    session.add(rehearsal)
    audit.record(session, "model.rehearsal_asked", model.id, rehearsal_id=rehearsal.id, people=people)
    return rehearsal


def get(session: Session, *, model_id: str, rehearsal_id: str) -> Rehearsal:
    """Return a rehearsal of a model. Raises `ModelUnknown`, `RehearsalUnknown`."""
    catalogue.get_model(session, model_id)
    rehearsal = session.get(Rehearsal, rehearsal_id)
    if rehearsal is None or rehearsal.model_id != model_id:
        raise contract.RehearsalUnknown(model_id=model_id, rehearsal_id=rehearsal_id)
    return rehearsal


def draw(session: Session, *, run_id: str) -> Drawn:
    """Draw the people for a run's rehearsal from the people without an open request.

    Raises `RehearsalTooLarge` if too few people are left, `RehearsalDone`, `DatasetDamaged`.
    """
    run = session.get_one(Run, run_id)
    rehearsal, model = _of(session, run), session.get_one(Model, run.model_id)
    assert run.parent_version_id is not None
    _require_new(session, model, version_id=run.parent_version_id)
    dataset = {"dataset_id": run.dataset_id, "tenant_id": run.tenant_id}
    count = _require_spare(session, model, rehearsal.people)
    places, people = set(_RANDOM.sample(range(count), rehearsal.people)), itertools.count()
    chosen: list[str] = []
    measured, others = array("q"), array("q")
    for ref, slot in _one_row_each(rows_without_requests(session, **dataset)):
        if ref is not None and next(people) in places:
            chosen.append(ref.decode())
            measured.append(slot)
        else:
            others.append(slot)
    chosen_records = records_of(session, dataset_id=run.dataset_id, subject_refs=chosen)
    forget = records.verified_slots(session, run.dataset_id, chosen_records)
    test: tuple[int, ...] = ()
    if model.evaluation_dataset_id is not None:
        dataset["dataset_id"] = model.evaluation_dataset_id
        rows = _one_row_each(rows_without_requests(session, **dataset))
        test = sampled(array("q", (slot for _, slot in rows)))
    return Drawn(
        forget=forget,
        measured=tuple(sorted(measured)),
        retain=sampled(others),
        test=test if len(test) >= contract.MIN_PEOPLE else None,
    )


def _one_row_each(rows: Iterator[tuple[bytes | None, int]]) -> Iterator[tuple[bytes | None, int]]:
    """Yield one row of each person, drawn at random. `rows` are ordered by person; a row without a person counts as a
    separate person."""
    for ref, person_rows in itertools.groupby(rows, key=operator.itemgetter(0)):
        if ref is None:
            yield from person_rows
        else:
            yield _RANDOM.choice(list(person_rows))


def sampled(slots: Sequence[int]) -> tuple[int, ...]:
    """Draw half of the slots at random, at most `SAMPLE` slots, and return them in ascending order."""
    return tuple(sorted(_RANDOM.sample(slots, min(len(slots) // 2, SAMPLE))))


def complete(session: Session, run: Run, report: dict[str, Any]) -> None:
    """Complete a run's rehearsal with its report. Measurements on test rows are left out if any of the rows were erased
    during the run or another rehearsal has measured them."""
    tested_on = session.get_one(Model, run.model_id).evaluation_dataset_id
    rehearsal = _of(session, run)
    if tested_on is not None and (
        deletion_repository.is_anybody_erased_since(session, dataset_id=tested_on, at=run.started_at)
        or is_measured(session, dataset_id=tested_on)
    ):
        for name in ("before", "forgotten", "relearned"):
            report[name]["sets"]["test"], report[name]["attack"] = None, None
    mark_measured(session, rehearsal, dataset_id=run.dataset_id)
    if tested_on is not None and report["before"]["sets"]["test"] is not None:
        mark_measured(session, rehearsal, dataset_id=tested_on)
    rehearsal.report, rehearsal.error_code = report, None
    rehearsal.status, rehearsal.finished_at = contract.RehearsalStatus.COMPLETED, now(session)


class RehearsalKind:
    """Run kind for rehearsals."""

    kind = RunKind.REHEARSAL
    rule = QueueRule.REHEARSAL

    def due(self, models: sa.Select[str, str]) -> sa.Select[str, str, datetime.datetime]:
        return with_waiting(models)

    def model_due(self, session: Session, *, dataset_id: str) -> Model | None:
        rehearsal = rehearsal_to_make(session, dataset_id=dataset_id)
        return session.get_one(Model, rehearsal.model_id) if rehearsal else None

    def canaries(self, run: Run, model: Model) -> CanaryPlan | None:
        """Return None, because a rehearsal is measured on rows instead of canaries."""

    def plan(self, session: Session, dataset: Dataset) -> kinds.PlannedRun:
        rehearsal = _next(session, dataset.id)
        model = session.get_one(Model, rehearsal.model_id)
        live = catalogue.get_live_version(session, model)
        return kinds.PlannedRun(model=model, plan=_plans(session, model, records=rehearsal.people)[1], live=live)

    def start(self, session: Session, run: Run) -> None:
        rehearsal = _next(session, run.dataset_id)
        rehearsal.status, rehearsal.run_id = contract.RehearsalStatus.RUNNING, run.id

    def lose(self, session: Session, run: Run, *, max_runs: int) -> None:
        rehearsal = _of(session, run)
        rehearsal.lost_runs += 1
        if rehearsal.lost_runs < max_runs:
            rehearsal.status, rehearsal.run_id = contract.RehearsalStatus.WAITING, None
            return
        rehearsal.status, rehearsal.error_code = contract.RehearsalStatus.FAILED, run.error_code
        rehearsal.finished_at = now(session)

    def cancel(self, session: Session, run: Run) -> None:
        rehearsal = _of(session, run)
        rehearsal.status, rehearsal.finished_at = contract.RehearsalStatus.CANCELLED, now(session)

    def drop_measured(self, session: Session, *, dataset_id: str) -> None:
        forget_reports(session, dataset_id=dataset_id)

    def drop_model(self, session: Session, *, model_id: str) -> None:
        drop_rehearsals(session, model_id=model_id)


def plan(session: Session, *, run_id: str, records: int) -> planner.Plan:
    """Return the plan for forgetting the `records` rows that were drawn. Raises `LeaseLost`."""
    service.check_held(session, run_id=run_id)
    run = session.get_one(Run, run_id)
    forgetting, both_copies = _plans(session, session.get_one(Model, run.model_id), records=records)
    run.steps_total = both_copies.steps
    return forgetting


def end(session: Session, *, run_id: str, report: dict[str, Any]) -> None:
    """End a rehearsal's run with its report. Raises `LeaseLost`."""
    complete(session, service.finish(session, run_id=run_id), report)


def _plans(session: Session, model: Model, *, records: int) -> tuple[planner.Plan, planner.Plan]:
    """Return the model's plan for forgetting `records` more rows, and the plan for the whole rehearsal."""
    records += accounting_repository.records_waiting_for(session, model)
    forgetting = queue.plan_next(session, model, records=records)
    # A temporary copy forgets, and another is trained from scratch.
    steps = forgetting.steps + catalogue.mechanism_of(model).learn_steps
    return forgetting, planner.Plan(kind=RunKind.REHEARSAL, steps=steps, reason=planner.PlanReason.REHEARSAL_REQUESTED)


def _of(session: Session, run: Run) -> Rehearsal:
    rehearsal = rehearsal_of(session, run_id=run.id)
    assert rehearsal is not None
    return rehearsal


def _next(session: Session, dataset_id: str) -> Rehearsal:
    rehearsal = rehearsal_to_make(session, dataset_id=dataset_id)
    assert rehearsal is not None
    return rehearsal


def _require_new(session: Session, model: Model, *, version_id: str) -> None:
    """Raise `RehearsalDone` if the version or rows were rehearsed before: two reports would reveal more than one."""
    if done := rehearsal_done(session, model=model, version_id=version_id):
        raise contract.RehearsalDone(
            "Rehearsal {rehearsal_id} has measured the live version of model {model_id} or the rows of its dataset; "
            "the next one is possible when rows have been added or erased and another version is live.",
            rehearsal_id=done,
            model_id=model.id,
        )


def _require_spare(session: Session, model: Model, people: int) -> int:
    """Return the number of people from whom a rehearsal can draw.

    Raises `RehearsalTooLarge` if this is less than twice `people`, or if half of the rest are too few to measure.
    """
    dataset = session.get_one(Dataset, model.dataset_id)
    count, num_unlinked = count_without_requests(session, dataset_id=dataset.id, tenant_id=dataset.tenant_id)
    if people > count // 2 or (count + num_unlinked - people) // 2 < contract.MIN_PEOPLE:
        raise contract.RehearsalTooLarge(
            "A rehearsal forgets at most half of the people of dataset {dataset_id} who did not ask to be forgotten, "
            "and measures on half of the others, who have to be {num_measured} at least: draw fewer, {num_drawn} at "
            "least. A dataset of fewer than {num_needed} has no rehearsals.",
            dataset_id=dataset.id,
            num_measured=2 * contract.MIN_PEOPLE,
            num_drawn=contract.MIN_PEOPLE,
            num_needed=3 * contract.MIN_PEOPLE,
        )
    return count
