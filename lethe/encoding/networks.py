"""The public network of a model on features, run by onnxruntime as the gateway runs it (`lethe.encoders.child`).

Rows go through it in batches of one size, padded with zeros, on one thread of the CPU: the features of a row are those
that it has in the gateway, whatever else is in its batch.
"""

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


class FeatureNetwork:
    """The network of an ONNX file that must have this SHA-256. Raises `ValueError` where it has not.

    `batch_size`: that of the network's entry in the gateway.
    """

    def __init__(self, content: bytes, *, sha256: str, batch_size: int) -> None:
        if hashlib.sha256(content).hexdigest() != sha256:
            raise ValueError(f"The network is not the one of SHA-256 {sha256} that the model stands on.")
        self._session = _session(content)
        self._batch_size = batch_size
        self._input = self._session.get_inputs()[0].name
        self._shape = tuple(self._session.get_inputs()[0].shape[1:])

    def features(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """The features (n, k) of numbers (n, d), in the order in which the schema makes them.

        Raises `ValueError` where there are more or fewer numbers of a row than the network takes, or where it computes
        what is not finite: it names the row and quotes nothing.
        """
        if raw.shape[1] != math.prod(self._shape):
            raise ValueError(f"Expected vectors of {math.prod(self._shape)} finite numbers")
        rows = raw.astype(np.float32).reshape(-1, *self._shape)
        starts = range(0, len(rows), self._batch_size)
        found = np.concatenate([self._of_batch(rows[start : start + self._batch_size]) for start in starts])
        for row in np.flatnonzero(~np.isfinite(found).all(axis=1))[:1].tolist():
            raise ValueError(f"records.{row}: the network computes numbers that are not finite")
        return found

    def _of_batch(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        batch = np.zeros((self._batch_size, *self._shape), np.float32)
        batch[: len(rows)] = rows
        (output,) = self._session.run(None, {self._input: batch})
        return np.asarray(output[: len(rows)], np.float64)


def _session(content: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
