"""Lineage of a person's rows: the models and versions trained on them, and exported copies of these versions. Also
permission to serve a version, which is refused if the version was trained on a person whose request is overdue.

A person erased at revision r of a dataset is in a version trained at revision v if and only if v < r.
"""

import datetime
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.access.service import Caller
from app.audit import service as audit
from app.catalogue import repository as catalogue_repository, service as catalogue
from app.db import actor, now
from app.db.tables import Certificate, DeletionRequest, Model, Version, new_id
from app.features.lineage import repository, tables
from lethe.contract import problems, sets
from lethe.features.lineage.contract import CopyStatementIn, ExportUnknown, ServingRefusal

_SHOWN = 500
"""Maximum number of versions, and of copies, shown for one model; the model's own lists show the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstWithout:
    """First version of a model without the person's rows, and its certificate, if any."""

    version: Version
    certificate: Certificate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLineage:
    """Lineage of one model. `num_versions`: number of versions with the person's rows; these are always the first
    versions. `num_copies_outside`: number of exports of these versions. `versions` and `copies_outside` list only the
    newest. `owed`: True if the next version must exclude the rows."""

    model: Model
    num_versions: int
    versions: list[Version]
    first_without: FirstWithout | None
    owed: bool
    num_copies_outside: int
    copies_outside: list[tables.Export]


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonLineage:
    """Lineage of a person's rows across all datasets concerned."""

    datasets: list[repository.Presence]
    models: list[ModelLineage]


def of_request(session: Session, request: DeletionRequest) -> PersonLineage:
    """Return the lineage of a request's person, limited to the datasets that the request concerns."""
    dataset_ids = repository.dataset_ids(session, request_id=request.id)
    presences = repository.presences(session, subject_refs=request.subject_refs)
    concerned = [presence for presence in presences if presence.id in dataset_ids]
    return _of(session, request.subject_refs, concerned, request_id=request.id)


def of_person(session: Session, *, subject_ref: str) -> PersonLineage:
    """Return a person's lineage across all of the tenant's datasets."""
    return _of(session, [subject_ref], repository.presences(session, subject_refs=[subject_ref]), request_id=None)


def _of(
    session: Session, subject_refs: Collection[str], datasets: list[repository.Presence], *, request_id: str | None
) -> PersonLineage:
    of_dataset = {presence.id: presence for presence in datasets}
    asked_models = repository.asked_models(session, subject_refs=subject_refs)
    signed: dict[tuple[str, int], Certificate] = {}
    for certificate in repository.certificates(session, subject_refs=subject_refs):
        place = certificate.model_id, certificate.version
        if certificate.request_id == request_id or place not in signed:
            signed[place] = certificate
    models = [
        _of_model(session, model, of_dataset[model.dataset_id].revision, signed, is_asked=model.id in asked_models)
        for model in repository.models(session, dataset_ids=of_dataset.keys())
    ]
    return PersonLineage(datasets=datasets, models=[model for model in models if model is not None])


def _of_model(
    session: Session, model: Model, revision: int | None, signed: dict[tuple[str, int], Certificate], *, is_asked: bool
) -> ModelLineage | None:
    """Return one model's lineage; None if the rows were erased before its first version."""
    num_carrying, carried_in = repository.carried_in(session, model_id=model.id, revision=revision, limit=_SHOWN)
    if not num_carrying and not is_asked and revision is not None:
        return None
    without = None if revision is None else repository.first_without(session, model_id=model.id, revision=revision)
    signed_for = signed.get((model.id, without.number)) if without else None
    num_copies, copies = repository.copies(session, model_id=model.id, up_to=num_carrying, limit=_SHOWN)
    return ModelLineage(
        model=model,
        num_versions=num_carrying,
        versions=carried_in,
        first_without=FirstWithout(version=without, certificate=signed_for) if without else None,
        owed=is_asked and without is None,
        num_copies_outside=num_copies,
        copies_outside=copies,
    )


def record_export(session: Session, version: Version) -> dict[str, str]:
    """Record that the session's actor exports a version's weights; return the export's id for the audit log."""
    by = actor(session)
    export = tables.Export(
        id=new_id("exp"),
        tenant_id=by.tenant_id,
        model_id=version.model_id,
        version=version.number,
        api_key_id=by.name,
        at=now(session),
    )
    session.add(export)
    return {"export_id": export.id}


def state_copy(
    session: Session, *, model_id: str, export_id: str, stated: CopyStatementIn, caller: Caller
) -> tables.Export:
    """Replace the statement about a copy with `stated`. Repeating the call is a no-op. Raises `ExportUnknown`,
    `VersionUnknown`, and `ScopeMissing` unless the caller received the copy or is an admin."""
    export = session.get(tables.Export, export_id)
    if export is None or export.model_id != model_id:
        raise ExportUnknown(export_id=export_id)
    if export.api_key_id not in (caller.id, caller.maker):
        caller.require(sets.Scope.ADMIN)
    if stated.replaced_by is not None:
        catalogue.get_version(session, model_id=model_id, number=stated.replaced_by)
    statement = dict(stated) | {"stated_by": actor(session).name}
    if any(getattr(export, name) != value for name, value in statement.items()):
        for name, value in statement.items():
            setattr(export, name, value)
        export.stated_at = now(session)
        audit.record(session, "export.stated", export.id, **stated.model_dump(mode="json"))
    return export


_MAX_LEASE = datetime.timedelta(hours=1)
_ASK_AGAIN_SECONDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Permission to serve a version until `valid_until`, or the reason why it is refused. `certified`: True if the
    version has forgotten everyone whose request was accepted. `retry_after_seconds`: time after which to ask again if
    the version may not be served yet. `fresh_seconds`: lifetime of a permission."""

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
    """Return the permission to serve the live version or a given version (number or hash). Raises `VersionUnknown`."""
    version = _version(session, model, number=number, weights_sha256=weights_sha256)
    at = now(session)
    deadline = repository.first_deadline_owed(session, model) if model.live_version else None
    reason = _refusal(version, is_overdue=deadline is not None and deadline <= at)
    until = min(filter(None, (at + _MAX_LEASE, deadline)))
    waits = reason in (ServingRefusal.NOT_LIVE, ServingRefusal.HELD, ServingRefusal.FORGETTING_OVERDUE)
    return Serving(
        model_id=model.id,
        version=version.number if version else None,
        weights_sha256=version.weights_sha256 if version else None,
        reason=reason,
        certified=version is not None and version.status == sets.VersionStatus.LIVE and deadline is None,
        valid_until=None if reason else until,
        retry_after_seconds=_ASK_AGAIN_SECONDS if waits else None,
        fresh_seconds=0 if reason else int((until - at).total_seconds()),
    )


def _version(session: Session, model: Model, *, number: int | None, weights_sha256: str | None) -> Version | None:
    if number is None and weights_sha256 is None:
        return catalogue_repository.live_version(session, model)
    version = repository.version_named(session, model_id=model.id, number=number, weights_sha256=weights_sha256)
    if version is None:
        raise problems.VersionUnknown.never(model_id=model.id)
    return version


def _refusal(version: Version | None, *, is_overdue: bool) -> ServingRefusal | None:
    if version is None:
        return ServingRefusal.NOT_LIVE
    match version.status:
        case sets.VersionStatus.LIVE if version.held:
            return ServingRefusal.HELD
        case sets.VersionStatus.LIVE:
            return ServingRefusal.FORGETTING_OVERDUE if is_overdue else None
        case sets.VersionStatus.DESTROYED:
            return ServingRefusal.WEIGHTS_DESTROYED
        case _:
            return ServingRefusal.SUPERSEDED
