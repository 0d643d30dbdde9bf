"""Model as loaded by MLflow: its weights, its public encoding, and its public network if it has one.

`lethe.mlflow` copies this file and the modules it imports into every model it registers, as a package under another
name. Serving a model therefore requires numpy but not Lethe; a model on a network's features also requires onnxruntime,
and a tangent model torch and onnx. A test checks that predictions equal those of `app.catalogue.evaluation`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.contract.problems import Problem
from lethe.encoding.rows import checked_vectors, unit_rows
from lethe.encoding.schema import stored
from lethe.encoding.targets import y_of_scores
from lethe.features.networks.encoding import FeatureNetwork


def _load_pyfunc(path: str) -> "Served":
    """Load a model. MLflow calls this function."""
    from safetensors.numpy import load_file

    folder = Path(path)
    about = json.loads((folder / "model.json").read_text())
    parameters = load_file(folder / "parameters.safetensors")["parameters"]
    linearisation, encoder = about.pop("linearisation"), about.pop("encoder")
    if linearisation:
        from lethe.features.networks.tangents.graph import Graph
        from lethe.features.networks.tangents.model import Tangent, scores
        from lethe.proof.network import Linearisation

        num_scores = 1 if len(about["classes"]) == 2 else len(about["classes"])
        graph = Graph((folder / "network.onnx").read_bytes())
        tangent = Tangent(graph, Linearisation.from_json(linearisation), num_scores=num_scores)
        return Served(lambda encoded: scores(tangent, parameters, encoded), **about)
    if encoder:
        about["network"] = FeatureNetwork((folder / "network.onnx").read_bytes(), **encoder)
    return Served(lambda encoded: linear_scores(parameters, encoded), **about)


class Served:
    """Model that MLflow serves.

    `scores` maps rows (n, d) to scores (n, 1) or (n, C), and raises ValueError if d is wrong. The model has `classes`,
    or a `target` with its range; `loss_width` is None for objectives without a width. `schema` is None if records are
    vectors, and `network` is None if rows are not a network's features.
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
        """Return each record's label and class probabilities, its labels, or its value, in the gateway's format.

        `records` is a data frame, a list of dicts or vectors, or an array (n, d).

        Raises:
            ValueError: for records that do not fit the model; the message names the location but quotes no value.
        """
        scores = self._scores(self._encoded(records))
        if self._target is not None:
            low, high = self._target["min"], self._target["max"]
            y = y_of_scores(scores[:, 0], objective=self._objective, loss_width=self._loss_width)
            values = low + (np.clip(y, -1, 1) + 1) / 2 * (high - low)
            return [{"value": value} for value in values.tolist()]
        if self._objective == "multilabel_logistic_regression":
            rows = (0.5 * (1 + np.tanh(scores / 2))).tolist()
            chances = [dict(zip(self._classes, row, strict=True)) for row in rows]
            return [
                {"labels": [label for label, chance in row.items() if chance > 0.5], "probabilities": row}
                for row in chances
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
                raw = self._schema.raw_records([_plain(record) for record in objects])
        except Problem as problem:
            raise ValueError(problem.line) from None
        return unit_rows(self._network.features(raw) if self._network else raw)


def linear_scores(parameters: NDArray[np.float64], rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the scores w.x of rows (n, d) under weights (c, d)  # (n, c)"""
    if rows.shape[1] != parameters.shape[1]:
        raise ValueError(f"Expected vectors of {parameters.shape[1] - 1} finite numbers")
    return np.asarray(np.einsum("nd,cd->nc", rows.astype(np.float64, order="C"), parameters))


def _plain(record: Any) -> Any:
    """Return a record with Python values in place of numpy values. In a mapping, NaN and NaT (missing) become None."""
    if isinstance(record, Mapping):
        return {name: _value(value) for name, value in record.items()}
    return record.tolist() if isinstance(record, np.ndarray) else record


def _value(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    # NaN and NaT differ from themselves.
    return None if value is not None and not isinstance(value, list) and value != value else value


def _softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the class probabilities for scores (n, C), or (n, 1) if they are scores of the second of two classes."""
    if scores.shape[1] == 1:
        scores = np.hstack((np.zeros_like(scores), scores))
    chances: NDArray[np.float64] = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    return chances
