"""The model that MLflow loads: its weights and its public encoding, in numpy alone.

This file travels inside every model that `lethe.mlflow` registers, so it imports nothing of Lethe. It encodes as
`app.rows.encoding` does and predicts as `app.catalogue.prediction` does; a test holds them together.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

_SHRINK = 1 - 2.0**-20
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NO_CODE = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,99})(?:\.[0-9]{1,100})?(?:[eE][+-]?[0-9]{1,3})?")


def _load_pyfunc(path: str) -> "Classifier":
    """Load a model for MLflow, which calls this."""
    folder = Path(path)
    about = json.loads((folder / "model.json").read_text())
    parameters = load_file(folder / "parameters.safetensors")["parameters"]
    return Classifier(parameters, classes=about["classes"], schema=about["schema"])


class Classifier:
    """`schema`: of the dataset, where records are objects by column name; None where they are vectors."""

    def __init__(
        self, parameters: NDArray[np.float64], *, classes: Sequence[str], schema: Mapping[str, Any] | None
    ) -> None:
        self._parameters = parameters
        self._classes = list(classes)
        self._schema = schema

    def predict(self, records: Any, params: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """For each record its label and the probability of each class, as the gateway answers.

        `records`: a data frame, a list of objects or vectors, or an array (n, d). Raises `ValueError`, which names a
        place and quotes nothing, for records that the model was not made for.
        """
        scores = np.einsum("nd,cd->nc", self._encoded(records).astype(np.float64, order="C"), self._parameters)
        chances = _softmax(scores)
        return [
            {
                "label": self._classes[int(row.argmax())],
                "probabilities": dict(zip(self._classes, row.tolist(), strict=True)),
            }
            for row in chances
        ]

    def _encoded(self, records: Any) -> NDArray[np.float32]:
        if self._schema is not None:
            objects = records.to_dict("records") if hasattr(records, "to_dict") else records
            return _unit_rows(_features(objects, self._schema["columns"], edition=self._schema.get("encoding", 1)))
        vectors = np.asarray(records, dtype=np.float64)
        width = self._parameters.shape[1] - 1
        if vectors.ndim != 2 or vectors.shape[1] != width or not np.isfinite(vectors).all():
            raise ValueError(f"Expected vectors of {width} finite numbers")
        return _unit_rows(vectors)


def _features(records: Any, columns: Mapping[str, Mapping[str, Any]], *, edition: int) -> NDArray[np.float64]:
    if edition not in (1, 2):
        raise ValueError("Expected a schema of encoding 1 or 2: this file is older than the model beside it")
    if not all(isinstance(record, Mapping) for record in records):
        raise ValueError("Expected records that are objects by column name")
    if not all(record.keys() <= columns.keys() for record in records):
        raise ValueError("Expected only columns of the schema")
    encoders: dict[str, Callable[..., NDArray[np.float64]]] = {"numeric": _numeric, "categorical": _categorical}
    encoded = [
        encoders[spec["kind"]](name, spec, [_plain(record.get(name)) for record in records], edition=edition)
        for name, spec in sorted(columns.items())
        if "kind" in spec
    ]
    return np.hstack(encoded)


def _numeric(name: str, spec: Mapping[str, Any], values: list[Any], *, edition: int) -> NDArray[np.float64]:
    low, high = float(spec["min"]), float(spec["max"])
    numbers = np.array([_number(value) for value in values], dtype=np.float64)
    missing = np.isnan(numbers)
    outside = (numbers < low) | (numbers > high)
    _refuse(name, missing & (spec.get("unknown", "error") == "error"), "a value")
    _refuse(name, np.isinf(numbers), "a finite number")
    _refuse(name, outside & (spec.get("outside", "error") == "error"), f"a number from {low:g} to {high:g}")
    scaled = (np.clip(numbers, low, high) - low) / (high - low)
    features = np.where(missing, 0.0, scaled)[:, np.newaxis]
    says_missing = edition > 1 and spec.get("unknown", "error") == "null"
    return np.column_stack((features, missing)) if says_missing else features


def _categorical(name: str, spec: Mapping[str, Any], values: list[Any], *, edition: int) -> NDArray[np.float64]:
    position = {value: code for code, value in enumerate(spec["values"])}
    equal = _by_number(spec["values"]) if edition > 1 else {}

    def code(value: Any) -> int:
        found = position.get(_text(value), -1)
        return found if found >= 0 else equal.get(_exactly(value), -1)

    codes = np.array([code(value) for value in values], dtype=np.int64)
    _refuse(name, (codes < 0) & (spec.get("unknown", "error") == "error"), "one of the values in the schema")
    one_hot: NDArray[np.bool_] = codes[:, np.newaxis] == np.arange(len(position))
    return one_hot.astype(np.float64)


def _refuse(name: str, wrong: NDArray[np.bool_], expected: str) -> None:
    if wrong.any():
        raise ValueError(f"Expected in record {int(wrong.argmax())}, column {name}: {expected}")


def _plain(value: Any) -> Any:
    """A Python value: a data frame's gaps are None, its scalars Python's."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, str | int | float) or value is None:
        return value
    return None if value != value else value  # NaT, and what is like it


def _number(value: object) -> float:
    """NaN for what is missing, infinity for what is no finite number."""
    if value is None or value == "":
        return math.nan
    if isinstance(value, str):
        if _NUMBER.fullmatch(value):
            return float(value)
        return math.nan if value.lower() == "nan" else math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.inf
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | str) else None


def _by_number(names: Sequence[str]) -> dict[Decimal | None, int]:
    """The place of each name that is a number which no other name is."""
    exact = [_exactly(name) for name in names]
    times = Counter(exact)
    return {number: code for code, number in enumerate(exact) if number is not None and times[number] == 1}


def _exactly(value: object) -> Decimal | None:
    """The number that a value is, without rounding; None for what is no finite number, and for a code such as 007."""
    if isinstance(value, str):
        return Decimal(value) if _NO_CODE.fullmatch(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return Decimal(repr(value))


def _unit_rows(features: NDArray[np.float64]) -> NDArray[np.float32]:
    """Rows of norm <= 1, the bias last  # (n, d + 1)."""
    rows = np.ones((len(features), features.shape[1] + 1))
    rows[:, :-1] = features
    rows /= np.abs(rows).max(axis=1, keepdims=True, initial=1.0)
    rows *= _SHRINK / np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    return rows.astype("<f4")


def _softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The probabilities of (n, C) scores; of (n, 1), those of the second class of two."""
    if scores.shape[1] == 1:
        scores = np.hstack((np.zeros_like(scores), scores))
    chances: NDArray[np.float64] = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    return chances
