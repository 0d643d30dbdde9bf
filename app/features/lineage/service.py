"""Lineage of one person's rows: the models and versions that they fed, and exported copies of these versions.

A person erased at revision r of a dataset is in a version that was made at revision v if and only if v < r.
"""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.db import actor, now
from app.db.tables import Certificate, DeletionRequest, Model, Version, new_id
from app.features.lineage import repository
from app.features.lineage.repository import Presence
from app.features.lineage.tables import Export

_SHOWN = 500
"""Maximum number of versions, and of copies, of one model; the lists of the model show the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstWithout:
    """First version of a model without the person's rows, and its certificate, if any."""

    version: Version
    certificate: Certificate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLineage:
    """Lineage of one model. `num_carrying`: number of versions with the person's rows, which are the first ones.
    `num_copies`: number of exports of these versions. `carried_in` and `copies` are the newest of them. `owes`: True if
    the next version must not have the rows."""

    model: Model
    num_carrying: int
    carried_in: list[Version]
    first_without: FirstWithout | None
    owes: bool
    num_copies: int
    copies: list[Export]


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonLineage:
    """Lineage of a person's rows over all datasets concerned."""

    datasets: list[Presence]
    models: list[ModelLineage]


def of_request(session: Session, request: DeletionRequest) -> PersonLineage:
    """Return the lineage of the person of a request, in the datasets that the request concerns."""
    dataset_ids = repository.dataset_ids(session, request_id=request.id)
    presences = repository.presences(session, subject_refs=request.subject_refs)
    concerned = [presence for presence in presences if presence.dataset_id in dataset_ids]
    return _of(session, request.subject_refs, concerned, request_id=request.id)


def of_person(session: Session, *, subject_ref: str) -> PersonLineage:
    """Return the lineage of a person, in all datasets of the tenant."""
    return _of(session, [subject_ref], repository.presences(session, subject_refs=[subject_ref]), request_id=None)


def _of(
    session: Session, subject_refs: Collection[str], datasets: list[Presence], *, request_id: str | None
) -> PersonLineage:
    of_dataset = {presence.dataset_id: presence for presence in datasets}
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
    session: Session,
    model: Model,
    revision: int | None,
    signed: dict[tuple[str, int], Certificate],
    *,
    is_asked: bool,
) -> ModelLineage | None:
    """Return the lineage of one model; None if it began after the rows were erased."""
    num_carrying, carried_in = repository.carried_in(session, model_id=model.id, revision=revision, limit=_SHOWN)
    if not num_carrying and not is_asked and revision is not None:
        return None
    without = None if revision is None else repository.first_without(session, model_id=model.id, revision=revision)
    signed_for = signed.get((model.id, without.number)) if without else None
    num_copies, copies = repository.copies(session, model_id=model.id, up_to=num_carrying, limit=_SHOWN)
    return ModelLineage(
        model=model,
        num_carrying=num_carrying,
        carried_in=carried_in,
        first_without=FirstWithout(version=without, certificate=signed_for) if without else None,
        owes=is_asked and without is None,
        num_copies=num_copies,
        copies=copies,
    )


def record_export(session: Session, version: Version) -> dict[str, str]:
    """Record that the session's actor gets the weights of a version; return the export's id for the audit log."""
    by = actor(session)
    export = Export(
        id=new_id("exp"),
        tenant_id=by.tenant_id,
        model_id=version.model_id,
        version=version.number,
        api_key_id=by.name,
        at=now(session),
    )
    session.add(export)
    return {"export_id": export.id}
