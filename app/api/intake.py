"""Deletion requests on their way in: those that wait for the database at the same time are stored in one transaction.

A gateway has one thread that does this. While it commits, calls gather, and its next transaction takes them all: many
callers cost little more than one. Nobody is answered before the commit that holds their request.
"""

import asyncio
import dataclasses
import datetime
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app import telemetry
from app.access import idempotency
from app.access.idempotency import Answer, Once
from app.db import Database
from app.db.tables import OWED, DeletionRequest, RequestModel
from app.deletion import service as deletion
from app.deletion.service import Asked, Submitted
from app.deletion.views import View
from app.errors import MechanismUnreadable
from app.installations import Installation
from app.periodic import Periodic
from app.unlearning import queue
from lethe.contract.deletion_requests import (
    ClockOut,
    DeletionRequestOut,
    EstimateModelOut,
    EstimateOut,
    RejectionOut,
    RequestModelOut,
)
from lethe.contract.problems import Unavailable
from lethe.contract.sets import Outcome, RejectionGround, RequestModelStatus, RequestStatus
from lethe.proof.errors import PrivacyError

_MOST_AT_ONCE = 100
_FRESH_SECONDS = 1.0
_LEAST_BETWEEN = 20.0
_WRITTEN = ("subject_ref", "alias_refs", "external_id", "metadata", "refers_to")
"""The fields of an answer that come from the caller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Estimate:
    """The run of a model if it ran now. `renew_at`: from then on it is worked out anew beside the calls; `old_at`:
    before the next answer (both on the monotonic clock)."""

    model: EstimateModelOut | None
    renew_at: float
    old_at: float


class Estimates:
    """The runs of models if they ran now, for `max_requests` at most, as this process last worked them out.

    That was a second ago, or five where nobody asked meanwhile; longer where it takes long, so that at most a twentieth
    of the time goes into it.
    """

    def __init__(self, *, max_requests: int) -> None:
        self._max_requests = max_requests
        self._known: dict[str, _Estimate] = {}
        self._due: Sequence[str] = ()

    def of(self, session: Session, request: DeletionRequest, owed: Sequence[RequestModel]) -> EstimateOut | None:
        """Estimate what is left for `owed`, the models of `request`; None if there is nothing to do, or it cannot be
        said."""
        if request.status not in (RequestStatus.ACCEPTED, RequestStatus.RUNNING):
            return None
        waiting = [model.model_id for model in owed if model.status in OWED]
        at, known = time.monotonic(), self._known
        if not all(model_id in known and at < known[model_id].old_at for model_id in waiting):
            self._known = known = known | _estimated(session, waiting, max_requests=self._max_requests)
        elif any(known[model_id].renew_at < at for model_id in waiting):
            self._due = waiting
        models = [known[model_id].model for model_id in waiting]
        said = [model for model in models if model is not None]
        return EstimateOut(steps=sum(m.steps for m in said), models=said) if len(said) == len(models) else None

    def renew(self, database: Database) -> None:
        """Work out anew what was asked for and is not fresh. What cannot be said now, because nobody waits any more or
        for any other reason, is worked out for the next that asks."""
        due, self._due = self._due, ()
        if not due:
            return
        found: dict[str, _Estimate] = {}
        try:
            with database.reading() as session:
                found = _estimated(session, due, max_requests=self._max_requests, least=1)
        except Exception as error:  # noqa: BLE001  the next that asks is told, or finds it gone
            telemetry.logger().warning("intake.estimates_not_renewed", error=type(error).__name__)
        others = {model_id: one for model_id, one in self._known.items() if model_id not in due}
        self._known = others | {model_id: one for model_id, one in found.items() if one.model is not None}


def _estimated(
    session: Session, model_ids: Sequence[str], *, max_requests: int, least: int = 0
) -> dict[str, _Estimate]:
    """None for a model that has fewer than `least` records to forget, or of which it cannot be said."""
    began = time.monotonic()
    found: dict[str, EstimateModelOut | None] = dict.fromkeys(model_ids)
    try:
        for model_id, plan, records in queue.estimate(session, model_ids=model_ids, max_requests=max_requests):
            if records >= least:
                found[model_id] = EstimateModelOut(model_id=model_id, kind=plan.kind, steps=plan.steps)
    except (MechanismUnreadable, PrivacyError):  # the worker will say so; a request is never refused for it
        pass
    ended = time.monotonic()
    fresh = max(_FRESH_SECONDS, _LEAST_BETWEEN * (ended - began))
    return {
        model_id: _Estimate(model=model, renew_at=ended + fresh, old_at=ended + 5 * fresh)
        for model_id, model in found.items()
    }


def to_response(
    request: DeletionRequest,
    owed: Sequence[RequestModel],
    estimate: EstimateOut | None = None,
    *,
    view: View,
    horizon: datetime.timedelta,
    names: Mapping[str, str] | None = None,
) -> DeletionRequestOut:
    """A request as its reader may see it; what is due within `horizon` is at risk. `names`: of those whom requests are
    assigned to, for a reader who may know them."""
    clock = view.clock(request, horizon=horizon)
    written = request.particulars
    ground, explanation = request.rejection_ground, written.rejection_explanation
    return DeletionRequestOut(
        id=request.id,
        status=view.status(request),
        outcome=None if view.discreet or request.outcome is None else Outcome(request.outcome),
        subject_ref=request.subject_ref,
        alias_refs=request.alias_refs or [],
        regulation=request.regulation,
        ground=request.ground,
        external_id=written.external_id,
        metadata=written.metadata,
        submitted_at=request.submitted_at,
        due_at=request.due_at,
        extended_due_at=request.extended_due_at,
        extension_reason=written.extension_reason,
        clock=ClockOut(
            state=clock.state, deadline=clock.deadline, paused_since=clock.paused_since, days_left=clock.days_left
        ),
        held_until=request.held_until,
        rejection=RejectionOut(ground=RejectionGround(ground), explanation=explanation) if ground else None,
        source=request.source,
        refers_to=request.refers_to,
        created_at=request.created_at,
        completed_at=view.completed_at(request),
        kept=request.kept,
        assignee=None if names is None else request.assignee,
        assignee_name=names.get(request.assignee) if names and request.assignee else None,
        estimate=None if view.discreet else estimate,
        models=[]
        if view.discreet
        else [
            RequestModelOut(
                model_id=model.model_id,
                status=RequestModelStatus(model.status),
                run_id=model.run_id,
                version=model.version,
                certificate_id=model.certificate_id,
            )
            for model in owed
        ],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    once: Once
    asked: Asked
    answered: asyncio.Future[Answer]


class Intake:
    """The thread that stores deletion requests, and one for what may take its time: it notifies workers and
    estimates."""

    def __init__(self, installation: Installation) -> None:
        self.estimates = Estimates(max_requests=installation.settings.max_requests_per_run)
        self._installation = installation
        self._waiting: list[_Call] = []
        self._changed = threading.Condition()
        self._closing = False
        self._loop = asyncio.get_running_loop()
        self._ringing = Periodic("intake-notifier", self._ring, seconds=None).start()
        self._storing = threading.Thread(target=self._store, name="intake", daemon=True)
        self._storing.start()

    async def submit(self, once: Once, asked: Asked) -> Answer:
        """The answer, after the commit; the first one, if the call was made before.

        Raises `IdempotencyConflict`, what `deletion.submit_all` returns, and `OperationalError` without a database.
        """
        call = _Call(once=once, asked=asked, answered=self._loop.create_future())
        with self._changed:
            self._waiting.append(call)
            self._changed.notify()
        return await call.answered

    def close(self) -> None:
        """Store what waits, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._storing.join()
        self._ringing.stop()
        self._installation.notifier.wake()  # for what was stored last

    def _store(self) -> None:
        while calls := self._next():
            try:
                answers = self._answers(calls)
            except (OperationalError, OSError, Unavailable) as error:  # neither would any of them alone be stored
                answers = [error] * len(calls)
            except Exception as error:  # noqa: BLE001  one of them is the reason: the others must not suffer
                answers = [self._alone(call) for call in calls] if len(calls) > 1 else [error]
            self._loop.call_soon_threadsafe(_deliver, calls, answers)
            self._ringing.wake()
            del calls, answers  # what people wrote does not wait here for the next call

    def _next(self) -> list[_Call]:
        """Wait for calls and return them, each once; nothing when all is done."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            names: set[str | None] = set()
            calls: list[_Call] = []
            later: list[_Call] = []
            for call in self._waiting:
                if len(calls) == _MOST_AT_ONCE or (call.once.name and call.once.name in names):
                    later.append(call)
                else:
                    names.add(call.once.name)
                    calls.append(call)
            self._waiting = later
            return calls

    def _alone(self, call: _Call) -> Answer | Exception:
        try:
            return self._answers([call])[0]
        except Exception as error:  # noqa: BLE001  it is raised where the call waits
            return error

    def _answers(self, calls: Sequence[_Call]) -> list[Answer | Exception]:
        """Everything in one transaction: requests, what they ask of datasets and models, events, answers to keep."""
        with self._installation.database.writing() as session:
            answers: dict[int, Answer | Exception] = {
                place: _written_by(calls[place].asked, answer) if isinstance(answer, Answer) else answer
                for place, answer in enumerate(idempotency.replay_all(session, [call.once for call in calls]))
                if answer is not None
            }
            new = [place for place in range(len(calls)) if place not in answers]
            made = deletion.submit_all(session, [calls[place].asked for place in new]) if new else []
            for place, submitted in zip(new, made, strict=True):
                discreet = calls[place].asked.discreet
                answers[place] = (
                    self._answer(session, submitted, discreet) if isinstance(submitted, Submitted) else submitted
                )
            new_answers = [(calls[place].once, answers[place]) for place in new]
            at = next((one.request.created_at for one in made if isinstance(one, Submitted)), None)
            kept = [(once, _unwritten(answer)) for once, answer in new_answers if isinstance(answer, Answer)]
            idempotency.remember_all(session, kept, at=at)
        return [answers[place] for place in range(len(calls))]

    def _answer(self, session: Session, new: Submitted, discreet: bool) -> Answer:
        estimate = None if discreet else self.estimates.of(session, new.request, new.models)
        view = View(discreet=discreet, at=new.request.created_at)
        horizon = datetime.timedelta(days=self._installation.settings.risk_days)
        body = to_response(new.request, new.models, estimate, view=view, horizon=horizon).model_dump(
            mode="json", by_alias=True
        )
        return Answer(status=202, location=f"/v1/deletion-requests/{new.request.id}", body=body)

    def _ring(self) -> None:
        self._installation.notifier.wake()
        self.estimates.renew(self._installation.database)


def _unwritten(answer: Answer) -> Answer:
    """The part of an answer that is kept: what the caller wrote, and whom it was about, comes again with a repetition,
    which is the same call."""
    return dataclasses.replace(answer, body=answer.body | dict.fromkeys(_WRITTEN))


def _written_by(asked: Asked, answer: Answer) -> Answer:
    return dataclasses.replace(answer, body=answer.body | {name: getattr(asked, name) for name in _WRITTEN})


def _deliver(calls: Sequence[_Call], answers: Sequence[Answer | Exception]) -> None:
    for call, answer in zip(calls, answers, strict=True):
        if call.answered.done():  # its caller has gone
            continue
        if isinstance(answer, Exception):
            call.answered.set_exception(answer)
        else:
            call.answered.set_result(answer)
