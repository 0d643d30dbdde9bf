"""Endpoints for quality gates and remedies, under `/models/{model_id}`."""

from typing import Annotated

from fastapi import APIRouter, Path
from sqlalchemy.orm import Session

from app.api import calls, gateway, models
from app.catalogue import service as catalogue
from app.db.tables import Model
from app.features.quality import gates as quality
from lethe.contract.models import ModelOut
from lethe.features.quality import contract

router = APIRouter()

VersionNumber = Annotated[models.Number, Path(description="Number of the version.")]


@gateway.serves(router, contract.UPDATE)
def update_model(call: calls.Call, model_id: str, body: contract.ModelChangeIn) -> ModelOut:
    with call.writing() as session:
        model = _kept(session, model_id)
        is_evaluated = model.evaluation_dataset_id is not None
        gate = catalogue.stored_gate(body.quality, catalogue.mechanism_of(model), is_evaluated=is_evaluated)
        quality.set_gate(session, model, gate)
    return models.get_model(call, model_id)


@gateway.serves(router, contract.REMOVE_GATE)
def remove_gate(call: calls.Call, model_id: str) -> ModelOut:
    with call.writing() as session:
        quality.set_gate(session, _kept(session, model_id), None)
    return models.get_model(call, model_id)


@gateway.serves(router, contract.RELEASE)
def release_version(call: calls.Call, model_id: str, number: VersionNumber) -> ModelOut:
    with call.writing() as session:
        version = catalogue.get_version(session, model_id=model_id, number=number)
        catalogue.require_live(version)
        quality.release(session, catalogue.get_model(session, model_id), version)
    return models.get_model(call, model_id)


@gateway.serves(router, contract.REMEDIES)
def list_remedies(call: calls.Call, model_id: str) -> contract.RemediesOut:
    with call.reading() as session:
        model = _kept(session, model_id)
        mechanism, epsilon, delta = catalogue.langevin_of(model), model.epsilon, model.delta
    return contract.RemediesOut(
        model_id=model_id,
        score_noise=quality.score_noise(mechanism),
        noise_is_felt=quality.is_noise_felt(mechanism),
        remedies=[
            contract.RemedyOut.of(
                remedy,
                num_slots=remedy.mechanism.num_slots,
                l2=remedy.mechanism.l2,
                score_noise=quality.score_noise(remedy.mechanism),
            )
            for remedy in quality.remedies(mechanism, epsilon=epsilon, delta=delta)
        ],
    )


def _kept(session: Session, model_id: str) -> Model:
    """Return a model that is not retired. Raises `ModelUnknown`, `ModelRetired`."""
    model = catalogue.get_model(session, model_id)
    catalogue.require_kept(model)
    return model


MOUNTS = (gateway.Mount(router=router),)
