"""Weights at rest: each version sealed under its own key, so that destroying 32 bytes destroys the version.

A version is two files: `<version_id>.sealed` (AES-256-GCM of the safetensors bytes, the version id authenticated) and
`keys/<version_id>.key`. Both are on disk before a version is published; destroying overwrites the key first.
"""

import os
import secrets
from pathlib import Path

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from safetensors.numpy import load, save

from app.errors import WeightsDestroyed, WeightsUnreadable

_NONCE = 12
_KEY = 32


class WeightStore:
    """A local folder of sealed versions."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._keys = root / "keys"
        self._keys.mkdir(mode=0o700, parents=True, exist_ok=True)

    def put(self, version_id: str, weights: bytes) -> None:
        """Seal `weights` (safetensors bytes); durable when this returns."""
        key, nonce = secrets.token_bytes(_KEY), secrets.token_bytes(_NONCE)
        _write(self._key_path(version_id), key)
        _write(self._path(version_id), nonce + AESGCM(key).encrypt(nonce, weights, version_id.encode()))

    def get(self, version_id: str) -> bytes:
        """The safetensors bytes. Raises `WeightsDestroyed` if they are gone, `WeightsUnreadable` if damaged."""
        try:
            key, sealed = self._key_path(version_id).read_bytes(), self._path(version_id).read_bytes()
        except FileNotFoundError as error:
            raise WeightsDestroyed(f"The weights of {version_id} were destroyed.") from error
        try:
            return AESGCM(key).decrypt(sealed[:_NONCE], sealed[_NONCE:], version_id.encode())
        except (InvalidTag, ValueError) as error:
            raise WeightsUnreadable(f"The weights of {version_id} do not open; restore the weights folder.") from error

    def destroy(self, version_id: str) -> None:
        """Overwrite the key, then remove both files. Does nothing to a version that is not there."""
        key_path = self._key_path(version_id)
        if key_path.exists():
            with open(key_path, "r+b") as file:
                file.write(bytes(_KEY))
                file.flush()
                os.fsync(file.fileno())
            key_path.unlink()
        self._path(version_id).unlink(missing_ok=True)
        _sync(self._keys)
        _sync(self._root)

    def version_ids(self) -> set[str]:
        """Every version of which anything is on disk."""
        return {path.stem for path in (*self._root.glob("*.sealed"), *self._keys.glob("*.key"))}

    def _path(self, version_id: str) -> Path:
        return self._root / f"{version_id}.sealed"

    def _key_path(self, version_id: str) -> Path:
        return self._keys / f"{version_id}.key"


def to_safetensors(parameters: np.ndarray) -> bytes:  # (classes or 1, d + 1) float64
    """The published form: one tensor `parameters`, a row per class (one row if there are two), bias last."""
    return save({"parameters": np.ascontiguousarray(parameters, dtype=np.float64)})


def from_safetensors(weights: bytes) -> np.ndarray:  # (classes or 1, d + 1) float64
    """Inverse of `to_safetensors`."""
    return load(weights)["parameters"]


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    _sync(path.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
