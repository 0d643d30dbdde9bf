"""The installation's keys: files with mode 0600 next to the database, never in it.

`subject.key` turns subject ids into references (HMAC-SHA256), webhook secrets are derived from `webhook.key`,
`signing.jwk` signs certificates (Ed25519), and `kek` wraps the keys of sealed content. `public/signing.jwk` is the
public part of `signing.jwk`, which suffices for a process that only verifies. The first process to set up an
installation on an empty database creates the keys. They are never recreated, because new keys would find no person and
open nothing. The database has a check value for each key (`app.key_checks`).
"""

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey

from lethe.contract.fields import trimmed

SECRETS = ("subject.key", "webhook.key")
SIGNING = "signing.jwk"
PUBLIC = f"public/{SIGNING}"
_KEY_BYTES = 32
_SECRET = re.compile(r"[0-9a-f]{64}")
_ID_BYTES = 16
_NONCE_BYTES = 12


class KeyUnreadable(OSError):
    """Missing or invalid key file. Nothing is lost if the file is restored."""


class Keys:
    """Folder of keys, each of which is read once. All methods can raise `KeyUnreadable` or another `OSError`. With
    `is_public`, the folder is absent and only the public key next to it is available."""

    def __init__(self, folder: Path, *, is_public: bool = False) -> None:
        self._folder = folder
        self.is_public = is_public
        self._texts: dict[str, str] = {}

    def create(self) -> Self:
        """Create the missing keys. Call this only for an empty database (`app.installations`)."""
        for name in SECRETS:
            read_or_create(self._folder / name, _new_secret)
        read_or_create(self._folder / SIGNING, _new_signing_key)
        return self

    def paths(self) -> dict[str, Path]:
        """Return the path of each key file, keyed by the key's name."""
        return {name: self._path(name) for name in ((PUBLIC,) if self.is_public else (*SECRETS, SIGNING))}

    def publish(self) -> None:
        """Write the public part of the signing key to its file."""
        path, text = self._path(PUBLIC), json.dumps(self.public_key.as_dict(private=False))
        if not path.exists() or trimmed(path.read_text(errors="replace")) != text:
            path.unlink(missing_ok=True)
            read_or_create(path, lambda: text)

    def fresh(self) -> "Keys":
        """Return an instance for the same folder that has not read any key yet."""
        return Keys(self._folder, is_public=self.is_public)

    def check_value(self, name: str, installation_id: str) -> str:
        """Return a value that identifies the key but discloses nothing about it, even when compared with values of
        other installations."""
        if name in (SIGNING, PUBLIC):
            members = self._members(name) if name == SIGNING else self.public_key.as_dict(private=False)
            canonical = json.dumps(members, sort_keys=True, separators=(",", ":")).encode()
            return mac(canonical, b"check", name.encode(), installation_id.encode()).hex()
        return mac(self._secret(name), b"check", name.encode(), installation_id.encode()).hex()

    @cached_property
    def signing_key(self) -> OKPKey:
        """Ed25519 key that signs certificates; its id is its RFC 7638 thumbprint."""
        return self._ed25519(SIGNING)

    @cached_property
    def public_key(self) -> OKPKey:
        """Public part of the signing key."""
        if self.is_public:
            return self._ed25519(PUBLIC)
        return OKPKey.import_key(self.signing_key.as_dict(private=False))

    @cached_property
    def _subject_key(self) -> bytes:
        return self._secret("subject.key")

    @cached_property
    def _webhook_key(self) -> bytes:
        return self._secret("webhook.key")

    def subject_ref(self, tenant_id: str, subject_id: str) -> str:
        """Return the pseudonym of a person in a tenant, a keyed hash that only this installation can compute.
        `subject_id` must be in the normal form that the tenant's rule defines (`app.access.subjects`)."""
        return self.subject_ref_of_hash(tenant_id, hashlib.sha256(subject_id.encode()).digest())

    def subject_ref_of_hash(self, tenant_id: str, sha256: bytes) -> str:
        """Return a person's pseudonym, given the SHA-256 of the subject id, for lists that contain only hashes."""
        return "sub_" + self.fingerprint(b"subject", tenant_id.encode(), sha256)[:40]

    def subject_refs(self, tenant_id: str, subject_ids: Iterable[str]) -> list[str]:
        """Return many people's pseudonyms in a third of the time that separate `subject_ref` calls take."""
        prefix = _mac_of(self._subject_key, b"subject", tenant_id.encode())
        prefix.update(hashlib.sha256().digest_size.to_bytes(8, "big"))
        references = []
        for subject_id in subject_ids:
            mac = prefix.copy()
            mac.update(hashlib.sha256(subject_id.encode()).digest())
            references.append("sub_" + mac.hexdigest()[:40])
        return references

    def fingerprint(self, *parts: bytes) -> str:
        """Return a keyed hash (hex) of `parts`, for comparing personal data without storing it."""
        return mac(self._subject_key, *parts).hex()

    def reference(self, text: bytes) -> str:
        """Return the keyed hash (hex) of a caller's text, so that the text can be looked up without being stored."""
        return self.fingerprint(b"reference", text)

    def record_key(self, dataset_id: str) -> bytes:
        """Return the 32-byte key for the check values of a dataset's records (`app.rows.records`)."""
        return mac(self._subject_key, b"records", dataset_id.encode())

    def webhook_secret(self, tenant_id: str, generation: int) -> bytes:
        """Return the 32-byte key that signs a tenant's webhooks. It is derived and therefore not stored."""
        return mac(self._webhook_key, b"webhook", tenant_id.encode(), str(generation).encode())

    def _secret(self, name: str) -> bytes:
        text = self._text(name)
        if not _SECRET.fullmatch(text):
            raise KeyUnreadable(f"Expected 64 hex digits in {self._path(name)}; put the right key back.")
        return bytes.fromhex(text)

    def _ed25519(self, name: str) -> OKPKey:
        try:
            key = OKPKey.import_key(self._members(name))
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise KeyUnreadable(f"{self._path(name)} holds no Ed25519 key; put the right one back.") from error
        key.ensure_kid()
        return key

    def _members(self, name: str) -> dict[str, Any]:
        try:
            members = json.loads(self._text(name))
        except ValueError:
            members = None
        if not isinstance(members, dict):
            raise KeyUnreadable(f"Expected a JWK in {self._path(name)}; put the right key back.")
        return members

    def _path(self, name: str) -> Path:
        return self._folder.parent / PUBLIC if name == PUBLIC else self._folder / name

    def _text(self, name: str) -> str:
        if name not in self._texts:
            try:
                self._texts[name] = trimmed(self._path(name).read_text(errors="replace"))
            except FileNotFoundError:
                raise KeyUnreadable(f"The key {self._path(name)} is missing; put it back.") from None
        return self._texts[name]


class KeyEncryptionKeyLost(OSError):
    """Missing key-encryption key. Nothing is lost if it is restored."""


class WrappedUnderAnotherKey(KeyEncryptionKeyLost):
    """Wrapped key that names a key-encryption key unknown to this installation: it is damaged or from elsewhere."""


class Wrapping(Protocol):
    """Wrapper for the keys that seal content, so that a copy of a wrapped key is worthless without the key-encryption
    key. `context` names the content that the key seals; a wrapped key can be unwrapped only in this context."""

    def wrap(self, key: bytes, context: str) -> bytes:
        """Wrap `key` under the current key. Raises `KeyEncryptionKeyLost`."""

    def unwrap(self, wrapped: bytes, context: str) -> bytes:
        """Unwrap a key. Raises `ValueError` if it was not wrapped in `context` or is damaged, and
        `KeyEncryptionKeyLost`."""


class KeyEncryption(Wrapping, Protocol):
    """Wrapper that reads the key-encryption key at each use, and can rotate it."""

    def held(self) -> Wrapping:
        """Return a wrapper that keeps the current key in memory for repeated use. Release it afterwards, because a key
        destroyed in the meantime would survive in it. Raises `KeyEncryptionKeyLost`."""

    def begin_rotation(self) -> None:
        """Make the next key the current key and retain the previous one. Repeating the call is a no-op."""

    def end_rotation(self) -> None:
        """Destroy the previous key, so that no copy of a key still wrapped under it can be unwrapped."""


class KeyEncryptionFile:
    """Key-encryption key (AES-256-GCM) in a 0600 file of 64 hex digits, and in `<file>.next` during a rotation. The
    files are read at each use, so a rotation takes effect immediately in all processes and hosts that share them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = path.with_name(f"{path.name}.next")
        self._prepared = path.with_name(f".{path.name}.prepared")

    def create(self) -> None:
        """Create the key if it is missing."""
        if not self._next.exists():
            read_or_create(self._path, _new_secret)

    def check(self) -> None:
        """Raise `KeyEncryptionKeyLost` if the key is missing."""
        self._keys()

    def paths(self) -> tuple[Path, Path]:
        """Return the paths of the key file and of the next key's file, which exists only during a rotation."""
        return self._path, self._next

    def check_values(self, installation_id: str) -> list[str]:
        """Return the check values (see `Keys.check_value`) of the current key and then of the previous key, if any.
        Raises `KeyEncryptionKeyLost`."""
        return [_kek_check_value(key, installation_id) for key in self._keys()]

    def prepare_rotation(self, installation_id: str) -> str:
        """Create the key for the next rotation without using it yet, and return its check value. Further calls before
        the rotation begins return the same value."""
        path = self._next if self._next.exists() else self._prepared
        return _kek_check_value(bytes.fromhex(read_or_create(path, _new_secret)), installation_id)

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
        # Readers take zeros for a missing key and use the next one, so a crash before the rename loses nothing.
        if self._path.exists():
            _zero(self._path)
        self._next.rename(self._path)
        _sync(self._path.parent)

    def _keys(self) -> list[bytes]:
        """Return the current key, followed by the previous one during a rotation."""
        texts = []
        # In this order, because a rotation ends by renaming the first file to the second.
        for path in (self._next, self._path):
            with contextlib.suppress(FileNotFoundError):
                texts.append(trimmed(_text(path)))
        if not any(texts := [text for text in texts if text.strip("\0")]):
            raise KeyEncryptionKeyLost(f"The key-encryption key {self._path} is missing; put it back.")
        if not all(_SECRET.fullmatch(text) for text in texts):
            raise KeyEncryptionKeyLost(f"Expected 64 hex digits in the key-encryption key {self._path}.")
        return [bytes.fromhex(text) for text in texts]


class _Held:
    """Wrapper that keeps the current key and, during a rotation, the previous one in memory."""

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
            raise WrappedUnderAnotherKey(
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
    """Return the text of a 0600 file, creating the file durably if it is missing. Concurrent processes create only one
    file."""
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
        # Make the name durable as well.
        _sync(path.parent)
    return trimmed(path.read_text(errors="replace"))


def _kek_check_value(key: bytes, installation_id: str) -> str:
    return mac(key, b"check", b"kek", installation_id.encode()).hex()


def _new_signing_key() -> str:
    return json.dumps(OKPKey.generate_key("Ed25519", private=True, auto_kid=True).as_dict(private=True))


def _new_secret() -> str:
    return secrets.token_hex(_KEY_BYTES)


def mac(key: bytes, *parts: bytes) -> bytes:
    """Return a MAC over `parts` that also covers the length of each part."""
    return hmac.digest(key, b"".join([len(part).to_bytes(8, "big") + part for part in parts]), "sha256")


def _mac_of(key: bytes, *parts: bytes) -> hmac.HMAC:
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        mac.update(len(part).to_bytes(8, "big") + part)
    return mac


def _text(path: Path) -> str:
    """Read a short file in a third of `Path.read_text`'s time; one page of requests needs fifty such reads."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 1024).decode(errors="replace")
    finally:
        os.close(descriptor)


def _id_of(key: bytes) -> bytes:
    """Return an id for the key that discloses nothing about it."""
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
