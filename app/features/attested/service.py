"""Trainers outside Lethe, the requests waiting for them, and the manifests that serve these requests.

Waits are updated in the same transaction as their request. A manifest is checked and serves all waiting requests in one
transaction; its list of people is compared but not stored. People are compared by keyed digests, which Lethe computes
from pseudonyms separately for each trainer, so that this requires storing nothing about a person.
"""

import datetime
import functools
import itertools
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.audit import service as audit
from app.db import actor, bulk, now, rare
from app.db.tables import DeletionRequest, Model, Suppression, Version, new_id
from app.deletion import history, search_repository
from app.features.attested.tables import AttestedArtefact, AttestedManifest, AttestedTrainer, AttestedWait
from app.features.systems import service, tables
from app.features.webhooks import service as webhooks
from app.keys import Keys
from lethe.contract import problems, sets
from lethe.features.attested import contract, manifests
from lethe.features.systems.contract import SystemTaskEnded
from lethe.proof.errors import PreconditionError

DUE = "retraining_due"
"""Webhook event sent to trainers."""
OPEN, SERVED, CLOSED, CANCELLED = "open", "served", "closed", "cancelled"
_IS_OPEN: sa.ColumnElement[str] = sa.literal_column("'open'")
"""Literal value, because SQLite uses the partial index on open waits only if the statement contains it."""
_WITHDRAWN = (sets.EventKind.CANCELLED, sets.EventKind.REJECTED)
_ANY_IN_USE = rare.Rare(AttestedTrainer.retired_at.is_(None))
_MAX_LEASE = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitInterval:
    """A request's wait for a retraining that reads its rows between `asked_at` and `latest_at`, inclusive."""

    asked_at: datetime.datetime
    latest_at: datetime.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRetraining:
    """Retraining that must read its rows by `latest_at` and satisfies `num_waiting` waits. `late` is True if at least
    one of these waits is served too late."""

    latest_at: datetime.datetime
    late: bool
    num_waiting: int


def plan(waits: Iterable[WaitInterval], *, at: datetime.datetime) -> list[PlannedRetraining]:
    """Return the fewest retrainings after `at` such that each wait's interval contains a retraining, in order of time.
    A wait whose latest time has passed, or precedes its `asked_at`, is served late, at the earliest possible time."""
    planned = service.fewest(
        waits, opens=lambda wait: max(wait.asked_at, at), closes=lambda wait: max(wait.latest_at, wait.asked_at, at)
    )
    return [
        PlannedRetraining(latest_at=end, late=any(wait.latest_at < end for wait in served), num_waiting=len(served))
        for end, served in planned
    ]


def register(session: Session, *, webhook_url: str, contact: str, **details: Any) -> AttestedTrainer:
    """Register a trainer for the session's tenant. Raises `InputInvalid` for an unusable key or an unknown dataset."""
    row = AttestedTrainer(
        id=new_id("atr"),
        tenant_id=actor(session).tenant_id,
        address=tables.SystemAddress(url=webhook_url, contact=contact),
        retraining_id=new_id("rtn"),
        created_at=now(session),
        **details,
    )
    _check(session, row)
    session.add(row)
    audit.record(session, "attested_trainer.created", row.id)
    return row


def change(session: Session, row: AttestedTrainer, **changes: Any) -> None:
    """Change the given details of a trainer. Raises `InputInvalid` in the same cases as `register`."""
    service.set_details(row, changes)
    with session.no_autoflush:
        _check(session, row)
    audit.record(session, "attested_trainer.changed", row.id)


def get(session: Session, trainer_id: str, *, lock: bool = False) -> AttestedTrainer:
    """Return a trainer; with `lock`, its row is locked until the transaction ends. Raises `AttestedTrainerUnknown`."""
    row = session.get(AttestedTrainer, trainer_id, with_for_update=True if lock else None)
    return contract.AttestedTrainerUnknown.if_none(row, attested_trainer_id=trainer_id)


def latest_manifest(session: Session, trainer: AttestedTrainer) -> AttestedManifest | None:
    """Return the trainer's accepted manifest with the latest `rows_read_at`; None if no manifest has been accepted."""
    query = sa.select(AttestedManifest).where(AttestedManifest.trainer_id == trainer.id)
    return session.scalars(query.order_by(AttestedManifest.rows_read_at.desc()).limit(1)).first()


def waits_of(
    session: Session, *, request_id: str
) -> list[tuple[AttestedWait, AttestedTrainer, AttestedManifest | None]]:
    """Return a request's waits with their trainers and the manifests that served them, ordered by trainer."""
    query = (
        sa.select(AttestedWait, AttestedTrainer, AttestedManifest)
        .join(AttestedTrainer, AttestedTrainer.id == AttestedWait.trainer_id)
        .outerjoin(AttestedManifest, AttestedManifest.id == AttestedWait.manifest_id)
        .where(AttestedWait.request_id == request_id)
        .order_by(AttestedWait.trainer_id)
    )
    return [(wait, trainer, manifest) for wait, trainer, manifest in session.execute(query)]


def is_open(request: type[DeletionRequest]) -> sa.ColumnElement[bool]:
    """Return the SQL condition that `request` is waiting for a trainer."""
    return sa.exists().where(AttestedWait.request_id == request.id, AttestedWait.status == _IS_OPEN)


def opening(session: Session) -> Callable[[DeletionRequest], bool]:
    """Return a predicate for requests that will wait for a trainer once accepted. Trainers are read once per tenant."""
    if not _ANY_IN_USE.may_hold(session):
        return lambda _: False
    of_tenant = functools.cache(lambda tenant_id: _in_use(session, {tenant_id}))
    return lambda request: bool(_concerned(of_tenant(request.tenant_id), request))


def follow(session: Session, changes: Sequence[history.Change]) -> None:
    """Start the waits of accepted requests and end those of withdrawn requests, in the transaction of `changes`."""
    if accepted := {change.request.id: change for change in changes if change.kind is sets.EventKind.ACCEPTED}:
        _open(session, accepted)
    if withdrawn := {change.request.id: change.at for change in changes if change.kind in _WITHDRAWN}:
        query = sa.select(AttestedWait).where(AttestedWait.request_id.in_(withdrawn), AttestedWait.status == _IS_OPEN)
        for wait in session.scalars(query):
            wait.status, wait.ended_at = CANCELLED, withdrawn[wait.request_id]


def _open(session: Session, accepted: Mapping[str, history.Change]) -> None:
    trainers = _in_use(session, {change.request.tenant_id for change in accepted.values()})
    if not trainers:
        return
    # A restored request may have its waits already.
    present = set(session.scalars(sa.select(AttestedWait.request_id).where(AttestedWait.request_id.in_(accepted))))
    rows = [
        AttestedWait(
            tenant_id=change.request.tenant_id,
            request_id=change.request.id,
            trainer_id=trainer.id,
            status=OPEN,
            asked_at=max(change.at, change.request.held_until or change.at),
        )
        for change in accepted.values()
        if change.request.id not in present
        for trainer in _concerned(trainers, change.request)
    ]
    bulk.store(session, AttestedWait, rows)


def _in_use(session: Session, tenant_ids: Collection[str]) -> list[AttestedTrainer]:
    if not _ANY_IN_USE.may_hold(session):
        return []
    query = sa.select(AttestedTrainer).where(
        AttestedTrainer.tenant_id.in_(tenant_ids), AttestedTrainer.retired_at.is_(None)
    )
    return list(session.scalars(query.order_by(AttestedTrainer.id)))


def _concerned(trainers: Sequence[AttestedTrainer], request: DeletionRequest) -> list[AttestedTrainer]:
    """Return the trainers that may read rows about the request's person, judging by the datasets alone."""
    return [
        trainer
        for trainer in trainers
        if trainer.tenant_id == request.tenant_id and service.may_concern(trainer.dataset_ids, request)
    ]


def close(session: Session, trainer: AttestedTrainer, *, request_id: str) -> None:
    """Stop a request from waiting for a trainer, and record the trainer as not reached. Repeating the call is a no-op.
    Raises `RequestUnknown`, and `SystemTaskEnded` if the wait has ended in another way."""
    key = {"request_id": request_id, "trainer_id": trainer.id}
    wait = problems.RequestUnknown.if_none(session.get(AttestedWait, key, with_for_update=True), request_id=request_id)
    if wait.status == CLOSED:
        return
    if wait.status != OPEN:
        raise SystemTaskEnded(task_id=request_id, status=wait.status)
    wait.status, wait.ended_at = CLOSED, now(session)
    audit.record(session, "attested_trainer.wait_closed", trainer.id, request_id=request_id)
    service.complete(session, [request_id])


def digest(keys: Keys, trainer: AttestedTrainer, subject_ref: str) -> str:
    """Return the digest (hex) that stands for a person in a trainer's manifests. It cannot be computed without the
    installation's key, and different trainers' digests of a person cannot be linked."""
    return keys.fingerprint(b"attested_trainer", trainer.id.encode(), subject_ref.encode())[:40]


def forbidden(session: Session, trainer: AttestedTrainer, *, at: datetime.datetime) -> set[str]:
    """Return the pseudonyms of everyone whose rows the trainer must not read at `at`: people with a waiting request,
    and suppressed people unless their request is in its grace period at that time."""
    held = sa.select(AttestedWait.request_id).where(AttestedWait.trainer_id == trainer.id, AttestedWait.asked_at > at)
    suppressed = sa.select(Suppression.subject_ref).where(
        Suppression.tenant_id == trainer.tenant_id, Suppression.created_at <= at, Suppression.request_id.not_in(held)
    )
    if trainer.dataset_ids is not None:
        suppressed = suppressed.where(Suppression.dataset_id.in_([search_repository.ANYWHERE, *trainer.dataset_ids]))
    waiting = sa.select(DeletionRequest).join(AttestedWait, AttestedWait.request_id == DeletionRequest.id)
    waiting = waiting.where(*_due(trainer, at=at))
    return {
        *session.scalars(suppressed),
        *(ref for request in session.scalars(waiting) for ref in request.subject_refs),
    }


def _due(trainer: AttestedTrainer, *, at: datetime.datetime) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the SQL conditions for the open waits that a retraining would serve if it read its rows at `at`."""
    return AttestedWait.trainer_id == trainer.id, AttestedWait.status == _IS_OPEN, AttestedWait.asked_at <= at


def accept(
    session: Session, keys: Keys, trainer: AttestedTrainer, *, jws: str, identifiers: Sequence[str]
) -> AttestedManifest:
    """Accept a locked trainer's manifest, and serve all requests that were waiting when its rows were read. Repeating
    the call returns the same manifest. Raises `ManifestRefused`, naming the failed check."""
    mine = AttestedManifest.trainer_id == trainer.id
    accepted = session.scalars(sa.select(AttestedManifest).where(mine, AttestedManifest.jws == jws)).first()
    if accepted is not None:
        return accepted
    stated = _stated(trainer, jws)
    read_at = datetime.datetime.fromisoformat(stated["rows_read_at"])
    _check_identifiers(stated, identifiers)
    _check_time(session, trainer, read_at)
    if not {digest(keys, trainer, ref) for ref in forbidden(session, trainer, at=read_at)}.isdisjoint(identifiers):
        _refuse("people_left_out", "the rows of somebody who is to be forgotten were read; train without them")
    _check_artefacts(session, stated)
    at = now(session)
    manifest = AttestedManifest(
        id=new_id("mft"),
        tenant_id=trainer.tenant_id,
        trainer_id=trainer.id,
        public_key=trainer.public_key,
        jws=jws,
        rows_read_at=read_at,
        accepted_at=at,
        num_served=0,
        **{name: stated[name] for name in ("retraining_id", "identifiers_sha256", "num_identifiers", "artefacts")},
    )
    session.add(manifest)
    session.flush()
    session.add_all(
        AttestedArtefact(tenant_id=trainer.tenant_id, manifest_id=manifest.id, sha256=sha256)
        for sha256 in manifest.artefacts
    )
    trainer.retraining_id = new_id("rtn")
    served = session.scalars(sa.select(AttestedWait).where(*_due(trainer, at=read_at)).with_for_update()).all()
    for wait in served:
        wait.status, wait.ended_at, wait.manifest_id = SERVED, at, manifest.id
    manifest.num_served = len(served)
    audit.record(session, "attested_trainer.manifest_accepted", trainer.id, manifest_id=manifest.id, served=len(served))
    service.complete(session, [wait.request_id for wait in served])
    return manifest


def _refuse(check: str, reason: str) -> NoReturn:
    raise contract.ManifestRefused(
        "The manifest is refused and serves nobody, because it fails the check {check}.",
        [problems.FieldError(check, reason)],
        check=check,
    )


def _stated(trainer: AttestedTrainer, jws: str) -> dict[str, Any]:
    """Return the signed header of a manifest; the manifest must be for the trainer's current retraining."""
    try:
        stated = manifests.read(jws, trainer.public_key)
    except PreconditionError as error:
        raise problems.InputInvalid("The manifest is malformed.", [problems.FieldError("jws", error.detail)]) from None
    if stated is None:
        _refuse("manifest_signed", "expected a signature by the key of the trainer")
    if stated["trainer_id"] != trainer.id:
        _refuse("manifest_of_trainer", "the manifest is that of another trainer")
    if stated["retraining_id"] != trainer.retraining_id:
        _refuse("manifest_current", "expected the present retraining_id of the trainer; each serves once")
    return stated


def _check_identifiers(stated: Mapping[str, Any], identifiers: Sequence[str]) -> None:
    is_list = all(first < second for first, second in itertools.pairwise(identifiers))
    named = len(identifiers), manifests.digest_of(identifiers)
    if not is_list or named != (stated["num_identifiers"], stated["identifiers_sha256"]):
        _refuse("identifiers_signed", "expected the sorted list whose number and digest the header states")


def _check_time(session: Session, trainer: AttestedTrainer, read_at: datetime.datetime) -> None:
    if read_at > now(session):
        _refuse("rows_read_before", "rows_read_at is in the future; take read_at of the call for digests")
    earlier = latest_manifest(session, trainer)
    if earlier is not None and read_at <= earlier.rows_read_at:
        _refuse("rows_read_after_request", "the rows are not newer than those of the last manifest; read them again")
    waiting = _due(trainer, at=now(session))
    first = session.scalar(sa.select(sa.func.min(AttestedWait.asked_at)).where(*waiting))
    if first is not None and read_at < first:
        _refuse("rows_read_after_request", "the rows are older than every request that waits; read them again")


def _check_artefacts(session: Session, stated: Mapping[str, Any]) -> None:
    """Refuse artefacts destroyed in Lethe, or named in an earlier manifest of another trainer or with other people."""
    destroyed = (
        sa.select(Version.weights_sha256)
        .join(Model, Model.id == Version.model_id)
        .where(Version.weights_sha256.in_(stated["artefacts"]), Version.status == sets.VersionStatus.DESTROYED)
    )
    earlier = (
        sa.select(AttestedArtefact.sha256)
        .join(AttestedManifest, AttestedManifest.id == AttestedArtefact.manifest_id)
        .where(
            AttestedArtefact.sha256.in_(stated["artefacts"]),
            sa.or_(
                AttestedManifest.trainer_id != stated["trainer_id"],
                AttestedManifest.identifiers_sha256 != stated["identifiers_sha256"],
            ),
        )
    )
    if session.scalars(destroyed.limit(1)).first() or session.scalars(earlier.limit(1)).first():
        _refuse("artefacts_new", "an artefact was destroyed, or comes from a retraining that read other people")


def planned(session: Session, trainer: AttestedTrainer) -> list[PlannedRetraining]:
    """Return the fewest retrainings of a trainer that meet all deadlines, earliest first."""
    query = (
        sa.select(AttestedWait.asked_at, DeletionRequest.deadline)
        .join(DeletionRequest, DeletionRequest.id == AttestedWait.request_id)
        .where(AttestedWait.trainer_id == trainer.id, AttestedWait.status == _IS_OPEN)
    )
    lead = datetime.timedelta(days=trainer.lead_days)
    waits = [
        WaitInterval(asked_at=asked_at, latest_at=deadline - lead) for asked_at, deadline in session.execute(query)
    ]
    return plan(waits, at=now(session))


def to_announce(session: Session) -> list[str]:
    """Return the ids of trainers to be notified that a retraining is due, is due earlier than announced, or is late."""
    asked = sa.select(AttestedWait.trainer_id).where(
        AttestedWait.status == _IS_OPEN, AttestedWait.asked_at <= now(session)
    )
    trainers = session.scalars(
        sa.select(AttestedTrainer).where(AttestedTrainer.id.in_(asked)).order_by(AttestedTrainer.id)
    )
    return [trainer.id for trainer in trainers if _news(session, trainer) is not None]


def _news(session: Session, trainer: AttestedTrainer) -> dict[str, Any] | None:
    """Return a trainer's pending notification; None if the trainer has already received it."""
    due, *later = planned(session, trainer)
    news = {
        "api_version": webhooks.API_VERSION,
        "trainer_id": trainer.id,
        "retraining_id": trainer.retraining_id,
        "latest_at": due.latest_at.astimezone(datetime.UTC).isoformat(),
        "late": due.late,
        "num_waiting": due.num_waiting,
        "num_planned": 1 + len(later),
    }
    told = trainer.announced
    if told is None or told["retraining_id"] != trainer.retraining_id:
        return news
    is_earlier = not told["late"] and due.latest_at < datetime.datetime.fromisoformat(told["latest_at"])
    return news if is_earlier or (due.late and not told["late"]) else None


def announce(session: Session, trainer_id: str) -> None:
    """Send a trainer its pending notification, if any. The webhook names no request and no person."""
    trainer = get(session, trainer_id, lock=True)
    waiting = sa.select(DeletionRequest).join(AttestedWait, AttestedWait.request_id == DeletionRequest.id)
    waiting = waiting.where(*_due(trainer, at=now(session))).order_by(DeletionRequest.deadline, DeletionRequest.id)
    carrier = session.scalars(waiting.limit(1)).first()
    news = _news(session, trainer) if carrier is not None else None
    if carrier is None or news is None or trainer.address.is_damaged:
        return
    at = now(session)
    body = json.dumps({"type": DUE, "timestamp": at.isoformat(), "data": news}, separators=(",", ":"))
    trainer.announced = news
    webhooks.send_all(
        session, [webhooks.WebhookMessage(request=carrier, urls=[trainer.address.url], event=DUE, body=body, at=at)]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtefactServing:
    """Permission to serve an artefact until `valid_until`, or the `reason` why it must not be served."""

    artefact_sha256: str
    trainer_id: str | None
    reason: contract.ServingReason | None
    valid_until: datetime.datetime | None

    @property
    def may_serve(self) -> bool:
        return self.reason is None


def serving(session: Session, *, artefact_sha256: str) -> ArtefactServing:
    """Return whether an artefact may be served. If several trainers made it, all of them must allow it."""
    query = (
        sa.select(AttestedManifest.trainer_id, sa.func.max(AttestedManifest.rows_read_at))
        .join(AttestedArtefact, AttestedArtefact.manifest_id == AttestedManifest.id)
        .where(AttestedArtefact.sha256 == artefact_sha256)
        .group_by(AttestedManifest.trainer_id)
        .order_by(AttestedManifest.trainer_id)
    )
    reason: contract.ServingReason | None = contract.ServingReason.UNKNOWN
    trainer_id, until = None, now(session) + _MAX_LEASE
    for trainer_id, read_at in session.execute(query):
        reason, deadline = _permission(session, trainer_id, read_at)
        if reason is not None:
            break
        until = min(filter(None, (until, deadline)))
    return ArtefactServing(
        artefact_sha256=artefact_sha256, trainer_id=trainer_id, reason=reason, valid_until=None if reason else until
    )


def _permission(
    session: Session, trainer_id: str, read_at: datetime.datetime
) -> tuple[contract.ServingReason | None, datetime.datetime | None]:
    """Return why an artefact made from rows read at `read_at` must not be served, and the next deadline, if any."""
    of_trainer = AttestedWait.trainer_id == trainer_id
    carried = AttestedWait.asked_at > read_at
    # A retraining since the backup may have served requests that are still open in a restored database.
    restored = sa.exists().where(AttestedTrainer.id == trainer_id, AttestedTrainer.restored_at > read_at)
    was_served = sa.or_(AttestedWait.status == SERVED, sa.and_(AttestedWait.status == _IS_OPEN, restored))
    served = sa.select(AttestedWait.request_id).where(of_trainer, carried, was_served).limit(1)
    if session.scalars(served).first() is not None:
        return contract.ServingReason.SUPERSEDED, None
    owed = sa.or_(AttestedWait.status == _IS_OPEN, sa.and_(carried, AttestedWait.status == CLOSED))
    query = sa.select(sa.func.min(DeletionRequest.deadline)).join(
        AttestedWait, AttestedWait.request_id == DeletionRequest.id
    )
    deadline = session.scalar(query.where(of_trainer, owed))
    return (
        (contract.ServingReason.OVERDUE, None)
        if deadline is not None and deadline <= now(session)
        else (None, deadline)
    )


def doubt_artefacts(session: Session) -> None:
    """Forbid serving pre-restore artefacts that may have been trained on rows covered by waiting requests."""
    session.execute(sa.update(AttestedTrainer).values(restored_at=now(session)))


def _check(session: Session, row: AttestedTrainer) -> None:
    """Raise `InputInvalid` if the trainer's key is unusable or one of its datasets is unknown."""
    faults = []
    if not service.is_usable(row.public_key):
        faults.append(
            problems.FieldError("public_key", "expected the base64url of an Ed25519 public key of large order")
        )
    faults += service.unknown_datasets(session, row.dataset_ids)
    if faults:
        raise problems.InputInvalid("The trainer cannot be registered as it is.", faults)
