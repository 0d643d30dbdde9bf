"""Callers' texts at rest, each sealed under its own key, which can be destroyed.

A sealed text (AES-256-GCM) enters the database, its write-ahead log, replicas and backups, which cannot be erased
reliably. Its key, wrapped by the key-encryption key, is one line of a page: a file in the data folder with `LINES`
lines of fixed length. Destroying a key overwrites its line with zeros, syncs it, and reads it back. A page is written
in full before its first key is used, so that sealing needs no separate write. A page belongs to the process that
created it; keys that the process never uses seal nothing.
"""

import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.keys import KeyEncryption, KeyEncryptionKeyLost, WrappedUnderAnotherKey, Wrapping
from app.vault.store import created, locked, replace, sync_folder, wipe_file, zero_and_verify
from lethe.contract.problems import SealedTextDamaged

LINES = 256
_LINE = 76
"""Length in bytes of a wrapped 32-byte key."""
_KEY, _NONCE = 32, 12
_PAGE_ID, _LINE_NUMBER = 8, 2
_NAME = _PAGE_ID + _LINE_NUMBER
_PAGE = ".page"


class Vault:
    """Vault of sealed texts and their keys. `reference` computes the keyed hash by which sealed texts are looked up,
    and `record_key` returns the key for the check values of a dataset's records."""

    def __init__(
        self,
        folder: Path,
        key_encryption: KeyEncryption,
        *,
        reference: Callable[[bytes], str],
        record_key: Callable[[str], bytes],
    ) -> None:
        self._folder = folder
        self._key_encryption = key_encryption
        self._reference = reference
        self._record_key = record_key
        self._lock = threading.Lock()
        # Key-encryption key of a thread inside `at_once`, once it is needed.
        self._held = threading.local()
        # Names and keys of this process's page that are not used yet.
        self._unused: list[tuple[bytes, bytes]] = []

    def seal(self, content: bytes, *, key: str | None = None) -> bytes:
        """Return `content` sealed under a new key, or under the existing `key`. Raises `KeyEncryptionKeyLost`, or
        `KeyError` if the key has been destroyed."""
        if key is None:
            name, secret = self._next_key()
        else:
            name, existing = bytes.fromhex(key), self._key(bytes.fromhex(key))
            if existing is None:
                raise KeyError("This key has been destroyed.")
            secret = existing
        nonce = secrets.token_bytes(_NONCE)
        return name + nonce + AESGCM(secret).encrypt(nonce, content, name)

    def open(self, sealed: bytes) -> bytes | None:
        """Return the content of a sealed text; None if its key is destroyed. Raises `ValueError` if the text is
        damaged; also `KeyEncryptionKeyLost` and `OSError`."""
        name, nonce = sealed[:_NAME], sealed[_NAME : _NAME + _NONCE]
        key = self._key(name)
        if key is None:
            return None
        try:
            return AESGCM(key).decrypt(nonce, sealed[_NAME + _NONCE :], name)
        except InvalidTag as error:
            raise ValueError("A sealed text is damaged.") from error

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Read the key-encryption key at most once for everything that this thread opens inside the block."""
        self._held.wrapping = None
        try:
            yield
        finally:
            del self._held.wrapping

    @staticmethod
    def key_of(sealed: bytes) -> str:
        """Return the name of a sealed text's key, as `destroy` expects it."""
        return sealed[:_NAME].hex()

    def key_of_damaged(self, sealed: bytes) -> str:
        """Return the name of the key of a sealed text that cannot be opened. If the text opens after one bit of its
        stored name is flipped, return the corrected name, because the stored one may belong to another text."""
        for bit in range(8 * _NAME):
            name = (int.from_bytes(sealed[:_NAME], "big") ^ 1 << bit).to_bytes(_NAME, "big")
            with suppress(ValueError, FileNotFoundError, WrappedUnderAnotherKey):
                if self.open(name + sealed[_NAME:]) is not None:
                    return name.hex()
        return self.key_of(sealed)

    def reference(self, text: str) -> str:
        """Return the deterministic keyed hash of a text (hex)."""
        return self._reference(text.encode())

    def record_key(self, dataset_id: str) -> bytes:
        """Return the key, which never changes, for the check values of a dataset's records."""
        return self._record_key(dataset_id)

    def destroy(self, keys: Iterable[str]) -> None:
        """Overwrite keys durably, or raise `OSError` if that cannot be verified. Keys already destroyed are ignored."""
        names = sorted({bytes.fromhex(key) for key in keys})
        if not names:
            return
        # The lock excludes a concurrent `rewrap`, which rewrites the pages.
        with locked(self._folder):
            for page, lines in groupby(names, key=lambda name: name[:_PAGE_ID]):
                spans = [(_number(name) * _LINE, _LINE) for name in lines]
                # The keys of a lost page are gone.
                with suppress(FileNotFoundError):
                    zero_and_verify(self._path(page), spans)
                # An interrupted rewrite may have left a copy of the page.
                wipe_file(_temporary(self._path(page)))

    def pages(self) -> Iterator[tuple[str, bytes]]:
        """Yield the name and plaintext keys of each page, with zeros for destroyed keys. Pages may be archived only in
        sealed form. Raises `SealedTextDamaged`."""
        for path in sorted(self._folder.glob(f"[!.]*{_PAGE}")):
            with locked(self._folder):
                keys = [bytes(_KEY) if key is None else key for _, key in self._unwrapped_page(path)]
            yield path.stem, b"".join(keys)

    def put_page(self, name: str, keys: bytes) -> None:
        """Store a page of another vault, as yielded by `pages`."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        page = bytes.fromhex(name)
        with locked(self._folder), created(self._path(page)) as file:
            for number in range(len(keys) // _KEY):
                key = keys[number * _KEY : (number + 1) * _KEY]
                key_name = _named(page, number).hex()
                file.write(self._key_encryption.wrap(key, key_name) if any(key) else bytes(_LINE))
        sync_folder(self._folder)

    def empty(self) -> bool:
        """Return True if there are no pages, in which case no key-encryption key is needed yet."""
        return not any(self._folder.glob(f"*{_PAGE}"))

    def rewrap(self) -> None:
        """Rewrap every key under the current key-encryption key. Calls that destroy keys block until this finishes."""
        if not self._folder.exists():
            return
        with locked(self._folder):
            for path in self._folder.glob(f"[!.]*{_PAGE}"):
                wrap, keys = self._key_encryption.wrap, self._unwrapped_page(path)
                lines = [bytes(_LINE) if key is None else wrap(key, name.hex()) for name, key in keys]
                wipe_file(_temporary(path))
                with created(_temporary(path)) as file:
                    file.write(b"".join(lines))
                replace(_temporary(path), path)

    def _unwrapped_page(self, path: Path) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the name and key of each line of a page; a destroyed key is None. Raises `SealedTextDamaged`."""
        content = path.read_bytes()
        for number, start in enumerate(range(0, len(content), _LINE)):
            name = _named(bytes.fromhex(path.stem), number)
            try:
                yield name, _unwrapped(self._key_encryption, name, content[start : start + _LINE])
            except (ValueError, WrappedUnderAnotherKey) as error:
                raise SealedTextDamaged("{path} is damaged; put it back and try again.", path=path) from error

    def _next_key(self) -> tuple[bytes, bytes]:
        with self._lock:
            if not self._unused:
                self._unused = self._new_page()
            return self._unused.pop()

    def _new_page(self) -> list[tuple[bytes, bytes]]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        page = secrets.token_bytes(_PAGE_ID)
        keys = [(_named(page, number), secrets.token_bytes(_KEY)) for number in reversed(range(LINES))]
        # The lock prevents a change of the key-encryption key.
        with locked(self._folder):
            wrapping = self._key_encryption.held()
            with created(_temporary(self._path(page))) as file:
                file.write(b"".join(wrapping.wrap(key, name.hex()) for name, key in reversed(keys)))
            replace(_temporary(self._path(page)), self._path(page))
        return keys

    def _key(self, name: bytes) -> bytes | None:
        """Return the key with this name; None if it has been destroyed."""
        line = self._line(name)
        if not any(line):
            # Zeros mean that the key is destroyed, or that this is the old file of a page that was replaced meanwhile.
            line = self._line(name)
        try:
            return _unwrapped(self._wrapping(), name, line)
        except KeyEncryptionKeyLost:
            # The key-encryption key may have changed since the line was read.
            return _unwrapped(self._key_encryption, name, self._line(name))

    def _wrapping(self) -> Wrapping:
        if not hasattr(self._held, "wrapping"):
            return self._key_encryption
        if self._held.wrapping is None:
            self._held.wrapping = self._key_encryption.held()
        wrapping: Wrapping = self._held.wrapping
        return wrapping

    def _line(self, name: bytes) -> bytes:
        descriptor = os.open(self._path(name[:_PAGE_ID]), os.O_RDONLY)
        try:
            return os.pread(descriptor, _LINE, _number(name) * _LINE)
        finally:
            os.close(descriptor)

    def _path(self, page: bytes) -> Path:
        return self._folder / f"{page.hex()}{_PAGE}"


def _unwrapped(wrapping: Wrapping, name: bytes, line: bytes) -> bytes | None:
    if len(line) != _LINE:
        raise ValueError("A page of the vault is cut off.")
    return wrapping.unwrap(line, name.hex()) if any(line) else None


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.next")


def _named(page: bytes, number: int) -> bytes:
    return page + number.to_bytes(_LINE_NUMBER, "big")


def _number(name: bytes) -> int:
    return int.from_bytes(name[_PAGE_ID:], "big")
