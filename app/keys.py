"""Keys of the installation: files of mode 0600 beside the database, never in it.

`subject.key` turns subject ids into references (HMAC-SHA256), `digest.key` keys the digests of datasets, from
`webhook.key` come the secrets of webhooks, `signing.jwk` signs certificates (Ed25519), `kek` wraps the keys of what is
sealed. All are made when an installation is set up on an empty database, by whichever process comes first, and never
again: a new key would find nobody, and open nothing. The database keeps a check value of each (`app.key_checks`).
"""

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey

SECRETS = ("subject.key", "digest.key", "webhook.key")
SIGNING = "signing.jwk"
_KEY_BYTES = 32
_SECRET = re.compile(r"[0-9a-f]{64}")
_ID_BYTES = 16
_NONCE_BYTES = 12


class KeyUnreadable(OSError):
    """A key is not where it should be, or what is there is none; nothing is lost if it comes back."""


class Keys:
    """The folder of keys, each of which is read once. Raises `KeyUnreadable`, or another `OSError`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._texts: dict[str, str] = {}

    def create(self) -> Self:
        """Make every key that is not there. Only for a database in which nothing is: see `app.installations`."""
        for name in SECRETS:
            read_or_create(self._folder / name, _new_secret)
        read_or_create(self._folder / SIGNING, _new_signing_key)
        return self

    def paths(self) -> dict[str, Path]:
        """The file of each key, by its name."""
        return {name: self._folder / name for name in (*SECRETS, SIGNING)}

    def fresh(self) -> "Keys":
        """The same folder, of which nothing has been read yet."""
        return Keys(self._folder)

    def check_value(self, name: str, installation_id: str) -> str:
        """A value that tells this key from any other and says nothing about it, not even to somebody who has another
        installation's."""
        if name == SIGNING:
            found = self._signing_members()
            canonical = json.dumps(found, sort_keys=True, separators=(",", ":")).encode()
            return _mac(canonical, b"check", name.encode(), installation_id.encode()).hex()
        return _mac(self._secret(name), b"check", name.encode(), installation_id.encode()).hex()

    @cached_property
    def digest_key(self) -> bytes:
        return self._secret("digest.key")

    @cached_property
    def signing_key(self) -> OKPKey:
        """The Ed25519 key that signs certificates; its id is its RFC 7638 thumbprint."""
        try:
            key = OKPKey.import_key(self._signing_members())
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise KeyUnreadable(f"{self._folder / SIGNING} holds no Ed25519 key; put the right one back.") from error
        key.ensure_kid()
        return key

    @cached_property
    def _subject_key(self) -> bytes:
        return self._secret("subject.key")

    @cached_property
    def _webhook_key(self) -> bytes:
        return self._secret("webhook.key")

    def subject_ref(self, tenant_id: str, subject_id: str) -> str:
        """The pseudonym of a person everywhere in a tenant: a keyed hash that only this installation can make. Of a
        subject id in the form that the tenant's rule gives it (`app.access.subjects`)."""
        return self.subject_ref_of_hash(tenant_id, hashlib.sha256(subject_id.encode()).digest())

    def subject_ref_of_hash(self, tenant_id: str, sha256: bytes) -> str:
        """The same, from the SHA-256 of the subject id: all that some lists of people to forget tell."""
        return "sub_" + self.fingerprint(b"subject", tenant_id.encode(), sha256)[:40]

    def subject_refs(self, tenant_id: str, subject_ids: Iterable[str]) -> list[str]:
        """The pseudonyms of many people, each as `subject_ref` has it, in a third of the time."""
        begun = _mac_of(self._subject_key, b"subject", tenant_id.encode())
        begun.update(hashlib.sha256().digest_size.to_bytes(8, "big"))
        references = []
        for subject_id in subject_ids:
            mac = begun.copy()
            mac.update(hashlib.sha256(subject_id.encode()).digest())
            references.append("sub_" + mac.hexdigest()[:40])
        return references

    def fingerprint(self, *parts: bytes) -> str:
        """A keyed hash (hex) of `parts`, for comparing what may hold personal data without storing it."""
        return _mac(self._subject_key, *parts).hex()

    def reference(self, text: bytes) -> str:
        """The keyed hash (hex) of a text that callers wrote, so that it is found without being stored."""
        return self.fingerprint(b"reference", text)

    def record_key(self, dataset_id: str) -> bytes:
        """The 32 bytes that key the check values of a dataset's records (`app.rows.records`)."""
        return _mac(self._subject_key, b"records", dataset_id.encode())

    def webhook_secret(self, tenant_id: str, generation: int) -> bytes:
        """The 32 bytes that sign a tenant's webhooks: derived, so that they are stored nowhere."""
        return _mac(self._webhook_key, b"webhook", tenant_id.encode(), str(generation).encode())

    def _secret(self, name: str) -> bytes:
        text = self._text(name)
        if not _SECRET.fullmatch(text):
            raise KeyUnreadable(f"Expected 64 hex digits in {self._folder / name}; put the right key back.")
        return bytes.fromhex(text)

    def _signing_members(self) -> dict[str, Any]:
        try:
            members = json.loads(self._text(SIGNING))
        except ValueError:
            members = None
        if not isinstance(members, dict):
            raise KeyUnreadable(f"Expected a JWK in {self._folder / SIGNING}; put the right key back.")
        return members

    def _text(self, name: str) -> str:
        if name not in self._texts:
            try:
                self._texts[name] = (self._folder / name).read_text(errors="replace").strip()
            except FileNotFoundError:
                raise KeyUnreadable(f"The key {self._folder / name} is missing; put it back.") from None
        return self._texts[name]


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
        self._prepared = path.with_name(f".{path.name}.prepared")

    def create(self) -> None:
        """Make the key unless there is one."""
        if not self._next.exists():
            read_or_create(self._path, _new_secret)

    def check(self) -> None:
        """Raises `KeyEncryptionKeyLost` where there is none."""
        self._keys()

    def paths(self) -> tuple[Path, Path]:
        """The file of the key; and of the next one, while it is changed."""
        return self._path, self._next

    def check_values(self, installation_id: str) -> list[str]:
        """The check values of the present key, then of the one before it, as `Keys.check_value`. Raises
        `KeyEncryptionKeyLost`."""
        return [_kek_check_value(key, installation_id) for key in self._keys()]

    def prepare_rotation(self, installation_id: str) -> str:
        """Make the key that the next rotation will bring in, where nobody uses it yet; returns its check value. The
        same one, until a rotation has begun with it."""
        made = self._next if self._next.exists() else self._prepared
        return _kek_check_value(bytes.fromhex(read_or_create(made, _new_secret)), installation_id)

    def wrap(self, key: bytes, context: str) -> bytes:
        return self.held().wrap(key, context)

    def unwrap(self, wrapped: bytes, context: str) -> bytes:
        return self.held().unwrap(wrapped, context)

    def held(self) -> Wrapping:
        return _Held(self._path, self._keys())

    def begin_rotation(self) -> None:
        self._keys()
        if not self._next.exists():
            read_or_create(self._prepared, _new_secret)
            self._prepared.rename(self._next)
            _sync(self._next.parent)

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


def _kek_check_value(key: bytes, installation_id: str) -> str:
    return _mac(key, b"check", b"kek", installation_id.encode()).hex()


def _new_signing_key() -> str:
    return json.dumps(OKPKey.generate_key("Ed25519", private=True, auto_kid=True).as_dict(private=True))


def _new_secret() -> str:
    return secrets.token_hex(_KEY_BYTES)


def _mac(key: bytes, *parts: bytes) -> bytes:
    """The MAC of the list of `parts`: where one ends and the next begins counts too."""
    return _mac_of(key, *parts).digest()


def _mac_of(key: bytes, *parts: bytes) -> hmac.HMAC:
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        mac.update(len(part).to_bytes(8, "big") + part)
    return mac


def _text(path: Path) -> str:
    """Read a short file, in a third of the time of `Path.read_text`: a page of requests asks for it fifty times."""
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
