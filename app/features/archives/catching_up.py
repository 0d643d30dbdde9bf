"""Corrections to a restored database: requests that are missing or outdated, and retirements since the backup.

Requests are restored from copies kept outside the database. These copies have no callback URLs and no texts by callers.
"""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.access import service as access
from app.audit import service as audit
from app.catalogue import repository as catalogue_repository, service as catalogue
from app.db import now, sealed, tables
from app.deletion import (
    claims,
    completion,
    history,
    repository,
    retention,
    search_repository,
    service as deletion,
    status,
)
from app.deletion.remembered import REMEMBERED, Remembered
from app.features.archives import service as archives
from app.unlearning import retirement
from lethe.contract import problems, sets

_RESTORED = "restored"
_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Result of `catch_up`: the numbers of requests recreated and updated."""

    made: int
    changed: int


def catch_up(session: Session, remembered: Sequence[Remembered]) -> Again:
    """Bring a restored database's requests up to date with the copies kept outside it: update the requests that it has,
    and recreate missing ones with their original ids and deadlines unless they were withdrawn.

    The work done since the backup is lost, so people forgotten since then must be forgotten again.
    """
    recreated = changed = 0
    for first in range(0, len(remembered), _AT_ONCE):
        batch = remembered[first : first + _AT_ONCE]
        present = repository.requests_by_id(session, {copy.id for copy in batch})
        unknown = [copy for copy in batch if copy.id not in present and _must_restore(copy)]
        recreated += _recreate_all(session, unknown)
        changed += sum(_update(session, present[copy.id], copy) for copy in batch if copy.id in present)
    return Again(made=recreated, changed=changed)


def _must_restore(remembered: Remembered) -> bool:
    return (
        remembered.status in status.OPEN | {sets.RequestStatus.COMPLETED}
        and remembered.subject_ref != search_repository.UNKNOWN_SUBJECT
    )


def _recreate_all(session: Session, remembered: Sequence[Remembered]) -> int:
    at = now(session)
    lookup = repository.look_up(session, subject_refs={ref for copy in remembered for ref in copy.subject_refs})
    requests = [_recreate(session, copy, lookup, at=at) for copy in remembered]
    completion.store(session, requests, at=at, new=True)
    session.flush()
    return len(requests)


def _recreate(
    session: Session, remembered: Remembered, lookup: repository.Lookup, *, at: datetime.datetime
) -> completion.Submitted:
    values = {name: getattr(remembered, name) for name in REMEMBERED if name != "status"}
    request = tables.DeletionRequest(
        **values,
        status=sets.RequestStatus.RECEIVED,
        particulars=sealed.Particulars(),
        kept=retention.kept(sealed.Particulars()),
    )
    created = history.Change(
        request=request,
        kind=sets.EventKind.RECEIVED,
        status=sets.RequestStatus.RECEIVED,
        actor=audit.SERVICE,
        at=at,
        verb=_RESTORED,
    )
    new = completion.Submitted(actor=audit.SERVICE, request=request, changes=[created])
    if remembered.status == sets.RequestStatus.IN_REVIEW:
        completion.change(new, sets.RequestStatus.IN_REVIEW, at=at)
    else:
        _accept(session, new, lookup, at=at)
    return new


def _update(session: Session, request: tables.DeletionRequest, remembered: Remembered) -> bool:
    """Update an open request to match its copy, and return True if it changed. Ended requests are left unchanged."""
    if request.status not in status.OPEN:
        return False
    at = now(session)
    if remembered.status in (sets.RequestStatus.CANCELLED, sets.RequestStatus.REJECTED):
        return _withdraw(session, request, remembered)
    is_changed = False
    for name in ("due_at", "extended_due_at", "deadline", "paused_at", "held_until"):
        is_changed |= getattr(request, name) != getattr(remembered, name)
        setattr(request, name, getattr(remembered, name))
    if request.status == sets.RequestStatus.IN_REVIEW and remembered.status != sets.RequestStatus.IN_REVIEW:
        new = completion.Submitted(actor=audit.SERVICE, request=request)
        lookup = repository.look_up(session, subject_refs=request.subject_refs)
        _accept(session, new, lookup, at=at)
        completion.store(session, [new], at=at)
        return True
    return is_changed


def _withdraw(session: Session, request: tables.DeletionRequest, remembered: Remembered) -> bool:
    """Withdraw a request; return False if its rows have since been claimed for another of the person's requests."""
    try:
        deletion.withdraw(session, request, sets.RequestStatus(remembered.status), verb=_RESTORED, discreet=False)
    except problems.TransitionForbidden:
        return False
    request.rejection_ground = remembered.rejection_ground
    return True


def _accept(session: Session, new: completion.Submitted, lookup: repository.Lookup, *, at: datetime.datetime) -> None:
    """Accept the request again without a new grace period."""
    policy = access.policy_of(session, new.request.tenant_id).model_copy(update={"grace_seconds": 0})
    completion.accept(new, lookup, policy=policy, at=at)


def retire_again(session: Session, retired_id: str) -> None:
    """Retire a restored model or dataset again, even if requests are waiting for it; retirement fulfils them."""
    try:
        model = catalogue.get_model(session, retired_id)
    except problems.ModelUnknown:
        dataset = catalogue_repository.dataset(session, retired_id)
        if dataset is not None:
            _retire_dataset_again(session, dataset)
    else:
        _retire_model_again(session, model)


def _retire_model_again(session: Session, model: tables.Model) -> None:
    dataset = session.get_one(tables.Dataset, model.dataset_id)
    claims.give_up_model(session, model_id=model.id, revision=dataset.revision)
    retirement.release_model(session, model)
    model.destroyed_at = model.retired_at


def _retire_dataset_again(session: Session, dataset: tables.Dataset) -> None:
    for model in catalogue_repository.users_of(session, dataset_id=dataset.id):
        _retire_model_again(session, model)
    claims.confirm_erasures(session, dataset=dataset)
    archives.drop_unclaimed(session, dataset_id=dataset.id)
    retirement.release_dataset(session, dataset)
    dataset.destroyed_at = dataset.retired_at
