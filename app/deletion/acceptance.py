"""Accepting a request: what it asks of which datasets and models follows from what is held at that moment."""

import datetime
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.db import bulk
from app.db.tables import DeletionRequest, Erasure, RequestAlias, RequestModel, new_id
from app.deletion import completion, deadlines, history, repository, status, suppression
from app.deletion.history import Change
from app.deletion.lookup import Followed, LookedUp
from lethe.contract.policy import Policy
from lethe.contract.sets import Outcome, RequestModelStatus, RequestStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A request, what it asks of datasets and of models, and what happened to it now."""

    actor: str
    request: DeletionRequest
    erasures: list[Erasure]
    models: list[RequestModel]
    changes: list[Change]


def is_anything_held(request: DeletionRequest, found: LookedUp) -> bool:
    """About the subject, where the request asks: rows, or rows that are being erased."""
    there = [*found.held(request.subject_refs), *found.followed(request.subject_refs)]
    return any(completion.asks_for(request, dataset_id) for dataset_id in there)


def accept(new: Submitted, found: LookedUp, *, policy: Policy, at: datetime.datetime, verb: str | None = None) -> None:
    """Ask for the rows of everybody's datasets, and of the models that may carry them, from the end of the grace time.

    Where nothing is held, or everything is gone, and there is no grace time, the request completes at once; but not
    where records are damaged, so that nobody can tell.
    """
    request = new.request
    if policy.grace_seconds or verb:  # after a review the time of acceptance is when work could begin
        latest = max(at, request.deadline - deadlines.BEFORE_THE_DEADLINE)  # a grace time delays nothing past the law
        request.held_until = min(at + datetime.timedelta(seconds=policy.grace_seconds), latest)
    request.reported_at = completion.report_at(request, policy=policy)
    ask(new, found)
    change(new, RequestStatus.ACCEPTED, at=at, verb=verb)
    if completion.is_in_doubt(request, found.doubtful):
        request.doubted_at = at
    elif not completion.is_held(request, at=at) and (ended := outcome(new, found)) is not None:
        new.changes.append(completion.complete(request, policy=policy, at=at, outcome=ended))


def ask(new: Submitted, found: LookedUp, *, besides: Collection[str] = ()) -> None:
    """Ask for the person's rows in all datasets `besides` some, and of the models that may carry them."""
    request = new.request
    holding = sorted(found.held(request.subject_refs) - set(besides))
    for dataset_id in holding:
        if completion.asks_for(request, dataset_id):
            _want(new, dataset_id, models=found.models.get(dataset_id, ()))
    for dataset_id, first in found.followed(request.subject_refs).items():
        if completion.asks_for(request, dataset_id) and dataset_id not in {*holding, *besides}:
            _want(new, dataset_id, models=first.models, first=first)


def outcome(new: Submitted, found: LookedUp) -> Outcome | None:
    """The outcome of a request that asks for nothing; None for one that does."""
    if not new.erasures:
        return Outcome.NOTHING_HELD
    if new.models or not all(erasure.nulled_at for erasure in new.erasures):
        return None
    followed = found.followed(new.request.subject_refs)
    is_weak = any(followed[erasure.dataset_id].widened for erasure in new.erasures)
    return Outcome.TARGET_WIDENED if is_weak else Outcome.FORGOTTEN


def change(new: Submitted, wanted: RequestStatus, *, at: datetime.datetime, verb: str | None = None) -> None:
    """Change the status of a request; what happened is told when it is stored. Raises `TransitionForbidden`."""
    status.check(new.request.status, wanted)
    new.request.status = wanted
    kind = status.entered(wanted)
    new.changes.append(Change(request=new.request, kind=kind, status=wanted, actor=new.actor, at=at, verb=verb))


def store(session: Session, submitted: Sequence[Submitted], *, at: datetime.datetime, new: bool = False) -> None:
    """Store what was asked, and tell what happened, of requests that are stored, or are `new` and stored with it."""
    changes = [change for one in submitted for change in one.changes]
    with bulk.together(session):
        if new:
            bulk.store(session, DeletionRequest, [one.request for one in submitted])
            bulk.store(session, RequestAlias, [alias for one in submitted for alias in _aliases(one.request)])
        history.record(session, changes)
        store_asked(session, submitted)
        accepted = [one.request for one in submitted if one.request.status != RequestStatus.IN_REVIEW]
        suppression.add(session, accepted, at=at)
    history.announce(session, changes)


def store_asked(session: Session, submitted: Sequence[Submitted]) -> None:
    """Store what is asked of datasets and models, for requests that are stored."""
    for one in submitted:
        repository.line_up(one.request, one.erasures)
    bulk.store(session, Erasure, [erasure for one in submitted for erasure in one.erasures])
    bulk.store(session, RequestModel, [model for one in submitted for model in one.models])


def _aliases(request: DeletionRequest) -> list[RequestAlias]:
    return [bulk.new(RequestAlias, request_id=request.id, subject_ref=ref) for ref in request.alias_refs or ()]


def _want(new: Submitted, dataset_id: str, *, models: Sequence[str], first: Followed | None = None) -> None:
    """Ask for one dataset's rows and of the models that may carry them; or join `first`, which has claimed the rows."""
    new.erasures.append(
        bulk.new(
            Erasure,
            id=new_id("era"),
            request_id=new.request.id,
            dataset_id=dataset_id,
            revision=first and first.revision,
            num_records=first and first.num_records,
            num_claimed=0,
            nulled_at=first and first.nulled_at,
        )
    )
    new.models.extend(
        bulk.new(
            RequestModel,
            request_id=new.request.id,
            model_id=model_id,
            status=RequestModelStatus.PENDING,
            requested_at=new.request.created_at,
        )
        for model_id in models
    )
