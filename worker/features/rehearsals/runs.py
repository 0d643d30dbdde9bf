"""Rehearsal: one copy of the live version forgets people drawn at random, another is trained without them, and all
three versions are measured for what they reveal about these people.

Each copy takes the same steps as a run, in its own process, on the stored rows, with these people's rows null in
memory. Nothing is written, and each copy is discarded once it has been measured.
"""

import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app import installations, tracing
from app.catalogue import datasets, prediction, repository as catalogue_repository
from app.db.tables import Dataset, Model
from app.features.rehearsals import service, service as rehearsals
from app.rows import repository as rows_repository
from app.rows.blocks import Block
from app.unlearning.queue import ClaimedRun
from app.vault import sealing
from lethe.contract.problems import ModelNotLive
from lethe.contract.sets import RunKind
from lethe.encoding.rows import labels_in
from lethe.encoding.targets import UNIT, TargetColumn, y_of_scores
from lethe.features.rehearsals import contract
from lethe.proof.losses import Objective, num_weight_rows
from lethe.proof.mechanism import Mechanism
from worker import handlers, isolated
from worker.langevin import init, window

CHECKPOINTS = 20

Floats = NDArray[np.float64]
LabelledRows = tuple[NDArray[np.float32], NDArray[np.int32]]
"""Features (n, d) and labels (n,) of rows that are not null."""
RunWithoutPeople = Callable[..., isolated.IsolatedResult]
"""`isolated.run` on rows without the people drawn. Its arguments are `initial`, `first_step`, `steps`, `on_progress`
and `checkpoints`."""

_DECIMALS = 2
"""Decimals of a share: whole percentages, which is the precision of a mean over thousands of people."""
_DIGITS = 2
"""Significant digits of a loss, an error or a count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgetting:
    """Plan for forgetting the people drawn: `steps` steps from `initial`, after `first_step` steps of the chain."""

    way: str
    initial: Floats
    first_step: int
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sets:
    """Rows on which a rehearsal measures models, one per person, in memory."""

    forget: LabelledRows
    retain: LabelledRows
    test: LabelledRows | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Measurements of a model. `network` is set for a tangent model, `target` (the target's range) for a regression."""

    mechanism: Mechanism
    network: bytes | None = None
    target: TargetColumn | None = None

    def scores(self, parameters: Floats, features: NDArray[np.float32], labels: NDArray[np.int32]) -> Floats:
        """Return the scores of non-null rows  # (n, c)"""
        if self.network is None:
            return prediction.scores(parameters, features)
        # Only tangent models need torch here.
        from worker.features.networks.engines import scored

        [(of_rows, _)] = scored(self.mechanism, self.network, parameters, [(features, labels)])
        identity = np.eye(num_weight_rows(self.mechanism.num_classes, self.mechanism.objective))
        return prediction.scores(identity, of_rows)

    def of(self, outputs: Floats, labels: NDArray[np.int32]) -> contract.MeasuredOut:
        """Return the mean loss and share of correct predictions over the rows, given scores `outputs` (n, c)."""
        right, missed = self._right(outputs, labels), None
        if self.target is not None:
            mechanism = self.mechanism
            y = y_of_scores(outputs[:, 0], objective=mechanism.objective, loss_width=mechanism.loss_width)
            values = self.target.values(y) - self.target.values(labels / UNIT)
            missed = _rounded(float(np.abs(values).mean()))
        return contract.MeasuredOut(
            rows=int(_rounded(len(labels))),
            loss=_rounded(float(self.losses(outputs, labels).mean())),
            accuracy=None if right is None else round(float(right.mean()), _DECIMALS),
            mean_absolute_error=missed,
        )

    def losses(self, outputs: Floats, labels: NDArray[np.int32]) -> Floats:
        """Return the unweighted loss of each row (docs/mathematics/losses.md); with several labels, the mean over the
        labels  # (n,)"""
        width = self.mechanism.loss_width or 1.0
        match self.mechanism.objective:
            case Objective.LOGISTIC_REGRESSION if outputs.shape[1] > 1:
                return np.asarray(np.logaddexp.reduce(outputs, axis=1) - outputs[np.arange(len(outputs)), labels])
            case Objective.LOGISTIC_REGRESSION:
                return np.logaddexp(0, (1 - 2 * labels) * outputs[:, 0])
            case Objective.MULTILABEL_LOGISTIC_REGRESSION:
                return np.asarray(np.logaddexp(0, np.where(_has(outputs, labels), -outputs, outputs)).mean(axis=1))
            case Objective.SMOOTHED_HINGE:
                short = np.maximum(0, 1 - (2 * labels - 1) * outputs[:, 0])
                return np.where(short <= width, short**2 / (2 * width), short - width / 2)
            case Objective.HUBER_REGRESSION:
                apart = np.abs(outputs[:, 0] - labels / UNIT)
                return np.where(apart <= width, apart**2 / 2, width * apart - width**2 / 2)
            case Objective.POISSON_REGRESSION:
                beyond = outputs[:, 0] - width
                rates = np.exp(np.minimum(beyond, 0)) + np.maximum(beyond, 0)
                return np.asarray(rates - (labels / UNIT + 1) / 2 * outputs[:, 0])
            case Objective.LEAST_SQUARES:
                return np.asarray((outputs[:, 0] - labels / UNIT) ** 2 / 2)

    def _right(self, outputs: Floats, labels: NDArray[np.int32]) -> Floats | None:
        """Return the share of each row's labels that is predicted correctly  # (n,), or None for a target."""
        objective = self.mechanism.objective
        if objective.is_regression:
            return None
        if objective is Objective.MULTILABEL_LOGISTIC_REGRESSION:
            return np.asarray(((outputs > 0) == _has(outputs, labels)).mean(axis=1))
        predicted = outputs.argmax(axis=1) if outputs.shape[1] > 1 else outputs[:, 0] > 0
        return np.asarray(predicted == labels, np.float64)


def rehearse(
    installation: installations.Installation, claimed_run: ClaimedRun, root: str, holder: handlers.Holder
) -> None:
    """Draw people at random, forget them in one copy, train another without them, and end the run with the report. The
    identities of the people drawn never leave this function."""
    mechanism = claimed_run.mechanism
    assert mechanism is not None
    assert claimed_run.parent_version_id is not None
    with installation.database.reading() as session:
        selection = rehearsals.draw(session, run_id=claimed_run.run_id)
        dataset = session.get_one(Dataset, claimed_run.dataset_id)
        version = catalogue_repository.live_version(session, session.get_one(Model, claimed_run.model_id))
        target = datasets.target_of(dataset)
    if version is None or version.id != claimed_run.parent_version_id:
        raise ModelNotLive("The version that the rehearsal would continue from is no longer live.")
    with installation.database.writing() as session:
        plan = rehearsals.plan(session, run_id=claimed_run.run_id, records=len(selection.forget))
    network = handlers.network_of(installation, mechanism)
    live = sealing.from_safetensors(installation.weights.get(claimed_run.parent_version_id))
    with (
        tracing.span("steps"),
        _measured_on(installation, claimed_run, root, selection) as sets,
        installation.rows.open(claimed_run.dataset_id, root, without=selection.forget) as rows,
    ):
        origin = init.origin_of(mechanism, rows.shape.num_columns)
        goes_on = plan.kind == RunKind.UNLEARN
        report = run(
            mechanism,
            version=version.number,
            live=live,
            forgetting=Forgetting(
                way=plan.kind,
                initial=live if goes_on else origin,
                first_step=claimed_run.first_step if goes_on else 0,
                steps=plan.steps,
            ),
            origin=origin,
            without=functools.partial(
                isolated.run,
                mechanism,
                rows=rows,
                device=installation.settings.device,
                threads=installation.settings.threads,
                on_opened=holder.opened,
                network=network,
            ),
            sets=sets,
            measure=Measure(mechanism=mechanism, network=network, target=target),
            on_progress=holder.progressed,
        )
    with installation.database.writing() as session:
        rehearsals.end(session, run_id=claimed_run.run_id, report=report.model_dump(mode="json"))


HANDLERS: tuple[handlers.HandledKind, ...] = ((RunKind.REHEARSAL, rehearse),)


@contextmanager
def _measured_on(
    installation: installations.Installation, claimed_run: ClaimedRun, root: str, selection: service.Drawn
) -> Iterator[Sets]:
    """Copy the rows on which a rehearsal measures models, and overwrite the copies when the block ends.

    No mean is taken over too few people: a test set that is too small is dropped, and a forget or retain set that is
    too small raises `RehearsalTooLarge`.
    """

    def copy(dataset_id: str, root: str, slots: tuple[int, ...]) -> None:
        sets.append(_copied_rows(installation.rows.read(dataset_id, root, holding=slots), slots))

    evaluated_on, sets = claimed_run.evaluation_dataset_id, list[LabelledRows]()
    with ExitStack() as stack:
        try:
            copy(claimed_run.dataset_id, root, selection.measured)
            copy(claimed_run.dataset_id, root, selection.retain)
            if evaluated_on is not None and selection.test is not None:
                # Runs of the evaluation dataset edit its rows.
                stack.enter_context(installation.rows.alone(evaluated_on))
                with installation.database.reading() as session:
                    test_root = rows_repository.root(session, evaluated_on)
                if test_root is not None:
                    copy(evaluated_on, test_root, selection.test)
            enough = [len(labels) >= contract.MIN_PEOPLE for _, labels in sets]
            if not all(enough[:2]):
                raise contract.RehearsalTooLarge("Of the people who were drawn to be measured on, too few have rows.")
            yield Sets(forget=sets[0], retain=sets[1], test=sets[2] if enough[2:] == [True] else None)
        finally:
            for features, labels in sets:
                features.fill(0)
                labels.fill(0)


def run(
    mechanism: Mechanism,
    *,
    version: int,
    live: Floats,
    forgetting: Forgetting,
    origin: Floats,
    without: RunWithoutPeople,
    sets: Sets,
    measure: Measure,
    on_progress: Callable[[int], None],
) -> contract.RehearsalReport:
    """Unlearn one copy of the model, retrain another on the rows that remain, and return the report.

    `without` runs steps on those rows. `on_progress(steps_done)` counts the steps of both copies and may raise to stop.
    """
    clock = _Clock(on_progress)
    curve = [_checkpoint(0, live, sets, measure)]
    last = forgetting.steps

    def reached(steps_done: int, parameters: Floats) -> None:
        with clock.paused():
            curve.append(_checkpoint(steps_done, parameters, sets, measure))
            parameters.fill(0)

    def effort(steps: int) -> contract.EffortOut:
        passes = steps / mechanism.num_batches
        return contract.EffortOut(steps=steps, passes=round(passes, 3), seconds=round(clock.seconds, 3))

    before = _reported(live, sets, measure, None)
    stops = sorted({round(last * part / CHECKPOINTS) for part in range(1, CHECKPOINTS)} - {0, last})
    clock.start(after=0)
    result = without(
        initial=forgetting.initial,
        first_step=forgetting.first_step,
        steps=last,
        on_progress=clock.progressed,
        checkpoints=window.Checkpoints(steps=stops, reached=reached),
    )
    took = effort(last)
    curve.append(_checkpoint(last, result.parameters, sets, measure))
    forgotten = _reported(result.parameters, sets, measure, took)
    del result
    clock.start(after=last)
    result = without(initial=origin, first_step=0, steps=mechanism.learn_steps, on_progress=clock.progressed)
    relearned = _reported(result.parameters, sets, measure, effort(mechanism.learn_steps))
    return contract.RehearsalReport(
        version=version,
        way="unlearn" if forgetting.way == "unlearn" else "relearn",
        before=before,
        forgotten=forgotten,
        relearned=relearned,
        curve=curve,
    )


class _Clock:
    """Clock that measures the time taken by steps in seconds, excluding pauses of the run."""

    def __init__(self, on_progress: Callable[[int], None]) -> None:
        self._on_progress = on_progress
        self._began = self._paused = 0.0
        self._after = 0

    def start(self, *, after: int) -> None:
        """Restart the clock for a run that follows `after` earlier steps."""
        self._began, self._paused, self._after = time.monotonic(), 0.0, after

    @contextmanager
    def paused(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._paused += time.monotonic() - began

    def progressed(self, steps_done: int) -> None:
        with self.paused():
            self._on_progress(self._after + steps_done)

    @property
    def seconds(self) -> float:
        return max(0.0, time.monotonic() - self._began - self._paused)


def _copied_rows(blocks: Iterable[Block], slots: tuple[int, ...]) -> LabelledRows:
    """Return a copy of the non-null rows in these slots."""
    features: list[NDArray[np.float32]] = []
    labels: list[NDArray[np.int32]] = []
    columns = 0
    for block in blocks:
        positions = block.positions(slots)
        positions = positions[block.features[positions].any(axis=1)]
        features.append(block.features[positions])
        labels.append(labels_in(block.labels)[positions])
        columns = block.features.shape[1]
    if not features:
        return np.zeros((0, columns), np.float32), np.zeros(0, np.int32)
    return np.concatenate(features), np.concatenate(labels)


def _checkpoint(steps: int, parameters: Floats, sets: Sets, measure: Measure) -> contract.CheckpointOut:
    return contract.CheckpointOut(
        steps=steps,
        forget=_measured(parameters, sets.forget, measure)[0],
        retain=_measured(parameters, sets.retain, measure)[0],
    )


def _reported(
    parameters: Floats, sets: Sets, measure: Measure, effort: contract.EffortOut | None
) -> contract.ReportedOut:
    (forget, members), (retain, _) = (_measured(parameters, rows, measure) for rows in (sets.forget, sets.retain))
    test, others = (None, None) if sets.test is None else _measured(parameters, sets.test, measure)
    return contract.ReportedOut(
        sets=contract.SetsOut(forget=forget, retain=retain, test=test),
        attack=None if others is None else attack(members, others),
        effort=effort,
    )


def _measured(parameters: Floats, rows: LabelledRows, measure: Measure) -> tuple[contract.MeasuredOut, Floats]:
    """Return the measurements on the rows and each row's loss."""
    features, labels = rows
    row_scores = measure.scores(parameters, features, labels)
    return measure.of(row_scores, labels), measure.losses(row_scores, labels)


def attack(members: Floats, others: Floats) -> contract.AttackOut:
    """Return the area under the ROC curve, and its error, of an attack that guesses that rows with a low loss were used
    for training."""
    ranked = np.sort(others)
    below, above = np.searchsorted(ranked, members, "left"), np.searchsorted(ranked, members, "right")
    auc = 1 - float((below + above).mean()) / (2 * len(others))
    q1, q2 = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    spread = auc * (1 - auc) + (len(members) - 1) * (q1 - auc**2) + (len(others) - 1) * (q2 - auc**2)
    error = math.sqrt(max(0.0, spread) / (len(members) * len(others)))
    return contract.AttackOut(auc=round(auc, _DECIMALS), standard_error=_rounded(error))


def _rounded(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")


def _has(outputs: Floats, labels: NDArray[np.int32]) -> NDArray[np.bool_]:
    return np.asarray((labels[:, None] >> np.arange(outputs.shape[1]) & 1).astype(bool))
