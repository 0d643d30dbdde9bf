"""Register of systems, and the systems' tasks for deletion requests.

Tasks change in the same transactions as their request: they are opened when it is accepted, with a webhook that is sent
after its grace period, and cancelled when it is withdrawn. A request completes only once its tasks have ended.
"""

import base64
import binascii
import datetime
import functools
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.access.service import Caller
from app.audit import service as audit
from app.db import actor, bulk, now, rare, tables
from app.deletion import completion, history, retention
from app.features.protocols.drp import SMALL_ORDER
from app.features.systems.tables import System, SystemAddress, SystemTask, TaskNote
from app.features.webhooks import repository as webhooks_repository, service as webhooks
from lethe.contract.problems import FieldError, InputInvalid
from lethe.contract.sets import ClockState, EventKind, RequestStatus
from lethe.features.systems import acknowledgements, contract
from lethe.proof.errors import PreconditionError

OPENED, REMINDER, CANCELLED = "system_task.opened", "system_task.reminder", "system_task.cancelled"
"""Webhook events sent to systems."""
_OPEN: sa.ColumnElement[str] = sa.literal_column("'open'")
"""Literal value, because SQLite uses the partial index on open tasks only if the statement contains it."""
R = TypeVar("R", bound=Any)
_WITHDRAWN = (EventKind.CANCELLED, EventKind.REJECTED)
_ANY_IN_USE = rare.Rare(System.retired_at.is_(None))
_KEY_BYTES = 32


def register(session: Session, *, webhook_url: str, contact: str, **details: Any) -> System:
    """Register a system of the session's tenant. Raises `InputInvalid` for a key, dataset or parent that does not
    exist."""
    row = System(
        id=tables.new_id("sys"),
        tenant_id=actor(session).tenant_id,
        address=SystemAddress(url=webhook_url, contact=contact),
        created_at=now(session),
        **details,
    )
    _check(session, row)
    session.add(row)
    audit.record(session, "system.created", row.id)
    return row


def change(session: Session, row: System, **changes: Any) -> None:
    """Change the given details of a system. Raises `InputInvalid` like `register`, and if its parents form a cycle."""
    set_details(row, changes)
    with session.no_autoflush:
        _check(session, row)
    audit.record(session, "system.changed", row.id)


def set_details(row: Any, changes: dict[str, Any]) -> None:
    """Set the given details of a row; `webhook_url` and `contact` are parts of its address."""
    url, contact = changes.pop("webhook_url", None), changes.pop("contact", None)
    if url or contact:
        row.address = row.address.changed(url=url, contact=contact)
    for name, value in changes.items():
        setattr(row, name, value)


def retire(session: Session, row: Any, *, action: str = "system.retired") -> None:
    """Retire a register's row, so that it no longer applies to new requests. Repeating the call is a no-op."""
    if row.retired_at is None:
        row.retired_at = now(session)
        audit.record(session, action, row.id)


def get(session: Session, system_id: str) -> System:
    """Return a registered system. Raises `SystemUnknown`."""
    return contract.SystemUnknown.if_none(session.get(System, system_id), system_id=system_id)


def registered(session: Session, register: type[R]) -> list[R]:
    """Return all rows of a register for the session's tenant, including retired rows, newest first."""
    return list(session.scalars(sa.select(register).order_by(register.created_at.desc(), register.id.desc())))


def get_task(session: Session, task_id: str) -> SystemTask:
    """Return a task. Raises `SystemTaskUnknown`."""
    return contract.SystemTaskUnknown.if_none(session.get(SystemTask, task_id), task_id=task_id)


def tasks_of(session: Session, *, request_id: str) -> list[tuple[SystemTask, System]]:
    """Return a request's tasks and their systems, ordered by system."""
    query = sa.select(SystemTask, System).join(System, System.id == SystemTask.system_id)
    query = query.where(SystemTask.request_id == request_id).order_by(SystemTask.system_id)
    return [(task, system) for task, system in session.execute(query)]


def tasks(
    session: Session,
    *,
    status: str | None,
    overdue: bool,
    system_id: str | None,
    request_id: str | None,
    limit: int,
    cursor: str | None,
) -> bulk.Page[SystemTask]:
    """Return a page of the tasks that match the arguments, newest first."""
    wanted = {"status": status, "system_id": system_id, "request_id": request_id}
    query = sa.select(SystemTask).filter_by(**{name: value for name, value in wanted.items() if value is not None})
    if overdue:
        query = query.join(tables.DeletionRequest, tables.DeletionRequest.id == SystemTask.request_id)
        query = query.where(SystemTask.status == _OPEN, tables.DeletionRequest.deadline <= now(session))
    return bulk.page(session, query, SystemTask.opened_at, SystemTask.id, limit=limit, cursor=cursor)


def is_open(request: type[tables.DeletionRequest]) -> sa.ColumnElement[bool]:
    """Return the SQL condition that `request` has an open task."""
    return sa.exists().where(SystemTask.request_id == request.id, SystemTask.status == _OPEN)


def opening(session: Session) -> Callable[[tables.DeletionRequest], bool]:
    """Return a predicate that tells whether accepting a request opens a task. Each tenant's register is read once."""
    if not _ANY_IN_USE.may_hold(session):
        return lambda _: False
    of_tenant = functools.cache(lambda tenant_id: _Register(session, {tenant_id}))
    return lambda request: bool(of_tenant(request.tenant_id).concerned(request))


def follow(session: Session, changes: Sequence[history.Change]) -> None:
    """Open accepted requests' tasks, and cancel withdrawn requests' tasks, in the transaction that makes the change."""
    accepted = {change.request.id: change for change in changes if change.kind is EventKind.ACCEPTED}
    if accepted:
        _open(session, list(accepted.values()))
    withdrawn = {change.request.id: change for change in changes if change.kind in _WITHDRAWN}
    if withdrawn:
        _cancel(session, withdrawn)


def _open(session: Session, changes: Sequence[history.Change]) -> None:
    register = _Register(session, {change.request.tenant_id for change in changes})
    if not register.systems:
        return
    query = sa.select(SystemTask.request_id).where(SystemTask.request_id.in_([c.request.id for c in changes]))
    # A restored request may have its tasks already.
    present = set(session.scalars(query))
    rows, messages = [], []
    for change in changes:
        request = change.request
        if request.id in present:
            continue
        for system in register.concerned(request):
            sent_from = max(change.at, request.held_until or change.at)
            task = SystemTask(
                id=tables.new_id("tsk"),
                tenant_id=request.tenant_id,
                request_id=request.id,
                system_id=system.id,
                status=contract.TaskStatus.OPEN,
                opened_at=change.at,
                sent_from=sent_from,
            )
            rows.append(task)
            messages += _messages(OPENED, task, system, request, at=sent_from)
    bulk.store(session, SystemTask, rows)
    webhooks.send_all(session, messages)


def _cancel(session: Session, withdrawn: Mapping[str, history.Change]) -> None:
    messages = []
    for task, system in _open_tasks(session, withdrawn.keys()):
        change = withdrawn[task.request_id]
        task.status, task.ended_at = contract.TaskStatus.CANCELLED, change.at
        # A system that was never called about the task must not learn of it from the cancellation.
        if task.sent_from <= change.at:
            messages += _messages(CANCELLED, task, system, change.request, at=change.at)
    webhooks_repository.drop_planned(session, request_ids=withdrawn.keys(), event=OPENED)
    webhooks.send_all(session, messages)


def _open_tasks(session: Session, request_ids: Collection[str]) -> list[tuple[SystemTask, System]]:
    query = sa.select(SystemTask, System).join(System, System.id == SystemTask.system_id)
    query = query.where(SystemTask.request_id.in_(request_ids), SystemTask.status == _OPEN)
    return [(task, system) for task, system in session.execute(query.order_by(SystemTask.id))]


def to_remind(
    session: Session, *, horizon: datetime.timedelta, limit: int
) -> list[tuple[SystemTask, System, tables.DeletionRequest]]:
    """Return open tasks whose system has not been reminded that the deadline is within `horizon` or has passed."""
    at = now(session)
    late = sa.and_(tables.DeletionRequest.deadline <= at, SystemTask.reminded == ClockState.AT_RISK)
    query = (
        sa.select(SystemTask, System, tables.DeletionRequest)
        .join(System, System.id == SystemTask.system_id)
        .join(tables.DeletionRequest, tables.DeletionRequest.id == SystemTask.request_id)
        .where(
            SystemTask.status == _OPEN,
            SystemTask.sent_from <= at,
            tables.DeletionRequest.deadline <= at + horizon,
            sa.or_(SystemTask.reminded.is_(None), late),
        )
        .order_by(tables.DeletionRequest.deadline, SystemTask.id)
        .limit(limit)
    )
    return [(task, system, request) for task, system, request in session.execute(query)]


def remind(session: Session, *, horizon: datetime.timedelta, limit: int) -> int:
    """Remind systems of each open task once when it is due within `horizon`, and once when it is overdue. Return the
    number of reminders, at most `limit`."""
    at, messages = now(session), []
    due = to_remind(session, horizon=horizon, limit=limit)
    for task, system, request in due:
        task.reminded = ClockState.OVERDUE if request.deadline <= at else ClockState.AT_RISK
        task.reminded_at = at
        messages += _messages(REMINDER, task, system, request, at=at)
    webhooks.send_all(session, messages)
    return len(due)


def acknowledge(session: Session, task: SystemTask, body: contract.AcknowledgementIn, *, caller: Caller) -> None:
    """Acknowledge a task with the system's signature or its bound API key. Repeating the call is a no-op.

    Raises `AcknowledgementRefused` for the wrong key or the wrong task, `SystemTaskEnded`, and `InputInvalid`.
    """
    system = session.get_one(System, task.system_id)
    evidence = _signed(task, system, body) if body.jws is not None else _by_api_key(task, system, body, caller)
    if task.status == contract.TaskStatus.ACKNOWLEDGED and all(
        getattr(task, name) == value for name, value in evidence.items()
    ):
        return
    _end(session, task, contract.TaskStatus.ACKNOWLEDGED, note=body.note, **evidence)
    audit.record(session, "system_task.acknowledged", task.id, system_id=system.id)


def close(session: Session, task: SystemTask, *, reason: str) -> None:
    """Close an open task whose system was not reached. Repeating the call is a no-op. Raises `SystemTaskEnded`."""
    if task.status == contract.TaskStatus.CLOSED:
        return
    _end(session, task, contract.TaskStatus.CLOSED, note=reason)
    audit.record(session, "system_task.closed", task.id, system_id=task.system_id)


def _end(
    session: Session, task: SystemTask, status: contract.TaskStatus, *, note: str | None, **evidence: str | None
) -> None:
    """End an open task, and complete its request if no other work is outstanding. Raises `SystemTaskEnded`."""
    if task.status != contract.TaskStatus.OPEN:
        raise contract.SystemTaskEnded(task_id=task.id, status=task.status)
    task.status, task.ended_at = status, now(session)
    for name, value in evidence.items():
        setattr(task, name, value)
    session.flush()
    request = session.get_one(tables.DeletionRequest, task.request_id)
    if note is not None:
        task.note, request.kept = TaskNote(text=note), retention.RetentionLevel.DETAILS
    complete(session, [request.id])


def _signed(task: SystemTask, system: System, body: contract.AcknowledgementIn) -> dict[str, str | None]:
    if body.by is not None or body.evidence_sha256 is not None:
        raise InputInvalid(
            "A signed acknowledgement states these fields itself.",
            [FieldError(name, "expected none beside jws") for name in ("by", "evidence_sha256") if getattr(body, name)],
        )
    try:
        statement = system.public_key and acknowledgements.read(body.jws or "", system.public_key)
    except PreconditionError as error:
        raise InputInvalid("The acknowledgement is malformed.", [FieldError("jws", error.detail)]) from None
    if not statement:
        raise contract.AcknowledgementRefused(task_id=task.id, system_id=system.id)
    if (statement["task_id"], statement["system_id"], statement["request_id"]) != (task.id, system.id, task.request_id):
        raise contract.AcknowledgementRefused.other_task(task_id=task.id)
    return {
        "jws": (body.jws or "").strip(),
        "public_key": system.public_key,
        "confirmed_by": statement["by"],
        "evidence_sha256": statement["evidence_sha256"],
    }


def _by_api_key(
    task: SystemTask, system: System, body: contract.AcknowledgementIn, caller: Caller
) -> dict[str, str | None]:
    # A key made by rotating the bound one may act in its place.
    if caller.is_person or system.api_key_id is None or system.api_key_id not in (caller.id, caller.maker):
        raise contract.AcknowledgementRefused(task_id=task.id, system_id=system.id)
    if body.by is None:
        raise InputInvalid(
            "The acknowledgement names nobody.", [FieldError("by", "expected the person or role that confirms")]
        )
    return {"acknowledged_with": caller.id, "confirmed_by": body.by, "evidence_sha256": body.evidence_sha256}


class _Register:
    """Registered systems of some tenants, including retired ones, used to find the systems that a request concerns."""

    def __init__(self, session: Session, tenant_ids: Collection[str]) -> None:
        self.systems: dict[str, System] = {}
        if not _ANY_IN_USE.may_hold(session):
            return
        query = sa.select(System).where(System.tenant_id.in_(tenant_ids)).order_by(System.id)
        self.systems |= {system.id: system for system in session.scalars(query)}
        parents = {parent for system in self.systems.values() for parent in system.parents}
        models = sa.select(tables.Model.id, tables.Model.dataset_id).where(tables.Model.id.in_(parents))
        rows = session.execute(models) if parents else ()
        self._dataset_of = {row.id: row.dataset_id for row in rows}

    def concerned(self, request: tables.DeletionRequest) -> list[System]:
        """Return the systems in use that may hold data about a request's person, directly or through a system or model
        from which they were derived."""
        return [
            system
            for system in self.systems.values()
            if system.tenant_id == request.tenant_id
            and system.retired_at is None
            and any(may_concern(self._held_by(ancestor), request) for ancestor in _lineage(system.id, self.systems))
        ]

    def _held_by(self, ancestor: str) -> list[str] | None:
        """Return the datasets whose people's data a model or system may hold; None means all datasets."""
        if ancestor in self._dataset_of:
            return [self._dataset_of[ancestor]]
        row = self.systems.get(ancestor)
        return None if row is None else row.dataset_ids


def _lineage(system_id: str, systems: Mapping[str, System]) -> list[str]:
    """Return the ids of a system and of everything from which it was derived."""
    seen = [system_id]
    for ancestor_id in seen:
        row = systems.get(ancestor_id)
        seen += [parent for parent in (row.parents if row is not None else ()) if parent not in seen]
    return seen


def _check(session: Session, row: System) -> None:
    """Raise `InputInvalid` if a system's details are invalid."""
    faults = []
    if row.public_key is not None and not is_usable(row.public_key):
        faults.append(FieldError("public_key", "expected the base64url of an Ed25519 public key of large order"))
    if row.api_key_id is not None:
        key = session.get(tables.ApiKey, row.api_key_id)
        if key is None or key.revoked_at is not None:
            faults.append(FieldError("api_key_id", "expected the ID of an API key in use"))
    faults += unknown_datasets(session, row.dataset_ids)
    systems = {system.id: system for system in registered(session, System)} | {row.id: row}
    models = set(session.scalars(sa.select(tables.Model.id).where(tables.Model.id.in_(row.parents))))
    for place, parent in enumerate(row.parents):
        if parent not in systems and parent not in models:
            faults.append(FieldError(f"parents.{place}", "expected the ID of a system or model"))
        elif row.id in _lineage(parent, systems):
            faults.append(FieldError(f"parents.{place}", "expected no system that was derived from this one"))
    if faults:
        raise InputInvalid("The system cannot be registered as it is.", faults)


def unknown_datasets(session: Session, dataset_ids: Sequence[str] | None) -> list[FieldError]:
    """Return an error for each of a system's `dataset_ids` that the tenant does not have; None means all datasets."""
    ids = dataset_ids or ()
    known = set(session.scalars(sa.select(tables.Dataset.id).where(tables.Dataset.id.in_(ids)))) if ids else set()
    unknown = [place for place, dataset_id in enumerate(ids) if dataset_id not in known]
    return [FieldError(f"dataset_ids.{place}", "expected the ID of a dataset") for place in unknown]


def may_concern(dataset_ids: Collection[str] | None, request: tables.DeletionRequest) -> bool:
    """Return True if a request concerns a dataset whose people's data a system may hold; None means all datasets."""
    asked = request.dataset_ids
    return asked is None or dataset_ids is None or not set(asked).isdisjoint(dataset_ids)


def complete(session: Session, request_ids: Collection[str]) -> None:
    """Complete the running requests that are waiting for nothing else; `settle` completes those not running."""
    session.flush()
    for part in bulk.in_parts(request_ids):
        running = tables.DeletionRequest.id.in_(part), tables.DeletionRequest.status == RequestStatus.RUNNING
        completion.complete_done(session, session.scalars(sa.select(tables.DeletionRequest).where(*running)).all())


def is_usable(public_key: str) -> bool:
    """Return True for an Ed25519 key of large order; signatures under any other key can be forged."""
    try:
        key = base64.urlsafe_b64decode(public_key + "=")
    except (binascii.Error, ValueError):
        return False
    # The highest bit is the sign of the other coordinate.
    return len(key) == _KEY_BYTES and key[:-1] + bytes([key[-1] & 0x7F]) not in SMALL_ORDER


def _messages(
    event: str, task: SystemTask, system: System, request: tables.DeletionRequest, *, at: datetime.datetime
) -> list[webhooks.WebhookMessage]:
    """Return the webhook messages for a task; empty if the system's address is damaged. They do not name the person:
    the system finds the person by the request's external id."""
    if system.address.is_damaged:
        return []
    particulars = request.particulars
    data = {
        "api_version": webhooks.API_VERSION,
        "id": task.id,
        "system_id": system.id,
        "request_id": request.id,
        "external_id": None if particulars.is_damaged else particulars.external_id,
        "identifier_kinds": system.identifier_kinds,
        "dataset_ids": request.dataset_ids,
        "due_at": request.deadline.astimezone(datetime.UTC).isoformat(),
        "status": task.status,
    }
    timestamp = at.astimezone(datetime.UTC).isoformat()
    body = json.dumps({"type": event, "timestamp": timestamp, "data": data}, separators=(",", ":"))
    return [webhooks.WebhookMessage(request=request, urls=[system.address.url], event=event, body=body, at=at)]


def note_keys(session: Session, request_ids: Collection[str]) -> dict[str, list[str]]:
    """Return the keys of the notes on these requests' tasks, grouped by request id."""
    query = sa.select(SystemTask.request_id, SystemTask.note).where(SystemTask.request_id.in_(request_ids))
    keys: dict[str, list[str]] = {}
    for request_id, note in session.execute(query):
        if note.key:
            keys.setdefault(request_id, []).append(note.key)
    return keys


def drop_notes(session: Session, request_ids: Collection[str]) -> None:
    """Delete the notes on these requests' tasks."""
    erased = sa.update(SystemTask).where(SystemTask.request_id.in_(request_ids)).values(note=None)
    session.execute(erased, execution_options={"synchronize_session": False})


T = TypeVar("T")


def fewest(
    waits: Iterable[T], *, opens: Callable[[T], datetime.datetime], closes: Callable[[T], datetime.datetime]
) -> list[tuple[datetime.datetime, list[T]]]:
    """Return, in order, the fewest times such that every wait, from `opens` to `closes`, contains one of them. Each
    time comes with the waits that it serves, ordered by their ends. No wait may close before it opens.

    The greedy choice of the earliest end is optimal: the intervals whose ends are chosen are disjoint, so that each
    needs a separate time.
    """
    left = sorted(waits, key=closes)
    planned = []
    while left:
        at = closes(left[0])
        planned.append((at, [wait for wait in left if opens(wait) <= at]))
        left = [wait for wait in left if opens(wait) > at]
    return planned
