"""`/models/{id}/predictions`: the live version of a model, asked about records."""

import contextlib
from typing import Any

import numpy as np
from fastapi import APIRouter

from app.api.calls import Call
from app.api.gateway import serves
from app.catalogue import datasets
from app.catalogue import service as catalogue
from app.catalogue.prediction import label_probabilities, probabilities, scores
from app.db.tables import Dataset, Model, Version
from app.encoders import running
from app.errors import WeightsUnreadable
from app.vault import weights
from lethe.contract import models as contract
from lethe.contract.models import (
    LabelsOut,
    PredictionOut,
    PredictionsIn,
    PredictionsOut,
    ValueOut,
)
from lethe.contract.problems import FieldError, InputInvalid, TangentServedElsewhere, WeightsDestroyed
from lethe.encoders.rows import NOT_FINITE
from lethe.encoding import schema as schemas
from lethe.encoding.rows import checked_vectors, unit_rows
from lethe.encoding.targets import y_of_scores
from lethe.proof.losses import Objective

_MOST_FAULTS = 10
router = APIRouter()


@serves(router, contract.PREDICT)
def predict(call: Call, model_id: str, body: PredictionsIn) -> PredictionsOut:
    model, dataset, version, content = _live(call, model_id)
    if catalogue.mechanism_of(model).is_tangent:
        raise TangentServedElsewhere(
            f"Model {model_id} goes through a network, which the gateway does not run: serve it with lethe.mlflow, or"
            " compute its scores with lethe.tangents."
        )
    features = _encode(call, dataset, body.records)
    parameters = weights.from_safetensors(content)
    if target := datasets.target_of(dataset):
        said = catalogue.mechanism_of(model)
        found = scores(parameters, features)[:, 0]
        y = y_of_scores(found, objective=said.objective, loss_width=said.loss_width)
        values = target.values(y).tolist()
        return PredictionsOut(version=version.number, predictions=[ValueOut(value=value) for value in values])
    if datasets.has_labels(dataset):
        chances = label_probabilities(parameters, features).tolist()
        each = [dict(zip(dataset.classes, row, strict=True)) for row in chances]
        return PredictionsOut(
            version=version.number,
            predictions=[
                LabelsOut(labels=[name for name, chance in one.items() if chance > 0.5], probabilities=one)
                for one in each
            ],
        )
    known = catalogue.mechanism_of(model).objective is Objective.LOGISTIC_REGRESSION
    predictions = [
        PredictionOut(
            label=dataset.classes[int(row.argmax())],
            probabilities=dict(zip(dataset.classes, row.tolist(), strict=True)) if known else None,
        )
        for row in probabilities(parameters, features, len(dataset.classes))
    ]
    return PredictionsOut(version=version.number, predictions=predictions)


def _live(call: Call, model_id: str) -> tuple[Model, Dataset, Version, bytes]:
    """The live version of a model, its weights and its dataset; the next one, if it is superseded while it is read."""
    while True:
        with call.reading() as session:
            model = catalogue.get_model(session, model_id)
            version = catalogue.get_live_version(session, model)
            dataset = datasets.get(session, model.dataset_id)
        with contextlib.suppress(WeightsDestroyed):
            return model, dataset, version, catalogue.read_weights(call.installation.weights, version)
        with call.reading() as session:
            if catalogue.get_live_version(session, catalogue.get_model(session, model_id)).id == version.id:
                raise WeightsUnreadable(f"The weights of the live version {version.id} are missing; restore them.")


def _encode(
    call: Call, dataset: Dataset, records: list[dict[str, Any] | list[float]]
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The records as the dataset's rows were encoded. Raises `InputInvalid`, `NetworkFailed`."""
    if dataset.network_id is None:
        return unit_rows(_raw(dataset, records, dataset.num_features))
    with call.reading() as session:
        network = running.opened(session, call.installation.settings, dataset.network_id)
    raw = _raw(dataset, records, network.input_size)
    with network.started() as encoder:
        features = encoder.encode(raw)
    wrong = np.flatnonzero(~np.isfinite(features).all(axis=1)).tolist()
    if wrong:
        faults = [FieldError(f"records.{place}", NOT_FINITE) for place in wrong[:_MOST_FAULTS]]
        raise InputInvalid("The network computes numbers that are not finite.", faults)
    return unit_rows(features.astype(np.float64))


def _raw(
    dataset: Dataset, records: list[dict[str, Any] | list[float]], num_numbers: int
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The numbers of each record, before its row is scaled; without a schema, so many. Raises `InputInvalid`."""
    if dataset.schema is not None:
        schema = schemas.stored(dataset.schema)
        if not schema.takes_vectors and not all(isinstance(record, dict) for record in records):
            raise InputInvalid("Send each record as an object of columns.", [FieldError("records", "expected objects")])
        return schema.raw_records(records)
    if not all(isinstance(record, list) and len(record) == num_numbers for record in records):
        expected = f"expected vectors of {num_numbers} numbers"
        raise InputInvalid(f"This dataset has no schema: {expected}.", [FieldError("records", expected)])
    return checked_vectors([record for record in records if isinstance(record, list)])
