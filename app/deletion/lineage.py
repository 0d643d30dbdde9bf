"""Lineage of one person's rows: the models and versions that they fed, and the copies of those that went out.

A person erased at revision r of a dataset is in a version that was made at revision v if and only if v < r.
"""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.db.tables import Certificate, DeletionRequest, Export, Model, Version
from app.deletion import lineage_repository as repository
from app.deletion.lineage_repository import Presence

_SHOWN = 500
"""Versions and copies of one model; the lists of the model have the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstWithout:
    """The first version of a model that lacks the person, and what was signed about it."""

    version: Version
    certificate: Certificate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLineage:
    """The lineage of one model. Its versions from the first on carried the person's rows, `num_carrying` of them;
    `carried_in` and `copies` (of these versions, handed out) are the newest. `owes`: its next version must lack
    them."""

    model: Model
    num_carrying: int
    carried_in: list[Version]
    first_without: FirstWithout | None
    owes: bool
    num_copies: int
    copies: list[Export]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    datasets: list[Presence]
    models: list[ModelLineage]


def of_request(session: Session, request: DeletionRequest) -> Lineage:
    """The lineage of the person, in the datasets that the request asks."""
    asked = repository.dataset_ids(session, request_id=request.id)
    here = [
        found for found in repository.presences(session, subject_refs=request.subject_refs) if found.dataset_id in asked
    ]
    return _of(session, request.subject_refs, here, request_id=request.id)


def of_person(session: Session, *, subject_ref: str) -> Lineage:
    """The lineage of the person, in all datasets of the tenant."""
    return _of(session, [subject_ref], repository.presences(session, subject_refs=[subject_ref]), request_id=None)


def _of(
    session: Session, subject_refs: Collection[str], datasets: list[Presence], *, request_id: str | None
) -> Lineage:
    of_dataset = {presence.dataset_id: presence for presence in datasets}
    asked = repository.asked_models(session, subject_refs=subject_refs)
    signed: dict[tuple[str, int], Certificate] = {}
    for certificate in repository.certificates(session, subject_refs=subject_refs):
        place = certificate.model_id, certificate.version
        if certificate.request_id == request_id or place not in signed:
            signed[place] = certificate
    models = [
        _of_model(session, model, of_dataset[model.dataset_id].revision, signed, is_asked=model.id in asked)
        for model in repository.models(session, dataset_ids=of_dataset.keys())
    ]
    return Lineage(datasets=datasets, models=[found for found in models if found is not None])


def _of_model(
    session: Session,
    model: Model,
    revision: int | None,
    signed: dict[tuple[str, int], Certificate],
    *,
    is_asked: bool,
) -> ModelLineage | None:
    """None for a model that began when the rows were gone."""
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
