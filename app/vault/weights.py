"""Weights at rest: each version sealed under its own key, so that destroying the key destroys the version.

Key and object are durable before a version is published. See `app/vault/sealing.py`.
"""

import numpy as np
from safetensors.numpy import load, save

from app.errors import WeightsUnreadable
from app.vault.sealing import Sealed
from lethe.contract.problems import WeightsDestroyed


class WeightStore:
    """Sealed versions."""

    def __init__(self, sealed: Sealed) -> None:
        self._sealed = sealed

    def put(self, version_id: str, weights: bytes) -> None:
        """Seal `weights` (safetensors bytes); durable when this returns."""
        self._sealed.put(version_id, weights)

    def get(self, version_id: str) -> bytes:
        """The safetensors bytes. Raises `WeightsDestroyed` if they are gone, `WeightsUnreadable` if damaged."""
        try:
            return self._sealed.get(version_id)
        except FileNotFoundError as error:
            raise WeightsDestroyed(f"The weights of {version_id} were destroyed.") from error
        except ValueError as error:
            raise WeightsUnreadable(
                f"The weights of {version_id} do not open; restore them, object and key."
            ) from error

    def destroy(self, version_id: str) -> None:
        """Overwrite and remove the key, then remove the object. Does nothing to a version that is not there."""
        self._sealed.destroy(version_id)

    def version_ids(self) -> set[str]:
        """Every version of which anything is left."""
        return set(self._sealed.names())


def to_safetensors(parameters: np.ndarray) -> bytes:  # (classes or 1, d + 1) float64
    """The published form: one tensor `parameters`, a row per class (one row if there are two), bias last."""
    return save({"parameters": np.ascontiguousarray(parameters, dtype=np.float64)})


def from_safetensors(weights: bytes) -> np.ndarray:  # (classes or 1, d + 1) float64
    """Inverse of `to_safetensors`."""
    return load(weights)["parameters"]
