"""Public networks in onnxruntime, run by the gateway (`encoders.child`) or to compute a served model's features.

Rows go through the network one by one, on a single CPU thread. A row's features are therefore the same as in the
gateway, whatever other rows are processed with it.
"""

import hashlib
import math
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

NO_TELEMETRY = "ORT_DISABLE_TELEMETRY"
"""Environment variable without which onnxruntime, on import, starts a thread that sends events to its vendor."""


class FeatureNetwork:
    """Network loaded from an ONNX file with a given SHA-256. Like the gateway, it encodes one row at a time."""

    def __init__(self, content: bytes, *, sha256: str) -> None:
        """Load the network. Raises `ValueError` if the file has a different SHA-256."""
        if hashlib.sha256(content).hexdigest() != sha256:
            raise ValueError(f"The network is not the one of SHA-256 {sha256} that the model stands on.")
        self._session = new_session(content)
        self._input = self._session.get_inputs()[0].name
        self._shape = tuple(self._session.get_inputs()[0].shape[1:])

    def features(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the features (n, k) computed from numbers (n, d) in the schema's order.

        Raises:
            ValueError: if rows have the wrong width, or the network computes a non-finite number (the message names the
                row). Messages quote no values.
        """
        if raw.shape[1] != math.prod(self._shape):
            raise ValueError(f"Expected vectors of {math.prod(self._shape)} finite numbers")
        rows = raw.astype(np.float32).reshape(-1, 1, *self._shape)
        outputs = [self._session.run(None, {self._input: row})[0] for row in rows]
        features: NDArray[np.float64] = np.concatenate(outputs).astype(np.float64)
        for row in np.flatnonzero(~np.isfinite(features).all(axis=1))[:1].tolist():
            raise ValueError(f"records.{row}: the network computes numbers that are not finite")
        return features


def new_session(content: bytes, *, keeps_memory: bool = True) -> Any:
    """Load a network into onnxruntime: deterministic, single-threaded and without telemetry."""
    os.putenv(NO_TELEMETRY, "1")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    options.enable_cpu_mem_arena = keeps_memory
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
