"""Intake of deletion requests: one thread per gateway stores all waiting requests in a single transaction.

While the thread commits, new calls queue for its next transaction, so that many callers cost little more than one. Each
call gets its response after its request has been committed.
"""

import asyncio
import dataclasses
import datetime
import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app import db, errors, installations, periodic, telemetry
from app.access import idempotency
from app.db import sealed, tables
from app.deletion import service, service as deletion, views
from app.unlearning import queue
from lethe.contract import deletion_requests, problems, sets
from lethe.proof.errors import PrivacyError

_MAX_BATCHES_AT_ONCE = 100
_FRESH_SECONDS = 1.0
_MIN_INTERVAL_FACTOR = 20.0
_WRITTEN = ("subject_ref", "alias_refs", "external_id", "metadata", "refers_to")
"""Response fields that repeat the caller's input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Estimate:
    """Estimate of the run that a model would need now. After `renew_at` it is renewed in the background; after `old_at`
    it must be renewed before use. Both are monotonic clock times."""

    model: deletion_requests.EstimateModelOut | None
    renew_at: float
    old_at: float


class Estimates:
    """Cache of estimates, one for the run that each model would need now to serve at most `max_requests` requests.

    An estimate is at most one second old while it is in demand and five seconds otherwise. Expensive estimates live
    longer, so that estimating takes at most a twentieth of the time."""

    def __init__(self, *, max_requests: int) -> None:
        self._max_requests = max_requests
        self._known: dict[str, _Estimate] = {}
        self._due: Sequence[str] = ()

    def of(
        self, session: Session, request: tables.DeletionRequest, models: Sequence[tables.RequestModel]
    ) -> deletion_requests.EstimateOut | None:
        """Estimate the remaining runs of those `models` that `request` is waiting for. Return None if the request is
        not in progress or an estimate is missing."""
        if request.status not in (sets.RequestStatus.ACCEPTED, sets.RequestStatus.RUNNING):
            return None
        waiting = [model.model_id for model in models if model.status in tables.OWED]
        at, estimates = time.monotonic(), self._known
        if not all(model_id in estimates and at < estimates[model_id].old_at for model_id in waiting):
            self._known = estimates = estimates | _estimated(session, waiting, max_requests=self._max_requests)
        elif any(estimates[model_id].renew_at < at for model_id in waiting):
            self._due = waiting
        model_estimates = [estimates[model_id].model for model_id in waiting]
        estimated = [model for model in model_estimates if model is not None]
        return (
            deletion_requests.EstimateOut(steps=sum(model.steps for model in estimated), models=estimated)
            if len(estimated) == len(model_estimates)
            else None
        )

    def renew(self, database: db.Database) -> None:
        """Renew the estimates that are in demand and no longer fresh. Failed estimates are retried on demand."""
        model_ids, self._due = self._due, ()
        if not model_ids:
            return
        renewed: dict[str, _Estimate] = {}
        try:
            with database.reading() as session:
                renewed = _estimated(session, model_ids, max_requests=self._max_requests, min_records=1)
        # The next answer that needs the estimate computes it again, and raises the error.
        except Exception as error:  # noqa: BLE001
            telemetry.logger().warning("intake.estimates_not_renewed", error=type(error).__name__)
        others = {model_id: estimate for model_id, estimate in self._known.items() if model_id not in model_ids}
        self._known = others | {
            model_id: estimate for model_id, estimate in renewed.items() if estimate.model is not None
        }


def _estimated(
    session: Session, model_ids: Sequence[str], *, max_requests: int, min_records: int = 0
) -> dict[str, _Estimate]:
    """Return models' estimates; None for a model without a plan or with fewer than `min_records` records to forget."""
    began = time.monotonic()
    estimates: dict[str, deletion_requests.EstimateModelOut | None] = dict.fromkeys(model_ids)
    try:
        for model_id, plan, records in queue.estimate(session, model_ids=model_ids, max_requests=max_requests):
            if records >= min_records:
                estimates[model_id] = deletion_requests.EstimateModelOut(
                    model_id=model_id, kind=plan.kind, steps=plan.steps
                )
    # The worker reports this error; no request is refused because of it.
    except (errors.MechanismUnreadable, errors.MethodUnsupported, PrivacyError):
        pass
    ended = time.monotonic()
    fresh = max(_FRESH_SECONDS, _MIN_INTERVAL_FACTOR * (ended - began))
    return {
        model_id: _Estimate(model=model, renew_at=ended + fresh, old_at=ended + 5 * fresh)
        for model_id, model in estimates.items()
    }


def to_response(
    request: tables.DeletionRequest,
    models: Sequence[tables.RequestModel],
    estimate: deletion_requests.EstimateOut | None = None,
    *,
    view: views.View,
    horizon: datetime.timedelta,
    names: Mapping[str, str] | None = None,
) -> deletion_requests.DeletionRequestOut:
    """Return a request as `view` shows it. Deadlines within `horizon` count as at risk. `names` maps assignees to their
    names; None hides the assignee."""
    clock = view.clock(request, horizon=horizon)
    is_damaged = request.particulars.is_damaged
    particulars = sealed.Particulars() if is_damaged else request.particulars
    ground, explanation = request.rejection_ground, particulars.rejection_explanation
    return deletion_requests.DeletionRequestOut.of(
        request,
        status=view.status(request),
        outcome=None if view.discreet or request.outcome is None else sets.Outcome(request.outcome),
        erased_by=None if view.discreet else request.erased_by,
        identity_unknown=request.unknown_at is not None and not view.discreet,
        alias_refs=request.alias_refs or [],
        external_id=particulars.external_id,
        metadata=particulars.metadata,
        extension_reason=particulars.extension_reason,
        clock=deletion_requests.ClockOut.of(clock),
        rejection=deletion_requests.RejectionOut(ground=sets.RejectionGround(ground), explanation=explanation)
        if ground
        else None,
        completed_at=view.completed_at(request),
        held_until=view.held_until(request),
        kept="damaged" if is_damaged else request.kept,
        assignee=None if names is None else request.assignee,
        assignee_name=names.get(request.assignee) if names and request.assignee else None,
        estimate=None if view.discreet else estimate,
        models=[] if view.discreet else [deletion_requests.RequestModelOut.of(model) for model in models],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    once: idempotency.Once
    draft: service.RequestDraft
    answered: asyncio.Future[idempotency.StoredResponse]


class Intake:
    """Thread that stores deletion requests, and a second one that notifies workers and renews estimates."""

    def __init__(self, installation: installations.Installation) -> None:
        self.estimates = Estimates(max_requests=installation.settings.max_requests_per_run)
        self._installation = installation
        self._waiting: list[_Call] = []
        self._changed = threading.Condition()
        self._closing = False
        self._loop = asyncio.get_running_loop()
        self._ringing = periodic.Periodic("intake-notifier", self._ring, seconds=None).start()
        self._storing = threading.Thread(target=self._store, name="intake", daemon=True)
        self._storing.start()

    async def submit(self, once: idempotency.Once, draft: service.RequestDraft) -> idempotency.StoredResponse:
        """Store a request and return the response after the commit; for a repeated call, return the first response.

        Raises `IdempotencyConflict`, whatever `deletion.submit_all` raises, and database errors (`OperationalError`).
        """
        call = _Call(once=once, draft=draft, answered=self._loop.create_future())
        with self._changed:
            self._waiting.append(call)
            self._changed.notify()
        return await call.answered

    def close(self) -> None:
        """Store the waiting requests and stop both threads."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._storing.join()
        self._ringing.stop()
        # Workers may not know yet of the requests that were stored last, and this process may end before the next tick.
        self._installation.notifier.notifier.wake()

    def _store(self) -> None:
        while calls := self._next():
            answers = self._outcomes(calls)
            self._loop.call_soon_threadsafe(_deliver, calls, answers)
            if any(isinstance(answer, idempotency.StoredResponse) and _is_to_do(answer) for answer in answers):
                self._ringing.wake()
            # Release personal data now, not at the next call.
            del calls, answers

    def _next(self) -> list[_Call]:
        """Wait for calls and return them, alternating between tenants, with at most one call per Idempotency-Key.
        Return an empty list once the intake is closing and no calls are left."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            names: set[str | None] = set()
            calls: list[_Call] = []
            later: list[_Call] = []
            places: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
            # The sort is stable, so the calls of a tenant keep their order.
            for call in sorted(self._waiting, key=lambda call: next(places[call.draft.by.tenant_id])):
                if len(calls) == _MAX_BATCHES_AT_ONCE or (call.once.name and call.once.name in names):
                    later.append(call)
                else:
                    names.add(call.once.name)
                    calls.append(call)
            self._waiting = later
            return calls

    def _outcomes(self, calls: Sequence[_Call]) -> list[idempotency.StoredResponse | Exception]:
        """Return the response to each call, or the error that `submit` raises."""
        try:
            return self._answers(calls)
        # Storing the calls one by one would fail too.
        except (OperationalError, OSError, problems.Unavailable) as error:
            return [error] * len(calls)
        # One call is the cause, so the others are stored without it.
        except Exception as error:  # noqa: BLE001
            return [error] if len(calls) == 1 else [outcome for call in calls for outcome in self._outcomes([call])]

    def _answers(self, calls: Sequence[_Call]) -> list[idempotency.StoredResponse | Exception]:
        """Store requests, events and responses in one transaction, and return each call's response or error."""
        self._installation.database.require_served()
        # The thread takes turns as a separate tenant, because it stores the requests of all tenants.
        with self._installation.database.writing(tenant_id="intake") as session:
            answers: dict[int, idempotency.StoredResponse | Exception] = {
                place: _written_by(calls[place].draft, answer)
                if isinstance(answer, idempotency.StoredResponse)
                else answer
                for place, answer in enumerate(idempotency.replay_all(session, [call.once for call in calls]))
                if answer is not None
            }
            new = [place for place in range(len(calls)) if place not in answers]
            outcomes = deletion.submit_all(session, [calls[place].draft for place in new]) if new else []
            stored = []
            for place, outcome in zip(new, outcomes, strict=True):
                if isinstance(outcome, service.Submitted):
                    answers[place] = answer = self._answer(session, outcome, calls[place].draft.discreet)
                    stored.append((calls[place].once, _unwritten(answer)))
                else:
                    answers[place] = outcome
            idempotency.remember_all(session, stored)
        return [answers[place] for place in range(len(calls))]

    def _answer(self, session: Session, new: service.Submitted, discreet: bool) -> idempotency.StoredResponse:
        estimate = None if discreet else self.estimates.of(session, new.request, new.models)
        view = views.View(discreet=discreet, at=new.request.created_at)
        horizon = datetime.timedelta(days=self._installation.settings.risk_days)
        body = to_response(new.request, new.models, estimate, view=view, horizon=horizon).model_dump(
            mode="json", by_alias=True
        )
        return idempotency.StoredResponse(status=202, location=f"/v1/deletion-requests/{new.request.id}", body=body)

    def _ring(self) -> None:
        self._installation.notifier.wake()
        self.estimates.renew(self._installation.database)


def _is_to_do(answer: idempotency.StoredResponse) -> bool:
    """Return True if a request may need a worker, judging only by what its caller may know."""
    return bool(answer.body["status"] == sets.RequestStatus.ACCEPTED)


def _unwritten(answer: idempotency.StoredResponse) -> idempotency.StoredResponse:
    """Remove the caller's input from a response before it is stored. A repeated call supplies it again."""
    return dataclasses.replace(answer, body=answer.body | dict.fromkeys(_WRITTEN))


def _written_by(draft: service.RequestDraft, answer: idempotency.StoredResponse) -> idempotency.StoredResponse:
    """Return a stored response with the caller's input restored from the repeated call."""
    return dataclasses.replace(answer, body=answer.body | {name: getattr(draft, name) for name in _WRITTEN})


def _deliver(calls: Sequence[_Call], answers: Sequence[idempotency.StoredResponse | Exception]) -> None:
    for call, answer in zip(calls, answers, strict=True):
        # The client has disconnected.
        if call.answered.done():
            continue
        if isinstance(answer, Exception):
            call.answered.set_exception(answer)
        else:
            call.answered.set_result(answer)
