"""Sealed objects: each under its own data key, so that destroying the small key destroys every copy of the object.

An object is stored as `<name>.sealed` (AES-256-GCM, with the name authenticated), next to a file `<name>.key`, which
contains its data key wrapped by the key-encryption key. The key is written first and destroyed first. Only the keys'
folder must erase reliably; backups, replicas and old versions of an object may remain, but cannot be opened. The key
and the object of a version's weights are durable before the version is published.
"""

import datetime
import errno
import secrets
from collections.abc import Collection, Iterator, Set
from pathlib import Path

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from safetensors.numpy import load, save

from app import errors, folders
from app.keys import KeyEncryption, KeyEncryptionKeyLost
from app.vault.store import ObjectStore, checked, created, locked, replace, sync_folder, wipe_file, written_at
from lethe.contract.problems import WeightsDestroyed

_NONCE = 12
_KEY = 32
_SEALED = ".sealed"
_WRAPPED = ".key"


class SealedStore:
    """Object store whose objects are sealed. The wrapped keys are in a folder that all hosts share."""

    def __init__(self, objects: ObjectStore, *, keys: Path, key_encryption: KeyEncryption) -> None:
        self._objects = objects
        self._keys = keys
        self._key_encryption = key_encryption
        folders.make(keys)

    def put(self, name: str, content: bytes) -> None:
        """Seal an object durably, and verify it by opening it; raise `OSError` if it differs. An existing object of the
        same name is destroyed first."""
        if self._key_path(name).exists():
            self.destroy(name)
        key, nonce = secrets.token_bytes(_KEY), secrets.token_bytes(_NONCE)
        self._put_key(name, key)
        self._objects.create(name + _SEALED, nonce + AESGCM(key).encrypt(nonce, content, name.encode()))
        try:
            stored = self.get(name)
        except ValueError:
            stored = None
        if stored != content:
            raise OSError(errno.EIO, "Something was sealed and something else was read back", name)

    def get(self, name: str) -> bytes:
        """Return an object; raise `FileNotFoundError` if it or its key is missing, `ValueError` if it is damaged."""
        key, sealed = self._key(name), memoryview(self._objects.get(name + _SEALED))
        try:
            return AESGCM(key).decrypt(sealed[:_NONCE], sealed[_NONCE:], name.encode())
        except InvalidTag as error:
            raise ValueError(f"{name} is damaged.") from error

    def is_key_there(self, name: str) -> bool:
        return self._key_path(name).exists()

    def is_key_damaged(self, name: str) -> bool:
        """Return True if an object's stored key cannot be unwrapped."""
        try:
            self._key(name)
        except ValueError:
            return True
        return False

    def destroy(self, name: str) -> None:
        """Overwrite and remove an object's key, then delete the object. Missing objects are ignored."""
        # Without the lock, a concurrent `rewrap` that has read the key could write it back.
        with locked(self._keys):
            self._wipe_key(name)
        self._objects.delete(name + _SEALED)

    def destroy_all(self, names: Collection[str]) -> None:
        """Destroy several objects. All keys are destroyed before the store is accessed."""
        with locked(self._keys):
            for name in names:
                self._wipe_key(name)
        for name in names:
            self._objects.delete(name + _SEALED)

    def destroy_group(self, group: str, *, but: Set[str] = frozenset()) -> None:
        """Destroy all objects in a group except those in `but`. All keys are destroyed before the store is accessed."""
        unwanted = self.keys(group) - but
        self.destroy_all(unwanted)
        for name in self.names(group).keys() - unwanted - but:
            self._objects.delete(name + _SEALED)

    def keys(self, group: str) -> set[str]:
        """Return the names of a group's objects that have a key and can therefore be opened."""
        return {path.name.removesuffix(_WRAPPED) for path in self._key_paths(f"{group}.*")}

    def names(self, group: str | None = None) -> dict[str, datetime.datetime]:
        """Return the names, all or one group's, for which a key or an object exists, each with its last write time."""
        listed = self._objects.names(group).items()
        times = {name.removesuffix(_SEALED): at for name, at in listed if name.endswith(_SEALED)}
        for name, at in written_at(self._key_paths("[!.]*" if group is None else f"{group}.*")):
            name = name.removesuffix(_WRAPPED)
            times[name] = max(at, times.get(name, at))
        return times

    def empty(self) -> bool:
        """Return True if there are no keys, in which case no key-encryption key is needed yet."""
        return not any(self._key_paths("[!.]*"))

    def rewrap(self) -> None:
        """Rewrap every key under the current key-encryption key. Calls that seal objects block until this finishes."""
        with locked(self._keys):
            for path in self._key_paths("[!.]*"):
                name = path.name.removesuffix(_WRAPPED)
                try:
                    key = self._key_encryption.unwrap(path.read_bytes(), name)
                except ValueError:
                    # Skip a key that a crash truncated, because it opens nothing.
                    continue
                self._temporary(name).unlink(missing_ok=True)
                with created(self._temporary(name)) as file:
                    file.write(self._key_encryption.wrap(key, name))
                replace(self._temporary(name), path)

    def _key(self, name: str) -> bytes:
        wrapped = self._key_path(name).read_bytes()
        while True:
            try:
                return self._key_encryption.unwrap(wrapped, name)
            except (KeyEncryptionKeyLost, ValueError):
                rewrapped = self._key_path(name).read_bytes()
                # A difference means that `rewrap` replaced the key during the first read.
                if rewrapped == wrapped:
                    raise
                wrapped = rewrapped

    def _put_key(self, name: str, key: bytes) -> None:
        with locked(self._keys), created(self._key_path(name)) as file:
            file.write(self._key_encryption.wrap(key, name))
        sync_folder(self._keys)

    def _wipe_key(self, name: str) -> None:
        wipe_file(self._temporary(name))
        wipe_file(self._key_path(name))

    def _key_paths(self, pattern: str) -> Iterator[Path]:
        return self._keys.glob(pattern + _WRAPPED)

    def _key_path(self, name: str) -> Path:
        return self._keys / checked(name + _WRAPPED)

    def _temporary(self, name: str) -> Path:
        return self._keys / f".{name}{_WRAPPED}.next"


class WeightStore:
    """Store of versions' sealed weights."""

    def __init__(self, sealed: SealedStore) -> None:
        self._sealed = sealed

    def put(self, version_id: str, weights: bytes) -> None:
        """Seal `weights` (safetensors bytes) durably."""
        self._sealed.put(version_id, weights)

    def get(self, version_id: str) -> bytes:
        """Return a version's safetensors bytes. Raises `WeightsDestroyed`; `WeightsUnreadable` if damaged."""
        try:
            return self._sealed.get(version_id)
        except FileNotFoundError as error:
            raise WeightsDestroyed(version_id=version_id) from error
        except ValueError as error:
            raise errors.WeightsUnreadable(
                f"The weights of {version_id} do not open; restore them, object and key."
            ) from error

    def destroy(self, version_id: str) -> None:
        """Overwrite and remove the version's key, then remove its object. Missing versions are ignored."""
        self._sealed.destroy(version_id)

    def version_ids(self) -> set[str]:
        """Return the ids of all versions for which a key or an object exists."""
        return set(self._sealed.names())


def to_safetensors(parameters: np.ndarray) -> bytes:  # (classes or 1, d + 1) float64
    """Return parameters in their published form: a tensor `parameters` with one row per class (a single row for two
    classes), bias last."""
    return save({"parameters": np.ascontiguousarray(parameters, dtype=np.float64)})


def from_safetensors(weights: bytes) -> np.ndarray:  # (classes or 1, d + 1) float64
    """Return the parameters in published weights; this is the inverse of `to_safetensors`."""
    return load(weights)["parameters"]
