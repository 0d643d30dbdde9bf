"""The model that MLflow loads: its weights and its public encoding, and the network that it stands on.

This file travels inside every model that `lethe.mlflow` registers, with the modules that it imports, under a name of
their own: to serve the model takes numpy and nothing of Lethe; a model on a network's features takes onnxruntime too, a
tangent model torch and onnx. It predicts as `app.catalogue.prediction` does; a test holds them together.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.contract.problems import Problem
from lethe.encoding.networks import FeatureNetwork
from lethe.encoding.rows import checked_vectors, unit_rows
from lethe.encoding.schema import stored
from lethe.encoding.targets import y_of_scores


def _load_pyfunc(path: str) -> "Served":
    """Load a model for MLflow, which calls this."""
    from safetensors.numpy import load_file

    folder = Path(path)
    about = json.loads((folder / "model.json").read_text())
    parameters = load_file(folder / "parameters.safetensors")["parameters"]
    linearisation, encoder = about.pop("linearisation"), about.pop("encoder")
    if linearisation:
        from lethe.proof.network import Linearisation
        from lethe.tangents import rows
        from lethe.tangents.graph import Graph
        from lethe.tangents.model import Tangent

        num_scores = 1 if len(about["classes"]) == 2 else len(about["classes"])
        graph = Graph((folder / "network.onnx").read_bytes())
        tangent = Tangent(graph, Linearisation.from_json(linearisation), num_scores=num_scores)
        return Served(lambda encoded: rows.scores(tangent, parameters, encoded), **about)
    if encoder:
        about["network"] = FeatureNetwork((folder / "network.onnx").read_bytes(), **encoder)
    return Served(lambda encoded: linear_scores(parameters, encoded), **about)


class Served:
    """`scores`: from rows (n, d) to their scores (n, 1) or (n, C); ValueError for another d. `classes` of what is
    learned, or the range of its `target`. `loss_width`: of the objective, where it has one. `schema`: of the dataset,
    where records are objects by column name; None where they are vectors. `network`: that of which the rows are
    features; None where they are the numbers themselves.
    """

    def __init__(
        self,
        scores: Callable[[NDArray[np.float32]], NDArray[np.float64]],
        *,
        objective: str,
        classes: Sequence[str],
        target: Mapping[str, float] | None,
        schema: Mapping[str, Any] | None,
        network: FeatureNetwork | None = None,
        loss_width: float | None = None,
    ) -> None:
        self._scores = scores
        self._objective = objective
        self._classes = list(classes)
        self._target = target
        self._schema = stored(dict(schema)) if schema else None
        self._network = network
        self._loss_width = loss_width

    def predict(self, records: Any, params: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """For each record its label and the probability of each class, its labels, or its value, as the gateway does.

        `records`: a data frame, a list of objects or vectors, or an array (n, d). Raises `ValueError`, which names a
        place and quotes nothing, for records that the model was not made for.
        """
        scores = self._scores(self._encoded(records))
        if self._target is not None:
            low, high = self._target["min"], self._target["max"]
            y = y_of_scores(scores[:, 0], objective=self._objective, loss_width=self._loss_width)
            values = low + (np.clip(y, -1, 1) + 1) / 2 * (high - low)
            return [{"value": value} for value in values.tolist()]
        if self._objective == "multilabel_logistic_regression":
            each = [dict(zip(self._classes, row, strict=True)) for row in (0.5 * (1 + np.tanh(scores / 2))).tolist()]
            return [
                {"labels": [name for name, chance in one.items() if chance > 0.5], "probabilities": one} for one in each
            ]
        return [
            {
                "label": self._classes[int(row.argmax())],
                "probabilities": dict(zip(self._classes, row.tolist(), strict=True))
                if self._objective == "logistic_regression"
                else None,
            }
            for row in _softmax(scores)
        ]

    def _encoded(self, records: Any) -> NDArray[np.float32]:
        try:
            if self._schema is None:
                raw = checked_vectors(records)
            else:
                objects = records.to_dict("records") if hasattr(records, "to_dict") else records
                raw = self._schema.raw_records([_plain(one) for one in objects])
        except Problem as problem:
            raise ValueError(problem.line) from None
        return unit_rows(self._network.features(raw) if self._network else raw)


def linear_scores(parameters: NDArray[np.float64], rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """The scores w.x of rows (n, d) under weights (c, d)  # (n, c)"""
    if rows.shape[1] != parameters.shape[1]:
        raise ValueError(f"Expected vectors of {parameters.shape[1] - 1} finite numbers")
    return np.asarray(np.einsum("nd,cd->nc", rows.astype(np.float64, order="C"), parameters))


def _plain(record: Any) -> Any:
    """A record of Python's values: those of a data frame are numpy's, and its gaps are NaN or NaT."""
    if isinstance(record, Mapping):
        return {name: _value(value) for name, value in record.items()}
    return record.tolist() if isinstance(record, np.ndarray) else record


def _value(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    return None if value is not None and not isinstance(value, list) and value != value else value  # NaN, NaT


def _softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The probabilities of (n, C) scores; of (n, 1), those of the second class of two."""
    if scores.shape[1] == 1:
        scores = np.hstack((np.zeros_like(scores), scores))
    chances: NDArray[np.float64] = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    return chances
