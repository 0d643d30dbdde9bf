"""Things at rest: each sealed under its own data key, so that destroying a few bytes here destroys it wherever it lies.

A thing is an object `<name>.sealed` of a store (AES-256-GCM, the name authenticated) and a file `<name>.key`, its data
key wrapped by the key-encryption key. The key is there first and goes first. Only the folder of keys must be able to
forget; of the object, backups, replicas and old versions may stay, and nobody can open them.
"""

import datetime
import errno
import secrets
from collections.abc import Collection, Iterator, Set
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app import folders
from app.keys import KeyEncryption, KeyEncryptionKeyLost
from app.vault.files import created, locked, replace, sync_folder, wipe_file, written_at
from app.vault.store import ObjectStore, checked

_NONCE = 12
_KEY = 32
_SEALED = ".sealed"
_WRAPPED = ".key"


class Sealed:
    """The sealed things of a store whose wrapped keys are in a folder, which all hosts share."""

    def __init__(self, objects: ObjectStore, *, keys: Path, key_encryption: KeyEncryption) -> None:
        self._objects = objects
        self._keys = keys
        self._key_encryption = key_encryption
        folders.make(keys)

    def put(self, name: str, content: bytes) -> None:
        """Seal; durable when this returns, and opened again to be sure. What had the name before is destroyed first."""
        if self._key_path(name).exists():
            self.destroy(name)
        key, nonce = secrets.token_bytes(_KEY), secrets.token_bytes(_NONCE)
        self._put_key(name, key)
        self._objects.create(name + _SEALED, nonce + AESGCM(key).encrypt(nonce, content, name.encode()))
        try:
            found = self.get(name)
        except ValueError:
            found = None
        if found != content:
            raise OSError(errno.EIO, "Something was sealed and something else was read back", name)

    def get(self, name: str) -> bytes:
        """Raises `FileNotFoundError` for what is not there or was destroyed, `ValueError` for what does not open."""
        key, sealed = self._key(name), self._objects.get(name + _SEALED)
        try:
            return AESGCM(key).decrypt(sealed[:_NONCE], sealed[_NONCE:], name.encode())
        except InvalidTag as error:
            raise ValueError(f"{name} is damaged.") from error

    def is_key_there(self, name: str) -> bool:
        return self._key_path(name).exists()

    def is_key_damaged(self, name: str) -> bool:
        """Return True if something does not open for its key."""
        try:
            self._key(name)
        except ValueError:
            return True
        return False

    def destroy(self, name: str) -> None:
        """Overwrite and remove the key, then delete the object. Does nothing to what is not there."""
        with locked(self._keys):
            self._wipe_key(name)
        self._objects.delete(name + _SEALED)

    def destroy_all(self, names: Collection[str]) -> None:
        """Destroy these; all the keys are gone before the store is asked for anything."""
        with locked(self._keys):
            for name in names:
                self._wipe_key(name)
        for name in names:
            self._objects.delete(name + _SEALED)

    def destroy_group(self, group: str, *, but: Set[str] = frozenset()) -> None:
        """Destroy all of the group but some; all the keys are gone before the store is asked for anything."""
        unwanted = self.keys(group) - but
        self.destroy_all(unwanted)
        for name in self.names(group).keys() - unwanted - but:
            self._objects.delete(name + _SEALED)

    def keys(self, group: str) -> set[str]:
        """The names in a group that have a key, and so can be opened."""
        return {path.name.removesuffix(_WRAPPED) for path in self._key_paths(f"{group}.*")}

    def names(self, group: str | None = None) -> dict[str, datetime.datetime]:
        """All, or those of a group, of which anything is left: key or object; and when that was written."""
        listed = self._objects.names(group).items()
        found = {name.removesuffix(_SEALED): at for name, at in listed if name.endswith(_SEALED)}
        for name, at in written_at(self._key_paths("[!.]*" if group is None else f"{group}.*")):
            name = name.removesuffix(_WRAPPED)
            found[name] = max(at, found.get(name, at))
        return found

    def empty(self) -> bool:
        """Return True if there is no key, so that no key-encryption key is needed yet."""
        return not any(self._key_paths("[!.]*"))

    def rewrap(self) -> None:
        """Wrap every key again, under the present key-encryption key. Sealing meanwhile waits."""
        with locked(self._keys):
            for path in self._key_paths("[!.]*"):
                name = path.name.removesuffix(_WRAPPED)
                try:
                    key = self._key_encryption.unwrap(path.read_bytes(), name)
                except ValueError:  # cut short by a crash: it opens nothing
                    continue
                self._changing(name).unlink(missing_ok=True)
                with created(self._changing(name)) as file:
                    file.write(self._key_encryption.wrap(key, name))
                replace(self._changing(name), path)

    def _key(self, name: str) -> bytes:
        wrapped = self._key_path(name).read_bytes()
        while True:
            try:
                return self._key_encryption.unwrap(wrapped, name)
            except (KeyEncryptionKeyLost, ValueError):
                rewrapped = self._key_path(name).read_bytes()
                if rewrapped == wrapped:  # otherwise it was wrapped again meanwhile, and overwritten as it was read
                    raise
                wrapped = rewrapped

    def _put_key(self, name: str, key: bytes) -> None:
        with locked(self._keys), created(self._key_path(name)) as file:
            file.write(self._key_encryption.wrap(key, name))
        sync_folder(self._keys)

    def _wipe_key(self, name: str) -> None:
        wipe_file(self._changing(name))
        wipe_file(self._key_path(name))

    def _key_paths(self, pattern: str) -> Iterator[Path]:
        return self._keys.glob(pattern + _WRAPPED)

    def _key_path(self, name: str) -> Path:
        return self._keys / checked(name + _WRAPPED)

    def _changing(self, name: str) -> Path:
        return self._keys / f".{name}{_WRAPPED}.next"
