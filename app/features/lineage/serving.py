"""Permission to serve a version of a model: none with rows of a person whose request is past its deadline."""

import datetime
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.catalogue import repository as catalogue_repository
from app.db import now
from app.db.tables import Model, Version
from app.unlearning import due_repository
from lethe.contract.problems import VersionUnknown
from lethe.contract.sets import ServingRefusal, VersionStatus

_MAX_LEASE = datetime.timedelta(hours=1)
_ASK_AGAIN_SECONDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Permission to serve a version until `valid_until`, or the reason of its refusal. `certified`: True if the version
    has forgotten everybody whose request was accepted. `retry_after_seconds`: time after which to ask again about a
    version that may not be served yet. `fresh_seconds`: lifetime of a permission."""

    model_id: str
    version: int | None
    weights_sha256: str | None
    reason: ServingRefusal | None
    certified: bool
    valid_until: datetime.datetime | None
    retry_after_seconds: int | None
    fresh_seconds: int

    @property
    def may_serve(self) -> bool:
        return self.reason is None


def of_model(
    session: Session, model: Model, *, number: int | None = None, weights_sha256: str | None = None
) -> Serving:
    """Return the permission for the live version, or for the one with this number or hash. Raises `VersionUnknown`."""
    version = _version(session, model, number=number, weights_sha256=weights_sha256)
    at = now(session)
    deadline = due_repository.first_deadline_owed(session, model) if model.live_version else None
    reason = _refusal(version, is_overdue=deadline is not None and deadline <= at)
    until = min(filter(None, (at + _MAX_LEASE, deadline)))
    waits = reason in (ServingRefusal.NOT_LIVE, ServingRefusal.HELD, ServingRefusal.FORGETTING_OVERDUE)
    return Serving(
        model_id=model.id,
        version=version.number if version else None,
        weights_sha256=version.weights_sha256 if version else None,
        reason=reason,
        certified=version is not None and version.status == VersionStatus.LIVE and deadline is None,
        valid_until=None if reason else until,
        retry_after_seconds=_ASK_AGAIN_SECONDS if waits else None,
        fresh_seconds=0 if reason else int((until - at).total_seconds()),
    )


def _version(session: Session, model: Model, *, number: int | None, weights_sha256: str | None) -> Version | None:
    if number is None and weights_sha256 is None:
        return catalogue_repository.live_version(session, model)
    version = catalogue_repository.version_named(
        session, model_id=model.id, number=number, weights_sha256=weights_sha256
    )
    if version is None:
        raise VersionUnknown(f"Model {model.id} never had this version: it must not be served under its name.")
    return version


def _refusal(version: Version | None, *, is_overdue: bool) -> ServingRefusal | None:
    if version is None:
        return ServingRefusal.NOT_LIVE
    match version.status:
        case VersionStatus.LIVE if version.held:
            return ServingRefusal.HELD
        case VersionStatus.LIVE:
            return ServingRefusal.FORGETTING_OVERDUE if is_overdue else None
        case VersionStatus.DESTROYED:
            return ServingRefusal.WEIGHTS_DESTROYED
        case _:
            return ServingRefusal.SUPERSEDED
