"""Callers' own text at rest: each piece sealed under a key of its own that can be destroyed.

A piece is sealed (AES-256-GCM) and goes into the database, its write-ahead log, replicas and backups, where nothing
can be taken back. Its key, wrapped by the key-encryption key, is a line of a page: a file of `LINES` lines of one
length, in the data folder. To destroy the key is to overwrite its line with zeros, sync and read it back. A page is
written whole before its first key is used, so that sealing costs no write of its own; it belongs to the process that
made it, and the keys that this does not come to use seal nothing.
"""

import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.keys import KeyEncryption, KeyEncryptionKeyLost, Wrapping
from app.vault.files import created, locked, replace, sync_folder, wipe_file, zero_and_verify

LINES = 256
_LINE = 76
"""Bytes of a wrapped key of 32."""
_KEY, _NONCE = 32, 12
_PAGE_ID, _LINE_NUMBER = 8, 2
_NAME = _PAGE_ID + _LINE_NUMBER
_PAGE = ".page"


class Vault:
    """Seals and opens, destroys keys, and makes the references that sealed texts are found by (`reference`: keyed).
    `record_key`: what keys the check values of a dataset's records."""

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
        self._held = threading.local()  # within `at_once`: the key-encryption key, once it was needed
        self._blank: list[tuple[bytes, bytes]] = []  # names and keys of this process's page that seal nothing yet

    def seal(self, content: bytes, *, key: str | None = None) -> bytes:
        """Under a new key, or under `key` again. Raises `KeyEncryptionKeyLost`, `KeyError` for a destroyed one."""
        if key is None:
            name, secret = self._next_key()
        else:
            name, found = bytes.fromhex(key), self._key(bytes.fromhex(key))
            if found is None:
                raise KeyError("This key has been destroyed.")
            secret = found
        nonce = secrets.token_bytes(_NONCE)
        return name + nonce + AESGCM(secret).encrypt(nonce, content, name)

    def open(self, sealed: bytes) -> bytes | None:
        """None if its key is destroyed. Raises `ValueError` for what is damaged, `KeyEncryptionKeyLost`, `OSError`."""
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
        """While the block lasts, all that this thread opens costs one look at the key-encryption key."""
        self._held.wrapping = None
        try:
            yield
        finally:
            del self._held.wrapping

    @staticmethod
    def key_of(sealed: bytes) -> str:
        """The name of the key that something is sealed under: what `destroy` takes."""
        return sealed[:_NAME].hex()

    def reference(self, text: str) -> str:
        """A keyed hash of a text (hex), the same each time."""
        return self._reference(text.encode())

    def record_key(self, dataset_id: str) -> bytes:
        """The same key each time."""
        return self._record_key(dataset_id)

    def destroy(self, keys: Iterable[str]) -> None:
        """Overwrite these keys, which is on disk when this returns; those that were destroyed before stay so.

        Raises `OSError` where that cannot be made sure of.
        """
        names = sorted({bytes.fromhex(key) for key in keys})
        if not names:
            return
        with locked(self._folder):  # no page is written again meanwhile
            for page, lines in groupby(names, key=lambda name: name[:_PAGE_ID]):
                spans = [(_number(name) * _LINE, _LINE) for name in lines]
                zero_and_verify(self._path(page), spans)
                wipe_file(_changing(self._path(page)))  # a change that was cut off

    def pages(self) -> Iterator[tuple[str, bytes]]:
        """The name and the keys of each page, zeros for what was destroyed: for an archive that is sealed itself."""
        for path in sorted(self._folder.glob(f"[!.]*{_PAGE}")):
            with locked(self._folder):  # no page is written again meanwhile
                lines = _lines(path)
            page = bytes.fromhex(path.stem)
            found = [_unwrapped(self._key_encryption, _named(page, number), line) for number, line in enumerate(lines)]
            yield path.stem, b"".join(bytes(_KEY) if key is None else key for key in found)

    def put_page(self, name: str, keys: bytes) -> None:
        """Take in a page of another vault (`pages`)."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        page = bytes.fromhex(name)
        with locked(self._folder), created(self._path(page)) as file:
            for number in range(len(keys) // _KEY):
                key = keys[number * _KEY : (number + 1) * _KEY]
                named = _named(page, number).hex()
                file.write(self._key_encryption.wrap(key, named) if any(key) else bytes(_LINE))
        sync_folder(self._folder)

    def empty(self) -> bool:
        """Return True if there is no page, so that no key-encryption key is needed yet."""
        return not any(self._folder.glob(f"*{_PAGE}"))

    def rewrap(self) -> None:
        """Wrap every key again, under the present key-encryption key. Destroying keys meanwhile waits."""
        if not self._folder.exists():
            return
        with locked(self._folder):
            for path in self._folder.glob(f"[!.]*{_PAGE}"):
                page = bytes.fromhex(path.stem)
                lines = [self._rewrapped(_named(page, number), line) for number, line in enumerate(_lines(path))]
                wipe_file(_changing(path))
                with created(_changing(path)) as file:
                    file.write(b"".join(lines))
                replace(_changing(path), path)

    def _rewrapped(self, name: bytes, line: bytes) -> bytes:
        key = _unwrapped(self._key_encryption, name, line)
        return bytes(_LINE) if key is None else self._key_encryption.wrap(key, name.hex())

    def _next_key(self) -> tuple[bytes, bytes]:
        with self._lock:
            if not self._blank:
                self._blank = self._new_page()
            return self._blank.pop()

    def _new_page(self) -> list[tuple[bytes, bytes]]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        page = secrets.token_bytes(_PAGE_ID)
        keys = [(_named(page, number), secrets.token_bytes(_KEY)) for number in reversed(range(LINES))]
        with locked(self._folder):  # the key-encryption key does not change meanwhile
            held = self._key_encryption.held()
            with created(self._path(page)) as file:
                file.write(b"".join(held.wrap(key, name.hex()) for name, key in reversed(keys)))
            sync_folder(self._folder)
        return keys

    def _key(self, name: bytes) -> bytes | None:
        """None if it has been destroyed."""
        line = self._line(name)
        if not any(line):  # destroyed; or the page was just replaced, and zeroed
            line = self._line(name)
        try:
            return _unwrapped(self._wrapping(), name, line)
        except KeyEncryptionKeyLost:  # it may have been changed meanwhile
            return _unwrapped(self._key_encryption, name, self._line(name))

    def _wrapping(self) -> Wrapping:
        if not hasattr(self._held, "wrapping"):
            return self._key_encryption
        if self._held.wrapping is None:
            self._held.wrapping = self._key_encryption.held()
        held: Wrapping = self._held.wrapping
        return held

    def _line(self, name: bytes) -> bytes:
        descriptor = os.open(self._path(name[:_PAGE_ID]), os.O_RDONLY)
        try:
            return os.pread(descriptor, _LINE, _number(name) * _LINE)
        finally:
            os.close(descriptor)

    def _path(self, page: bytes) -> Path:
        return self._folder / f"{page.hex()}{_PAGE}"


def _unwrapped(wrapping: Wrapping, name: bytes, line: bytes) -> bytes | None:
    return wrapping.unwrap(line, name.hex()) if any(line) else None


def _changing(path: Path) -> Path:
    return path.with_name(f".{path.name}.next")


def _lines(path: Path) -> list[bytes]:
    content = path.read_bytes()
    return [content[start : start + _LINE] for start in range(0, len(content), _LINE)]


def _named(page: bytes, number: int) -> bytes:
    return page + number.to_bytes(_LINE_NUMBER, "big")


def _number(name: bytes) -> int:
    return int.from_bytes(name[_PAGE_ID:], "big")
