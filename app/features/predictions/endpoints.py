"""Endpoint for predictions, under `/models/{model_id}`."""

import contextlib
from typing import Any

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray

from app.api import calls, gateway
from app.catalogue import datasets, prediction, service as catalogue
from app.db.tables import Dataset, Model, Version
from app.errors import WeightsUnreadable
from app.vault import sealing
from lethe.contract import problems
from lethe.encoding import rows, schema as schemas, targets
from lethe.features.predictions import contract
from lethe.proof.losses import Objective

router = APIRouter()


_MAX_FAULTS = 10


def label_probabilities(parameters: NDArray[np.float64], features: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return each label's independent probability 1 / (1 + exp(-score)) for each row, with shape (n, C)."""
    return np.asarray(0.5 * (1 + np.tanh(prediction.scores(parameters, features) / 2)))


@gateway.serves(router, contract.PREDICT)
def predict(call: calls.Call, model_id: str, body: contract.PredictionsIn) -> contract.PredictionsOut:
    model, dataset, version, content = _live(call, model_id)
    if catalogue.mechanism_of(model).is_tangent:
        raise contract.TangentServedElsewhere(model_id=model_id)
    features = _encode(call, dataset, body.records)
    parameters = sealing.from_safetensors(content)
    if target := datasets.target_of(dataset):
        mechanism = catalogue.mechanism_of(model)
        predicted = prediction.scores(parameters, features)[:, 0]
        y = targets.y_of_scores(predicted, objective=mechanism.objective, loss_width=mechanism.loss_width)
        values = target.values(y).tolist()
        return contract.PredictionsOut(
            version=version.number, predictions=[contract.ValueOut(value=value) for value in values]
        )
    if datasets.has_labels(dataset):
        chances = label_probabilities(parameters, features).tolist()
        by_label = [dict(zip(dataset.classes, row, strict=True)) for row in chances]
        return contract.PredictionsOut(
            version=version.number,
            predictions=[
                contract.LabelsOut(labels=[name for name, chance in row.items() if chance > 0.5], probabilities=row)
                for row in by_label
            ],
        )
    has_probabilities = catalogue.mechanism_of(model).objective is Objective.LOGISTIC_REGRESSION
    predictions = [
        contract.PredictionOut(
            label=dataset.classes[int(row.argmax())],
            probabilities=dict(zip(dataset.classes, row.tolist(), strict=True)) if has_probabilities else None,
        )
        for row in prediction.probabilities(parameters, features, len(dataset.classes))
    ]
    return contract.PredictionsOut(version=version.number, predictions=predictions)


def _live(call: calls.Call, model_id: str) -> tuple[Model, Dataset, Version, bytes]:
    """Return a model, its dataset, live version and weights; retry if the version is superseded during the read."""
    while True:
        with call.reading() as session:
            model = catalogue.get_model(session, model_id)
            version = catalogue.get_live_version(session, model)
            dataset = datasets.get(session, model.dataset_id)
        with contextlib.suppress(problems.WeightsDestroyed):
            return model, dataset, version, catalogue.read_weights(call.installation.weights, version)
        with call.reading() as session:
            if catalogue.get_live_version(session, catalogue.get_model(session, model_id)).id == version.id:
                raise WeightsUnreadable(f"The weights of the live version {version.id} are missing; restore them.")


def _encode(
    call: calls.Call, dataset: Dataset, records: list[dict[str, Any] | list[float]]
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Encode records in the same way as the dataset's rows. Raises `InputInvalid`, `NetworkFailed`."""
    if dataset.network_id is None:
        return rows.unit_rows(_raw(dataset, records, dataset.num_features))
    with call.reading() as session:
        network = datasets.network_keeper().opened(session, call.installation.settings, dataset.network_id)
    features = network.encode(_raw(dataset, records, network.input_size))
    wrong = np.flatnonzero(~np.isfinite(features).all(axis=1)).tolist()
    if wrong:
        faults = [problems.FieldError(f"records.{place}", rows.NOT_FINITE) for place in wrong[:_MAX_FAULTS]]
        raise problems.InputInvalid("The network computes numbers that are not finite.", faults)
    return rows.unit_rows(features.astype(np.float64))


def _raw(
    dataset: Dataset, records: list[dict[str, Any] | list[float]], num_numbers: int
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return each record as unscaled numbers (without a schema, `num_numbers` of them). Raises `InputInvalid`."""
    if dataset.schema is not None:
        schema = schemas.stored(dataset.schema)
        if not schema.takes_vectors and not all(isinstance(record, dict) for record in records):
            raise problems.InputInvalid(
                "Send each record as an object of columns.", [problems.FieldError("records", "expected objects")]
            )
        return schema.raw_records(records)
    if not all(isinstance(record, list) and len(record) == num_numbers for record in records):
        expected = f"expected vectors of {num_numbers} numbers"
        raise problems.InputInvalid.no_schema([problems.FieldError("records", expected)], expected=expected)
    return rows.checked_vectors([record for record in records if isinstance(record, list)])


MOUNTS = (gateway.Mount(router=router),)
