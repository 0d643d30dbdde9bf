"""Keys of the installation: files of mode 0600 beside the database, never in it.

`subject.key` turns subject ids into references (HMAC-SHA256), `digest.key` keys the digests of datasets, `signing.jwk`
signs certificates (Ed25519). Each is made at first use by whichever process comes first.
"""

import contextlib
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from joserfc.jwk import OKPKey


class Keys:
    """The folder of keys. Raises `OSError` where it cannot be read or written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

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

    def subject_ref(self, subject_id: str) -> str:
        """What stands for a person everywhere: a keyed hash that only this installation can make."""
        return "sub_" + self.fingerprint(b"subject", subject_id.encode())[:40]

    def fingerprint(self, *parts: bytes) -> str:
        """A keyed hash (hex) of `parts`, for comparing what may hold personal data without storing it."""
        mac = hmac.new(self._subject_key, digestmod=hashlib.sha256)
        for part in parts:
            mac.update(len(part).to_bytes(8, "big") + part)
        return mac.hexdigest()

    def fingerprint_file(self, path: Path) -> str:
        """A keyed hash (hex) of a file."""
        mac = hmac.new(self._subject_key, digestmod=hashlib.sha256)
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                mac.update(chunk)
        return mac.hexdigest()

    def _secret(self, name: str) -> bytes:
        return bytes.fromhex(read_or_create(self._folder / name, lambda: secrets.token_hex(32)))


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
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the name is durable too
        finally:
            os.close(folder)
    return path.read_text().strip()


def _new_signing_key() -> str:
    return json.dumps(OKPKey.generate_key("Ed25519", private=True, auto_kid=True).as_dict(private=True))
