"""`/models/{id}`: quality gates, what they hold back, and remedies."""

from fastapi import APIRouter

from app.api import models
from app.api.calls import Call
from app.api.gateway import serves
from app.catalogue import quality
from app.catalogue import service as catalogue
from app.unlearning import remedies
from lethe.contract import gates as contract
from lethe.contract.gates import ModelChangeIn
from lethe.contract.models import ModelOut
from lethe.contract.quality import RemediesOut, RemedyOut

router = APIRouter()


@serves(router, contract.UPDATE)
def update_model(call: Call, model_id: str, body: ModelChangeIn) -> ModelOut:
    with call.writing() as session:
        model = catalogue.get_model(session, model_id)
        catalogue.require_kept(model)
        is_evaluated = model.evaluation_dataset_id is not None
        gate = quality.stored_gate(body.quality, catalogue.mechanism_of(model), is_evaluated=is_evaluated)
        quality.set_gate(session, model, gate)
    return models.get_model(call, model_id)


@serves(router, contract.REMOVE_GATE)
def remove_gate(call: Call, model_id: str) -> ModelOut:
    with call.writing() as session:
        model = catalogue.get_model(session, model_id)
        catalogue.require_kept(model)
        quality.set_gate(session, model, None)
    return models.get_model(call, model_id)


@serves(router, contract.RELEASE)
def release_version(call: Call, model_id: str, number: models.Number) -> ModelOut:
    with call.writing() as session:
        version = catalogue.get_version(session, model_id=model_id, number=number)
        catalogue.require_live(version)
        quality.release(session, catalogue.get_model(session, model_id), version)
    return models.get_model(call, model_id)


@serves(router, contract.REMEDIES)
def list_remedies(call: Call, model_id: str) -> RemediesOut:
    with call.reading() as session:
        model = catalogue.get_model(session, model_id)
        catalogue.require_kept(model)
        mechanism, epsilon, delta = catalogue.mechanism_of(model), model.epsilon, model.delta
    return RemediesOut(
        model_id=model_id,
        score_noise=remedies.score_noise(mechanism),
        noise_is_felt=remedies.is_noise_felt(mechanism),
        remedies=[
            RemedyOut(
                kind=one.kind,
                num_slots=one.mechanism.num_slots,
                l2=one.mechanism.l2,
                score_noise=remedies.score_noise(one.mechanism),
                learn_passes=one.learn_passes,
                request_passes=one.request_passes,
                reason=one.reason,
            )
            for one in remedies.remedies(mechanism, epsilon=epsilon, delta=delta)
        ],
    )
