"""Keys of the installation: files of mode 0600 beside the database, never in it.

`subject.key` turns subject ids into references (HMAC-SHA256), `digest.key` keys the digests of datasets, from
`webhook.key` come the secrets of webhooks, `signing.jwk` signs certificates (Ed25519). Each is made at first use by
whichever process comes first. `kek` wraps the keys of what is sealed; it is made when an installation is set up, and
never once something is sealed: a new one opens nothing.
"""

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from joserfc.jwk import OKPKey

_KEY_BYTES = 32
_SECRET = re.compile(r"[0-9a-f]{64}")
_ID_BYTES = 16
_NONCE_BYTES = 12


class Keys:
    """The folder of keys. Raises `OSError` where it cannot be read or written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create(self) -> None:
        """Make every key that is not there: whoever opens the folder read-only cannot."""
        _ = self.digest_key, self.signing_key, self._subject_key, self._webhook_key

    @cached_property
    def digest_key(self) -> bytes:
        return self._secret("digest.key")

    @cached_property
    def signing_key(self) -> OKPKey:
        """The Ed25519 key that signs certificates; its id is its RFC 7638 thumbprint."""
        key = OKPKey.import_key(json.loads(read_or_create(self._folder / "signing.jwk", _new_signing_key)))
        key.ensure_kid()
        return key

    @cached_property
    def _subject_key(self) -> bytes:
        return self._secret("subject.key")

    @cached_property
    def _webhook_key(self) -> bytes:
        return self._secret("webhook.key")

    def subject_ref(self, tenant_id: str, subject_id: str) -> str:
        """What stands for a person everywhere in a tenant: a keyed hash that only this installation can make. Of a
        subject id in the form that the tenant's rule gives it (`app.access.subjects`)."""
        return self.subject_ref_of_hash(tenant_id, hashlib.sha256(subject_id.encode()).digest())

    def subject_ref_of_hash(self, tenant_id: str, sha256: bytes) -> str:
        """The same, from the SHA-256 of the subject id: all that some lists of people to forget tell."""
        return "sub_" + self.fingerprint(b"subject", tenant_id.encode(), sha256)[:40]

    def fingerprint(self, *parts: bytes) -> str:
        """A keyed hash (hex) of `parts`, for comparing what may hold personal data without storing it."""
        return _mac(self._subject_key, *parts).hex()

    def reference(self, text: bytes) -> str:
        """What stands for a text that callers wrote (hex), so that it is found without being stored."""
        return self.fingerprint(b"reference", text)

    def webhook_secret(self, tenant_id: str, generation: int) -> bytes:
        """The 32 bytes that sign a tenant's webhooks: derived, so that they are stored nowhere."""
        return _mac(self._webhook_key, b"webhook", tenant_id.encode(), str(generation).encode())

    def _secret(self, name: str) -> bytes:
        return bytes.fromhex(read_or_create(self._folder / name, _new_secret))


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectKey:
    """The text of a `subject.key` that is in no folder yet: makes the same fingerprints as `Keys` with that file."""

    text: str

    def fingerprint(self, *parts: bytes) -> str:
        return _mac(bytes.fromhex(self.text), *parts).hex()


class KeyEncryptionKeyLost(OSError):
    """The key that something is wrapped under is not where it should be; nothing is lost if it comes back."""


class Wrapping(Protocol):
    """Wraps the keys of sealed things, so that a copy of a wrapped key is worth nothing where this is not.

    `context` is the name of what the key seals; a key wrapped for one name unwraps for no other.
    """

    def wrap(self, key: bytes, context: str) -> bytes:
        """Under the present key. Raises `KeyEncryptionKeyLost`."""

    def unwrap(self, wrapped: bytes, context: str) -> bytes:
        """Raises `ValueError` for what was never wrapped, `KeyEncryptionKeyLost`."""


class KeyEncryption(Wrapping, Protocol):
    """Wraps under the key as it is at each use, and changes it."""

    def held(self) -> Wrapping:
        """The same with the key as it is now, for many at once: to be let go of when these are done, since a key that
        is changed meanwhile would live on in it. Raises `KeyEncryptionKeyLost`."""

    def begin_rotation(self) -> None:
        """Make the next key the present one, and keep the one before; once, however often it is called."""

    def end_rotation(self) -> None:
        """Destroy the key before, with every copy of what is still wrapped under it."""


class KeyEncryptionFile:
    """A key-encryption key (AES-256-GCM) in a 0600 file of 64 hex digits, and in `<file>.next` while it is changed.

    The files are read at each use, so that all processes and hosts that share them change keys at once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = path.with_name(f"{path.name}.next")

    def create(self) -> None:
        """Make the key unless there is one."""
        if not self._next.exists():
            read_or_create(self._path, _new_secret)

    def check(self) -> None:
        """Raises `KeyEncryptionKeyLost` where there is none."""
        self._keys()

    def wrap(self, key: bytes, context: str) -> bytes:
        return self.held().wrap(key, context)

    def unwrap(self, wrapped: bytes, context: str) -> bytes:
        return self.held().unwrap(wrapped, context)

    def held(self) -> Wrapping:
        return _Held(self._path, self._keys())

    def begin_rotation(self) -> None:
        self._keys()
        if not self._next.exists():
            read_or_create(self._next, _new_secret)

    def end_rotation(self) -> None:
        if not self._next.exists():
            return
        if self._path.exists():
            _zero(self._path)
        self._next.rename(self._path)
        _sync(self._path.parent)

    def _keys(self) -> list[bytes]:
        """The present key, then the one before it."""
        texts = []
        for path in (self._next, self._path):  # in this order: what goes from the first name comes to the second
            with contextlib.suppress(FileNotFoundError):
                texts.append(_text(path).strip())
        if not any(texts := [text for text in texts if text.strip("\0")]):
            raise KeyEncryptionKeyLost(f"The key-encryption key {self._path} is missing; put it back.")
        if not all(_SECRET.fullmatch(text) for text in texts):
            raise KeyEncryptionKeyLost(f"Expected 64 hex digits in the key-encryption key {self._path}.")
        return [bytes.fromhex(text) for text in texts]


class _Held:
    """The present key, and the one before it while it is changed, as they were read from a file."""

    def __init__(self, path: Path, keys: Sequence[bytes]) -> None:
        self._path = path
        self._keys = {_id_of(key): AESGCM(key) for key in keys}

    def wrap(self, key: bytes, context: str) -> bytes:
        name, present = next(iter(self._keys.items()))
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return name + nonce + present.encrypt(nonce, key, context.encode())

    def unwrap(self, wrapped: bytes, context: str) -> bytes:
        name, nonce, sealed = (
            wrapped[:_ID_BYTES],
            wrapped[_ID_BYTES : _ID_BYTES + _NONCE_BYTES],
            wrapped[_ID_BYTES + _NONCE_BYTES :],
        )
        if len(sealed) != _KEY_BYTES + 16 or not any(wrapped):
            raise ValueError("This is no wrapped key.")
        if name not in self._keys:
            if any(_opens(key, nonce, sealed, context) for key in self._keys.values()):
                raise ValueError("This wrapped key is damaged: it names another key-encryption key than wraps it.")
            raise KeyEncryptionKeyLost(
                f"{self._path} holds another key-encryption key than what is there was wrapped with."
            )
        try:
            return self._keys[name].decrypt(nonce, sealed, context.encode())
        except InvalidTag as error:
            raise ValueError("This key was wrapped for something else, or is damaged.") from error


def _opens(key: AESGCM, nonce: bytes, sealed: bytes, context: str) -> bool:
    with contextlib.suppress(InvalidTag):
        return bool(key.decrypt(nonce, sealed, context.encode()))
    return False


def read_or_create(path: Path, make: Callable[[], str]) -> str:
    """The text of a 0600 file; made whole and durable if it is not there, once even when processes race."""
    if not path.exists():
        content = make()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
        temporary.unlink()
        _sync(path.parent)  # the name is durable too
    return path.read_text().strip()


def _new_signing_key() -> str:
    return json.dumps(OKPKey.generate_key("Ed25519", private=True, auto_kid=True).as_dict(private=True))


def _new_secret() -> str:
    return secrets.token_hex(_KEY_BYTES)


def _mac(key: bytes, *parts: bytes) -> bytes:
    """Of the list of `parts`: where one ends and the next begins counts too."""
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        mac.update(len(part).to_bytes(8, "big") + part)
    return mac.digest()


def _text(path: Path) -> str:
    """Of a short file, in a third of the time of `Path.read_text`: a page of requests asks for it fifty times."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 1024).decode(errors="replace")
    finally:
        os.close(descriptor)


def _id_of(key: bytes) -> bytes:
    """Tells keys apart and says nothing about them."""
    return hmac.digest(key, b"lethe.kek", "sha256")[:_ID_BYTES]


def _zero(path: Path) -> None:
    with open(path, "r+b") as file:
        file.write(bytes(os.fstat(file.fileno()).st_size))
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
